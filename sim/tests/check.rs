//! Runs with everything in them, by seed.
#![cfg(test)]

use sim::check::{Options, run};

/// Seeds that once found something, each with what it was.
const KEPT: [(u64, &str); 10] = [
    (
        43,
        "a Flush after a power loss acknowledged writes that were lost",
    ),
    (136, "a Compare differed from what the oracle allowed"),
    (
        174,
        "a Flush after a power loss acknowledged writes that were lost",
    ),
    (
        193,
        "a Flush after a power loss acknowledged writes that were lost",
    ),
    (
        292,
        "a core of a foreign target did an old write eight seconds late",
    ),
    (
        332,
        "it took minutes, where requests were refused without end",
    ),
    (469, "a controller that drained span"),
    (
        1014,
        "a write in several commands lost its first parts with a cache",
    ),
    (2002, "a block held an older write in the end"),
    (
        1_882_712_440_832_034,
        "a block held a write that was not allowed",
    ),
];

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

#[test]
fn seeds_that_found_something_find_nothing_any_more() {
    for (seed, found) in KEPT {
        println!("switchyard sim check --seed {seed}: {found}");
        let options = Options {
            seed,
            ..Options::default()
        };
        assert!(run(&options).requests > 0);
    }
}
