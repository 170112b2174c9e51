//! The mathematics of DH-HMAC-CHAP, on the thread of [`reactor::chap`].

use crate::authentication::attempts::Attempts;
use crate::message::{CoreMessage, Message};
use base::{SlabKey, Time};
use reactor::{MailboxSender, chap};
use secure::chap::{Failure, Job};
use std::net::IpAddr;
use std::sync::Arc;

/// A job of a connection, which has one at a time.
#[derive(Debug)]
pub(crate) struct AuthenticationJob {
    /// The mailbox of the connection's core.
    pub(crate) core: MailboxSender<Message>,
    pub(crate) connection: SlabKey,
    pub(crate) attempts: Arc<Attempts>,
    /// Network of the host.
    pub(crate) network: IpAddr,
    /// Time at which the host requested it.
    pub(crate) at: Time,
    pub(crate) job: Job,
}

impl AuthenticationJob {
    /// Computes, unless `has_room` is false, and reports the result to the core.
    pub(crate) fn run(self, has_room: bool) {
        let (attempts, network, at) = (self.attempts, self.network, self.at);
        let result = has_room.then(|| {
            let result = if self.job.verifies() && !attempts.may_try(network, at) {
                Job::refuse(Failure::TooMany)
            } else {
                chap::run(self.job)
            };
            if result.failure().is_some_and(Failure::is_guess) {
                attempts.note_wrong(network, at);
            }
            Box::new(result)
        });
        let connection = self.connection;
        self.core
            .send_always(Message(CoreMessage::Computed { connection, result }));
    }

    /// Leaves the job to the thread.
    pub(crate) fn leave_to_thread(self) {
        let network = Some(self.network);
        chap::leave_to_thread(network, Box::new(|has_room| self.run(has_room)));
    }
}
