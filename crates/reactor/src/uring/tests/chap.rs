//! Computations for DH-HMAC-CHAP.

use super::*;
use secure::chap::{ControllerExchange, Group, HostExchange, Names, Progress, Secret};
use secure::{ChapPolicy, KeyRing};

#[test]
fn jobs_are_computed_at_once_or_on_their_thread() {
    let mut driver = small();
    for group in [Group::Null, Group::Ffdhe2048] {
        let policy = ChapPolicy {
            groups: vec![group],
            ..ChapPolicy::default()
        };
        let keys = KeyRing {
            policy,
            ..KeyRing::default()
        };
        let names = Names {
            hostnqn: "nqn.2026-11.io.example:host".to_owned(),
            subnqn: "nqn.2026-11.io.example:disks".to_owned(),
        };
        let secret = Secret::new(None, &[1; 32]).expect("32 bytes");
        let mut controller = ControllerExchange::new(names.clone(), Arc::new(keys));
        let (_, negotiate) = HostExchange::begin(names, secret, None, 1);
        let Progress::Compute(job) = controller.receive(&negotiate) else {
            panic!("it makes a challenge");
        };
        driver.submit(key(1), Op::Compute { job });
        assert!(driver.has_operation_of(OWNER));
        let Outcome::Computed(Ok(result)) = wait_for(&mut driver, key(1)) else {
            panic!("nothing else was submitted");
        };
        assert!(matches!(controller.computed(result), Progress::Continue));
        assert!(controller.has_response(), "the challenge");
        assert!(!driver.has_operation_of(OWNER));
    }
}
