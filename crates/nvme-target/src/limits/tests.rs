//! Limits: their ranges, and a field for each.

use super::*;

#[test]
fn defaults_are_legal_and_a_bad_field_is_named() {
    assert_eq!(Limits::default().check(), Ok(()));
    let bad = Limits {
        transfer_bytes: 5000,
        ..Limits::default()
    };
    assert_eq!(
        bad.check().map_err(|error| error.key),
        Err("max_transfer_bytes")
    );
    // 4 KiB would be announced as MDTS 0, which means no limit.
    let bad = Limits {
        transfer_bytes: 4096,
        ..Limits::default()
    };
    assert_eq!(
        bad.check().map_err(|error| error.key),
        Err("max_transfer_bytes")
    );
    let bad = Limits {
        io_queues: 129,
        ..Limits::default()
    };
    let error = bad.check().expect_err("one too many");
    assert_eq!(
        error.to_string(),
        "io_queues_per_controller must be from 1 to 128"
    );
}

#[test]
fn every_limit_has_a_field_of_its_own() {
    for limit in &LIMITS {
        let mut limits = Limits::default();
        let before = limit.default();
        for value in [*limit.range.start(), *limit.range.end()] {
            limit.set(&mut limits, value);
            assert_eq!(limit.get(&limits), value, "{}", limit.key);
            assert_eq!(
                limits == Limits::default(),
                value == before,
                "{}",
                limit.key
            );
        }
        limit.set(&mut limits, before);
        assert_eq!(limits, Limits::default(), "{}", limit.key);
    }
}

#[test]
fn controller_identifiers_are_a_range() {
    let limits = Limits {
        first_controller_id: 200,
        last_controller_id: 199,
        ..Limits::default()
    };
    let error = limits.check().expect_err("no identifier").to_string();
    assert_eq!(error, "last_controller_id must be from 200 to 65519");
}
