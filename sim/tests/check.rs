//! Runs with everything in them, by seed.
#![cfg(test)]

use sim::check::{Options, kept, run};

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

/// Its line in `sim/seeds.txt` says what each of them found.
#[test]
fn what_was_found_once_is_not_found_again() {
    for options in kept() {
        println!("{options:?}");
        run(&options);
    }
}
