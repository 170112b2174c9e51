//! Connections and listeners on their way to another process, which takes the target over
//! (docs/design/decisions/0028-takeover.md).
//!
//! Every core releases its connections when nothing is in flight on them; what is left of each is
//! its socket and a [`HandedQueue`]. The same values bring a connection back if the other process
//! does not take over.

use crate::change::ack::Pausing;
use crate::controller::handed::HandedController;
use crate::reservation::kept::ReservationRecord;
use crate::session::commands::Terms;
use reactor::tls::Session;
use reactor::{ListeningSocket, SocketOptions, Stream};
use secure::record::Fields;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zeroize::Zeroizing;

/// The state of a connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedQueue {
    pub(crate) peer: SocketAddr,
    pub(crate) local: Option<SocketAddr>,
    /// The core that served it.
    pub(crate) core: usize,
    /// Terms of ICReq; `None` before it.
    pub(crate) initialized: Option<HandedFormat>,
    /// The queue of a controller; `None` before Connect.
    pub(crate) queue: Option<HandedPair>,
    /// Bytes received from the host and not processed.
    #[serde(skip)]
    pub(crate) rest: Vec<u8>,
    /// Length of `rest`.
    rest_bytes: usize,
}

/// What host and target agreed on by ICReq and ICResp.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct HandedFormat {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// HPDA.
    pub(crate) alignment: u8,
    /// Most outstanding R2Ts of a command.
    pub(crate) r2ts: u16,
}

/// A connected queue.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedPair {
    /// Identifier of its controller.
    pub(crate) cntlid: u16,
    pub(crate) terms: Terms,
    /// Name of the class that the host gave an I/O queue.
    pub(crate) class: Option<String>,
    /// The controller, with its admin queue.
    pub(crate) controller: Option<Box<HandedController>>,
}

impl HandedQueue {
    /// The state of a connection, with the bytes that it has not processed.
    pub(crate) fn new(
        (peer, local): (SocketAddr, Option<SocketAddr>),
        core: usize,
        initialized: Option<HandedFormat>,
        queue: Option<HandedPair>,
        rest: Vec<u8>,
    ) -> Self {
        Self {
            peer,
            local,
            core,
            initialized,
            queue,
            rest_bytes: rest.len(),
            rest,
        }
    }

    /// Returns true for an I/O queue.
    pub(crate) fn is_io(&self) -> bool {
        let queue = self.queue.as_ref();
        queue.is_some_and(|queue| queue.controller.is_none())
    }
}

/// A connection that a core has released.
#[derive(Debug)]
pub(crate) struct Departed {
    pub(crate) stream: Stream,
    pub(crate) queue: Box<HandedQueue>,
}

/// Collects the connections and listeners that the cores release.
#[derive(Debug)]
pub(crate) struct Departure {
    left: Mutex<Left>,
    /// Cores that have not ended it after it was cancelled.
    cores: AtomicUsize,
}

/// Released connections and listeners.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Identifier of the newest controller.
    pub(crate) newest: u16,
    pub(crate) connections: Vec<Departed>,
    pub(crate) listeners: Vec<ListeningSocket>,
    /// Reservations of all namespaces.
    pub(crate) reservations: Vec<ReservationRecord>,
}

impl Departure {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            left: Mutex::default(),
            cores: AtomicUsize::new(cores),
        }
    }

    /// Notes that a core has ended the cancelled departure. Returns what was left if it is the last
    /// one: a controller and its queues come back together.
    pub(crate) fn ended(&self) -> Option<Left> {
        let is_last = self.cores.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last.then(|| std::mem::take(&mut *self.left()))
    }

    pub(crate) fn left(&self) -> MutexGuard<'_, Left> {
        // Entries are added and removed as a whole.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The departure of a core's connections.
#[derive(Debug)]
pub(crate) struct Departing {
    pub(crate) departure: Arc<Departure>,
    /// The acknowledgement; given when the core has nothing left.
    pub(crate) debt: Option<Pausing>,
    /// Connections whose sockets the driver is releasing.
    pub(crate) releasing: usize,
    /// Listeners that still accept.
    pub(crate) accepting: usize,
    /// The departure was cancelled.
    pub(crate) stays: bool,
}

/// Connections and listeners for the first core, which passes the I/O queues on.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) connections: Vec<Departed>,
    /// Each with the address that it was added for.
    pub(crate) listeners: Vec<(SocketAddr, ListeningSocket, SocketOptions)>,
    /// Acknowledges that the first core has them.
    pub(crate) debt: Option<Pausing>,
}

impl HandedState {
    /// Divides sockets of the kernel into those of connections and listeners.
    #[must_use]
    pub fn divide(&self, sockets: Vec<OwnedFd>) -> HandedSockets {
        let mut sockets = sockets.into_iter();
        let connections = sockets.by_ref().take(self.connections.len());
        HandedSockets {
            connections: connections.map(|fd| Stream::Socket(fd, None)).collect(),
            listeners: sockets.map(ListeningSocket::Socket).collect(),
        }
    }
}

/// A target's connections and listeners while no process serves them.
#[derive(Debug)]
pub struct Handed(pub(crate) Left);

/// The state of a [`Handed`], without sockets and TLS.
#[derive(Debug, Deserialize)]
pub struct HandedState {
    /// Absent if `reserved` has it.
    newest: Option<u16>,
    /// The same with the reservations, if there are any: an earlier program, which would lose them,
    /// misses `newest` and refuses the state.
    reserved: Option<(u16, Vec<ReservationRecord>)>,
    /// Each with the length of the state of its TLS, 0 without.
    connections: Vec<(usize, HandedQueue)>,
}

/// The same, by reference.
#[derive(Serialize)]
struct StateOf<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    newest: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<(u16, &'a [ReservationRecord])>,
    connections: Vec<(usize, &'a HandedQueue)>,
}

/// The sockets of connections and listeners, in the order of the state, without TLS.
#[derive(Debug)]
pub struct HandedSockets {
    connections: Vec<Stream>,
    listeners: Vec<ListeningSocket>,
}

impl Handed {
    /// Returns the state, and the state of TLS with the unprocessed bytes of each connection.
    #[must_use]
    pub fn state(&self) -> (impl Serialize, Zeroizing<Vec<u8>>) {
        let pieces = self.0.connections.iter().map(|Departed { stream, queue }| {
            let session = stream.session().map(Session::pack).unwrap_or_default();
            (session, &**queue)
        });
        let pieces: Vec<_> = pieces.collect();
        let length = pieces
            .iter()
            .map(|(tls, queue)| tls.len() + queue.rest.len());
        let mut bytes = Zeroizing::new(Vec::with_capacity(length.sum()));
        let mut connections = Vec::with_capacity(pieces.len());
        for (session, queue) in pieces {
            bytes.extend_from_slice(&session);
            bytes.extend_from_slice(&queue.rest);
            connections.push((session.len(), queue));
        }
        let Left {
            newest,
            reservations,
            ..
        } = &self.0;
        let reserves = reservations.iter().any(ReservationRecord::is_used);
        let state = StateOf {
            newest: (!reserves).then_some(*newest),
            reserved: reserves.then_some((*newest, reservations)),
            connections,
        };
        (state, bytes)
    }

    /// Returns the sockets of the kernel: connections, then listeners.
    #[must_use]
    pub fn sockets(&self) -> Vec<&OwnedFd> {
        let connections = self.0.connections.iter().filter_map(|it| match &it.stream {
            Stream::Socket(fd, _) => Some(fd),
            Stream::Simulated(..) => None,
        });
        let listeners = self.0.listeners.iter().filter_map(|it| match it {
            ListeningSocket::Socket(fd) => Some(fd),
            ListeningSocket::Simulated(_) => None,
        });
        connections.chain(listeners).collect()
    }

    /// Returns the sockets alone.
    #[must_use]
    pub fn into_sockets(self) -> HandedSockets {
        let connections = self.0.connections.into_iter();
        HandedSockets {
            connections: connections.map(|it| it.stream.without_session()).collect(),
            listeners: self.0.listeners,
        }
    }

    /// Joins [state](Self::state) and sockets again.
    ///
    /// # Errors
    /// They do not fit each other.
    pub fn join(state: HandedState, bytes: &[u8], sockets: HandedSockets) -> Result<Self, String> {
        let short = || "the state is incomplete".to_owned();
        if sockets.connections.len() != state.connections.len() {
            return Err(short());
        }
        let mut bytes = Fields(bytes);
        let mut connections = Vec::new();
        let (newest, reservations) = match (state.newest, state.reserved) {
            (_, Some(reserved)) => reserved,
            (newest, None) => (newest.ok_or_else(short)?, Vec::new()),
        };
        let states = state.connections.into_iter();
        for ((tls_bytes, mut queue), stream) in states.zip(sockets.connections) {
            let tls = bytes.bytes(tls_bytes).ok_or_else(short)?;
            let stream = if tls_bytes == 0 {
                stream
            } else {
                let malformed = || format!("the TLS of {} is malformed", queue.peer);
                stream.with_session(Session::unpack(tls).ok_or_else(malformed)?)
            };
            queue.rest = bytes.bytes(queue.rest_bytes).ok_or_else(short)?.to_vec();
            let queue = Box::new(queue);
            connections.push(Departed { stream, queue });
        }
        let listeners = sockets.listeners;
        Ok(Self(Left {
            newest,
            reservations,
            connections,
            listeners,
        }))
    }

    /// Number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.connections.len()
    }
}
