//! Options of a connection: identity of the host, subsystem, and limits.

use crate::error::HostError;
use crate::limits::{CHANNEL_QUEUES_MAX, QUEUE_DEPTH_MAX};
use base::mutation::{self, Mutation};
use base::{Nanos, Time};
use reactor::SocketOptions;
use reactor::tls::{Client, Side};
use secure::TlsKey;
use secure::chap::Secret;
use secure::psk::offers;
use std::net::SocketAddr;
use switch::Knobs;
use wire::nvme::{DISCOVERY_NQN, Nqn};

/// The identity of a host: NQN and host identifier. `[NVMe Base 2.0 §4.5]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// The host's NVMe Qualified Name.
    pub nqn: Nqn,
    /// The host identifier: the same for every connection of this host.
    pub id: [u8; 16],
}

impl HostIdentity {
    /// A new identity from a random UUID.
    #[must_use]
    pub fn generate() -> Self {
        Self::from_uuid(uuid::Uuid::new_v4())
    }

    /// The identity of a UUID: always the same for the same UUID.
    ///
    /// # Panics
    /// Never: a UUID always results in a valid NQN.
    #[must_use]
    pub fn from_uuid(uuid: uuid::Uuid) -> Self {
        let name = format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}");
        Self {
            nqn: Nqn::new(&name).expect("the UUID form is a valid name"),
            id: uuid.into_bytes(),
        }
    }

    /// The identity with this NQN. The host identifier is derived from the NQN, so it is stable.
    ///
    /// # Errors
    /// An invalid NQN.
    pub fn from_nqn(nqn: &str) -> Result<Self, HostError> {
        let parsed = parse_nqn(nqn)?;
        if let Some(text) = nqn.strip_prefix("nqn.2014-08.org.nvmexpress:uuid:")
            && let Ok(uuid) = uuid::Uuid::parse_str(text)
        {
            return Ok(Self {
                nqn: parsed,
                id: uuid.into_bytes(),
            });
        }
        // Two 64-bit FNV-1a sums of the name: an identifier need not be secret, only stable.
        let sum = |basis: u64| {
            nqn.bytes().fold(basis, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            })
        };
        let mut id = [0; 16];
        id[..8].copy_from_slice(&sum(0xcbf2_9ce4_8422_2325).to_le_bytes());
        id[8..].copy_from_slice(&sum(0x6c62_272e_07bb_0142).to_le_bytes());
        Ok(Self { nqn: parsed, id })
    }
}

/// When unacknowledged writes of a lost connection may be sent again on the next one. Reads may be
/// sent again at once (docs/design/decisions/0004-replay.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayPolicy {
    /// When the lost copies can no longer take effect: at once, if the target supports End
    /// Controller (as Switchyard does), otherwise after the keep-alive time-out of the lost
    /// controller.
    #[default]
    WhenSafe,
    /// As soon as there is a new connection, as the Linux host does. Safe only with targets that
    /// end the old controller of a host by themselves.
    Immediate,
}

/// Options of the connection to a controller.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Address of the controller.
    pub address: SocketAddr,
    /// Alternative addresses of the controller, or of other controllers with the same namespaces,
    /// tried in this order if the previous one is unreachable, or reports that its namespaces are
    /// inaccessible (ANA). Where they are of several targets, at most one of these may serve the
    /// namespaces at a time: a write that was lost with the connection to one is sent to the next.
    pub further_addresses: Vec<SocketAddr>,
    /// `HOST[:PORT]`, or several separated by commas, that is resolved again at each reconnect, with
    /// the default port; `None` for IP addresses.
    pub name: Option<(String, u16)>,
    /// NQN of the subsystem; [`DISCOVERY_NQN`] for discovery.
    pub subsystem: Nqn,
    /// Name and identifier of this host.
    pub host: HostIdentity,
    /// I/O queues (connections) per channel, 1 to 64.
    pub queues: u16,
    /// Depth of each I/O queue, 1 to 4096; the controller may allow less.
    pub depth: u16,
    /// Enable header digests.
    pub header_digest: bool,
    /// Enable data digests.
    pub data_digest: bool,
    /// Enable SQ flow control: every command gets a response capsule with SQHD. Without it
    /// (default) the controller may omit the capsule of a successful read.
    pub sq_flow_control: bool,
    /// KATO: the controller ends the association after this time without a message of the host. 0
    /// disables it.
    pub keep_alive: Nanos,
    /// Time after which a command is aborted. If Abort fails too, its connection is reset.
    pub command_timeout: Nanos,
    /// Time-out of each step of the connection set-up.
    pub connect_timeout: Nanos,
    /// Delay before the first reconnect; doubles with each failure.
    pub reconnect_delay_min: Nanos,
    /// Largest delay before a reconnect.
    pub reconnect_delay_max: Nanos,
    /// Time without a connection after which requests fail with `Gone`, and time after which a lost
    /// write that may still be in the target fails with `TimedOut`. `None`: no limit.
    pub loss_timeout: Option<Nanos>,
    /// Keep reconnecting after [`loss_timeout`](Self::loss_timeout): requests fail until the
    /// connection is back. Otherwise the association ends then.
    pub keep_reconnecting: bool,
    /// Retry also if the first connection fails.
    pub persistent: bool,
    /// Policy for writes of a lost connection.
    pub replay: ReplayPolicy,
    /// Options of the sockets.
    pub socket: SocketOptions,
    /// TLS keys of this host, tried in this order; none: connections without TLS.
    pub tls_keys: Vec<TlsKey>,
    /// Secret that proves the host by DH-HMAC-CHAP to controllers that require it.
    pub chap_secret: Option<Secret>,
    /// Secret by which the controller must prove itself; needs
    /// [`chap_secret`](Self::chap_secret).
    pub chap_controller_secret: Option<Secret>,
    /// Seed of the jitter of reconnect delays. [`Host::connect_with`](crate::Host::connect_with)
    /// adds the number of the connect.
    pub seed: u64,
    /// Switch parameters of the host, used when the controller is connected.
    pub knobs: Knobs,
}

impl ConnectOptions {
    /// Time after which a loss ends the association, if there is one.
    pub(crate) fn final_loss(&self) -> Option<Nanos> {
        let ends = !self.keep_reconnecting || mutation::active(Mutation::LossFinal);
        self.loss_timeout.filter(|_| ends)
    }

    /// Returns KATO in milliseconds, as Connect carries it.
    pub(crate) fn kato_ms(&self) -> u32 {
        u32::try_from(self.keep_alive.as_millis()).unwrap_or(u32::MAX)
    }

    /// Returns the time at which requests begin to fail after a loss at `lost_at` that is not
    /// final.
    pub(crate) fn fail_at(&self, lost_at: Time) -> Time {
        let limit = self.loss_timeout.filter(|_| self.keep_reconnecting);
        limit.map_or(Time::NEVER, |limit| lost_at + limit)
    }

    /// The defaults: one queue of depth 128 per channel, no digests, 15 s keep-alive time-out, 30 s
    /// command time-out, reconnect delays of 10 ms to 10 s, loss time-out of 10 min.
    #[must_use]
    pub fn new(address: SocketAddr, subsystem: Nqn, host: HostIdentity) -> Self {
        let seed = host
            .id
            .iter()
            .fold(u64::from(address.port()), |seed, &byte| {
                seed.rotate_left(7) ^ u64::from(byte)
            });
        Self {
            address,
            further_addresses: Vec::new(),
            name: None,
            subsystem,
            host,
            queues: 1,
            depth: 128,
            header_digest: false,
            data_digest: false,
            sq_flow_control: false,
            keep_alive: Nanos::from_secs(15),
            command_timeout: Nanos::from_secs(30),
            connect_timeout: crate::limits::SETUP_STEP_TIME,
            reconnect_delay_min: Nanos::from_millis(10),
            reconnect_delay_max: Nanos::from_secs(10),
            loss_timeout: Some(Nanos::from_secs(600)),
            keep_reconnecting: false,
            persistent: false,
            replay: ReplayPolicy::WhenSafe,
            socket: SocketOptions::default(),
            tls_keys: Vec::new(),
            chap_secret: None,
            chap_controller_secret: None,
            seed,
            knobs: Knobs::default(),
        }
    }

    /// Derives what all connections to the subsystem share from the TLS keys, and starts the threads
    /// that connections with keys need. A core's thread may be pinned, and a thread that it starts
    /// would share its core.
    pub(crate) fn prepare_keys(&mut self) {
        let (host, subsystem) = (self.host.nqn.as_str(), self.subsystem.as_str());
        let offers = self.tls_keys.iter().map(|key| offers(key, host, subsystem));
        self.socket.tls = Client::new(offers.flatten().collect()).map(Side::Client);
        if self.socket.tls.is_some() {
            // An error ends the first handshake.
            let _ = reactor::tls::prepare();
        }
        if self.chap_secret.is_some() {
            reactor::chap::prepare();
        }
    }

    /// Resolves `HOST[:PORT]`, or several separated by commas, and sets the addresses.
    ///
    /// # Errors
    /// [`HostError::Address`].
    pub(crate) fn resolve(&mut self, address: &str, default_port: u16) -> Result<(), HostError> {
        let mut found = resolve_all(address, default_port)?;
        self.address = found.remove(0);
        self.name = reactor::address::is_name(address).then(|| (address.to_owned(), default_port));
        self.further_addresses = found;
        Ok(())
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`HostError::Option`] with the option and its range.
    pub fn check(&self) -> Result<(), HostError> {
        let fail = |text: String| Err(HostError::Option(text));
        if !(1..=CHANNEL_QUEUES_MAX).contains(&self.queues) {
            return fail(format!(
                "queues is {}; use 1 to {CHANNEL_QUEUES_MAX}",
                self.queues
            ));
        }
        if !(1..QUEUE_DEPTH_MAX).contains(&self.depth) {
            return fail(format!(
                "queue depth is {}; use 1 to {}",
                self.depth,
                QUEUE_DEPTH_MAX - 1
            ));
        }
        if self.chap_controller_secret.is_some() && self.chap_secret.is_none() {
            let text =
                "a controller secret needs a secret of this host: give --chap-secret as well";
            return fail(text.to_owned());
        }
        if self.keep_alive > Nanos::ZERO && self.keep_alive < Nanos::from_millis(100) {
            return fail(format!(
                "keep-alive time-out is {}; use at least 100 ms, or 0 to disable it",
                self.keep_alive
            ));
        }
        for (name, span) in [
            ("command time-out", self.command_timeout),
            ("connect time-out", self.connect_timeout),
            ("shortest reconnect delay", self.reconnect_delay_min),
        ] {
            if span < Nanos::from_millis(1) {
                return fail(format!("{name} is {span}; use at least 1 ms"));
            }
        }
        if self.reconnect_delay_max < self.reconnect_delay_min {
            return fail("the longest reconnect delay is shorter than the shortest".into());
        }
        self.knobs
            .validate()
            .map_err(|error| HostError::Option(error.to_string()))
    }

    /// Returns true if the peer is a discovery controller.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.subsystem.as_str() == DISCOVERY_NQN
    }
}

/// Parses an NQN, or a name without the prefix `nqn.`, which the Linux target accepts.
///
/// # Errors
/// [`HostError::Option`] with the text.
pub fn parse_nqn(text: &str) -> Result<Nqn, HostError> {
    let qualified = text.is_empty() || text.starts_with("nqn.");
    let parse = if qualified { Nqn::new } else { Nqn::lenient };
    parse(text).map_err(|error| {
        HostError::Option(format!(
            "\"{text}\" is not an NVMe Qualified Name: {error}; use, for example, \
             nqn.2026-11.io.switchyard:default"
        ))
    })
}

/// Resolves `HOST[:PORT]` to its first address.
///
/// # Errors
/// [`HostError::Address`].
pub fn resolve(address: &str, default_port: u16) -> Result<SocketAddr, HostError> {
    Ok(resolve_all(address, default_port)?.remove(0))
}

/// Resolves `HOST:PORT` to at least one address.
fn resolve_all(address: &str, default_port: u16) -> Result<Vec<SocketAddr>, HostError> {
    reactor::address::resolve(address, default_port).map_err(|error| HostError::Address {
        address: address.to_owned(),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_always_gives_the_same_identifier() {
        let a = HostIdentity::from_nqn("nqn.2026-11.io.switchyard:a").unwrap();
        let b = HostIdentity::from_nqn("nqn.2026-11.io.switchyard:a").unwrap();
        let c = HostIdentity::from_nqn("nqn.2026-11.io.switchyard:b").unwrap();
        assert_eq!(a, b);
        assert_ne!(a.id, c.id);
        let uuid = uuid::Uuid::from_u128(7);
        let by_uuid = HostIdentity::from_uuid(uuid);
        assert_eq!(
            HostIdentity::from_nqn(by_uuid.nqn.as_str()).unwrap(),
            by_uuid
        );
        // A name without the prefix `nqn.` is accepted as it is; one with the prefix is checked.
        HostIdentity::from_nqn("nqn.not a name").unwrap_err();
    }

    #[test]
    fn addresses_resolve_with_and_without_a_port() {
        assert_eq!(resolve("127.0.0.1:1", 2).unwrap().port(), 1);
        assert_eq!(resolve("127.0.0.1", 2).unwrap().port(), 2);
        assert_eq!(resolve("::1", 3).unwrap().port(), 3);
        let error = resolve("nowhere.invalid:x", 2).unwrap_err().to_string();
        assert!(error.contains("HOST:PORT"), "{error}");
    }

    #[test]
    fn options_out_of_range_are_named() {
        let host = HostIdentity::generate();
        let nqn = parse_nqn("nqn.2026-11.io.switchyard:default").unwrap();
        let good = ConnectOptions::new(([127, 0, 0, 1], 4420).into(), nqn, host);
        good.check().unwrap();
        let mut bad = good.clone();
        bad.depth = 0;
        assert!(bad.check().unwrap_err().to_string().contains("queue depth"));
        let mut bad = good.clone();
        bad.queues = 65;
        assert!(bad.check().unwrap_err().to_string().contains("queues"));
        let mut bad = good;
        bad.knobs.quantum_bytes = 0;
        let error = bad.check().unwrap_err().to_string();
        assert!(error.contains("quantum_bytes"), "{error}");
    }
}
