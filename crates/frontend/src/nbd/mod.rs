//! A server of the NBD protocol: fixed newstyle handshake, structured and extended replies, block
//! status, multiple connections per client.
//!
//! Any process that may open the socket can be a client. Clients are trusted only with the device:
//! every wait for a client has a timeout, and the memory of a connection and the number of
//! connections are bounded.

mod connection;
mod export;
mod handed;
mod listener;
mod memory;
mod message;
mod negotiation;
mod pause;
mod payload;
mod peer;
mod protocol;
mod reply;
mod requests;
mod service;
mod shared;
#[cfg(test)]
mod tests;
mod tls;
mod write_order;

pub use crate::address::Address;
pub use tls::TlsOptions;

use crate::ClassRules;
use crate::class_rules::SizeRules;
use crate::core_thread::{self, Cores};
use crate::error::FrontendError;
use crate::limits::{LANE_SOCKETS, NBD_CONNECTIONS_MAX, NBD_NEGOTIATIONS_MAX};
use crate::unix_socket::{self, Origin, TakenSocket};
use crate::{Handed, IoCounts, Ping};
use base::units::CoreId;
use block::Device;
use export::Export;
use handed::HandedConnection;
use listener::{Bound, Listener};
use message::Message;
use reactor::PollPolicy;
use requests::Requests;
use service::NbdService;
use shared::SharedServer;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use switch::{Class, PerClass};

/// Options of a server.
#[derive(Clone, Debug)]
pub struct NbdOptions {
    /// The address to listen on.
    pub address: Address,
    /// Class of requests through the default export; the exports `latency` and `throughput` have
    /// their own.
    pub class: Class,
    /// Rules with precedence over `class`; the other exports have none.
    pub rules: ClassRules,
    /// Encryption; `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// Refuses writes.
    pub read_only: bool,
    /// Processors, one core thread each; if empty, one thread placed by the kernel.
    pub cores: Vec<CoreId>,
    /// Idle policy of the cores.
    pub poll: PollPolicy,
}

/// A running server. Dropping it [detaches](Self::detach), but keeps a Unix socket that was stale
/// when the server started: this marks for the next server that clients may rely on writes that
/// they have not flushed.
#[derive(Debug)]
pub struct NbdServer {
    listener: Option<Listener>,
    /// The socket while nothing is accepted: before the start, and in a pause.
    bound: Option<Bound>,
    exports: Arc<[Export]>,
    cores: Cores<Message>,
    shared: Arc<SharedServer>,
}

impl NbdServer {
    /// Serves `devices`, which are paths of each class to the same blocks.
    ///
    /// # Errors
    /// The address, a core, a device, or an io_uring cannot be used.
    pub fn start(
        devices: &PerClass<Arc<dyn Device>>,
        options: &NbdOptions,
    ) -> Result<Self, FrontendError> {
        let mut server = Self::prepare(devices, options, None)?;
        server.accept()?;
        Ok(server)
    }

    /// Starts everything but the acceptance of clients: [`resume`](Self::resume) begins that. `taken`
    /// is the socket of a predecessor.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn prepare(
        devices: &PerClass<Arc<dyn Device>>,
        options: &NbdOptions,
        taken: Option<TakenSocket>,
    ) -> Result<Self, FrontendError> {
        let cores = core_thread::places(&options.cores)?;
        let exports = exports(devices, options);
        let tls = options.tls.as_ref().map(tls::load).transpose()?;
        let mut server = Self {
            listener: None,
            bound: None,
            exports: Arc::clone(&exports),
            cores: Cores::new(),
            shared: Arc::default(),
        };
        // Clients are assigned to the cores in turn.
        let negotiations = NBD_NEGOTIATIONS_MAX.div_ceil(cores.len());
        for (number, core) in cores.into_iter().enumerate() {
            let (exports, tls) = (Arc::clone(&exports), tls.clone());
            let shared = Arc::clone(&server.shared);
            let service = move |io, namespace| {
                let requests = Requests::new(io, shared, number);
                NbdService::new(exports, tls, requests, namespace, negotiations)
            };
            let place = (core, NBD_CONNECTIONS_MAX + LANE_SOCKETS, options.poll);
            server.cores.serve("nbd", place, devices, service)?;
        }
        let knows_clients = options.tls.as_ref().is_some_and(TlsOptions::knows_clients);
        let bound = Bound::bind(&options.address, knows_clients, taken)?;
        if bound.may_have_clients() {
            // Clients may rely on data that they have not flushed.
            devices[options.class].inherit_writes();
        }
        server.bound = Some(bound);
        let senders = server.cores.senders().to_vec();
        server.shared.order.set_cores(senders);
        Ok(server)
    }

    fn accept(&mut self) -> Result<(), FrontendError> {
        if let Some(bound) = self.bound.clone() {
            let senders = self.cores.senders().to_vec();
            self.listener = Some(bound.start(senders, Arc::clone(&self.shared))?);
            self.bound = None;
        }
        Ok(())
    }

    fn bound(&self) -> &Bound {
        let listener = self.listener.as_ref().map(|listener| &listener.bound);
        let bound = listener.or(self.bound.as_ref());
        bound.expect("a server has a socket until it ends")
    }

    /// The address in use, with the assigned port.
    #[must_use]
    pub fn address(&self) -> Address {
        self.bound().address.clone()
    }

    /// Current number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Returns the counts of requests since the start, by class.
    #[must_use]
    pub fn counts(&self) -> PerClass<IoCounts> {
        self.cores.counts()
    }
}

impl NbdServer {
    /// Finishes outstanding requests, closes the connections, flushes the device, and ends, all
    /// within 10 s. Further requests get no reply: a client that connects to the next server
    /// repeats them. Does nothing if already detached.
    pub fn detach(&mut self) {
        let Some(listener) = self.listener.take() else {
            return;
        };
        let file = listener.file.clone();
        listener.end();
        self.end();
        if let Some(path) = file.filter(|_| self.was_forced()) {
            // Marks for the next server that clients may rely on unflushed writes.
            unix_socket::leave_behind(&path);
        }
    }

    /// Returns another descriptor of the listening socket, and its origin, for a successor.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn share_socket(&self) -> io::Result<(OwnedFd, Origin)> {
        self.bound().share()
    }

    /// Stops accepting clients and requests, and returns the connections once their requests are
    /// complete, the writes flushed and the replies sent.
    ///
    /// # Errors
    /// The reason why it serves on: a client with TLS, or something that has not finished by `by`.
    pub fn pause(&mut self, by: Instant) -> Result<Handed, String> {
        self.bound = self.listener.take().map(Listener::pause);
        let (sender, replies) = mpsc::channel();
        self.cores.tell(|| Message::Pause(sender.clone()));
        drop(sender);
        let (mut all, mut refused) = (Vec::new(), None);
        loop {
            let left = match refused {
                None => by.saturating_duration_since(Instant::now()),
                // Each core replies as soon as it takes the message.
                Some(_) => Duration::MAX,
            };
            match replies.recv_timeout(left) {
                Ok(Ok(connections)) => all.extend(connections),
                Err(RecvTimeoutError::Disconnected) => break,
                failed => {
                    if refused.is_none() {
                        self.cores.tell(|| Message::Stay);
                    }
                    let reason = failed.ok().and_then(Result::err).unwrap_or_default();
                    let before = refused.take().filter(|before: &String| !before.is_empty());
                    refused = Some(before.unwrap_or(reason));
                }
            }
        }
        match refused {
            None => Ok(HandedConnection::join(all)),
            Some(reason) => {
                self.serve(all);
                self.accept().map_err(|error| error.to_string())?;
                Err(reason)
            }
        }
    }

    /// Serves the connections of a [pause](Self::pause), of this server or of a predecessor, and
    /// accepts clients.
    ///
    /// # Errors
    /// A state that is not one of a server with these exports.
    pub fn resume(&mut self, handed: Handed) -> Result<(), String> {
        let all = HandedConnection::divide(handed, &self.exports)?;
        self.serve(all);
        self.accept().map_err(|error| error.to_string())
    }

    fn serve(&self, connections: Vec<HandedConnection>) {
        for (connection, core) in connections
            .into_iter()
            .zip(self.cores.senders().iter().cycle())
        {
            self.shared.connection_begins();
            core.send_always(Message::Resume(Box::new(connection)));
        }
    }

    /// Sends a probe to the server's threads.
    pub fn ping(&self, ping: &Ping) {
        self.cores.tell(|| Message::Ping(ping.clone()));
    }

    /// Returns true if [`detach`](Self::detach) cancelled requests, or could not flush the device.
    #[must_use]
    pub fn was_forced(&self) -> bool {
        self.shared.forced.load(Ordering::Relaxed)
    }

    fn end(&mut self) {
        self.listener = None;
        self.cores.tell(|| Message::Drain);
        self.cores.join();
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the exports of the device: the default one, and one for each class.
fn exports(devices: &PerClass<Arc<dyn Device>>, options: &NbdOptions) -> Arc<[Export]> {
    let export = |name, class: Class| Export {
        name,
        description: format!("class {class}"),
        class,
        rules: SizeRules::default(),
        device: Arc::clone(&devices[class]),
        read_only: options.read_only,
    };
    let default = Export {
        rules: options.rules.of_unknown(),
        ..export("", options.class)
    };
    let named = Class::ALL
        .into_iter()
        .map(|class| export(class.properties().name, class));
    std::iter::once(default).chain(named).collect()
}
