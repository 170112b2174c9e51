//! The checking application on a device of its own core: the oracle agrees with memory.

use base::{Nanos, Time};
use block::Device;
use block::device::Ram;
use reactor::{Core, PollPolicy};
use sim::{Actor, Application, ApplicationReport, Client, NetworkFaults, Outcome, Workload, World};
use std::rc::Rc;

fn run(seed: u64) -> ApplicationReport {
    let world = World::new(seed, NetworkFaults::CALM);
    let mut driver = world.driver();
    let ram = Ram::new(1 << 20, 512).expect("a small device");
    let channel = ram.open(&mut driver).expect("opened");
    let workload = Workload {
        requests: 2_000,
        depth: 16,
        blocks_max: 8,
        blocks_large: 300,
    };
    let application = Application::alone(workload, seed);
    let report = Rc::clone(&application.report);
    let client = Client::new(channel, ram.geometry(), ram.capabilities(), application);
    let mut core = Core::new(driver, client, PollPolicy::Never);
    let until = Time(0) + Nanos::from_secs(60);
    let done = || report.borrow().answered == 2_000;
    let outcome = world.run(&mut [&mut core as &mut dyn Actor], until, done);
    assert_eq!(outcome, Outcome::Done);
    *report.borrow()
}

#[test]
fn memory_does_what_the_model_says() {
    for seed in 0..20 {
        assert_eq!(run(seed).failed, 0);
    }
}

#[test]
fn a_seed_is_a_run() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).fingerprint, run(8).fingerprint);
}
