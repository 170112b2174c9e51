//! A scripted controller, and hosts connected to it.

use host::{Host, HostBuilder, Namespace, Subsystem};
use std::time::Duration;
pub(crate) use testing::peer::{BLOCK, Behaviour, Forge, Mischief, NQN, Peer};

/// A host with short reconnect delays.
pub(crate) fn builder() -> HostBuilder {
    Host::builder().reconnect_delay(Duration::from_millis(1), Duration::from_millis(5))
}

/// Connects such a host to a peer. Returns its namespace.
pub(crate) fn connect(peer: &Peer, builder: HostBuilder) -> Namespace {
    let host = builder.build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    subsystem.namespace(1).unwrap()
}

/// A peer with this behaviour, and a host connected to it with short reconnect delays.
pub(crate) fn connected(behaviour: Behaviour) -> (Peer, Host, Subsystem) {
    let peer = Peer::start(1 << 20, behaviour);
    let host = builder().build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    (peer, host, subsystem)
}
