//! The versions that a read may find, step by step.

use super::*;

fn found(oracle: &mut Oracle, block: usize) -> Vec<Version> {
    let began = oracle.begin_read();
    let mut found: Vec<_> = oracle.allowed(block, began).collect();
    oracle.end_read(began);
    found.sort_unstable();
    found
}

#[test]
fn an_acknowledged_write_replaces_everything_older() {
    let mut oracle = Oracle::new(4);
    let lost = oracle.begin_write(1..3, Content::Version);
    oracle.fail(1..3, lost);
    assert_eq!(found(&mut oracle, 1), [0, lost]);
    let kept = oracle.begin_write(1..2, Content::Version);
    oracle.acknowledge(1..2, kept, false, 1);
    // A write that was lost must not come back.
    assert_eq!(found(&mut oracle, 1), [kept]);
    // The adjacent block was not overwritten, so its write is still open.
    assert_eq!(found(&mut oracle, 2), [0, lost]);
    assert_eq!(found(&mut oracle, 3), [0]);
}

#[test]
fn a_read_may_find_what_was_written_while_it_was_under_way() {
    let mut oracle = Oracle::new(1);
    let began = oracle.begin_read();
    let version = oracle.begin_write(0..1, Content::Version);
    assert!(oracle.allows(0, began, version));
    oracle.acknowledge(0..1, version, false, 1);
    assert!(oracle.allows(0, began, version) && oracle.allows(0, began, 0));
    assert_eq!(found(&mut oracle, 0), [version]);
}

#[test]
fn writes_that_overlap_in_time_take_effect_in_any_order() {
    let mut oracle = Oracle::new(1);
    let first = oracle.begin_write(0..1, Content::Version);
    let second = oracle.begin_write(0..1, Content::Version);
    oracle.acknowledge(0..1, second, false, 1);
    assert_eq!(found(&mut oracle, 0), [first, second]);
    oracle.acknowledge(0..1, first, false, 1);
    assert_eq!(found(&mut oracle, 0), [first, second]);
    let third = oracle.begin_write(0..1, Content::Zeroes);
    oracle.acknowledge(0..1, third, false, 1);
    assert_eq!(found(&mut oracle, 0), [0]);
}

#[test]
fn without_power_what_was_not_flushed_may_be_gone() {
    let mut oracle = Oracle::new(1).with_volatile_cache();
    let flushed = oracle.begin_write(0..1, Content::Version);
    oracle.acknowledge(0..1, flushed, false, 1);
    let early = oracle.begin_flush();
    let cached = oracle.begin_write(0..1, Content::Version);
    oracle.acknowledge(0..1, cached, false, 1);
    // The flush began before the second write was acknowledged, so it covers the first write only.
    oracle.flushed(early, 1, 0);
    assert_eq!(found(&mut oracle, 0), [cached]);
    oracle.power_lost();
    assert_eq!(found(&mut oracle, 0), [flushed, cached]);
    let durable = oracle.begin_write(0..1, Content::Version);
    oracle.acknowledge(0..1, durable, true, 1);
    oracle.power_lost();
    assert_eq!(found(&mut oracle, 0), [durable]);
}

/// A successful Flush covers the writes acknowledged to its host before it, unless the host has
/// also learned of a loss: so the target or the host must fail it if these writes are lost.
#[test]
fn a_flush_promises_what_was_acknowledged_before_it_over_a_loss_of_power() {
    let mut oracle = Oracle::new(1).with_volatile_cache();
    let cached = oracle.begin_write(0..1, Content::Version);
    oracle.acknowledge(0..1, cached, false, 1);
    let late = oracle.begin_write(0..1, Content::Version);
    oracle.power_lost();
    // Its answer was in flight when the power failed.
    oracle.acknowledge(0..1, late, false, 1);
    assert_eq!(found(&mut oracle, 0), [0, cached, late]);
    let others = oracle.begin_flush();
    oracle.flushed(others, 2, 0);
    assert_eq!(found(&mut oracle, 0), [0, cached, late]);
    let told = oracle.begin_flush();
    let after = oracle.begin_flush();
    oracle.flushed(after, 1, told);
    assert_eq!(found(&mut oracle, 0), [0, cached, late]);
    oracle.flushed(after, 1, 0);
    assert_eq!(found(&mut oracle, 0), [late]);
}

#[test]
fn a_write_overtakes_one_that_was_read_before_it_began() {
    let mut oracle = Oracle::new(1);
    let [older, unread] = [(); 2].map(|()| oracle.begin_write(0..1, Content::Version));
    oracle.note_read(0, older);
    let before = oracle.begin_write(0..1, Content::Version);
    let mark = oracle.mark();
    let newer = oracle.begin_write(0..1, Content::Version);
    assert!(oracle.overtakes(0, newer, older, mark));
    assert!(!oracle.overtakes(0, newer, unread, mark));
    assert!(!oracle.overtakes(0, before, older, mark));
}

#[test]
fn a_write_that_is_not_waited_for_ends_with_the_controllers_that_may_have_it() {
    let mut oracle = Oracle::new(1);
    let orphan = oracle.begin_write(0..1, Content::Version);
    oracle.orphan(0..1, orphan, 7);
    let has = |ids: &'static [u16]| move |host| if host == 7 { ids.to_vec() } else { vec![] };
    oracle.end_orphans(has(&[1, 2]));
    let newer = oracle.begin_write(0..1, Content::Version);
    oracle.acknowledge(0..1, newer, false, 1);
    assert_eq!(found(&mut oracle, 0), [orphan, newer]);
    oracle.end_orphans(has(&[2, 3]));
    assert!(oracle.has_orphans());
    oracle.end_orphans(has(&[3]));
    assert!(!oracle.has_orphans());
    // It overlapped with the newer write: either may be there, until the next write.
    assert_eq!(found(&mut oracle, 0), [orphan, newer]);
    let last = oracle.begin_write(0..1, Content::Version);
    oracle.acknowledge(0..1, last, false, 1);
    assert_eq!(found(&mut oracle, 0), [last]);
}

#[test]
fn a_write_that_was_left_is_replaced_by_what_its_host_writes_later() {
    for (host, expected) in [(7, &[2][..]), (8, &[0, 2])] {
        let mut oracle = Oracle::new(1);
        let left = oracle.begin_write(0..1, Content::Zeroes);
        oracle.leave(0..1, left, 7);
        let newer = oracle.begin_write(0..1, Content::Version);
        oracle.acknowledge(0..1, newer, false, host);
        assert_eq!(found(&mut oracle, 0), expected, "host {host}");
    }
}

#[test]
fn old_writes_are_dropped_when_no_read_can_find_them() {
    let mut oracle = Oracle::new(1);
    let reading = oracle.begin_read();
    for _ in 0..100 {
        let version = oracle.begin_write(0..1, Content::Version);
        oracle.acknowledge(0..1, version, false, 1);
    }
    assert!(oracle.allows(0, reading, 0) && oracle.allows(0, reading, 1));
    oracle.end_read(reading);
    let last = oracle.begin_write(0..1, Content::Version);
    oracle.acknowledge(0..1, last, false, 1);
    assert!(oracle.blocks[0].len() <= 2, "{:?}", oracle.blocks[0]);
    assert_eq!(found(&mut oracle, 0), [last]);
}
