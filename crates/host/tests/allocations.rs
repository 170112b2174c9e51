//! The warm I/O path does not allocate: a counting allocator watches the thread.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::unwrap_used)] // What fails here fails the test.
#![allow(unsafe_code)] // A global allocator is an unsafe trait; this one only counts.

#[path = "all/setup/mod.rs"]
mod setup;

use block::{Operation, Submit};
use host::{Host, Switchboard, SwitchboardOptions};
use reactor::placement::allowed_cores;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use switch::Knobs;
use testing::device::conformance::Bench;
use testing::peer::{Behaviour, NQN, Peer};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The thread's counter may already be destroyed while the thread ends.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's guarantee is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_queue_does_not_allocate() {
    let behaviour = Behaviour {
        in_capsule_bytes: 4096,
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, behaviour);
    for digests in [false, true] {
        let host = Host::builder().digests(digests, digests).build().unwrap();
        let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
        let namespace = subsystem.namespace(1).unwrap();
        let mut queue = namespace.queue(32).unwrap();
        let data = vec![7; 65_536];
        // Few completions are returned at a time, then all at once: the queue has room for all
        // completed requests.
        let mut round = |at_once: bool| {
            for tag in 0..8 {
                queue.write(tag, tag * 4096, &data[..4096]).unwrap();
                queue.read(tag, tag * 4096, 4096).unwrap();
                queue.write(tag, tag * 65_536, &data).unwrap();
                queue.read(tag, tag * 65_536, 65_536).unwrap();
            }
            while queue.outstanding() > 0 {
                let least = if at_once { queue.outstanding() } else { 1 };
                for done in queue.wait(least).unwrap() {
                    done.result.unwrap();
                }
            }
        };
        for _ in 0..50 {
            round(false);
        }
        let before = COUNT.get();
        for _ in 0..200 {
            round(true);
        }
        assert_eq!(COUNT.get() - before, 0, "digests {digests}");
    }
}

/// Requests with memory of their own are copied through the submitter's memory, without an
/// allocation per copy.
#[test]
fn a_warm_submitter_does_not_allocate() {
    let running = setup::start(1);
    let (_host, subsystem) = setup::connect(&running);
    let cores = allowed_cores().unwrap();
    let knobs = Knobs::switchyard();
    let board = Switchboard::start(&SwitchboardOptions { cores, knobs }).unwrap();
    let device = setup::switched(&board, &subsystem, 1).with_requests(8, 65_536);
    let mut bench = Bench::open(setup::driver(), &device).unwrap();
    let mut round = || {
        for n in 0..4 {
            let write = Operation::Write { durable: false };
            for operation in [write, Operation::Read] {
                let request = bench.request(operation, n * 16, 16);
                assert!(matches!(bench.submit(request), Submit::Queued));
            }
        }
        for _ in 0..8 {
            bench.wait().result.unwrap();
        }
    };
    for _ in 0..50 {
        round();
    }
    let before = COUNT.get();
    for _ in 0..200 {
        round();
    }
    assert_eq!(COUNT.get() - before, 0);
    bench.shut();
}
