//! A peer that violates the protocol thousands of times causes few log lines, and none with its
//! data.
//!
//! This applies to every level except TRACE, which is for developers, logs each state of each
//! command and connection, and has no limit.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::cast_possible_truncation)] // Sizes in tests are small.

#[path = "all/common/mod.rs"]
mod common;

use common::{Bed, Client, Dialect, HOST, NQN, eventually, io, log, violate};
use secure::chap::{HostExchange, HostStep, Names, Secret};
use secure::{HostKeys, KeyRing};
use std::time::Instant;
use switchyard_target::limits::{LOG_LINES_PER_PEER, LOG_PEER_PERIOD};
use tracing::Level;
use wire::fabrics::{AuthenticationTransfer, ConnectData};
use wire::nvme::{FabricsType, IoOpcode, SglDescriptor};
use wire::tcp::framer::Role;
use wire::tcp::limits::TERM_REQ_BYTES_MAX;
use wire::tcp::{FatalErrorStatus, TermReq};

/// Data that the peer sends.
const DATA: &[u8] = b"a secret that is nobody's business";

/// A secret of a host, another one, and parts of both that no line may have: as text, and as bytes.
const SECRETS: [&str; 2] = [
    "DHHC-1:00:KioqKioqKioqKioqKioqKioqKioqKioqKioqKioqKiqM5sHn:",
    "DHHC-1:00:KysrKysrKysrKysrKysrKysrKysrKysrKysrKysrKyvtLPqc:",
];
const PARTS: [&str; 4] = ["Kioq", "Kysr", "42, 42", "43, 43"];

/// Tries to authenticate by another secret than the target's.
fn fail_to_authenticate(bed: &Bed) {
    let [right, wrong] = SECRETS.map(|text| Secret::parse(text).expect("a secret"));
    let any = HostKeys {
        chap: vec![right],
        ..HostKeys::default()
    };
    bed.handle().set_keys(KeyRing {
        any,
        ..KeyRing::default()
    });
    let mut admin = Client::dial(bed.address(), Dialect::default());
    admin.connect_admin(NQN, 0);
    let names = Names {
        hostnqn: HOST.to_owned(),
        subnqn: NQN.to_owned(),
    };
    let (mut host, mut message) = HostExchange::begin(names, wrong, None, 7);
    loop {
        let transfer = AuthenticationTransfer::message(message.len() as u32);
        let send = transfer.encode(FabricsType::AUTHENTICATION_SEND, 0);
        assert!(admin.execute(send, &message).status.is_success());
        let transfer = AuthenticationTransfer::message(4096);
        let receive = transfer.encode(FabricsType::AUTHENTICATION_RECEIVE, 0);
        let mut step = host.receive(&admin.fetch(receive, 4096).1);
        if let HostStep::Compute(job) = step {
            step = host.computed(job.run(&mut reactor::fill_random));
        }
        match step {
            HostStep::Send(next) => message = next,
            HostStep::Failed(..) => break,
            other => panic!("{other:?}"),
        }
    }
    bed.handle().set_keys(KeyRing::default());
}

/// Number of violations of each kind.
const TIMES: u64 = 700;

#[test]
fn a_hostile_peer_causes_few_lines_and_none_with_its_data() {
    // The most verbose level with a limit.
    log::keep(Level::DEBUG);
    let began = Instant::now();
    let bed = Bed::new();
    fail_to_authenticate(&bed);
    let lines = log::lines().concat();
    assert!(
        lines.contains("authentication failed: the host has another secret"),
        "{lines}"
    );
    assert!(!PARTS.iter().any(|part| lines.contains(part)), "{lines}");
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
        violate(bed.address(), DATA);
        let mut fresh = Client::dial(bed.address(), Dialect::default());
        // Refused Connects and data with a wrong digest do not end the connection.
        let data = Client::connect_data(NQN, ConnectData::CNTLID_STATIC_ANY - 1);
        let refused = fresh.connect(&Client::connect_command(3, 31, 0), &data);
        assert!(!refused.status.is_success());
        fresh.send(&termination[..length]);
        let mut command = io(IoOpcode::WRITE, 0, 1);
        command.set_cid(queue.cid());
        command.set_sgl(SglDescriptor::in_capsule(0, common::BLOCK as u32));
        let mut block = DATA.to_vec();
        block.resize(common::BLOCK, 0);
        let mut bytes = queue.session.capsule(&command, &block);
        *bytes.last_mut().expect("a digest") ^= 1;
        queue.send(&bytes);
        assert!(!queue.completion().status.is_success());
    }
    eventually("an end of all connections that were terminated", || {
        let core = bed.handle().snapshot().cores[0];
        core.terminations_sent == TIMES && core.terminations_received == TIMES
    });
    let periods = began.elapsed().as_nanos() as u64 / LOG_PEER_PERIOD.0 + 2;
    let lines = log::lines();
    let of_peer = lines.iter().filter(|line| line.contains(" peer="));
    let count = of_peer.count() as u64;
    assert!(count > 0, "{lines:#?}");
    assert!(
        count <= periods * u64::from(LOG_LINES_PER_PEER),
        "{lines:#?}"
    );
    // The remaining lines do not depend on the peer's behavior.
    assert!(lines.len() as u64 - count <= 10, "{lines:#?}");
    let data = String::from_utf8_lossy(DATA);
    assert!(
        !lines.iter().any(|line| line.contains(&*data)),
        "{lines:#?}"
    );
}
