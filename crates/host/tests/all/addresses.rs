//! Controllers with several addresses, and names that resolve to another address later.

use crate::peer::{Behaviour, NQN, Peer, builder};
use host::Phase;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

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
    options.name = Some(localhost(&second));
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
    assert_eq!(host.options(&name, NQN).unwrap().name, Some(name.clone()));
    let subsystem = host.connect(&name, NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    let timed = namespace.with_timeout(Duration::from_secs(60));
    timed.write(0, &[1; 512]).unwrap();
    assert_eq!(subsystem.association().phase(), Phase::Live);
}
