//! Threads of a load that share a processor, with a clock that the test sets.

use super::*;
use crate::run::{Load, LoadOptions, driver_options, plan_all};
use base::Nanos;
use block::Device;
use block::device::Flash;
use reactor::uring::UringDriver;
use reactor::{Driver, Service};
use std::cell::Cell;
use std::rc::Rc;
use testing::device::{Clock, ClockedDriver};

const THREADS: u64 = 8;

/// Time slice of a thread on the processor; all other threads wait.
const SLICE: Nanos = Nanos::from_millis(10);

const WARMUP: Nanos = Nanos::from_millis(20);
const MEASURED: Nanos = Nanos::from_millis(200);

/// Threads of the load that poll a device with one command at a time, and share a processor.
fn threads(device: &Flash, time: &Rc<Cell<Time>>) -> Vec<(Worker, ClockedDriver)> {
    let options = LoadOptions {
        warmup: WARMUP.into(),
        measured: MEASURED.into(),
        seed: 7,
        ..LoadOptions::default()
    };
    let app = format!("a:rw=randread,count={THREADS}").parse().unwrap();
    let device_of_plan = Arc::new(Flash::new(device.profile(), 4 << 20, 4096).unwrap());
    let load = Load {
        app,
        device: device_of_plan,
    };
    let jobs = plan_all(&[load], &options).unwrap().into_iter();
    jobs.map(|(_, job)| {
        let inner = UringDriver::new(&driver_options(&job)).unwrap();
        let mut driver = Clock::driver(inner, Rc::clone(time));
        let channel = device.open(&mut driver).unwrap();
        let pool = driver.buffers().clone();
        let worker = Worker::new(
            job,
            channel,
            &pool,
            Arc::new(Progress::new(4096)),
            Box::new(|| ()),
        )
        .unwrap();
        (worker, driver)
    })
    .collect()
}

/// A turn of a thread, which takes a microsecond.
fn turn(worker: &mut Worker, driver: &mut ClockedDriver, time: &Cell<Time>) {
    worker.maintain(&mut Context::begin(driver));
    time.set(time.get() + Nanos::from_micros(1));
}

/// Regression: each thread counted for the measured time from its own first turn on. Eight threads
/// reported a fifth more than the device had done, and 64 threads of a real load twice as much.
#[test]
fn threads_that_share_a_processor_count_what_the_device_did_and_no_more() {
    let device = Flash::new("dram-ssd+5us".parse().unwrap(), 4 << 20, 4096).unwrap();
    let time = Rc::new(Cell::new(Time::ZERO));
    let mut threads = threads(&device, &time);
    for (worker, driver) in &mut threads {
        while worker.phase != Phase::Ready {
            turn(worker, driver, &time);
        }
    }
    let start = time.get();
    for (worker, driver) in &mut threads {
        worker.message(Message::Start(start), &mut Context::begin(driver));
    }
    let done = || device.device_time().unwrap().requests;
    let (mut before, mut after) = (None, None);
    while threads.iter().any(|(worker, _)| worker.ended.is_none()) {
        for (worker, driver) in &mut threads {
            let slice_ends = time.get() + SLICE;
            while time.get() < slice_ends {
                if time.get() >= start + WARMUP {
                    before.get_or_insert_with(done);
                }
                if time.get() >= start + WARMUP + MEASURED {
                    after.get_or_insert_with(done);
                }
                turn(worker, driver, &time);
            }
        }
    }
    let counted: f64 = threads
        .into_iter()
        .map(|(worker, _)| {
            let measured = worker.into_result().unwrap();
            measured.requests as f64 * 1e9 / measured.elapsed.0 as f64
        })
        .sum();
    let did = (after.unwrap() - before.unwrap()) as f64 * 1e9 / MEASURED.0 as f64;
    // A request of each thread may be in flight at either end.
    let rest = THREADS as f64 * 1e9 / MEASURED.0 as f64;
    assert!(
        (counted - did).abs() <= rest,
        "counted {counted} requests a second, of {did}"
    );
}
