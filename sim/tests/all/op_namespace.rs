//! A target whose driver has room for fewer connections than its limits allow refuses the excess
//! connections, and counts them.

use base::{Nanos, Time};
use reactor::{
    Completion, Context, Core, Driver, Op, OpKey, OpNamespace, PollPolicy, Service, SocketOptions,
};
use sim::{Actor, NetworkFaults, Outcome, SimDriver, World};
use std::net::SocketAddr;
use target::{Limits, Target};

/// Connects three times without sending.
#[derive(Debug)]
struct Dialer {
    op_namespace: OpNamespace,
    address: SocketAddr,
    asked: u32,
}

impl Service for Dialer {
    type Message = ();

    fn apply(&mut self, _completion: Completion, _cx: &mut Context<'_>) {}

    fn message(&mut self, (): (), _cx: &mut Context<'_>) {}

    fn maintain(&mut self, cx: &mut Context<'_>) {
        while self.asked < 3 {
            let key = OpKey {
                op_namespace: self.op_namespace,
                kind: 0,
                generation: 0,
                index: self.asked,
            };
            self.asked += 1;
            let op = Op::Connect {
                address: self.address,
                options: SocketOptions::default(),
                timeout: Nanos::from_millis(1),
            };
            cx.submit(key, op);
        }
    }

    fn deadline(&self) -> Time {
        if self.asked < 3 {
            Time::ZERO
        } else {
            Time::NEVER
        }
    }

    fn finished(&self) -> bool {
        false
    }
}

fn dialer(world: &World, address: SocketAddr) -> Core<SimDriver, Dialer> {
    let mut driver = world.driver();
    let dialer = Dialer {
        op_namespace: driver.op_namespace(),
        address,
        asked: 0,
    };
    Core::new(driver, dialer, PollPolicy::Never)
}

#[test]
fn connections_that_the_driver_has_no_room_for_are_refused_and_counted() {
    let world = World::new(1, NetworkFaults::CALM);
    let shared = Target::new(Limits::default(), 1).expect("valid limits");
    let mut driver = world.driver();
    driver.limit_sockets(1);
    let mut service = shared.poll_group(0, driver.op_namespace());
    let any = SocketAddr::from(([10, 0, 0, 1], 0));
    let bound = driver.listen(any, &SocketOptions::default());
    let (listener, address) = bound.expect("a free address");
    service.add_listener(any, listener);
    let mut core = Core::new(driver, service, PollPolicy::Never);
    let attached = shared.attach(vec![core.sender()]);
    let mut host = dialer(&world, address);
    let counts = || {
        let core = shared.snapshot().cores[0];
        (core.accepted, core.refused, core.connections)
    };
    let until = world.now() + Nanos::from_secs(5);
    let done = || attached.poll().is_some() && counts() == (1, 2, 1);
    let mut actors: [&mut dyn Actor; 2] = [&mut core, &mut host];
    let outcome = world.run(&mut actors, until, done);
    assert_eq!(outcome, Outcome::Done, "{:?}", counts());
}
