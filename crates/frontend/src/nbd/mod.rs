//! A server of the NBD protocol: fixed newstyle handshake, structured and extended replies, block
//! status, several connections of one client.
//!
//! Clients are whatever may open the socket: they are not trusted with anything but the device.
//! Every wait for a client ends, memory of a connection is bounded, and the number of connections
//! is, too.

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
    /// Class of requests by the default export; the exports `latency` and `throughput` have theirs.
    pub class: Class,
    /// Rules that go before it; the other exports have none.
    pub rules: ClassRules,
    /// Encryption; `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// Refuses writes.
    pub read_only: bool,
    /// Cores that serve, one thread each; one thread that the kernel places where this is empty.
    pub cores: Vec<CoreId>,
    /// Policy of idle cores.
    pub poll: PollPolicy,
}

/// A running server. Dropped, it ends as by [`detach`](Self::detach), but leaves a Unix socket behind that
/// it found left behind itself: the next server knows by it that clients may rely on writes that they
/// have not flushed.
#[derive(Debug)]
pub struct NbdServer {
    listener: Option<Listener>,
    cores: Cores<Message>,
    shared: Arc<SharedServer>,
}

impl NbdServer {
    /// Serves `devices`, ways of each class to the same blocks.
    ///
    /// # Errors
    /// An address that cannot be listened on, a core that may not be used, a device that cannot be
    /// opened, or an io_uring that the machine refuses.
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
        // Clients are dealt to the cores in turn.
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
            // They may rely on what they have not flushed.
            devices[options.class].inherit_writes();
        }
        let senders = server.cores.senders().to_vec();
        server.shared.order.set_cores(senders.clone());
        server.listener = Some(listener.start(senders, Arc::clone(&server.shared))?);
        Ok(server)
    }

    /// The address in use, with the port that was chosen.
    #[must_use]
    pub fn address(&self) -> Address {
        let listener = self.listener.as_ref();
        listener.expect("a server listens").address.clone()
    }

    /// Connections at present.
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
    /// Finishes the requests in flight, closes the connections and flushes the device, and ends; all
    /// within ten seconds. Further requests get no answer: a client that connects to the next server
    /// repeats them. Does nothing the second time.
    pub fn detach(&mut self) {
        let Some(listener) = self.listener.take() else {
            return;
        };
        let file = listener.file.clone();
        listener.end();
        self.end();
        if let Some(path) = file.filter(|_| self.was_forced()) {
            // By it the next server knows that clients may rely on writes that were not flushed.
            unix_socket::leave_behind(&path);
        }
    }

    /// Asks its threads whether they take messages.
    pub fn ping(&self, ping: &Ping) {
        self.cores.tell(|| Message::Ping(ping.clone()));
    }

    /// Returns true if [`detach`](Self::detach) gave requests up, or could not flush the device.
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

/// Returns the names of the device: the default one, and one for each class.
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
