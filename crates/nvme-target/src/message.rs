//! Messages between cores, and from the control plane to a core.
//!
//! Each core has a mailbox ([`Shared`](crate::shared::Shared) has the senders). Messages are plain
//! values: they refer to connections and commands of another core by keys that may be stale.

use crate::change::ack::Pausing;
use crate::change::step::ChangeStep;
use crate::controller::async_events::Notice;
use crate::controller::registry::SharedController;
use crate::fences::Fence;
use crate::request::Ticket;
use crate::session::handover::Handover;
use crate::takeover::{Arrival, Departed, Departure};
use crate::trace::selection::Selection;
use base::SlabKey;
use reactor::{MailboxSender, Stream};
use secure::chap::JobResult;
use std::sync::Arc;
use wire::nvme::Status;

/// A message to a core, from another core or from the control plane. Only the target creates
/// messages.
#[derive(Debug)]
pub struct Message(pub(crate) CoreMessage);

/// Content of a [`Message`].
#[derive(Debug)]
pub(crate) enum CoreMessage {
    /// An I/O queue moves from another core to this one.
    Arrive {
        stream: Stream,
        handover: Box<Handover>,
    },
    /// A part of the core's load, in thousandths, is to move to another core.
    Give { permille: u32, to: usize },
    /// Shared state changed while this core may have been asleep.
    Look,
    /// A change of the configuration: the steps, in order, and the core's acknowledgement. It is
    /// also given when a core that has ended drops the message.
    Change {
        steps: Vec<ChangeStep>,
        debt: Pausing,
    },
    /// Notifies the hosts of a subsystem, or of the discovery service, that enabled the event.
    Notify {
        subsystem: Option<u32>,
        notice: Notice,
    },
    /// Ends the controllers of hosts that may no longer use their subsystem.
    EndDenied,
    /// Ends the connection of an I/O queue, because its controller ends.
    EndQueue { connection: SlabKey, cntlid: u16 },
    /// Completes a controller's reset or shutdown, because no command of its I/O queues can change
    /// data any more.
    QueuesEnded { connection: SlabKey, cntlid: u16 },
    /// Aborts a command of a queue of this core, and answers the Abort command.
    Abort {
        connection: SlabKey,
        cid: u16,
        from: usize,
        asker: Ticket,
    },
    /// The controller of an End Controller command has ended completely.
    Ended { asker: Ticket },
    /// Status of a command that changes reservations.
    Reserved { asker: Ticket, status: Status },
    /// Outcome of an Abort that was passed to another core.
    Aborted { asker: Ticket, aborted: bool },
    /// Result of the connection's job of DH-HMAC-CHAP; `None` if too many jobs wait.
    Computed {
        connection: SlabKey,
        result: Option<Box<JobResult>>,
    },
    /// Makes the core release its listeners and connections for another process. Acknowledged when
    /// it has none.
    Depart {
        departure: Arc<Departure>,
        debt: Pausing,
    },
    /// Cancels [`Depart`](Self::Depart): the core keeps the connections that it has not released.
    Stay { debt: Pausing },
    /// Builds the fence of a fused pair on this core.
    Fence(Arc<FenceDebt>),
    /// All cores have acknowledged the fence of a pair of this core.
    Fenced(Fence),
    /// Removes a fence. The next fence of the device may have come before.
    Unfence(Fence),
    /// Gives connections and listeners to the first core.
    TakeOver(Box<Arrival>),
    /// Gives a core an I/O queue of a controller.
    Join {
        queue: Box<Departed>,
        controller: Arc<SharedController>,
    },
    /// Replaces the open traces.
    Trace(Vec<Arc<Selection>>),
    /// Makes the core finish its work and end.
    Shutdown,
}

/// The acknowledgement of a fence: when all cores have dropped it, the pair's core is notified. A
/// core that has ended drops it as well.
#[derive(Debug)]
pub(crate) struct FenceDebt {
    pub(crate) fence: Fence,
    /// Mailbox of the pair's core.
    pub(crate) mailbox: MailboxSender<Message>,
}

impl Drop for FenceDebt {
    fn drop(&mut self) {
        self.mailbox
            .send_always(Message(CoreMessage::Fenced(self.fence)));
    }
}
