//! A change by another channel between two steps of a turn wakes the waiting channel.

use super::*;
use crate::device::{Channel, Submit};
use crate::request::{Completion, Request};
use crate::testing::TestDevice;
use base::Time;
use base::units::Lba;
use reactor::{Context, Driver as _, IoSlice};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const DURABLE: Operation = Operation::Write { durable: true };
const VOLATILE: Operation = Operation::Write { durable: false };

thread_local! {
    /// Operation whose held requests are executed.
    static RELEASED: Cell<Operation> = const { Cell::new(DURABLE) };
    /// Runs when a durable write reaches the device.
    static AT_DURABLE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A channel that holds reads and writes until their operation is released.
#[derive(Debug)]
struct HoldingChannel {
    below: Box<dyn Channel>,
    held: Vec<Request>,
    done: Vec<Completion>,
}

impl Channel for HoldingChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if request.operation == Operation::Flush {
            return self.below.submit(request, cx);
        }
        if request.operation == DURABLE
            && let Some(run) = AT_DURABLE.take()
        {
            run();
        }
        self.held.push(request);
        Submit::Queued
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let released = |request: &mut Request| request.operation == RELEASED.get();
        for request in self.held.extract_if(.., released) {
            match self.below.submit(request, cx) {
                Submit::Done(completion) => self.done.push(completion),
                other => panic!("memory answers at once: {other:?}"),
            }
        }
    }
}

fn request(driver: &UringDriver, tag: u64, operation: Operation, page: u64) -> Request {
    let data = || {
        let buffer = driver.buffers().take(4096).expect("a free buffer");
        IoSlice::from_buffer(buffer, 4096)
    };
    Request {
        tag,
        operation,
        lba: Lba(page),
        blocks: u32::from(operation.has_data()),
        data: operation.has_data().then(data),
    }
}

/// Pages that were written back before a request needs them must not stay plugged for the whole
/// delay, here forever: the path has no dispatcher, and the clock is stopped.
#[test]
fn a_request_that_waits_for_plugged_pages_unplugs_them() {
    let waits_for_pages = [Operation::Flush, DURABLE, Operation::Verify];
    let plugged = [Path::Atm, Path::Htm, Path::VfsHtm];
    let cases = plugged.into_iter();
    for (path, operation) in cases.flat_map(|path| waits_for_pages.map(|what| (path, what))) {
        let below = PathDevice::unattended(ram(4096), path, PathRules::default());
        let below = below.expect("legal rules");
        let cache = Cache::over_path(below, options(64, 0, 32)).expect("legal options");
        let (mut first, mut second) = (driver(), driver());
        let mut writes = cache.open(&mut first).expect("it opens");
        let mut waits = cache.open(&mut second).expect("it opens");
        let now = Time::ZERO + Nanos::from_secs(1);
        let write = request(&first, 1, VOLATILE, 3);
        let mut cx = Context {
            now,
            driver: &mut first,
        };
        let submit = writes.submit(write, &mut cx);
        assert!(matches!(submit, Submit::Done(_)), "{submit:?}");
        writes.kick(&mut cx);
        let asks = request(&second, 2, operation, 3);
        let asks = Request { blocks: 1, ..asks };
        let mut cx = Context {
            now,
            driver: &mut second,
        };
        let submit = waits.submit(asks, &mut cx);
        assert!(matches!(submit, Submit::Queued), "{submit:?}");
        let mut done = None;
        for _ in 0..4 {
            waits.kick(&mut cx);
            writes.tick(&mut Context {
                now,
                driver: &mut first,
            });
            done = done.or_else(|| waits.reap());
        }
        let result = done.map(|done| done.result);
        assert_eq!(result, Some(Ok(())), "{path}, {operation:?}");
    }
}

/// The last write-back that a Flush waits for ends after the Flush has checked and before its
/// channel registers to be woken: the channel must not sleep then.
#[test]
fn a_flush_is_woken_by_a_write_back_that_ends_within_its_turn() {
    let below = TestDevice::new(ram(4096), |below| {
        Box::new(HoldingChannel {
            below,
            held: Vec::new(),
            done: Vec::new(),
        })
    });
    let cache = cache(Arc::new(below), options(64, 0, 32));
    // One channel writes page 5 back and fills page 9; the device holds both.
    let other = Rc::new(RefCell::new(open(&cache)));
    let turn_other = |released| {
        RELEASED.set(released);
        other.borrow_mut().turn(Nanos::ZERO);
    };
    let submit_other = |operation, page| {
        let mut other = other.borrow_mut();
        let request = other.request(operation, page, 1);
        other.submit(request)
    };
    assert!(matches!(submit_other(VOLATILE, 5), Submit::Done(_)));
    assert!(matches!(submit_other(Operation::Read, 9), Submit::Queued));
    turn_other(DURABLE);
    assert_eq!(cache.snapshot().dirty, 1, "it is on its way");

    // The other channel waits with a Flush, followed by a write to the page that is being filled.
    let mut driver = driver();
    let mut channel = cache.open(&mut driver).expect("it opens");
    for (tag, operation, page) in [(1, Operation::Flush, 0), (2, DURABLE, 9)] {
        let request = request(&driver, tag, operation, page);
        let submitted = channel.submit(request, &mut Context::begin(&mut driver));
        assert!(matches!(submitted, Submit::Queued));
    }
    channel.tick(&mut Context::begin(&mut driver));

    // The fill ends. In the resulting turn, the write-back ends after the Flush has checked.
    turn_other(Operation::Read);
    let writer = Rc::clone(&other);
    AT_DURABLE.set(Some(Box::new(move || {
        RELEASED.set(VOLATILE);
        writer.borrow_mut().turn(Nanos::ZERO);
    })));
    channel.tick(&mut Context::begin(&mut driver));
    assert_eq!(cache.snapshot().dirty, 0, "it was written back");
    assert_eq!(channel.deadline(), Time::ZERO, "the Flush is to go on");
    channel.tick(&mut Context::begin(&mut driver));
    let done = channel.reap().expect("the Flush is over");
    assert_eq!((done.tag, done.result), (1, Ok(())));
}
