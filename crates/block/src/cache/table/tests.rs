//! Pages, frames, ages and epochs without I/O.

use super::*;

fn put(table: &mut Table, page: u64) -> Frame {
    table.allocate(page).expect("a frame");
    table.filled(page, false).expect("it was just taken")
}

#[test]
fn pages_are_found_until_they_are_forgotten() {
    let mut table = Table::new(16, 16);
    for page in 0..16 {
        table.allocate(page * 16).expect("a frame");
        assert_eq!(table.find(page * 16), Found::Filling);
    }
    assert!(table.allocate(1).is_none(), "all are being filled");
    for page in 0..16 {
        let frame = table.filled(page * 16, false).expect("it is there");
        assert_eq!(table.find(page * 16), Found::Frame(frame));
    }
    for page in (0..16).rev() {
        table.forget(page * 16);
        assert_eq!(table.find(page * 16), Found::Missing);
    }
}

#[test]
fn the_clock_evicts_clean_pages_that_were_not_used() {
    let mut table = Table::new(4, 4);
    let frames: Vec<Frame> = (0..4).map(|page| put(&mut table, page)).collect();
    table.touch(frames[0]);
    table.dirty(frames[1], Time::ZERO);
    table.allocate(10).expect("page 2 goes");
    assert_eq!(table.find(2), Found::Missing);
    table.filled(10, false);
    table.allocate(11).expect("page 3 goes");
    assert_eq!(table.find(3), Found::Missing);
    table.allocate(12).expect("page 0 was not used again");
    assert_eq!(table.find(0), Found::Missing);
    table.allocate(13).expect("page 10");
    assert!(table.allocate(14).is_none(), "what is dirty stays");
    assert_eq!(table.find(1), Found::Frame(frames[1]));
}

#[test]
fn the_limit_of_dirty_pages_counts_write_backs() {
    let mut table = Table::new(4, 2);
    let frames: Vec<Frame> = (0..4).map(|page| put(&mut table, page)).collect();
    table.dirty(frames[0], Time::ZERO);
    table.dirty(frames[1], Time::ZERO);
    assert!(!table.may_dirty(Some(frames[2])) && !table.may_dirty(None));
    assert!(table.may_dirty(Some(frames[0])), "it is dirty already");
    assert_eq!(table.begin_write_back(0), Some(frames[0]));
    assert_eq!((table.dirty_pages(), table.unsaved_pages()), (1, 2));
    assert!(!table.may_dirty(Some(frames[2])));
    table.end_write_back(0, true, Time::ZERO);
    assert!(table.may_dirty(Some(frames[2])));
}

#[test]
fn an_epoch_is_saved_when_its_writes_are_and_later_ones_do_not_count() {
    let mut table = Table::new(4, 4);
    let frames: Vec<Frame> = (0..4).map(|page| put(&mut table, page)).collect();
    table.dirty(frames[0], Time::ZERO);
    let epoch = table.end_epoch();
    table.dirty(frames[1], Time::ZERO);
    assert!(!table.is_saved(epoch));
    let mut pages = Vec::new();
    table.collect_range(epoch, &(0..100), &mut pages);
    assert_eq!(pages, [0]);
    let wanted = Wanted {
        epoch,
        ..Wanted::ALL
    };
    assert!(table.collect_dirty(wanted, None, &mut pages).is_none());
    assert_eq!(pages, [0]);
    table.begin_write_back(0).expect("it is dirty");
    table.dirty(frames[0], Time::ZERO);
    assert!(!table.is_saved(epoch), "it is under way");
    table.end_write_back(0, true, Time::ZERO);
    assert!(table.is_saved(epoch));
    assert_eq!(table.dirty_pages(), 2, "it was written again meanwhile");
}

#[test]
fn dirty_pages_are_kept_by_age() {
    let mut table = Table::new(8, 8);
    let frames: Vec<Frame> = (0..5).map(|page| put(&mut table, page)).collect();
    assert_eq!(table.dirty_since(), None);
    for (frame, time) in [(3, 10), (0, 20), (4, 15), (3, 30), (1, 40)] {
        table.dirty(frames[frame], Time(time));
    }
    let older = |table: &Table, time| {
        let mut pages = Vec::new();
        let wanted = Wanted {
            since: Time(time),
            ..Wanted::ALL
        };
        assert!(table.collect_dirty(wanted, None, &mut pages).is_none());
        pages.sort_unstable();
        pages
    };
    assert_eq!(
        table.dirty_since(),
        Some(Time(10)),
        "writing it again changes nothing"
    );
    assert_eq!(older(&table, 9), []);
    assert_eq!(
        older(&table, 20),
        [0, 3, 4],
        "no age is before one that was told"
    );
    table.begin_write_back(0).expect("it is dirty");
    table.begin_write_back(3).expect("it is dirty");
    assert_eq!(table.dirty_since(), Some(Time(20)));
    table.end_write_back(0, true, Time(50));
    table.end_write_back(3, false, Time(50));
    assert_eq!(older(&table, 49), [1, 4]);
    assert_eq!(older(&table, 50), [1, 3, 4], "it failed, and is dirty anew");
    table.forget(1);
    table.clean(frames[4]);
    assert_eq!(table.dirty_since(), Some(Time(50)));
    table.forget(3);
    assert_eq!((table.dirty_since(), table.dirty_pages()), (None, 0));
}

#[test]
fn a_failed_write_back_is_dirty_in_a_later_epoch() {
    let mut table = Table::new(4, 4);
    let frame = put(&mut table, 7);
    table.dirty(frame, Time::ZERO);
    let first = table.end_epoch();
    table.begin_write_back(7).expect("it is dirty");
    table.end_write_back(7, false, Time::ZERO);
    assert!(table.is_saved(first), "no Flush waits for ever");
    assert_eq!(table.range_saved(first, &(0..8)), Err(()));
    let second = table.end_epoch();
    assert!(!table.is_saved(second));
    table.begin_write_back(7).expect("it is dirty");
    table.end_write_back(7, true, Time::ZERO);
    assert!(table.is_saved(second) && table.unsaved_pages() == 0);
    assert_eq!(table.range_saved(second, &(0..8)), Ok(true));
}

#[test]
fn claims_exclude_each_other_and_write_backs() {
    let mut table = Table::new(4, 4);
    let frame = put(&mut table, 7);
    table.dirty(frame, Time::ZERO);
    let claim = table.claim(&(6..8)).expect("the first one");
    assert_eq!(table.claim(&(7..9)), None);
    assert!(table.claim(&(8..9)).is_some());
    assert!(table.is_claimed(7) && table.begin_write_back(7).is_none());
    table.release(claim);
    assert!(table.begin_write_back(7).is_some());
    assert!(!table.is_quiet(&(0..u64::MAX)) && table.is_quiet(&(0..7)));
}

/// Other threads wait for the table while a plan is made, so it has a fixed maximum of pages.
#[test]
fn a_plan_looks_at_so_many_pages_however_many_are_dirty() {
    let dirty = 5 * PLAN_PAGES_MAX + 7;
    let frames = u32::try_from(dirty).expect("a few thousand");
    let mut table = Table::new(frames, frames);
    for page in 0..u64::from(frames) {
        let frame = put(&mut table, page);
        table.dirty(frame, Time(page));
    }
    let (mut mark, mut all, mut pages) = (None, Vec::new(), Vec::new());
    for left in (0..=5).rev() {
        mark = table.collect_dirty(Wanted::ALL, mark, &mut pages);
        assert!(pages.len() <= PLAN_PAGES_MAX);
        assert_eq!(mark.is_some(), left > 0);
        all.append(&mut pages);
    }
    assert_eq!(all, (0..u64::from(frames)).collect::<Vec<_>>());
    // A position that no longer exists counts as the beginning.
    let mark = table.collect_dirty(Wanted::ALL, None, &mut pages);
    table
        .begin_write_back(PLAN_PAGES_MAX as u64)
        .expect("it is dirty");
    table.collect_dirty(Wanted::ALL, mark, &mut pages);
    assert_eq!(pages[0], 0);
    // A page that is too young, or of a later epoch, ends the walk.
    let young = Wanted {
        since: Time(9),
        ..Wanted::ALL
    };
    assert!(table.collect_dirty(young, None, &mut pages).is_none());
    assert_eq!(pages, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_run_begins_where_its_dirty_pages_do() {
    let mut table = Table::new(64, 64);
    for page in 10..30 {
        let frame = put(&mut table, page);
        if page != 15 {
            table.dirty(frame, Time::ZERO);
        }
    }
    assert_eq!(table.run_start(29, 32), 16);
    assert_eq!(table.run_start(29, 8), 22);
    assert_eq!(table.run_start(16, 32), 16);
    assert_eq!(table.run_start(12, 32), 10);
}
