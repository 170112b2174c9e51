//! Messages between cores, and from the control plane to a core.
//!
//! Each core has a mailbox for them ([`Shared`](crate::shared::Shared) has the senders). Values
//! only: a message names connections and commands of another core by keys that may be stale.

use crate::change::ack::Pausing;
use crate::change::step::ChangeStep;
use crate::controller::async_events::Notice;
use crate::request::Ticket;
use crate::session::handover::Handover;
use base::SlabKey;
use reactor::Stream;

/// A message to a core, from another core or from the control plane. Made by the target alone.
#[derive(Debug)]
pub struct Message(pub(crate) CoreMessage);

/// Content of a [`Message`].
#[derive(Debug)]
pub(crate) enum CoreMessage {
    /// An I/O queue is the core's from now on; it was another's.
    Arrive {
        stream: Stream,
        handover: Box<Handover>,
    },
    /// A part of the core's load, in thousandths, goes to another core.
    Give { permille: u32, to: usize },
    /// Something changed that all cores can see, and this one may sleep.
    Look,
    /// The configuration changes: the steps, in order, and the acknowledgement that the core owes,
    /// which is given also where a core that has ended lets the message go.
    Change {
        steps: Vec<ChangeStep>,
        debt: Pausing,
    },
    /// Hosts of a subsystem (or of the discovery service) are notified, if they enabled the event.
    Notify {
        subsystem: Option<u32>,
        notice: Notice,
    },
    /// Controllers of hosts that may not use their subsystem any more end.
    EndDenied,
    /// The connection of an I/O queue ends, because its controller does.
    EndQueue { connection: SlabKey, cntlid: u16 },
    /// No command of an I/O queue of a controller can change data any more: its reset or shutdown, which
    /// waited for that, is over.
    QueuesEnded { connection: SlabKey, cntlid: u16 },
    /// A command of a queue of this core is to be aborted, and the Abort command answered.
    Abort {
        connection: SlabKey,
        cid: u16,
        from: usize,
        asker: Ticket,
    },
    /// Nothing is left of the controller that a command wanted to end.
    Ended { asker: Ticket },
    /// Outcome of an Abort that was passed to another core.
    Aborted { asker: Ticket, aborted: bool },
    /// The core finishes its work and ends.
    Shutdown,
}
