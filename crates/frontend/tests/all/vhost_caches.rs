//! Lost device caches, as reported to the machines of the vhost-user back end.

use crate::back_ends::{forgetful, options, ram, serve};
use crate::guests::{FLUSH, Guest, IN, IO_ERROR, OK, OUT};
use block::layer::fault::{Fault, FaultEffect, FaultOperation, FaultOptions, FaultRule};
use block::{BlockError, Cache, CacheOptions, Device};
use load::vhost::ring::Data;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use switchyard_frontend::vhost::{VhostOptions, VhostServer};

/// The back end is killed, and another process continues.
fn next_back_end(
    last: VhostServer,
    guest: &mut Guest,
    device: &Arc<dyn Device>,
    options: &VhostOptions,
) -> VhostServer {
    drop(last);
    let server = serve(device, options);
    guest.reconnect(server.socket());
    server
}

fn write(guest: &mut Guest) {
    guest.ring.add(0, OUT, 0, 0, Data::Out(4096));
    assert_eq!(guest.answers(1), [OK]);
}

fn flush(guest: &mut Guest) -> u8 {
    guest.ring.add(0, FLUSH, 0, 0, Data::None);
    guest.answers(1)[0]
}

/// If the target restarts while no back end runs, the next one sees no loss itself; the guest's
/// flush must fail because its writes are lost.
#[test]
fn a_cache_that_was_lost_between_two_back_ends_fails_one_flush() {
    let (target, options) = (Arc::new(AtomicU64::new(7)), options());
    let device = || -> Arc<dyn Device> { forgetful(&target) };
    let mut server = serve(&device(), &options);
    let mut guest = Guest::connect(server.socket());
    guest.track();
    write(&mut guest);
    server = next_back_end(server, &mut guest, &device(), &options);
    assert_eq!(flush(&mut guest), OK, "nothing was lost");
    write(&mut guest);
    target.store(8, Ordering::SeqCst);
    // The second one is killed before the guest flushes.
    for _ in 0..2 {
        server = next_back_end(server, &mut guest, &device(), &options);
        write(&mut guest);
    }
    // Concurrent flushes report the same result.
    guest.ring.add(0, FLUSH, 0, 0, Data::None);
    guest.ring.add(1, FLUSH, 0, 0, Data::None);
    assert_eq!(guest.answers(2), [IO_ERROR; 2]);
    assert_eq!(flush(&mut guest), OK, "it is told");
    server = next_back_end(server, &mut guest, &device(), &options);
    assert_eq!(flush(&mut guest), OK, "it stays told");
    // A machine that continues with the same back end, or with a new one, has lost nothing.
    target.store(9, Ordering::SeqCst);
    guest.reconnect(server.socket());
    assert_eq!(flush(&mut guest), OK);
    drop(guest);
    let mut other = Guest::connect(server.socket());
    other.track();
    assert_eq!(flush(&mut other), OK);
}

/// The device must account for writes that another process made in this cache life.
#[test]
fn a_cache_that_is_lost_before_the_first_flush_of_a_back_end_fails_it() {
    let (target, options) = (Arc::new(AtomicU64::new(7)), options());
    let device = || -> Arc<dyn Device> { forgetful(&target) };
    let server = serve(&device(), &options);
    let mut guest = Guest::connect(server.socket());
    guest.track();
    write(&mut guest);
    let _server = next_back_end(server, &mut guest, &device(), &options);
    target.store(8, Ordering::SeqCst);
    assert_eq!(flush(&mut guest), IO_ERROR);
    assert_eq!(flush(&mut guest), OK);
}

/// The pages of the cache were memory of the killed back end.
#[test]
fn a_cache_that_was_lost_with_its_back_end_fails_one_flush() {
    let (ram, options) = (ram(), options());
    // Data that a killed back end does not write back.
    let rule = FaultRule {
        operation: FaultOperation::Write,
        ..FaultRule::new(FaultEffect::Error(BlockError::WriteFailure))
    };
    let faults = FaultOptions {
        seed: 1,
        rules: vec![rule],
    };
    let killed = Fault::new(Arc::clone(&ram), &faults).unwrap();
    let cached = |below: Arc<dyn Device>| -> Arc<dyn Device> {
        Arc::new(Cache::new(below, CacheOptions::new(256)).unwrap())
    };
    let server = serve(&cached(Arc::new(killed)), &options);
    let mut guest = Guest::connect(server.socket());
    guest.track();
    guest.ring.put(0, 0, &[7; 4096]);
    write(&mut guest);
    let _server = next_back_end(server, &mut guest, &cached(ram), &options);
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
    let mut block = [7; 4096];
    guest.ring.get(0, &mut block);
    assert_eq!(block, [0; 4096], "it was lost");
    assert_eq!(flush(&mut guest), IO_ERROR);
    assert_eq!(flush(&mut guest), OK);
}

#[test]
fn a_life_that_is_not_known_is_another_one_unless_nothing_can_be_lost() {
    let target = |life| Arc::new(AtomicU64::new(life));
    let (unknown, known) = (target(0), target(7));
    let remote = |target| -> Arc<dyn Device> { forgetful(target) };
    for (device, is_tracked, expected) in [
        (remote(&unknown), true, IO_ERROR),
        (remote(&unknown), false, IO_ERROR),
        (remote(&known), true, OK),
        // It has no memory for the mark.
        (remote(&known), false, IO_ERROR),
        (ram(), true, OK),
        (ram(), false, OK),
    ] {
        let options = options();
        let server = serve(&device, &options);
        let mut guest = Guest::connect(server.socket());
        if is_tracked {
            guest.track();
        }
        assert_eq!(flush(&mut guest), OK, "another process wrote nothing");
        write(&mut guest);
        drop(server);
        let server = serve(&device, &options);
        for (base, expected) in [(2, expected), (3, OK)] {
            if is_tracked {
                guest.reconnect(server.socket());
            } else {
                guest.reconnect_untracked(server.socket(), base);
            }
            assert_eq!(flush(&mut guest), expected, "{device:?}, {is_tracked}");
        }
    }
}

/// The loss must be reported to the machine that wrote, not only to another one.
#[test]
fn a_machine_hears_of_a_cache_that_was_lost_while_another_one_was_served() {
    for is_tracked in [true, false] {
        let (target, options) = (Arc::new(AtomicU64::new(7)), options());
        let remote = forgetful(&target);
        let server = serve(&(Arc::clone(&remote) as _), &options);
        let mut guest = Guest::connect(server.socket());
        if is_tracked {
            guest.track();
        }
        write(&mut guest);
        guest.leave();
        let mut other = Guest::connect(server.socket());
        remote.lose();
        // As many requests as the first machine's, so that the queues look the same.
        assert_eq!(flush(&mut other), IO_ERROR);
        drop(other);
        for (base, expected) in [(1, IO_ERROR), (2, OK)] {
            guest.come_back(server.socket(), base);
            assert_eq!(flush(&mut guest), expected, "{is_tracked}");
        }
        guest.leave();
        let mut other = Guest::connect(server.socket());
        other.track();
        write(&mut other);
        assert_eq!(flush(&mut other), OK);
        drop(other);
        // A machine whose record has the current life gets no report of another life's end.
        guest.come_back(server.socket(), 3);
        let expected = if is_tracked { OK } else { IO_ERROR };
        assert_eq!(flush(&mut guest), expected, "{is_tracked}");
    }
}

/// Another machine's flush must not consume the report.
#[test]
fn a_machine_that_goes_before_it_is_told_of_a_loss_is_told_when_it_comes_back() {
    for is_tracked in [true, false] {
        let (target, options) = (Arc::new(AtomicU64::new(7)), options());
        let device = || -> Arc<dyn Device> { forgetful(&target) };
        let server = serve(&device(), &options);
        let mut guest = Guest::connect(server.socket());
        if is_tracked {
            guest.track();
        }
        write(&mut guest);
        drop(server);
        target.store(8, Ordering::SeqCst);
        let server = serve(&device(), &options);
        guest.come_back(server.socket(), 1);
        write(&mut guest);
        guest.leave();
        let mut other = Guest::connect(server.socket());
        write(&mut other);
        assert_eq!(flush(&mut other), OK, "nothing of its was lost");
        drop(other);
        guest.come_back(server.socket(), 2);
        assert_eq!(flush(&mut guest), IO_ERROR, "{is_tracked}");
        assert_eq!(flush(&mut guest), OK, "{is_tracked}");
    }
}

/// A back end that has served some machine must not treat every machine as known.
#[test]
fn a_machine_that_comes_from_another_back_end_is_not_taken_for_one_that_was_served() {
    for is_tracked in [true, false] {
        let (target, here, there) = (Arc::new(AtomicU64::new(7)), options(), options());
        let device = || -> Arc<dyn Device> { forgetful(&target) };
        let server = serve(&device(), &here);
        let mut guest = Guest::connect(server.socket());
        assert_eq!(flush(&mut guest), OK);
        let elsewhere = serve(&device(), &there);
        guest.come_back(elsewhere.socket(), 1);
        // Its unflushed writes are known only after a first flush.
        assert_eq!(flush(&mut guest), IO_ERROR);
        write(&mut guest);
        target.store(8, Ordering::SeqCst);
        if is_tracked {
            guest.reconnect_anew(server.socket());
        } else {
            guest.come_back(server.socket(), 3);
        }
        // A back end that ends before it has reported to the machine leaves the report to the next
        // one.
        drop(server);
        let server = serve(&device(), &here);
        guest.come_back(server.socket(), 3);
        assert_eq!(flush(&mut guest), IO_ERROR, "{is_tracked}");
        assert_eq!(flush(&mut guest), OK, "{is_tracked}");
        guest.leave();
        // Both have served it, and both know of lost writes.
        guest.come_back(elsewhere.socket(), 5);
        assert_eq!(flush(&mut guest), IO_ERROR, "{is_tracked}");
        write(&mut guest);
        target.store(9, Ordering::SeqCst);
        guest.come_back(server.socket(), 7);
        assert_eq!(flush(&mut guest), IO_ERROR, "{is_tracked}");
        assert_eq!(flush(&mut guest), OK, "{is_tracked}");
    }
}

/// A removed device must not report a capacity of zero.
#[test]
fn a_machine_that_goes_before_its_queue_starts_gets_no_name_and_no_mark_of_another_one() {
    let (target, here, there) = (Arc::new(AtomicU64::new(7)), options(), options());
    let remote = forgetful(&target);
    let server = serve(&(Arc::clone(&remote) as _), &here);
    let elsewhere = serve(&(forgetful(&target) as _), &there);
    let mut guest = Guest::connect(server.socket());
    guest.track();
    write(&mut guest);
    guest.leave();
    let mut other = Guest::connect(elsewhere.socket());
    other.glance(server.socket());
    other.come_back(server.socket(), 0);
    write(&mut other);
    remote.lose();
    assert_eq!(flush(&mut other), IO_ERROR);
    drop(other);
    guest.come_back(server.socket(), 1);
    assert_eq!(flush(&mut guest), IO_ERROR);
    guest.leave();
    let mut third = Guest::connect(elsewhere.socket());
    write(&mut third);
    remote.lose();
    third.glance(server.socket());
    third.come_back(server.socket(), 1);
    assert_eq!(flush(&mut third), IO_ERROR);
    assert_eq!(flush(&mut third), OK);
}
