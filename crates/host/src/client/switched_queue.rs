//! Queues through a [`Switchboard`]: a thread submits, waits and takes its completions by a
//! [`Queue`], and the switchboard's lanes, which all threads of the process share, carry the requests
//! by their class.

use super::blocking::Namespace;
use super::own_channel::OwnChannel;
use super::queue::Queue;
use crate::error::HostError;
use crate::switch::Switchboard;
use crate::switch::limits::{SUBMITTER_BYTES, SUBMITTER_DEPTH};
use base::units::KIB;
use reactor::{BufferClass, PollPolicy};
use switch::Class;

base::with_defaults! {
    /// Options of a [`Queue`] through a switchboard.
    #[derive(Clone, Debug)]
    pub struct SwitchedQueueOptions {
        /// Class of the queue's requests; `None` for that of the namespace.
        pub class: Option<Class> = None,
        /// Requests at once: 1 to 4,096.
        pub depth: u32 = SUBMITTER_DEPTH,
        /// Bytes of the longest request with data: a block, to what the controller takes. Twice as much
        /// for each request of the depth is the address space that the queue takes, 2 GiB at most, for
        /// which the depth is reduced.
        pub request_bytes: u32 = SUBMITTER_BYTES,
        /// Bytes that [`Queue::reserve`] may give in all, 1 GiB at most: address space.
        pub buffer_bytes: u64 = 0,
        /// Idle policy of [`Queue::wait`].
        pub poll: PollPolicy = PollPolicy::Auto,
        /// Lets application steering move the thread to other cores of the switchboard while it has the
        /// queue, unless it was pinned to one.
        pub steered: bool = false,
    }
}

impl Namespace {
    /// A queue for the calling thread through the switchboard: its requests share the lanes of the
    /// other threads, by their class.
    ///
    /// # Errors
    /// As [`Switchboard::namespace`]; when the machine refuses another io_uring or the memory; when
    /// the switchboard has 4,096 submitters, or is broken.
    pub fn switched_queue(
        &self,
        board: &Switchboard,
        options: &SwitchedQueueOptions,
    ) -> Result<Queue, HostError> {
        let remote = self.device();
        let device = board
            .namespace(&remote)?
            .with_class(options.class.unwrap_or(remote.class()))
            .with_requests(options.depth, options.request_bytes)
            .with_room(options.buffer_bytes)
            .steered(options.steered);
        // Data is in memory of the submitter's; these are for commands with data of their own.
        let driver = reactor::uring::Options {
            buffers: vec![BufferClass {
                bytes: 4 * KIB,
                count: 16,
            }],
            sockets: 4,
            file_operations: 16,
        };
        let own = OwnChannel::open(&driver, options.poll, |driver| {
            device
                .open_switched(driver)
                .map(|channel| Box::new(channel) as _)
        })?;
        Ok(Queue::new(own, device, self.subsystem().clone()))
    }
}
