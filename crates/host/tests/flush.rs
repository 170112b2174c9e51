//! A Flush does not succeed where what it promises may be lost: the target came back with an empty
//! write cache.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

mod peer;

use block::BlockError;
use host::{Host, Namespace, RequestError};
use peer::{Behaviour, Mischief, Peer, connected};

fn session(cache_life: u64) -> (Peer, Host, Namespace) {
    let behaviour = Behaviour {
        cache_life: Some(cache_life),
        ..Behaviour::default()
    };
    let (peer, host, subsystem) = connected(behaviour);
    let namespace = subsystem.namespace(1).unwrap();
    (peer, host, namespace)
}

/// The target comes back in another life, or in the same one.
fn comes_back(peer: &Peer, cache_life: u64) {
    peer.change(|behaviour| behaviour.cache_life = Some(cache_life));
    peer.cut_all();
}

fn is_lost(flush: Result<(), RequestError>) -> bool {
    matches!(flush, Err(RequestError::Device(BlockError::CacheLost)))
}

#[test]
fn the_first_flush_after_a_loss_fails_and_no_other() {
    let (peer, _host, namespace) = session(7);
    namespace.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 8);
    assert!(is_lost(namespace.flush()));
    namespace.flush().unwrap();
    namespace.write(0, &[2; 512]).unwrap();
    namespace.flush().unwrap();
}

/// It was sent again on the next association, and its success there said nothing about what had
/// been lost before.
#[test]
fn a_flush_that_is_under_way_fails_as_well() {
    let (peer, _host, namespace) = session(7);
    namespace.write(0, &[1; 512]).unwrap();
    peer.change(|behaviour| {
        behaviour.mischief = Some(Mischief::Hangup);
        behaviour.cache_life = Some(8);
    });
    assert!(is_lost(namespace.flush()));
    namespace.flush().unwrap();
}

#[test]
fn a_flush_succeeds_where_nothing_can_be_lost() {
    let (peer, _host, namespace) = session(7);
    namespace.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 7);
    namespace.flush().unwrap();
    comes_back(&peer, 8);
    namespace.flush().unwrap();
    let mut back = [0; 512];
    namespace.read(0, &mut back).unwrap();
    comes_back(&peer, 9);
    namespace.flush().unwrap();
}

/// A target that does not say which life it is may have lost its cache with the connection.
#[test]
fn a_target_that_does_not_say_is_not_believed() {
    let (peer, _host, namespace) = session(0);
    namespace.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 0);
    assert!(is_lost(namespace.flush()));
    comes_back(&peer, 0);
    namespace.flush().unwrap();
}

/// A cache that a live target adds has lost nothing, and what it loses later is a loss.
#[test]
fn a_life_that_changes_under_a_live_association_is_no_loss() {
    let (peer, _host, namespace) = session(7);
    namespace.write(0, &[1; 512]).unwrap();
    peer.change(|behaviour| behaviour.cache_life = Some(8));
    peer.resize(4096);
    while namespace.size() != 2 << 20 {
        std::thread::yield_now();
    }
    comes_back(&peer, 8);
    namespace.flush().unwrap();
    namespace.write(0, &[1; 512]).unwrap();
    comes_back(&peer, 9);
    assert!(is_lost(namespace.flush()));
}
