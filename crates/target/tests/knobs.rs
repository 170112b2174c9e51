//! Knobs that are turned while I/O runs.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::cast_possible_truncation)] // Sizes in tests are small.

mod common;

use common::Bed;
use switch::Knobs;
use switchyard_target::TargetError;

#[test]
fn knobs_are_turned_and_a_bad_one_turns_nothing() {
    let bed = Bed::new();
    assert_eq!(bed.handle().knobs(), Knobs::default());
    bed.handle().set_knobs(Knobs::linux()).expect("valid knobs");
    assert_eq!(bed.handle().snapshot().knobs, Knobs::linux());
    let bad = Knobs {
        quantum_bytes: 1,
        ..Knobs::default()
    };
    let error = bed.handle().set_knobs(bad).expect_err("too small");
    assert!(matches!(error, TargetError::Knobs(_)), "{error}");
    assert!(error.to_string().contains("quantum_bytes"), "{error}");
    assert_eq!(bed.handle().knobs(), Knobs::linux());
}
