//! A host whose thread ends because its ring fails: no caller waits forever.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::unwrap_used)] // What fails here fails the test.
#![allow(unsafe_code)] // Nobody but this test closes a descriptor that another thread owns.

mod rings;

use block::BlockError;
use host::{Host, HostError, Phase, RequestError};
use rings::{break_ring, rings};
use testing::peer::{Behaviour, NQN, Peer};

/// The only test of this program, because another test's rings would be taken for the host's.
#[test]
fn whoever_waits_for_a_broken_host_hears_that_it_is_closed() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let before = rings();
    let host = Host::builder().build().unwrap();
    let of_host: Vec<_> = rings().difference(&before).copied().collect();
    let address = peer.address.to_string();
    let subsystem = host.connect(&address, NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    let mut queue = namespace.queue(4).unwrap();
    queue.read(1, 0, 512).unwrap();
    assert_eq!(queue.wait(1).unwrap().count(), 1);
    peer.change(|behaviour| behaviour.swallow = 3);
    std::thread::scope(|scope| {
        let write = scope.spawn(|| namespace.write(0, &[1; 4096]));
        let read = scope.spawn(|| namespace.read(0, &mut [0; 512]));
        queue.read(2, 0, 512).unwrap();
        queue.kick();
        let mut left = 1;
        while left > 0 {
            peer.change(|behaviour| left = behaviour.swallow);
            std::thread::yield_now();
        }
        for ring in of_host {
            break_ring(ring);
        }
        // An idle thread notices at the next message.
        let late = subsystem.namespace(1);
        assert!(matches!(late, Ok(_) | Err(HostError::Closed)), "{late:?}");
        for call in [write, read] {
            let error = call.join().unwrap().unwrap_err();
            assert!(matches!(error, RequestError::Closed), "{error}");
        }
    });
    let done = queue.wait(1).unwrap().next().unwrap();
    assert_eq!((done.tag, done.result), (2, Err(BlockError::Gone)));
    assert_eq!(subsystem.association().phase(), Phase::Gone);
    let error = host.connect(&address, NQN).unwrap_err();
    assert!(matches!(error, HostError::Closed), "{error}");
}
