//! Connections and listeners on their way to another process, which takes the target over
//! (docs/design/decisions/0028-takeover.md).
//!
//! Every core releases its connections when nothing is in flight on them; what is left of each is
//! its socket and a [`HandedQueue`]. The same values bring a connection back if the other process
//! does not take over.

use crate::change::ack::Pausing;
use crate::controller::handed::HandedController;
use crate::session::commands::Terms;
use reactor::{SocketOptions, Stream};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
#[derive(Debug, Default)]
pub(crate) struct Departure {
    left: Mutex<Left>,
}

/// Released connections and listeners.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) connections: Vec<Departed>,
    pub(crate) listeners: Vec<OwnedFd>,
}

impl Departure {
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
    pub(crate) listeners: Vec<(SocketAddr, OwnedFd, SocketOptions)>,
    /// Acknowledges that the first core has them.
    pub(crate) debt: Pausing,
}

/// A target's connections and listeners while no process serves them.
#[derive(Debug)]
pub struct Handed(pub(crate) Left);

/// The state of all connections of a [`Handed`], without their sockets.
#[derive(Debug, Deserialize)]
pub struct HandedState(Vec<HandedQueue>);

impl Handed {
    /// Returns the state of all connections, their unprocessed bytes, and the sockets of connections
    /// and listeners in the order of that state.
    ///
    /// # Errors
    /// A connection that cannot leave its process.
    pub fn parts(&self) -> Result<(impl Serialize, Vec<u8>, Vec<&OwnedFd>), String> {
        let Left {
            connections,
            listeners,
        } = &self.0;
        let state: Vec<_> = connections.iter().map(|it| &*it.queue).collect();
        let (mut rests, mut sockets) = (Vec::new(), Vec::new());
        for Departed { stream, queue } in connections {
            rests.extend_from_slice(&queue.rest);
            match stream {
                Stream::Socket(fd, None) => sockets.push(fd),
                _ => return Err(format!("the connection of {} uses TLS", queue.peer)),
            }
        }
        sockets.extend(listeners);
        Ok((state, rests, sockets))
    }

    /// The reverse of [`parts`](Self::parts).
    ///
    /// # Errors
    /// Parts that do not fit each other.
    pub fn of_parts(
        state: HandedState,
        mut rests: &[u8],
        sockets: Vec<OwnedFd>,
    ) -> Result<Self, String> {
        let short = || "the state is incomplete".to_owned();
        let mut sockets = sockets.into_iter();
        let mut connections = Vec::new();
        for mut queue in state.0 {
            let (own, others) = rests.split_at_checked(queue.rest_bytes).ok_or_else(short)?;
            (queue.rest, rests) = (own.to_vec(), others);
            let stream = Stream::Socket(sockets.next().ok_or_else(short)?, None);
            let queue = Box::new(queue);
            connections.push(Departed { stream, queue });
        }
        Ok(Self(Left {
            connections,
            listeners: sockets.collect(),
        }))
    }

    /// Number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.connections.len()
    }
}
