//! Messages to a core from other threads.
//!
//! Carries administration only (a new connection, a changed configuration, a request from a
//! blocking caller), so a short lock is acceptable; a core checks one atomic per turn.

use crate::driver::Wake;
use crate::limits::MAILBOX_CAPACITY;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

struct Shared<M> {
    queue: Mutex<MailboxQueue<M>>,
    /// True if the queue may contain messages; set after a push, cleared before a drain.
    pending: AtomicBool,
    waker: Arc<dyn Wake>,
}

struct MailboxQueue<M> {
    messages: VecDeque<M>,
    /// True once the receiving end is dropped: further messages are discarded.
    closed: bool,
}

impl<M> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, MailboxQueue<M>> {
        // A push or a pop never leaves the queue inconsistent, so a poisoned lock is still usable.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving end, owned by a core.
pub struct Mailbox<M> {
    shared: Arc<Shared<M>>,
}

/// The sending end, for any thread.
pub struct MailboxSender<M> {
    shared: Arc<Shared<M>>,
}

impl<M> Mailbox<M> {
    /// Creates a mailbox; its messages wake the core of `waker`.
    #[must_use]
    pub fn new(waker: Arc<dyn Wake>) -> Self {
        let queue = MailboxQueue {
            messages: VecDeque::with_capacity(MAILBOX_CAPACITY),
            closed: false,
        };
        Self {
            shared: Arc::new(Shared {
                queue: Mutex::new(queue),
                pending: AtomicBool::new(false),
                waker,
            }),
        }
    }

    /// Creates another sender.
    #[must_use]
    pub fn sender(&self) -> MailboxSender<M> {
        MailboxSender {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Returns the oldest message.
    pub fn pop(&mut self) -> Option<M> {
        if !self.shared.pending.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.shared.lock();
        let message = queue.messages.pop_front();
        if queue.messages.is_empty() {
            // Under the lock, so that a later push sets it again.
            self.shared.pending.store(false, Ordering::Release);
        }
        message
    }
}

impl<M> Drop for Mailbox<M> {
    /// Drops the waiting messages and all later ones. A message that owes a reply sends it when
    /// dropped.
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        let messages = std::mem::take(&mut queue.messages);
        drop(queue);
        // Without the lock: dropping a message may send another one.
        drop(messages);
    }
}

impl<M> MailboxSender<M> {
    /// Returns true if [`send`](Self::send) would return the message now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.shared.lock().messages.len() >= MAILBOX_CAPACITY
    }

    /// Sends a message and wakes the core. A core that has ended drops it.
    ///
    /// # Errors The message itself, if [`MAILBOX_CAPACITY`] messages already wait.
    pub fn send(&self, message: M) -> Result<(), M> {
        self.push(message, MAILBOX_CAPACITY)
    }

    /// Sends a message that must not be lost, and wakes the core; there is always room for it.
    ///
    /// Only for messages whose number is bounded elsewhere: at most one per connection, command or
    /// administrative call. Such a message may wait behind [`MAILBOX_CAPACITY`] others, and then
    /// allocates memory.
    pub fn send_always(&self, message: M) {
        let sent = self.push(message, usize::MAX);
        debug_assert!(sent.is_ok(), "there is room without a limit");
    }

    fn push(&self, message: M, capacity: usize) -> Result<(), M> {
        let mut queue = self.shared.lock();
        if queue.closed {
            // Without the lock, as above.
            drop(queue);
            drop(message);
            return Ok(());
        }
        if queue.messages.len() >= capacity {
            return Err(message);
        }
        queue.messages.push_back(message);
        self.shared.pending.store(true, Ordering::Release);
        drop(queue);
        self.shared.waker.wake();
        Ok(())
    }
}

impl<M> Clone for MailboxSender<M> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("len", &self.shared.lock().messages.len())
            .finish()
    }
}

impl<M> fmt::Debug for MailboxSender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxSender")
            .field("len", &self.shared.lock().messages.len())
            .finish()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn messages_arrive_in_order_wake_the_core_and_are_bounded() {
        let count = Arc::new(Count::default());
        let waker: Arc<dyn Wake> = Arc::clone(&count) as Arc<dyn Wake>;
        let mut mailbox = Mailbox::new(waker);
        let sender = mailbox.sender();
        for i in 0..MAILBOX_CAPACITY {
            assert_eq!(sender.send(i), Ok(()));
        }
        assert!(sender.is_full());
        assert_eq!(sender.send(7), Err(7));
        assert_eq!(count.0.load(Ordering::Relaxed), MAILBOX_CAPACITY);
        // A message that must not be lost finds room behind the others, and is signalled as they
        // are.
        sender.send_always(MAILBOX_CAPACITY);
        assert_eq!(sender.send(7), Err(7));
        assert_eq!(count.0.load(Ordering::Relaxed), MAILBOX_CAPACITY + 1);
        for i in 0..=MAILBOX_CAPACITY {
            assert_eq!(mailbox.pop(), Some(i));
        }
        assert_eq!(mailbox.pop(), None);
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(mailbox.pop(), Some(1));
    }

    /// A message that sends another one when dropped.
    #[derive(Debug)]
    struct Echo(Option<MailboxSender<Echo>>, Arc<()>);
    impl Drop for Echo {
        fn drop(&mut self) {
            if let Some(sender) = self.0.take() {
                sender.send_always(Self(None, Arc::clone(&self.1)));
            }
        }
    }

    #[test]
    fn a_mailbox_that_is_dropped_lets_its_messages_go() {
        let mailbox = Mailbox::new(Arc::new(Count::default()));
        let sender = mailbox.sender();
        let alive = Arc::new(());
        for _ in 0..MAILBOX_CAPACITY {
            let message = Echo(Some(sender.clone()), Arc::clone(&alive));
            sender.send(message).expect("there is room");
        }
        assert!(sender.is_full());
        drop(mailbox);
        assert_eq!(Arc::strong_count(&alive), 1);
        assert!(!sender.is_full());
        let message = Echo(Some(sender.clone()), Arc::clone(&alive));
        sender.send(message).expect("it is let go");
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

/// Run by `scripts/test --all`.
#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;

    #[derive(Debug)]
    struct Awake;
    impl Wake for Awake {
        fn wake(&self) {}
    }

    /// Two threads send while the core checks without the lock: in any order, an awake core finds
    /// every message, and an ended one keeps none.
    #[test]
    fn loom_no_message_is_left_lying() {
        for ends in [false, true] {
            loom::model(move || {
                let mut mailbox = Mailbox::new(Arc::new(Awake));
                let alive = Arc::new(());
                let senders: Vec<_> = (0..2)
                    .map(|_| {
                        let (sender, message) = (mailbox.sender(), Arc::clone(&alive));
                        loom::thread::spawn(move || sender.send_always(message))
                    })
                    .collect();
                let mut found = usize::from(mailbox.pop().is_some());
                let mailbox = (!ends).then_some(mailbox);
                for sender in senders {
                    sender.join().unwrap();
                }
                if let Some(mut mailbox) = mailbox {
                    found += std::iter::from_fn(|| mailbox.pop()).count();
                    assert_eq!(found, 2);
                }
                assert_eq!(Arc::strong_count(&alive), 1, "a message is kept");
            });
        }
    }
}
