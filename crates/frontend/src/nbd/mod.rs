//! A server of the NBD protocol: fixed newstyle handshake, structured and extended replies, block
//! status, multiple connections per client.
//!
//! Any process that may open the socket can be a client. Clients are trusted only with the device:
//! every wait for a client has a timeout, and the memory of a connection and the number of
//! connections are bounded.

mod connection;
mod export;
mod listener;
mod memory;
mod message;
mod negotiation;
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
use crate::unix_socket;
use crate::{IoCounts, Ping};
use base::units::CoreId;
use block::Device;
use export::Export;
use listener::Listener;
use message::Message;
use reactor::PollPolicy;
use requests::Requests;
use service::NbdService;
use shared::SharedServer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
        let cores = core_thread::places(&options.cores)?;
        let exports = exports(devices, options);
        let tls = options.tls.as_ref().map(tls::load).transpose()?;
        let mut server = Self {
            listener: None,
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
        let listener = listener::Bound::bind(&options.address, knows_clients)?;
        if listener.may_have_clients() {
            // Clients may rely on data that they have not flushed.
            devices[options.class].inherit_writes();
        }
        let senders = server.cores.senders().to_vec();
        server.shared.order.set_cores(senders.clone());
        server.listener = Some(listener.start(senders, Arc::clone(&server.shared))?);
        Ok(server)
    }

    /// The address in use, with the assigned port.
    #[must_use]
    pub fn address(&self) -> Address {
        let listener = self.listener.as_ref();
        listener.expect("a server listens").address.clone()
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
