//! Events of a world.

use super::lane::Side;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A step on this core may be over.
    Step { core: usize, generation: u32 },
    /// An idle core has woken up.
    Dispatch { core: usize },
    /// A better thread may have become ready.
    Reschedule { core: usize },
    /// A packet has left this core for another end on the same machine.
    Left { core: usize, packet: usize },
    /// A packet has come over the link.
    Arrived { packet: usize },
    /// The kernel has brought a packet to its socket.
    Received { packet: usize },
    /// The link can take the next packet.
    LinkFree { direction: usize },
    /// A doorbell's time has come.
    Doorbell { end: usize },
    /// A device is done.
    Device { end: usize, request: usize },
    /// An application begins.
    Start { app: usize },
    /// An open loop makes a request.
    Intended { app: usize },
    /// An application is notified of held completions, if it was not notified before.
    Tell { app: usize },
    /// Application steering looks.
    Steer { side: Side },
    /// Knobs turn.
    Turn { index: usize },
    /// From now on it is measured.
    Measure,
    /// From now on it is not measured, and no application makes requests any more.
    Close,
}
