//! A controller that violates the protocol receives a termination request and loses the connection;
//! its requests complete on the next one.

use crate::peer::{Behaviour, Mischief, NQN, Peer, builder, connect};
use host::Host;
use std::sync::atomic::Ordering;
use wire::tcp::FatalErrorStatus as Fes;

/// PDUs that are valid on their own, but not in the current state: a read or a write makes the
/// controller send them. Invalid fields of a PDU are in `fields.rs`.
fn cases() -> Vec<(Mischief, bool, Option<Fes>)> {
    let range = Some(Fes::DATA_TRANSFER_OUT_OF_RANGE);
    let flood = Some(Fes::R2T_LIMIT_EXCEEDED);
    vec![
        (Mischief::DataTwice, true, range),
        (Mischief::DataForWrite, false, range),
        (
            Mischief::DataMissing,
            true,
            Some(Fes::INVALID_PDU_HEADER_FIELD),
        ),
        (Mischief::TransferAgain, false, range),
        (Mischief::TransferForRead, true, range),
        (Mischief::TransferFlood, false, flood),
        (Mischief::Terminate, true, None),
        (Mischief::Hangup, false, None),
    ]
}

#[test]
fn every_violation_is_named_to_the_controller_and_survived() {
    for (mischief, reads, expected) in cases() {
        let peer = Peer::start(1 << 20, Behaviour::default());
        let namespace = connect(&peer, builder());
        let data = [7; 16 * 1024];
        namespace.write(0, &data).unwrap();
        // A connection adopts the behaviour when it is opened; each command adopts the mischief.
        peer.change(|behaviour| behaviour.mischief = Some(mischief));
        if reads {
            let mut back = [0; 16 * 1024];
            namespace.read(0, &mut back).unwrap();
            assert_eq!(back, data, "{mischief:?}");
        } else {
            namespace.write(16 * 1024, &data).unwrap();
            assert_eq!(
                peer.memory()[16 * 1024..][..data.len()],
                data,
                "{mischief:?}"
            );
        }
        assert_eq!(
            peer.seen.associations.load(Ordering::SeqCst),
            2,
            "{mischief:?}"
        );
        let seen: Vec<_> = peer.seen.terminations.lock().unwrap().clone();
        let statuses: Vec<_> = seen.iter().map(|request| request.status).collect();
        assert_eq!(statuses, Vec::from_iter(expected), "{mischief:?}");
    }
}

#[test]
fn a_damaged_payload_costs_a_retry_and_not_the_connection() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let host = Host::builder().digests(true, true).build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    for length in [4096, 256 * 1024] {
        let data = vec![9; length];
        namespace.write(0, &data).unwrap();
        peer.change(|behaviour| behaviour.damaged = 2);
        let mut back = vec![0; length];
        namespace.read(0, &mut back).unwrap();
        assert_eq!(back, data);
    }
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
    peer.change(|behaviour| behaviour.damaged = 100);
    assert!(
        namespace.read(0, &mut [0; 4096]).is_err(),
        "it gives up in the end"
    );
}

#[test]
fn a_passing_trouble_is_retried_and_a_lasting_one_is_reported() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    peer.change(|behaviour| behaviour.refusals = 10);
    namespace.write(0, &[1; 512]).unwrap();
    peer.change(|behaviour| behaviour.refusals = 100);
    assert!(namespace.write(0, &[1; 512]).is_err());
}
