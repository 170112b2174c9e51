//! Controllers with several addresses, and names that resolve to another address later.

use crate::peer::{Behaviour, NQN, Peer, builder};
use crate::setup;
use block::device::Ram;
use host::{Host, Phase};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use target::{Limits, NamespaceOptions, RunningTarget};
use wire::nvme::ana::AnaState;

/// Reserves an address without a listener, while its socket exists.
fn nowhere() -> (OwnedFd, SocketAddr) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = getsockname(&socket).unwrap();
    (socket, address.try_into().unwrap())
}

fn localhost(peer: &Peer) -> String {
    format!("localhost:{}", peer.address.port())
}

#[test]
fn the_addresses_of_a_name_are_tried_in_order() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let host = builder().build().unwrap();
    let (first, second) = (nowhere(), nowhere());
    let mut options = host.options(&first.1.to_string(), NQN).unwrap();
    options.further_addresses = vec![second.1];
    let error = host.connect_with(options.clone()).unwrap_err().to_string();
    assert!(error.contains(&second.1.to_string()), "{error}");
    options.further_addresses.push(peer.address);
    let subsystem = host.connect_with(options).unwrap();
    assert_eq!(subsystem.association().address(), peer.address);
    let namespace = subsystem.namespace(1).unwrap();
    namespace.write(0, &[1; 512]).unwrap();
    // The same again at each reconnect.
    peer.cut_all();
    namespace.write(0, &[2; 512]).unwrap();
    assert_eq!(peer.memory()[..512], [2; 512]);
}

#[test]
fn a_name_is_resolved_again_at_each_reconnect() {
    let [first, second] = [(), ()].map(|()| Peer::start(1 << 20, Behaviour::default()));
    let host = builder().build().unwrap();
    let mut options = host.options(&first.address.to_string(), NQN).unwrap();
    assert_eq!(options.name, None, "an IP address stays the same");
    options.name = Some((localhost(&second), 4420));
    let subsystem = host.connect_with(options).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    namespace.write(0, &[1; 512]).unwrap();
    assert_eq!(first.memory()[..512], [1; 512]);
    drop(first);
    namespace.write(0, &[2; 512]).unwrap();
    assert_eq!(second.memory()[..512], [2; 512]);
    assert_eq!(
        subsystem.association().address().port(),
        second.address.port()
    );
}

#[test]
fn a_name_of_this_machine_is_found_and_kept() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let host = builder().build().unwrap();
    let name = localhost(&peer);
    let kept = host.options(&name, NQN).unwrap().name.unwrap().0;
    assert_eq!(kept, name);
    let subsystem = host.connect(&name, NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    let timed = namespace.with_timeout(Duration::from_secs(60));
    timed.write(0, &[1; 512]).unwrap();
    assert_eq!(subsystem.association().phase(), Phase::Live);
}

/// Two targets with one namespace over one device, accessible by the first one.
fn pair() -> [RunningTarget; 2] {
    let ram = Arc::new(Ram::new(1 << 20, 512).unwrap());
    let targets = [1, 1001].map(|first_controller_id| {
        let limits = Limits {
            first_controller_id,
            last_controller_id: first_controller_id + 999,
            // They do not share a cache.
            cache_life: first_controller_id.into(),
            ..Limits::default()
        };
        let namespace = NamespaceOptions::new(1, ram.clone(), [7; 16]);
        setup::start_serving(1, limits, namespace)
    });
    set(&targets[1], AnaState::Inaccessible);
    targets
}

fn set(target: &RunningTarget, state: AnaState) {
    let set = target.handle.set_ana_state(setup::NQN, 1, state, || Ok(()));
    set.unwrap();
}

fn addresses(targets: &[RunningTarget; 2]) -> String {
    let [first, second] = targets.each_ref().map(|target| target.addresses[0]);
    format!("{first},{second}")
}

/// Calls a function when dropped.
struct Defer<F: Fn()>(F);

impl<F: Fn()> Drop for Defer<F> {
    fn drop(&mut self) {
        self.0();
    }
}

#[test]
fn a_host_follows_its_namespace_from_target_to_target() {
    let targets = pair();
    let host = Host::builder().build().unwrap();
    let subsystem = host.connect(&addresses(&targets), setup::NQN).unwrap();
    let association = subsystem.association();
    let namespace = subsystem.namespace(1).unwrap();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Also after a failed assertion.
        let _stop = Defer(|| stop.store(true, Ordering::SeqCst));
        scope.spawn(|| {
            let mut found = [0; 512];
            for number in 1_u64.. {
                let block = number % 100 * 512;
                let data = number.to_le_bytes().repeat(64);
                namespace.write(block, &data).unwrap();
                namespace.flush().unwrap();
                namespace.read(block, &mut found).unwrap();
                assert_eq!(found[..], data);
                written.store(number, Ordering::SeqCst);
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let goes_on = || {
            let now = written.load(Ordering::SeqCst);
            testing::eventually("requests complete", || {
                written.load(Ordering::SeqCst) > now + 5
            });
        };
        for to in [1, 0, 1, 0] {
            goes_on();
            set(&targets[1 - to], AnaState::Inaccessible);
            set(&targets[to], AnaState::Optimized);
            testing::eventually("it connects to the other", || {
                association.address() == targets[to].addresses[0]
                    && association.phase() == Phase::Live
            });
        }
        goes_on();
        let [first, second] = targets;
        first.stop().unwrap();
        set(&second, AnaState::Optimized);
        testing::eventually("it connects to the second one", || {
            association.address() == second.addresses[0] && association.phase() == Phase::Live
        });
        goes_on();
    });
}

#[test]
fn a_host_without_an_accessible_address_says_so_or_waits() {
    let targets = pair();
    let host = Host::builder().build().unwrap();
    let second = targets[1].addresses[0].to_string();
    let refused = host.connect(&second, setup::NQN).unwrap_err().to_string();
    assert!(
        refused.contains("inaccessible there now (ANA)"),
        "{refused}"
    );
    let all = addresses(&targets);
    let subsystem = host.connect(&all, setup::NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    namespace.write(0, &[1; 512]).unwrap();
    set(&targets[0], AnaState::Inaccessible);
    std::thread::scope(|scope| {
        let write = scope.spawn(|| namespace.write(0, &[2; 512]));
        testing::eventually("no target serves it", || {
            subsystem.association().phase() == Phase::Recovering
        });
        assert!(!write.is_finished());
        set(&targets[1], AnaState::NonOptimized);
        write.join().unwrap().unwrap();
    });
    assert_eq!(subsystem.association().address(), targets[1].addresses[0]);
}
