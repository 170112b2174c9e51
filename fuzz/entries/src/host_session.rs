//! Sessions of a whole host with a target that lies, in the simulated world.
//!
//! Between the production host and the production target stands a relay that passes on each PDU of
//! the target as the input says: as it is, changed, cut short, twice, later than the next, not at
//! all, after a PDU of its own; or it ends the connection. Once the input is used up, or five
//! minutes are over, the relay is honest. Whatever it does, the host does not panic, completes each
//! request once, and in the end holds nothing; it may give the namespace up.

use crate::mangle::{Fate, byte, mangle, word};
use arbitrary::Unstructured;
use base::{Nanos, Time};
use host::{ConnectOptions, HostIdentity, Phase, RemoteNamespace, ReplayPolicy};
use reactor::{Core, PollPolicy};
use sim::storage::serve_memory;
use sim::{
    Actor, Application, HostCore, Mix, NetworkFaults, Outcome, RawEnd, RawState, Workload, World,
};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use wire::nvme::{Completion, Status};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::{C2hData, CapsuleResp, PduFormat, R2t};

const NQN: &str = "nqn.2026-11.io.switchyard:session";
const HOST: &str = "nqn.2026-11.io.example:host";

/// Requests of the host's application.
const REQUESTS: u64 = 48;

/// Longest time for which the relay lies: a host that never gets to the next lie would try for
/// ever.
const LYING: Nanos = Nanos::from_secs(300);

/// Longer than the host tries to come back after that.
const LONG: Nanos = Nanos::from_secs(1_800);

/// Runs a session that `input` describes.
///
/// # Panics
/// If the host does anything wrong.
pub fn host_session(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let how = byte(&mut u);
    let honest = usize::from(byte(&mut u));
    let world = World::new(u64::from(how), NetworkFaults::NO_DELAYS);
    let (_, mut target, address) = serve_memory(&world, NQN);
    let mut relay = Relay {
        world: world.clone(),
        address: world.listen(any_port()).expect("a free port"),
        target: address,
        lines: Vec::new(),
        format: format(how),
        honest,
        honest_from: world.now() + LYING,
        lies: u,
    };
    let mut driver = world.driver();
    let buffers = driver.free_buffers();
    let application = Application {
        mix: if how & 8 == 0 {
            Mix::Plain
        } else {
            Mix::Everything
        },
        extents: how & 16 != 0,
        judged: false,
        ..Application::alone(workload(), u64::from(how))
    };
    let report = Rc::clone(&application.report);
    let options = options(relay.address, how);
    let service = HostCore::with(vec![options], vec![application], &mut driver);
    let mut host = Core::new(driver, service, PollPolicy::Never);
    let association = Arc::clone(host.service.association());
    let until = world.now() + LONG;
    let mut actors: [&mut dyn Actor; 3] = [&mut target, &mut relay, &mut host];
    let outcome = world.run(&mut actors, until, || {
        let report = report.borrow();
        association.phase() == Phase::Gone || report.answered == REQUESTS || report.gave_up
    });
    // A namespace that the target did not name, or said is another one, is not there.
    let absent = RemoteNamespace::new(&association, 1).is_err();
    assert!(
        outcome == Outcome::Done || absent,
        "{outcome:?}: {:?}",
        report.borrow()
    );
    assert!(report.borrow().answered <= REQUESTS);
    association.close();
    let until = world.now() + LONG;
    let _ = world.run(&mut [&mut target, &mut relay, &mut host], until, || false);
    assert_eq!(host.driver.open_sockets(), 0, "connections");
    assert_eq!(host.driver.free_buffers(), buffers, "buffers");
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 0))
}

fn workload() -> Workload {
    Workload {
        requests: REQUESTS,
        depth: 8,
        blocks_max: 8,
        blocks_large: 64,
    }
}

/// Returns the format that the host asks for in its connections' PDUs.
fn format(how: u8) -> PduFormat {
    PduFormat {
        header_digest: how & 1 != 0,
        data_digest: how & 1 != 0,
        ..PduFormat::PLAIN
    }
}

fn options(address: SocketAddr, how: u8) -> ConnectOptions {
    let name = |text| host::parse_nqn(text).expect("a valid name");
    let identity = HostIdentity {
        nqn: name(HOST),
        id: [7; 16],
    };
    ConnectOptions {
        queues: 1 + u16::from(how >> 1 & 1),
        depth: 16,
        header_digest: how & 1 != 0,
        data_digest: how & 1 != 0,
        persistent: how & 4 != 0,
        loss_timeout: Some(Nanos::from_secs(120)),
        command_timeout: Nanos::from_secs(5),
        replay: ReplayPolicy::WhenSafe,
        seed: 1,
        ..ConnectOptions::new(address, name(NQN), identity)
    }
}

/// A connection that goes through the relay.
struct RelayedConnection {
    host: RawEnd,
    target: RawEnd,
    /// The end of the target's stream that is not a whole PDU yet.
    rest: Vec<u8>,
    /// A PDU that follows the next one.
    held: Option<Vec<u8>>,
}

/// Stands between host and target.
struct Relay<'a> {
    world: World,
    address: SocketAddr,
    target: SocketAddr,
    lines: Vec<RelayedConnection>,
    format: PduFormat,
    /// PDUs that it passes on before it begins to lie.
    honest: usize,
    /// Time at which it stops.
    honest_from: Time,
    lies: Unstructured<'a>,
}

impl Actor for Relay<'_> {
    fn turn(&mut self) {
        while let Some(host) = self.world.accept(self.address) {
            let target = self.world.dial(self.target).expect("the target listens");
            self.lines.push(RelayedConnection {
                host,
                target,
                rest: Vec::new(),
                held: None,
            });
        }
        for mut line in std::mem::take(&mut self.lines) {
            if self.pass(&mut line) == RawState::Open {
                self.lines.push(line);
            } else {
                line.host.close();
                line.target.close();
            }
        }
    }

    fn acts_at(&self) -> Time {
        let arrived =
            |line: &RelayedConnection| line.host.has_arrival() || line.target.has_arrival();
        if self.world.has_connection(self.address) || self.lines.iter().any(arrived) {
            Time::ZERO
        } else {
            Time::NEVER
        }
    }
}

impl Relay<'_> {
    fn pass(&mut self, line: &mut RelayedConnection) -> RawState {
        let mut requests = Vec::new();
        if line.host.receive(&mut requests) == RawState::Ended {
            return RawState::Ended;
        }
        line.target.send(&requests);
        let state = line.target.receive(&mut line.rest);
        while let Some(pdu) = next_pdu(&mut line.rest) {
            if !self.tell(line, pdu) {
                return RawState::Ended;
            }
        }
        state
    }

    /// Passes a PDU on, in the end; false to end the connection.
    fn tell(&mut self, line: &mut RelayedConnection, mut pdu: Vec<u8>) -> bool {
        let late = self.world.now() > self.honest_from;
        if self.honest > 0 || late || self.lies.is_empty() {
            self.honest = self.honest.saturating_sub(1);
            line.host.send(&pdu);
            return true;
        }
        let u = &mut self.lies;
        match byte(u) % 16 {
            0..=5 => drop(line.host.send(&pdu)),
            6 => return false,
            7 => {}
            8 | 9 => {
                let forged = forge(&pdu, &self.format, u);
                line.host.send(&forged);
                line.host.send(&pdu);
            }
            10 => {
                let count = usize::from(byte(u)).min(u.len());
                line.host.send(u.bytes(count).unwrap_or_default());
            }
            _ => match mangle(&mut pdu, &self.format, byte(u), u) {
                Fate::Once => drop(line.host.send(&pdu)),
                Fate::Twice => {
                    line.host.send(&pdu);
                    line.host.send(&pdu);
                }
                Fate::Later => {
                    let before = line.held.replace(pdu);
                    line.host.send(&before.unwrap_or_default());
                    return true;
                }
            },
        }
        if let Some(held) = line.held.take() {
            line.host.send(&held);
        }
        true
    }
}

/// A PDU of the kind that a target sends, for the command of `like` or another one.
fn forge(like: &[u8], format: &PduFormat, u: &mut Unstructured<'_>) -> Vec<u8> {
    let kind = byte(u);
    // A completion has its identifier elsewhere than the others.
    let at = if like.first() == Some(&5) { 20 } else { 8 };
    let of_like = like
        .get(at..at + 2)
        .map_or(0, |cid| u16::from(cid[0]) | u16::from(cid[1]) << 8);
    let command_id = if kind & 0x40 == 0 {
        of_like
    } else {
        word(u) % 32
    };
    let mut bytes = vec![0; 256];
    let (offset, length) = (u32::from(word(u)) * 4, u32::from(byte(u)) * 4);
    let used = match kind % 4 {
        0 => {
            let status = Status(word(u) >> 1);
            let completion = Completion::new(command_id, 0, status);
            CapsuleResp { completion }.encode(format, &mut bytes)
        }
        1 => {
            let r2t = R2t {
                command_id,
                transfer_tag: word(u),
                offset,
                length,
            };
            r2t.encode(format, &mut bytes)
        }
        _ => {
            let progress = [
                C2hProgress::More,
                C2hProgress::Last,
                C2hProgress::LastAndSuccess,
            ];
            let data = C2hData {
                command_id,
                data_offset: offset,
                data_length: length,
                progress: progress[usize::from(kind >> 2) % 3],
            };
            let used = data.encode(format, &mut bytes);
            let payload = vec![0xaa; length as usize];
            bytes.truncate(used);
            bytes.extend_from_slice(&payload);
            if format.data_digest && length > 0 {
                bytes.extend_from_slice(&wire::tcp::digest::digest_bytes(&payload));
            }
            return bytes;
        }
    };
    bytes.truncate(used);
    bytes
}

/// The next whole PDU of a legal stream, by its length (PLEN).
fn next_pdu(stream: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = stream.get(4..8)?;
    let length = length.try_into().map(u32::from_le_bytes).ok()?;
    let length = usize::try_from(length).ok()?;
    if stream.len() < length {
        return None;
    }
    let rest = stream.split_off(length);
    Some(std::mem::replace(stream, rest))
}
