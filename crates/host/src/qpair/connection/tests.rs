use super::*;
use crate::{ConnectOptions, HostIdentity};
use wire::nvme::Command;

#[test]
fn who_only_waits_for_events_sleeps() {
    let nqn = crate::parse_nqn("nqn.2026-11.io.switchyard:sleeps").unwrap();
    let identity = HostIdentity { nqn, id: [7; 16] };
    let address = SocketAddr::from(([127, 0, 0, 1], 4420));
    let options = ConnectOptions::new(address, nqn, identity);
    let (config, lists) = (QpairConfig::new(&options, true), SendListPool::default());
    let mut qpair = Qpair::new(config, OpNamespace(0), 0, 4, &lists);
    use ConnectionState::{Connecting, Initializing, Joining, Live};
    for state in [Connecting, Initializing, Joining, Live] {
        qpair.enter(state, Time::NEVER);
    }
    qpair.scan_at = Time(5);
    qpair.start_until(Exchange::admin(1, Command::new(0x0c, 0), None), Time::NEVER);
    assert_eq!(qpair.deadline(), Time::NEVER);
    qpair.start(Exchange::admin(2, Command::new(0x18, 0), None), Time::ZERO);
    assert_eq!(qpair.deadline(), Time(5), "a keep-alive can be late");
}
