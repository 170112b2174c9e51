//! Channels that are dropped while the kernel or another thread executes their transfers.

use super::*;
use crate::testing::Clock;
use crate::testing::holding_driver;
use crate::{Channel, Request, Submit};
use base::Time;
use base::units::Lba;
use reactor::{Context, Driver, IoSlice, Service as _, Wait};
use std::cell::Cell;
use std::rc::Rc;

/// Submits a write of a page, or a Flush.
fn submit(channel: &mut dyn Channel, driver: &mut dyn Driver, operation: Operation) -> Submit {
    let data = operation.has_data().then(|| {
        let mut buffer = driver.buffers().take(4096).expect("a free buffer");
        buffer.fill(7);
        IoSlice::from_buffer(buffer, 4096)
    });
    let request = Request {
        tag: 1,
        operation,
        lba: Lba(5),
        blocks: u32::from(data.is_some()),
        data,
    };
    let now = driver.now();
    channel.submit(request, &mut Context { now, driver })
}

/// Otherwise another channel could write the page again before the old write lands.
#[test]
fn a_page_is_let_go_once_the_kernel_is_done_with_its_write_back() {
    let options_of_file = FileOptions {
        path: crate::temporary("device"),
        block_bytes: 4096,
        size: Some(SIZE),
        create: true,
        read_only: false,
        direct: true,
    };
    let file = FileDevice::open(options_of_file).expect("a file");
    let cache = cache(Arc::new(file), options(64, 32, 32));
    let (mut driver, writer) = holding_driver();
    let mut channel = cache.open(&mut driver).expect("it opens");
    let write = Operation::Write { durable: false };
    let done = submit(&mut *channel, &mut driver, write);
    assert!(matches!(done, Submit::Done(_)), "it is in the cache");
    let queued = submit(&mut *channel, &mut driver, Operation::Flush);
    assert!(matches!(queued, Submit::Queued));
    channel.kick(&mut Context::begin(&mut driver));
    drop(channel);
    let mut completions = Vec::new();
    for _ in 0..3 {
        driver.reap(Wait::No, &mut completions).expect("it works");
        assert!(!cache.shared.lock().table.is_idle(), "it may still land");
        assert!(cache.has_channels());
    }
    drop(writer);
    while completions.is_empty() {
        let forever = Wait::Until(Time::NEVER);
        driver.reap(forever, &mut completions).expect("it works");
    }
    assert!(cache.shared.lock().table.is_idle());
    assert!(!cache.has_channels());
    assert_eq!(cache.snapshot().dirty, 1, "it was not known to be saved");
}

/// The dispatcher of a path executes the write-back; its device takes 50 ms.
#[test]
fn a_page_is_let_go_once_another_thread_is_done_with_its_write_back() {
    let options_of_delay = DelayOptions {
        write: Nanos::from_millis(50),
        ..DelayOptions::default()
    };
    let below = Arc::new(Delay::new(ram(4096), options_of_delay));
    let path = PathDevice::unattended(below, Path::Poll, PathRules::default()).expect("good rules");
    let mut own = Clock::driver(driver(), Rc::new(Cell::new(Time(1))));
    let mut dispatchers = Clock::driver(driver(), Rc::new(Cell::new(Time(1))));
    let mut dispatcher = path.dispatcher(&mut dispatchers).expect("it opens");
    let cache = Cache::over_path(path, options(64, 32, 32)).expect("legal options");
    let mut channel = cache.open(&mut own).expect("it opens");
    let write = Operation::Write { durable: false };
    let done = submit(&mut *channel, &mut own, write);
    assert!(matches!(done, Submit::Done(_)), "it is in the cache");
    let queued = submit(&mut *channel, &mut own, Operation::Flush);
    assert!(matches!(queued, Submit::Queued));
    channel.kick(&mut Context::begin(&mut own));
    dispatcher.maintain(&mut Context::begin(&mut dispatchers));
    drop(channel);
    assert!(!cache.shared.lock().table.is_idle(), "it may still land");
    dispatchers.replaced.set(Time(1) + Nanos::from_millis(50));
    dispatcher.maintain(&mut Context::begin(&mut dispatchers));
    assert!(cache.shared.lock().table.is_idle());
}
