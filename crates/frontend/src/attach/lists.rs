//! The attachments of a process: those that serve, and those of its file that have not started.

use crate::IoCounts;
use crate::attach::attached::{Attached, of_class};
use crate::attach::snapshot::{AttachmentSnapshot, AttachmentState};
use crate::attach::wanted::Wanted;
use anyhow::{Context as _, Result, ensure};
use config::with_causes;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};
use switch::Class;

/// Pause after the first failure of a start, which doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause: what an attachment needs may be there again at any time, and what keeps it from
/// starting may be another thing each time, which is a line in the log.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// An attachment of the file that has not started.
#[derive(Debug)]
struct Waiting {
    id: u64,
    wanted: Wanted,
    /// The reason of the last failure.
    error: Option<String>,
    failures: u32,
    /// Time of the next attempt; `None` while one is under way.
    due: Option<Instant>,
}

impl Waiting {
    /// Notes a failure, and logs it where its reason is another one than before.
    fn failed(&mut self, error: String) {
        if self.error.as_ref() != Some(&error) {
            tracing::error!("not attached: {error}; it is tried again and again");
        }
        self.error = Some(error);
        self.due = Some(Instant::now() + pause(self.failures));
        self.failures += 1;
    }

    fn snapshot(&self) -> AttachmentSnapshot {
        let wanted = &self.wanted;
        let none = |class| of_class(class, IoCounts::default());
        AttachmentSnapshot {
            name: wanted.name.clone(),
            kind: wanted.front_end.kind().to_owned(),
            device: wanted.device.to_string(),
            class: wanted.front_end.class_name().to_owned(),
            class_rules: wanted.class_rules,
            state: AttachmentState::NotStarted,
            error: self.error.clone(),
            classes: Class::ALL.map(none).into(),
            ..AttachmentSnapshot::default()
        }
    }
}

/// Returns the pause after a failure, of which there were so many before.
fn pause(failures: u32) -> Duration {
    let doubled = 2_u32
        .checked_pow(failures)
        .map(|times| PAUSE_MIN.saturating_mul(times));
    doubled.map_or(PAUSE_MAX, |pause| pause.min(PAUSE_MAX))
}

/// The attachments, each list in the order in which they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) attached: Vec<Attached>,
    waiting: Vec<Waiting>,
    /// Number of the next one that is asked for.
    next: u64,
    /// Attachments that have their device, and are being offered: the end of the process waits for
    /// them, so that none is left behind.
    offering: usize,
    pub(crate) is_draining: bool,
    /// Another process is taking the attachments over: nothing is attached or detached.
    pub(crate) is_leaving: bool,
}

impl Lists {
    /// Returns true while an attachment is being offered.
    pub(crate) const fn is_offering(&self) -> bool {
        self.offering > 0
    }

    /// Takes all that serve out, for a while in which the process does not end.
    pub(crate) fn take_out(&mut self) -> Vec<Attached> {
        self.offering += 1;
        std::mem::take(&mut self.attached)
    }

    /// Ends that while; these serve again.
    pub(crate) fn put_back(&mut self, attached: Vec<Attached>) {
        self.offering -= 1;
        attached.into_iter().for_each(|it| self.insert(it));
    }

    /// Adds one that was taken over.
    pub(crate) fn add(&mut self, mut attached: Attached) {
        attached.id = self.next;
        self.next += 1;
        self.insert(attached);
    }

    /// Returns the names of those that serve, and of those that have not started.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let waiting = self.waiting.iter().map(|waiting| &waiting.wanted);
        let wanted = self.attached.iter().map(|it| &it.wanted).chain(waiting);
        wanted.map(|wanted| wanted.name.as_str())
    }

    /// Returns true if nothing is offered, nor about to be.
    pub(crate) fn is_idle(&self) -> bool {
        self.attached.is_empty() && self.offering == 0
    }

    /// Adds one that serves.
    pub(crate) fn insert(&mut self, attached: Attached) {
        let place = self.attached.partition_point(|it| it.id < attached.id);
        self.attached.insert(place, attached);
    }

    /// Asks for an attachment.
    pub(crate) fn want(&mut self, wanted: Wanted) {
        self.waiting.push(Waiting {
            id: self.next,
            wanted,
            error: None,
            failures: 0,
            due: Some(Instant::now()),
        });
        self.next += 1;
    }

    /// Asks for one again that could not serve any more, after a pause; the longer one, and without
    /// another line in the log, where it served for a moment only.
    pub(crate) fn want_again(&mut self, ended: &Attached, error: String) {
        self.want(ended.again());
        let waiting = self.waiting.last_mut().expect("it was just added");
        if ended.began.elapsed() < PAUSE_MAX {
            waiting.failures = ended.failures;
            waiting.error = (ended.failures > 0).then(|| error.clone());
        }
        waiting.failed(error);
    }

    /// Asks no more for those that have not started and that `keep` is false of. The others are tried
    /// at once. Returns the number of the former.
    pub(crate) fn retain_waiting(&mut self, keep: impl Fn(&Wanted) -> bool) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| keep(&waiting.wanted));
        for waiting in &mut self.waiting {
            waiting.due = waiting.due.map(|due| due.min(Instant::now()));
        }
        before - self.waiting.len()
    }

    pub(crate) fn snapshot(&self) -> Vec<AttachmentSnapshot> {
        let attached = self.attached.iter().map(|it| (it.id, it.snapshot()));
        let waiting = self.waiting.iter().map(|it| (it.id, it.snapshot()));
        let mut all: Vec<_> = attached.chain(waiting).collect();
        all.sort_by_key(|(id, _)| *id);
        all.into_iter().map(|(_, snapshot)| snapshot).collect()
    }
}

/// The lists, and the threads that start attachments. They are locked for moments only, so that they
/// can be asked for meanwhile.
#[derive(Debug, Default)]
pub(crate) struct SharedLists {
    lists: Mutex<Lists>,
    /// Told when an attempt has come to its end, and when the process is to end.
    settled: Condvar,
}

impl SharedLists {
    /// Changes leave the lists whole at each moment, so a poisoned lock is as good.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts those that are due, each in a thread of its own: one that has to wait, as for a target
    /// that does not answer, holds no other one up.
    pub(crate) fn start_due(self: &Arc<Self>) {
        let now = Instant::now();
        let mut lists = self.lock();
        if lists.is_leaving {
            return;
        }
        let due = |waiting: &&mut Waiting| waiting.due.is_some_and(|due| due <= now);
        let start = |waiting: &mut Waiting| {
            waiting.due = None;
            (waiting.id, waiting.wanted.clone())
        };
        let due: Vec<_> = lists.waiting.iter_mut().filter(due).map(start).collect();
        drop(lists);
        for (id, wanted) in due {
            let shared = Arc::clone(self);
            let thread = std::thread::Builder::new().name("attach".to_owned());
            let start = move || shared.start(wanted, |shared, result| shared.ended(id, result));
            if let Err(error) = thread.spawn(start) {
                self.ended(id, Err(error).context("cannot start a thread"));
            }
        }
    }

    /// Starts the attachment of a command line; `None` where the process is to end before that is
    /// offered, whatever it waits for.
    pub(crate) fn start_one(self: &Arc<Self>, wanted: Wanted) -> Option<Result<Attached>> {
        let (sender, result) = mpsc::channel();
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("attach".to_owned());
        let start = move || {
            shared.start(wanted, |_, result| {
                // The receiver is gone where the process is to end.
                let _ = sender.send(result);
            });
        };
        if let Err(error) = thread.spawn(start) {
            return Some(Err(error).context("cannot start a thread"));
        }
        let mut lists = self.lock();
        loop {
            if let Ok(result) = result.try_recv() {
                return Some(result);
            }
            if lists.is_draining && lists.offering == 0 {
                return None;
            }
            let waited = self.settled.wait(lists);
            lists = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Starts an attachment, and hands the result to `ended`, unless the process is to end before the
    /// attachment is offered.
    fn start(&self, wanted: Wanted, ended: impl FnOnce(&Self, Result<Attached>)) {
        let is_offered = OnceLock::new();
        let may_offer = || {
            let mut lists = self.lock();
            let may = !lists.is_draining && !lists.is_leaving;
            lists.offering += usize::from(may);
            is_offered.get_or_init(|| may);
            ensure!(may, "the process ends, or is being taken over");
            Ok(())
        };
        let result = Attached::start(wanted, &may_offer, None);
        let is_offered = is_offered.into_inner();
        // In a take-over that fails it is tried again.
        if is_offered != Some(false) || !self.is_draining() {
            ended(self, result);
        }
        self.lock().offering -= usize::from(is_offered == Some(true));
        self.settled.notify_all();
    }

    /// Takes note of the end of an attempt.
    fn ended(&self, id: u64, result: Result<Attached>) {
        let mut lists = self.lock();
        let place = lists.waiting.iter().position(|waiting| waiting.id == id);
        match (place, result) {
            (Some(place), Ok(mut attached)) => {
                let Waiting {
                    wanted, failures, ..
                } = lists.waiting.remove(place);
                if failures > 0 {
                    tracing::warn!("{}: attached after {failures} failures", wanted.name);
                }
                attached.id = id;
                attached.failures = failures;
                lists.insert(attached);
            }
            (Some(place), Err(error)) => lists.waiting[place].failed(with_causes(&error)),
            // It is not wanted any more.
            (None, Ok(mut attached)) => {
                drop(lists);
                if let Err(error) = attached.detach(false) {
                    let name = &attached.wanted.name;
                    tracing::warn!("{name}: detached while it started, but it stays: {error}");
                    attached.id = id;
                    lists = self.lock();
                    lists.insert(attached);
                }
            }
            (None, Err(_)) => {}
        }
        self.settled.notify_all();
    }

    /// Waits until no attempt is under way, for at most `time`; no longer than the process is to serve.
    pub(crate) fn wait_settled(&self, time: Duration) {
        let is_busy = |lists: &mut Lists| {
            !lists.is_draining && lists.waiting.iter().any(|waiting| waiting.due.is_none())
        };
        let waited = self.settled.wait_timeout_while(self.lock(), time, is_busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes that the process is to end.
    pub(crate) fn set_draining(&self) {
        self.lock().is_draining = true;
        self.settled.notify_all();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.lock().is_draining
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::test_front_end::{TestFrontEnd, attached, wanted};
    use crate::attach::wanted::FrontEndOptions;
    use crate::nbd::Address;

    #[test]
    fn the_pause_after_a_failure_grows_up_to_a_bound() {
        let seconds = [0, 1, 2, 3, 4, 31, 32, u32::MAX].map(|failures| pause(failures).as_secs());
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10, 10, 10]);
    }
    /// It was tried again each second for ever, with a line in the log each time.
    #[test]
    fn one_that_serves_for_a_moment_only_is_tried_ever_more_rarely() {
        let mut ended = attached("moment", TestFrontEnd::default());
        let mut lists = Lists::default();
        for failures in 0..3 {
            ended.failures = failures;
            // However slow the test is.
            ended.began = Instant::now();
            lists.want_again(&ended, "it broke".to_owned());
            let waiting = lists.waiting.pop().expect("it was just added");
            assert_eq!(waiting.failures, failures + 1);
        }
        ended.began = Instant::now().checked_sub(PAUSE_MAX).expect("a clock");
        lists.want_again(&ended, "it broke".to_owned());
        assert_eq!(lists.waiting[0].failures, 1);
    }

    #[test]
    fn one_that_has_its_device_after_a_signal_is_not_offered() {
        let wanted = wanted("late");
        let FrontEndOptions::Nbd(options) = &wanted.front_end else {
            panic!("it is a socket");
        };
        let Address::Unix(socket) = options.address.clone() else {
            panic!("it is a socket");
        };
        let shared = Arc::new(SharedLists::default());
        shared.set_draining();
        assert!(shared.start_one(wanted.clone()).is_none());
        shared.start(wanted, |_, result| panic!("it has an end: {result:?}"));
        assert!(!socket.exists() && shared.lock().is_idle());
    }

    /// It was dropped, and what was left behind had no process any more.
    #[test]
    fn one_that_was_detached_while_it_started_stays_where_it_is_in_use() {
        for refuses in [false, true] {
            let front_end = TestFrontEnd {
                refuses,
                ..TestFrontEnd::default()
            };
            let shared = SharedLists::default();
            shared.ended(7, Ok(attached(&format!("starting-{refuses}"), front_end)));
            let ids: Vec<_> = shared.lock().attached.iter().map(|it| it.id).collect();
            assert_eq!(ids, if refuses { vec![7] } else { vec![] });
        }
    }
}
