//! A switchboard whose rings all fail under load, or a single one: no caller waits forever.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::unwrap_used)] // What fails here fails the test.
#![allow(unsafe_code)] // Nobody but this test closes a descriptor that another thread owns.

mod rings;
#[path = "all/setup/mod.rs"]
mod setup;

use block::{BlockError, Device as _, Operation, Submit};
use host::{Switchboard, SwitchboardOptions};
use reactor::placement::allowed_cores;
use reactor::uring::UringDriver;
use rings::{break_ring, rings};
use setup::{connect, driver, start, switched};
use switch::{Class, Knobs};
use testing::device::conformance::Bench;

/// Submits 32 reads at once, and returns the number that the switchboard no longer answered.
fn round(bench: &mut Bench<UringDriver>) -> usize {
    let mut ends = Vec::new();
    let mut queued = 0;
    for n in 0..32 {
        let request = bench.request(Operation::Read, n * 16, 16);
        match bench.submit(request) {
            Submit::Queued => queued += 1,
            Submit::Done(done) => ends.push(done.result),
            Submit::Busy(_) => panic!("there is room for 32"),
        }
    }
    ends.extend((0..queued).map(|_| bench.wait().result));
    let failed: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
    assert!(
        failed.iter().all(|error| *error == BlockError::Gone),
        "{failed:?}"
    );
    failed.len()
}

/// Breaks the rings of a switchboard that `chosen` selects. Returns their total number.
fn breaks(chosen: impl Fn(usize) -> bool) -> usize {
    let running = start(2);
    let (_host, subsystem) = connect(&running);
    let own = driver();
    let before = rings();
    let cores = allowed_cores().unwrap();
    let knobs = Knobs::switchyard();
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
    let of_board: Vec<_> = rings().difference(&before).copied().collect();

    let device = switched(&board, &subsystem, 1)
        .with_class(Class::Throughput)
        .with_requests(32, 65_536);
    let mut bench = Bench::open(own, &device).unwrap();
    bench.read(0, 1).unwrap();
    for (index, &ring) in of_board.iter().enumerate() {
        if chosen(index) {
            break_ring(ring);
        }
    }
    // Requests answered before the threads notice succeed; all remaining ones end with an error. An
    // idle thread notices at the next message.
    while round(&mut bench) == 0 {
        let _ = board.set_knobs(&knobs);
    }
    assert_eq!(bench.read(0, 1).unwrap_err(), BlockError::Gone);
    bench.shut();

    // No submitter can join, and the end does not wait for the failed threads.
    board.set_knobs(&Knobs::linux()).unwrap_err();
    device.open(&mut driver()).unwrap_err();
    drop((device, board));
    of_board.len()
}

/// The only test of this program, because another test's rings would be taken for the
/// switchboard's.
#[test]
fn what_is_outstanding_and_what_comes_later_fails_when_any_ring_breaks() {
    let count = breaks(|_| true);
    assert!(count > 0);
    for alone in 0..count {
        assert_eq!(breaks(|index| index == alone), count);
    }
}
