//! Events of a world.

use super::lane::Side;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A step on this core may have ended.
    Step { core: usize, generation: u32 },
    /// An idle core has woken.
    Dispatch { core: usize },
    /// A thread that precedes the running thread may have become ready.
    Reschedule { core: usize },
    /// A packet has left this core for another end on the same machine.
    Left { core: usize, packet: usize },
    /// A packet has arrived over the link.
    Arrived { packet: usize },
    /// The kernel has delivered a packet to its socket.
    Received { packet: usize },
    /// The link can take the next packet.
    LinkFree { direction: usize },
    /// A doorbell's timer is due.
    Doorbell { end: usize },
    /// A device has completed a request.
    Device { end: usize, request: usize },
    /// An application starts.
    Start { app: usize },
    /// An open loop's request is due.
    Intended { app: usize },
    /// An application is notified of held completions, unless it was notified before.
    Tell { app: usize },
    /// Application steering runs.
    Steer { side: Side },
    /// Knobs change.
    Turn { index: usize },
    /// The measurement starts.
    Measure,
    /// The measurement ends, and no application issues more requests.
    Close,
}
