//! A switchboard of which all rings break under load, or a single one: nobody waits for ever.
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

/// Reads 32 times at once, and counts those that the switchboard did not answer any more.
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

/// Lets those rings of a switchboard break that `chosen` picks; how many it had.
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
    // Those that are answered before the threads notice are good; the rest ends all the same. A
    // thread that has nothing to do notices when it is told something.
    while round(&mut bench) == 0 {
        let _ = board.set_knobs(&knobs);
    }
    assert_eq!(bench.read(0, 1).unwrap_err(), BlockError::Gone);
    bench.shut();

    // Neither can anybody join, nor does the end wait for those who are dead.
    board.set_knobs(&Knobs::linux()).unwrap_err();
    device.open(&mut driver()).unwrap_err();
    drop((device, board));
    of_board.len()
}

/// The only test of this program: another one's rings would be taken for the switchboard's.
#[test]
fn what_is_outstanding_and_what_comes_later_fails_when_any_ring_breaks() {
    let count = breaks(|_| true);
    assert!(count > 0);
    for alone in 0..count {
        assert_eq!(breaks(|index| index == alone), count);
    }
}
