//! Another volume with the same name and the same namespace identifier receives no request for the
//! first one.

use crate::peer::{Behaviour, Mischief, Peer, builder, connected};
use crate::{peer, setup};
use block::BlockError;
use host::{RemoteNamespace, RequestError, Switchboard, SwitchboardOptions};
use reactor::placement::allowed_cores;
use std::sync::atomic::Ordering;
use std::time::Duration;
use switch::Knobs;
use testing::device::conformance::Bench;
use wire::nvme::Status;
use wire::nvme::identify::Cns;

/// The next write is lost with its connection; later connections show another volume.
fn replace(peer: &Peer) {
    peer.change(|behaviour| {
        behaviour.mischief = Some(Mischief::Hangup);
        behaviour.volume += 1;
    });
}

#[test]
fn a_lost_write_is_not_sent_to_another_volume() {
    let (peer, _host, subsystem) = connected(Behaviour::default());
    let namespace = subsystem.namespace(1).unwrap();
    namespace.write(0, &[1; 512]).unwrap();
    replace(&peer);
    let error = namespace.write(0, &[2; 512]).unwrap_err();
    assert!(
        matches!(error, RequestError::Device(BlockError::Gone)),
        "{error}"
    );
    assert_eq!(peer.memory()[..512], [1; 512]);
    let reason = subsystem.association().last_error().unwrap().to_string();
    assert!(reason.contains("another volume"), "{reason}");
    namespace.write(0, &[3; 512]).unwrap_err();
    namespace.read(0, &mut [0; 512]).unwrap_err();

    let anew = subsystem.namespace(1).unwrap();
    anew.write(0, &[4; 512]).unwrap();
    assert_eq!(peer.memory()[..512], [4; 512]);
}

/// A failed Identify (for example, with damaged data) proves nothing about the volume: its requests
/// wait, and the remaining namespaces continue.
#[test]
fn a_volume_that_cannot_be_identified_is_not_given_up_and_stops_no_other() {
    let (not_ready, internal) = (
        Status::from_type_and_code(0, 0x22),
        Status::from_type_and_code(0, 0x06).with_dnr(),
    );
    for (cns, status) in [
        (Cns::NAMESPACE, not_ready),
        (Cns::NAMESPACE, internal),
        (Cns::NAMESPACE_DESCRIPTORS, internal),
    ] {
        let two = Behaviour {
            namespaces: 2,
            ..Behaviour::default()
        };
        let (peer, _host, subsystem) = connected(two);
        let [one, other] = [1, 2].map(|nsid| subsystem.namespace(nsid).unwrap());
        one.write(0, &[1; 512]).unwrap();
        peer.change(|behaviour| {
            behaviour.mischief = Some(Mischief::Hangup);
            behaviour.unready = Some((cns, 1, status));
        });
        std::thread::scope(|scope| {
            // The first one is lost.
            let lost = scope.spawn(|| one.write(0, &[2; 512]));
            while peer.seen.unready.load(Ordering::SeqCst) < 1 && !lost.is_finished() {
                std::thread::yield_now();
            }
            other.write(512, &[3; 512]).unwrap();
            let new = scope.spawn(|| one.read(0, &mut [0; 512]));
            // It is identified again.
            let met = || peer.seen.unready.load(Ordering::SeqCst) >= 2;
            while !met() && !lost.is_finished() && !new.is_finished() {
                std::thread::yield_now();
            }
            other.read(512, &mut [0; 512]).unwrap();
            assert_eq!(peer.memory()[..512], [1; 512], "it may be another volume");
            peer.change(|behaviour| behaviour.unready = None);
            lost.join().unwrap().unwrap();
            new.join().unwrap().unwrap();
        });
        assert_eq!(peer.memory()[..512], [2; 512]);
        assert_eq!(subsystem.association().generation(), 2, "lost once");
    }
}

#[test]
fn a_switchboard_tells_volumes_apart_as_well() {
    let behaviour = Behaviour {
        // Enough for any number of cores of the machine.
        io_queues: 128,
        ..Behaviour::default()
    };
    let (peer, _host, subsystem) = connected(behaviour);
    let cores = allowed_cores().unwrap();
    let knobs = Knobs::switchyard();
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
    let first = setup::switched(&board, &subsystem, 1);
    let mut bench = Bench::open(setup::driver(), &first).unwrap();
    bench.write(0, &[1; 512]).unwrap();
    let before = peer.memory();
    replace(&peer);
    assert_eq!(bench.write(0, &[2; 512]).unwrap_err(), BlockError::Gone);
    assert_eq!(bench.write(0, &[3; 512]).unwrap_err(), BlockError::Gone);
    assert!(peer.memory() == before);

    let remote = RemoteNamespace::new(subsystem.association(), 1).unwrap();
    let anew = board.namespace(&remote).unwrap();
    let mut other = Bench::open(setup::driver(), &anew).unwrap();
    other.write(0, &[4; 512]).unwrap();
    assert!(peer.memory() != before);
    assert_eq!(bench.write(0, &[5; 512]).unwrap_err(), BlockError::Gone);
    other.shut();
    bench.shut();
}

/// The queue that lost the write must be woken when the namespace is removed, not only when the
/// fence is lowered.
#[test]
fn a_lost_write_behind_a_fence_is_over_when_its_namespace_goes() {
    let behaviour = Behaviour {
        swallow: 1,
        slow_fences: true,
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, behaviour);
    let host = builder().loss_timeout(None).build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), peer::NQN).unwrap();
    let mut queue = subsystem.namespace(1).unwrap().queue(4).unwrap();
    queue.write(1, 0, &[1; 512]).unwrap();
    while peer.seen.io_commands.load(Ordering::SeqCst) == 0 {
        assert_eq!(queue.wait(0).unwrap().count(), 0);
    }
    peer.cut_all();
    // Answered by the next association.
    queue.read(2, 4096, 512).unwrap();
    let done = queue.wait(1).unwrap().next().unwrap();
    assert_eq!((done.tag, done.result), (2, Ok(())));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Long enough for the queue's thread to sleep, on most machines.
            std::thread::sleep(Duration::from_millis(200));
            peer.resize(0);
        });
        let mut done = queue.wait_for(1, Duration::from_secs(60)).unwrap();
        let done = done.next().expect("it is told");
        assert_eq!((done.tag, done.result), (1, Err(BlockError::Gone)));
    });
}
