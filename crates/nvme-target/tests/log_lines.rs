//! A peer that breaks the rules thousands of times causes few lines of log, and none with its data.
//!
//! That holds at every level but TRACE: TRACE is for developers, has a line for each state of each
//! command and connection, and no bound.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::cast_possible_truncation)] // Sizes in tests are small.

mod common;

use common::{Bed, Client, Dialect, NQN, eventually, io};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::sync::Mutex;
use std::time::Instant;
use switchyard_target::limits::{LOG_LINES_PER_PEER, LOG_PEER_PERIOD};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wire::fabrics::ConnectData;
use wire::nvme::{IoOpcode, SglDescriptor};
use wire::tcp::framer::Role;
use wire::tcp::limits::TERM_REQ_BYTES_MAX;
use wire::tcp::{FatalErrorStatus, TermReq};

/// What the peer sends as data.
const DATA: &[u8] = b"a secret that is nobody's business";

/// Violations of each kind.
const TIMES: u64 = 700;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps the lines of every level that has a bound: all but TRACE.
struct Log;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().target().to_owned());
        event.record(&mut line);
        LINES.lock().expect("no test panicked").push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Sends bytes that are no PDU, and waits for the answer.
fn violate(bed: &Bed, bytes: &[u8]) {
    let mut stream = Client::raw(bed.address());
    let _ = stream.write_all(bytes);
    let _ = stream.read(&mut [0; 256]);
}

#[test]
fn a_hostile_peer_causes_few_lines_and_none_with_its_data() {
    tracing::subscriber::set_global_default(Log).expect("the only one");
    let began = Instant::now();
    let bed = Bed::new();
    let request = TermReq {
        status: FatalErrorStatus::PDU_SEQUENCE_ERROR,
        information: 0,
    };
    let mut termination = [0; TERM_REQ_BYTES_MAX];
    let length = request.encode(Role::Host, DATA, &mut termination);
    let (_admin, mut queue) = bed.host_with(Dialect {
        data_digest: true,
        ..Dialect::default()
    });
    for _ in 0..TIMES {
        violate(&bed, DATA);
        let mut fresh = Client::dial(bed.address(), Dialect::default());
        // Refused Connects, and data with a wrong digest, cost nobody the connection.
        let data = Client::connect_data(NQN, ConnectData::CNTLID_STATIC_ANY - 1);
        let refused = fresh.connect(&Client::connect_command(3, 31, 0), &data);
        assert!(!refused.status.is_success());
        fresh.send(&termination[..length]);
        let mut command = io(IoOpcode::WRITE, 0, 1);
        command.set_cid(queue.cid());
        command.set_sgl(SglDescriptor::in_capsule(0, common::BLOCK as u32));
        let mut block = DATA.to_vec();
        block.resize(common::BLOCK, 0);
        let mut bytes = queue.capsule_bytes(&command, &block);
        *bytes.last_mut().expect("a digest") ^= 1;
        queue.send(&bytes);
        assert!(!queue.completion().status.is_success());
    }
    eventually("an end of all connections that were terminated", || {
        let core = bed.handle().snapshot().cores[0];
        core.terminations_sent == TIMES && core.terminations_received == TIMES
    });
    let periods = began.elapsed().as_nanos() as u64 / LOG_PEER_PERIOD.0 + 2;
    let lines = LINES.lock().expect("no test panicked").clone();
    let of_peer = lines.iter().filter(|line| line.contains(" peer="));
    let count = of_peer.count() as u64;
    assert!(count > 0, "{lines:#?}");
    assert!(
        count <= periods * u64::from(LOG_LINES_PER_PEER),
        "{lines:#?}"
    );
    // Whatever else is logged does not depend on what the peer does.
    assert!(lines.len() as u64 - count <= 10, "{lines:#?}");
    let data = String::from_utf8_lossy(DATA);
    assert!(
        !lines.iter().any(|line| line.contains(&*data)),
        "{lines:#?}"
    );
}
