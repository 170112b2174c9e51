//! A thread of the load allocates nothing after its start, whatever the number of its requests.

use super::progress::Progress;
use super::run::{Load, LoadOptions, driver_options, plan_all};
use super::worker::{Message, Worker};
use base::Time;
use block::Device;
use block::device::{FileDevice, FileOptions, Ram};
use reactor::clock::monotonic;
use reactor::uring::UringDriver;
use reactor::{Core, Driver as _, PollPolicy, Wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Requests of a thread before allocations are counted, and while they are.
const WARM: u64 = 2_000;
const WATCHED: u64 = 2_000;

/// Longer than the requests of a test take on any machine: the load never ends by itself.
const ENDLESS: Duration = Duration::from_secs(24 * 3600);

/// Allocations of a thread that runs `app` on `device`, between its start and its end.
fn allocations(app: &str, device: Arc<dyn Device>, verify: bool) -> u64 {
    let load = Load {
        app: app.parse().unwrap(),
        device: Arc::clone(&device),
    };
    let options = LoadOptions {
        warmup: Duration::ZERO,
        measured: ENDLESS,
        seed: 7,
        verify,
        prefill: verify,
        ..LoadOptions::default()
    };
    let (_, job) = plan_all(&[load], &options).unwrap().remove(0);
    let mut driver = UringDriver::new(&driver_options(&job)).unwrap();
    let channel = device.open(&mut driver).unwrap();
    let progress = Arc::new(Progress::new(job.unit_bytes));
    let ready = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ready);
    let on_ready = Box::new(move || told.store(true, Ordering::Relaxed));
    let pool = driver.buffers().clone();
    let worker = Worker::new(job, channel, &pool, Arc::clone(&progress), on_ready).unwrap();
    let mut core = Core::new(driver, worker, PollPolicy::Auto);
    let done = || progress.completed.load(Ordering::Relaxed);
    while !ready.load(Ordering::Relaxed) {
        core.turn(Wait::No).unwrap();
    }
    let sender = core.sender();
    sender.send(Message::Start(monotonic())).unwrap();
    let mut run = |requests: u64, wait: Wait| {
        let goal = done() + requests;
        while done() < goal {
            core.turn(wait).unwrap();
        }
    };
    run(WARM, Wait::No);
    let counted = allocation_counter::measure(|| {
        run(WATCHED / 2, Wait::No);
        run(WATCHED / 2, Wait::Until(Time::ZERO));
    });
    // Control: the counter must catch a thread that allocates a box.
    let control = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1_u64))));
    assert_eq!(control.count_total, 1);
    sender.send(Message::Stop).unwrap();
    core.run().unwrap();
    let measured = core.service.into_result().unwrap();
    assert_eq!((measured.errors, measured.first_error), (0, None));
    assert!(measured.latency.count() >= WATCHED, "nothing was recorded");
    assert!(!verify || measured.verified > 0, "nothing was compared");
    counted.count_total
}

#[test]
fn a_load_on_memory_allocates_nothing_per_request() {
    for (app, verify) in [
        ("closed:rw=randread,depth=32", false),
        ("mixed:rw=randrw,bs=16k,depth=8", false),
        ("verified:rw=rw,depth=8", true),
        // An open loop at full speed: behind its schedule from the first request on.
        ("open:rw=randread,depth=4,rate=10000000", false),
    ] {
        let ram = Arc::new(Ram::new(4 << 20, 4096).unwrap());
        assert_eq!(allocations(app, ram, verify), 0, "{app}");
    }
}

#[test]
fn a_load_on_a_file_allocates_nothing_per_request() {
    let file = FileDevice::open(FileOptions {
        path: block::temporary("device"),
        block_bytes: 4096,
        size: Some(4 << 20),
        create: true,
        read_only: false,
        direct: true,
    })
    .unwrap();
    assert_eq!(
        allocations("file:rw=randrw,depth=8", Arc::new(file), false),
        0
    );
}
