//! Writes that a thread leaves outstanding in a switchboard.

use crate::peer::{Behaviour, connected};
use crate::setup;
use base::Nanos;
use block::{BlockError, Device, Operation, PathDevice, Submit};
use host::{Switchboard, SwitchboardOptions};
use reactor::placement::allowed_cores;
use reactor::uring::UringDriver;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use switch::{Knobs, Path, PathRules};
use testing::device::conformance::Bench;

/// Time after which a waiting test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn write(bench: &mut Bench<UringDriver>, lba: u64, fill: u8) -> u64 {
    let mut request = bench.request(Operation::Write { durable: false }, lba, 1);
    request.data.as_mut().unwrap().copy_in(0, &[fill; 512]);
    let tag = request.tag;
    assert!(matches!(bench.submit(request), Submit::Queued));
    tag
}

fn turn(
    benches: &mut [Bench<UringDriver>],
    mut done: impl FnMut(&mut [Bench<UringDriver>]) -> bool,
) {
    let end = Instant::now() + PATIENCE;
    while !done(benches) {
        assert!(Instant::now() < end, "it waits for ever");
        for bench in &mut *benches {
            bench.turn(Nanos::from_millis(1));
        }
    }
}

/// Threads share a path over a switchboard. The thread that runs it has another thread's write in
/// flight when it ends; that write must not be reported as aborted while the lane still has it,
/// because it could overwrite a newer one.
#[test]
fn a_write_that_a_runner_left_behind_undoes_no_newer_one() {
    let (peer, _host, subsystem) = connected(Behaviour {
        // Enough for any number of cores of the machine.
        io_queues: 128,
        // A held write completes without requesting more data.
        in_capsule_bytes: 4096,
        ..Behaviour::default()
    });
    let (cores, knobs) = (allowed_cores().unwrap(), Knobs::switchyard());
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
    let below = Arc::new(setup::switched(&board, &subsystem, 1));
    let device = PathDevice::start(below, Path::Stm, PathRules::default()).unwrap();
    let device = device.with_requests(8, 4096);
    let open = || Bench::open(setup::driver(), &device as &dyn Device).unwrap();
    let mut benches = vec![open(), open()];
    peer.change(|behaviour| behaviour.hold = 2);
    // The second one is elected, and takes both requests.
    write(&mut benches[1], 1, 7);
    let left = write(&mut benches[0], 2, 8);
    benches[1].turn(Nanos::ZERO);
    turn(&mut benches, |_| peer.seen.held.load(Ordering::SeqCst) == 2);
    drop(benches.pop());
    let done = benches[0].wait();
    assert_eq!((done.tag, done.result), (left, Err(BlockError::Aborted)));

    write(&mut benches[0], 2, 9);
    let (mut newer, mut released) = (None, false);
    turn(&mut benches, |benches| {
        newer = newer.take().or_else(|| benches[0].finished());
        // It waits for the answers, which the target sends on request.
        if !released && (newer.is_some() || peer.seen.aborts.load(Ordering::SeqCst) == 2) {
            assert_eq!(peer.release(), 2);
            released = true;
        }
        released && newer.is_some()
    });
    assert_eq!(newer.unwrap().result, Ok(()));
    assert_eq!(peer.memory()[1024..1536], [9; 512]);
    for bench in &mut benches {
        bench.shut();
    }
}
