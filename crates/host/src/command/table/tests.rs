//! Slots, marks and transfers of a command table.

use super::*;
use base::Nanos;
use wire::nvme::Command;

fn exchange(tag: u64) -> Exchange {
    Exchange::admin(tag, Command::new(0x18, 0), None)
}

#[test]
fn an_answer_to_an_old_command_finds_nobody() {
    let mut table = CommandTable::new(2);
    let slot = table.insert(exchange(1), Time::NEVER);
    let old = table.cid(slot);
    assert_eq!(table.find(old), None, "not sent yet");
    table.sent(slot);
    assert_eq!(table.find(old), Some(slot));
    assert!(table.answer(slot, Completion::new(old, 0, Status::SUCCESS), false));
    assert_eq!(table.find(old), None);
    assert_eq!(table.take_finished().unwrap().exchange.tag, 1);
    let again = table.insert(exchange(2), Time::NEVER);
    table.sent(again);
    assert_eq!(again, slot);
    assert_ne!(table.cid(again), old);
    assert_eq!(table.find(old), None);
    assert_eq!(table.find(0xffff), None);
}

#[test]
fn what_may_take_as_long_as_it_will_need_not_be_looked_for() {
    let mut table = CommandTable::new(3);
    assert!(!table.is_timed());
    table.insert(exchange(1), Time::NEVER);
    assert!(!table.is_timed(), "an event is waited for without end");
    let slot = table.insert(exchange(2), Time(7));
    assert!(table.is_timed());
    table.sent(slot);
    let cid = table.cid(slot);
    assert!(table.answer(slot, Completion::new(cid, 0, Status::SUCCESS), false));
    assert!(table.take_finished().is_some());
    assert!(!table.is_timed());
    table.insert(exchange(3), Time(9));
    table.lose_all();
    while table.take_finished().is_some() {}
    assert!(!table.is_timed());
    table.insert(exchange(4), Time(9));
    assert!(table.is_timed(), "a slot is used again");
}

#[test]
fn a_full_table_has_no_room_and_loses_each_once() {
    let mut table = CommandTable::new(3);
    for tag in 0..3 {
        assert!(table.len() < table.depth());
        table.insert(exchange(tag), Time(tag));
    }
    assert_eq!(table.len(), table.depth());
    assert_eq!(table.overdue(0, Time(1)), Some(0));
    assert_eq!(table.overdue(2, Time(1)), None);
    table.lose_all();
    table.lose_all();
    assert_eq!(table.len(), 3, "nobody has taken them yet");
    let tags: Vec<_> = std::iter::from_fn(|| table.take_finished())
        .map(|finished| finished.exchange.tag)
        .collect();
    assert_eq!(tags, [0, 1, 2]);
    assert_eq!(table.len(), 0);
}

#[test]
fn time_in_which_nobody_looked_is_nobodys_fault() {
    let mut table = CommandTable::new(3);
    table.insert(exchange(1), Time(10));
    table.insert(exchange(2), Time(90));
    table.insert(exchange(3), Time::NEVER);
    let second = Nanos::from_secs(1);
    let [soon, later] = [1, 9].map(|s| Time::ZERO + Nanos::from_secs(s));
    table.slot(0).deadline = soon;
    table.slot(1).deadline = later;
    let mut look = |since: u64, now: u64, again: bool| {
        let [since, now, latest] = [since, now, now + 4].map(|s| Time::ZERO + Nanos::from_secs(s));
        table.excuse(since, now, latest, again);
        (
            table.overdue(0, now),
            table.slot(0).deadline,
            table.slot(1).deadline,
        )
    };
    // Extended by the time of the absence, and never by more than a whole time-out.
    assert_eq!(look(0, 2, false), (None, soon + second + second, later));
    // Answers may still be unread: that is not the controller's fault either.
    assert_eq!(look(2, 8, true), (None, soon + Nanos::from_secs(8), later));
    assert_eq!(
        look(8, 11, false).0,
        Some(0),
        "once is enough to find an answer"
    );
    let deadline = table.slot(1).deadline;
    assert_eq!(deadline, Time::ZERO + Nanos::from_secs(12));
    assert_eq!(table.overdue(2, Time(1 << 60)), None);
}

#[test]
fn a_mark_is_of_one_command_and_the_slot_that_became_free_last_is_next() {
    let mut table = CommandTable::new(3);
    let command = |direction| Exchange {
        direction,
        ..exchange(1)
    };
    let first = table.insert(command(Direction::Out), Time::NEVER);
    let second = table.insert(command(Direction::Out), Time::NEVER);
    table.carried_by(second, 7);
    table.withdraw(first);
    assert_eq!(table.mark(second), 7);
    table.withdraw(second);
    for direction in [Direction::In, Direction::Out] {
        let next = table.insert(command(direction), Time::NEVER);
        assert_eq!((next, table.mark(next)), (second, 0));
        table.withdraw(next);
    }
    let free = [second, first, 2].map(|_| table.insert(exchange(1), Time::NEVER));
    assert_eq!((free, table.len()), ([second, first, 2], 3));
}

#[test]
fn transfers_are_a_short_queue() {
    let mut table = CommandTable::new(2);
    let slot = table.insert(exchange(1), Time::NEVER);
    let transfer = |tag| Transfer {
        tag,
        offset: 0,
        left: 1,
    };
    assert!(table.transfer(slot).is_none());
    for tag in (0..).take(R2T_PER_COMMAND_MAX) {
        assert!(table.push_transfer(slot, transfer(tag)));
    }
    assert!(!table.push_transfer(slot, transfer(9)));
    assert_eq!(table.transfer(slot).unwrap().tag, 0);
    table.pop_transfer(slot);
    assert_eq!(table.transfer(slot).unwrap().tag, 1);
    assert!(table.slot(slot).has_transfers());
    for _ in 1..R2T_PER_COMMAND_MAX {
        table.pop_transfer(slot);
    }
    assert!(!table.slot(slot).has_transfers() && table.transfer(slot).is_none());
}
