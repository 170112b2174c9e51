//! Runs with everything in them, by seed.
#![cfg(test)]

use sim::check::{Options, run};

#[test]
fn a_seed_is_a_run() {
    let options = Options {
        seed: 11,
        ..Options::default()
    };
    let first = run(&options);
    assert!(first.requests > 0);
    assert_eq!(run(&options), first);
}
