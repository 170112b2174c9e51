//! Runners that are dropped while the kernel executes requests of other threads.

use super::*;
use crate::testing::holding_driver;
use reactor::Wait;

fn file() -> Arc<dyn Device> {
    let options = FileOptions {
        path: crate::temporary("device"),
        block_bytes: BLOCK,
        size: Some(64 * u64::from(BLOCK)),
        create: true,
        read_only: false,
        direct: true,
    };
    Arc::new(FileDevice::open(options).expect("a file"))
}

/// Submits a request over one block, in memory of the channel.
fn put(channel: &mut dyn Channel, driver: &mut dyn Driver, operation: Operation, lba: u64) {
    let request = Request {
        tag: lba,
        operation,
        lba: Lba(lba),
        blocks: 1,
        data: channel.memory(BLOCK as usize),
    };
    let now = driver.now();
    let submit = channel.submit(request, &mut Context { now, driver });
    assert!(matches!(submit, Submit::Queued), "{submit:?}");
}

fn end_of(channel: &mut dyn Channel, driver: &mut dyn Driver) -> Option<Result<(), BlockError>> {
    let now = driver.now();
    channel.tick(&mut Context { now, driver });
    channel.reap().map(|done| done.result)
}

/// If they were aborted at once, memory would be reused that the kernel still reads or writes, and
/// a write could land after a later one.
#[test]
fn requests_of_others_are_aborted_once_the_kernel_is_done_with_them() {
    for operation in [Operation::Read, Operation::Write { durable: false }] {
        for driver_ends in [false, true] {
            let device = start(file(), Path::Stm);
            let mut second = driver();
            let (mut first, writer) = holding_driver();
            let mut runs = device.open(&mut first).expect("it opens");
            let mut waits = device.open(&mut second).expect("it opens");
            put(&mut *runs, &mut first, operation, 1);
            put(&mut *waits, &mut second, operation, 2);
            runs.kick(&mut Context::begin(&mut first));
            let mut completions = Vec::new();
            first.reap(Wait::No, &mut completions).expect("it works");
            drop(runs);
            for _ in 0..3 {
                first.reap(Wait::No, &mut completions).expect("it works");
                assert_eq!(end_of(&mut *waits, &mut second), None, "{operation:?}");
            }
            assert!(completions.is_empty(), "the kernel works on both");
            drop(writer);
            if driver_ends {
                drop(first);
            } else {
                while completions.len() < 2 {
                    let forever = Wait::Until(Time::NEVER);
                    first.reap(forever, &mut completions).expect("it works");
                }
            }
            let aborted = Some(Err(BlockError::Aborted));
            assert_eq!(end_of(&mut *waits, &mut second), aborted, "{operation:?}");
        }
    }
}
