//! Loads on devices in memory: working devices, and devices that lose data, fail or have no room.

use super::*;
use block::device::{Flash, Ram};
use block::{BlockError, CacheOptions, Channel, Completion, Device, Operation, Request, Submit};
use reactor::Context;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use switch::Knobs;
use switch::knobs::Polling;
use testing::device::TestDevice;

fn options() -> LoadOptions {
    LoadOptions {
        warmup: Duration::from_millis(5),
        measured: Duration::from_millis(80),
        seed: 7,
        ..LoadOptions::default()
    }
}

fn load(app: &str, device: impl Device + 'static) -> Load {
    Load {
        app: app.parse().unwrap(),
        device: Arc::new(device),
    }
}

fn ram() -> Ram {
    Ram::new(4 << 20, 4096).unwrap()
}

fn run_quietly(loads: &[Load], options: &LoadOptions) -> anyhow::Result<LoadReport> {
    run(loads, options, &AtomicBool::new(false), &mut |_| {})
}

/// Returns the first run in which the first app meets the condition. Each run is twice as long as
/// the previous one, because a machine may delay the threads past the end of a short run. The last
/// run has 20 s or more.
fn until(
    options: &LoadOptions,
    run: impl Fn(&LoadOptions) -> LoadReport,
    done: impl Fn(&LoadReport) -> bool,
) -> LoadReport {
    let mut options = options.clone();
    loop {
        let report = run(&options);
        if done(&report) || options.measured > Duration::from_secs(20) {
            return report;
        }
        options.measured *= 2;
    }
}

fn run_until(load: &Load, options: &LoadOptions, some: fn(&AppReport) -> bool) -> LoadReport {
    let run = |options: &LoadOptions| run_quietly(std::slice::from_ref(load), options).unwrap();
    until(options, run, |report| some(&report.apps[0]))
}

fn run_until_errors(load: &Load, options: &LoadOptions) -> LoadReport {
    run_until(load, options, |app| app.errors > 0)
}

/// A run that counts requests.
fn run_counting(load: &Load, options: &LoadOptions) -> LoadReport {
    run_until(load, options, |app| app.iops > 0.0)
}

/// Faults of a device in memory, each at every N-th request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quirk {
    /// Acknowledges writes without storing them.
    LosesWrites,
    /// Returns the unit after the requested one.
    ReadsElsewhere,
    Fails(BlockError),
    /// Takes two requests at a time; they complete on the next turn.
    HasLittleRoom,
    /// Completes after [`LATE`].
    IsLate,
    /// Completes a read only when the channel is closed.
    IsLost,
}

const LATE: base::Nanos = base::Nanos::from_millis(300);

#[derive(Debug)]
struct QuirkyChannel {
    quirk: Quirk,
    every: u64,
    count: u64,
    channel: Box<dyn Channel>,
    queued: VecDeque<Completion>,
    rested: bool,
    late: Option<(base::Time, Completion)>,
    lost: Vec<Completion>,
}

impl Channel for QuirkyChannel {
    fn submit(&mut self, mut request: Request, cx: &mut Context<'_>) -> Submit {
        if self.quirk == Quirk::HasLittleRoom {
            if self.queued.len() == 2 {
                return Submit::Busy(request);
            }
            let Submit::Done(completion) = self.channel.submit(request, cx) else {
                panic!("memory answers at once");
            };
            self.queued.push_back(completion);
            self.rested = false;
            return Submit::Queued;
        }
        self.count += 1;
        let done = |request: Request, result| Submit::Done(request.ended(result));
        // The first request is the probe.
        if self.count == 1 || !self.count.is_multiple_of(self.every) {
            return self.channel.submit(request, cx);
        }
        match (self.quirk, request.operation) {
            (Quirk::Fails(error), _) => done(request, Err(error)),
            (Quirk::LosesWrites, Operation::Write { .. }) => done(request, Ok(())),
            (Quirk::ReadsElsewhere, Operation::Read) => {
                let block = request.lba.0;
                request.lba.0 = (block + u64::from(request.blocks)) % 1024;
                self.channel.submit(request, cx)
            }
            (Quirk::IsLate, _) => {
                let Submit::Done(completion) = self.channel.submit(request, cx) else {
                    panic!("memory answers at once");
                };
                self.late = Some((cx.now + LATE, completion));
                Submit::Queued
            }
            (Quirk::IsLost, Operation::Read) => {
                self.lost.push(request.ended(Err(BlockError::Aborted)));
                Submit::Queued
            }
            _ => self.channel.submit(request, cx),
        }
    }

    fn close(&mut self, _: &mut Context<'_>) {
        self.queued.extend(self.lost.drain(..));
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.rested = true;
        let due = self.late.take_if(|(due, _)| *due <= cx.now);
        self.queued.extend(due.map(|(_, completion)| completion));
    }

    fn reap(&mut self) -> Option<Completion> {
        if self.rested {
            self.queued.pop_front()
        } else {
            None
        }
    }

    fn deadline(&self) -> base::Time {
        if self.queued.is_empty() {
            self.late
                .as_ref()
                .map_or(base::Time::NEVER, |(due, _)| *due)
        } else {
            base::Time::ZERO
        }
    }
}

fn quirky(quirk: Quirk, every: u64) -> TestDevice {
    TestDevice::new(Arc::new(ram()), move |channel| {
        Box::new(QuirkyChannel {
            quirk,
            every,
            count: 0,
            channel,
            queued: VecDeque::new(),
            rested: false,
            late: None,
            lost: Vec::new(),
        })
    })
}

#[test]
fn every_pattern_runs_and_verifies_on_a_good_device() {
    for pattern in [
        "read",
        "write",
        "randread",
        "randwrite",
        "rw",
        "randrw,mix=70",
    ] {
        for verify in [false, true] {
            let app = format!("a:rw={pattern},bs=8k,depth=4,count=2");
            let options = LoadOptions {
                verify,
                prefill: verify,
                ..options()
            };
            let report = run_counting(&load(&app, ram()), &options);
            let app = &report.apps[0];
            assert_eq!(app.errors, 0, "{pattern}: {:?}", app.first_error);
            assert!(app.latency_us.p50 <= app.latency_us.max);
            assert!((app.bytes_per_second - app.iops * 8192.0).abs() < 1.0);
            // Everything was written at least by the prefill, and is read back at the end.
            assert_eq!(app.verified.is_some_and(|verified| verified >= 512), verify);
        }
    }
}

#[test]
fn lost_and_misplaced_data_is_found() {
    let options = LoadOptions {
        verify: true,
        ..options()
    };
    let lost = load("a:rw=randwrite,depth=4", quirky(Quirk::LosesWrites, 5));
    let report = run_until_errors(&lost, &options);
    assert!(report.errors() > 0);
    let first = report.apps[0].first_error.clone().unwrap();
    assert!(first.starts_with("read at block"), "{first}");
    assert!(!report.notes().is_empty());

    let misplaced = load("a:rw=rw", quirky(Quirk::ReadsElsewhere, 3));
    let options = LoadOptions {
        prefill: true,
        ..options
    };
    let report = run_until_errors(&misplaced, &options);
    let first = report.apps[0].first_error.clone().unwrap();
    assert!(first.contains("has the content of block"), "{first}");
}

#[test]
fn failures_are_counted_and_a_device_that_is_gone_ends_the_app() {
    let failing = quirky(Quirk::Fails(BlockError::ReadFailure), 10);
    let report = run_until_errors(&load("a:rw=randread,depth=2", failing), &options());
    assert!(report.errors() > 0);
    assert!(
        report.apps[0]
            .first_error
            .as_ref()
            .unwrap()
            .contains("unrecovered read error")
    );

    let gone = quirky(Quirk::Fails(BlockError::Gone), 10);
    let report = run_until_errors(&load("a:rw=randread", gone), &options());
    assert_eq!(report.errors(), 1);
}

#[test]
fn threads_that_never_poll_begin_all_the_same() {
    // Regression: the first turn slept before any request whose completion could end the sleep.
    let options = LoadOptions {
        knobs: Knobs {
            polling: Polling::Never,
            ..Knobs::default()
        },
        ..options()
    };
    for app in ["a:rw=randread,depth=2", "a:rw=randread,rate=1000"] {
        for quirk in [Quirk::HasLittleRoom, Quirk::LosesWrites] {
            let report = run_quietly(&[load(app, quirky(quirk, 2))], &options).unwrap();
            assert_eq!(report.errors(), 0);
        }
    }
}

#[test]
fn a_device_without_room_is_asked_again() {
    for app in ["a:rw=rw,depth=16", "a:rw=rw,depth=16,rate=20000"] {
        let options = LoadOptions {
            verify: true,
            prefill: true,
            ..options()
        };
        let busy = load(app, quirky(Quirk::HasLittleRoom, 1));
        let report = run_counting(&busy, &options);
        assert_eq!(report.errors(), 0, "{:?}", report.apps[0].first_error);
    }
}

#[test]
fn an_open_loop_never_issues_ahead_of_its_schedule() {
    let options = LoadOptions {
        warmup: Duration::ZERO,
        ..options()
    };
    let app = "a:rw=randread,depth=4,count=2,rate=1000";
    let report = run_counting(&load(app, ram()), &options);
    // 1,000 per second, plus requests that were due when a thread was late, plus the first of each
    // thread. A closed loop would do a million.
    let rate = report.apps[0].iops;
    assert!(rate <= 12_500.0, "{rate}");
    assert_eq!(report.apps[0].intended_iops, Some(1000));
}

#[test]
fn a_request_that_is_under_way_at_the_end_has_a_latency() {
    let options = LoadOptions {
        warmup: Duration::ZERO,
        // Several runs end before the late completion, on a machine that delays threads.
        measured: Duration::from_millis(20),
        ..options()
    };
    for app in ["a:rw=randread", "a:rw=randread,rate=1000"] {
        // The first request is the probe, and the second one is late.
        let late = load(app, quirky(Quirk::IsLate, 2));
        let report = run_until(&late, &options, |app| app.latency_us.max > 0.0);
        let app = &report.apps[0];
        assert!(app.latency_us.max >= LATE.0 as f64 / 1e3, "{report}");
        // Only requests completed within the measured time are part of the rate.
        assert!(app.iops.abs() < f64::EPSILON, "{report}");
    }
}

fn assert_unanswered(report: &LoadReport) {
    let unanswered = report.apps[0].unanswered;
    assert!(unanswered > 0, "{report}");
    assert_eq!(report.errors(), unanswered);
    let said = format!("a: {unanswered} requests without response");
    let notes = report.notes();
    let is_said = notes.iter().any(|note| note.starts_with(&said));
    assert!(is_said, "{notes:?}");
}

/// Regression: a load on a target that had gone away never ended, and had no result.
#[test]
fn requests_without_an_answer_are_given_up_and_counted() {
    let verifying = LoadOptions {
        verify: true,
        ..options()
    };
    // Reads of the load, and reads that verify written data.
    for (app, options) in [
        ("a:rw=randread,depth=3", options()),
        ("a:rw=write", verifying),
    ] {
        let lost = load(app, quirky(Quirk::IsLost, 1));
        let report = run_until(&lost, &options, |app| app.unanswered > 0);
        assert_unanswered(&report);
    }
}

/// Regression: the load also continued after it was stopped.
#[test]
fn a_load_that_is_stopped_gives_up_requests_without_an_answer() {
    let options = LoadOptions {
        measured: Duration::from_secs(3600),
        ..options()
    };
    let loads = [load("a:rw=randread,depth=3", quirky(Quirk::IsLost, 1))];
    // Later if the machine delayed the thread until then.
    let stopped_at = |look: u32| {
        let stop = AtomicBool::new(false);
        let mut looks = 0;
        let report = run(&loads, &options, &stop, &mut |progress| {
            looks += u32::from(progress.stage == Stage::Measuring);
            stop.store(looks >= look, Ordering::Relaxed);
        });
        report.unwrap()
    };
    let mut runs = [1, 10, 100].into_iter().map(stopped_at);
    let report = runs.find(|report| report.apps[0].unanswered > 0);
    assert_unanswered(&report.expect("a request within ten seconds"));
}

#[test]
fn a_load_can_be_stopped_and_says_so() {
    let options = LoadOptions {
        measured: Duration::from_secs(3600),
        ..options()
    };
    let stop = AtomicBool::new(false);
    let loads = [
        load("a:rw=randread,depth=2", ram()),
        load("b:rw=write,rate=10", ram()),
    ];
    let report = run(&loads, &options, &stop, &mut |progress| {
        if progress.stage == Stage::Measuring {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let report = report.unwrap();
    assert!(report.interrupted);
    assert_eq!(report.apps.len(), 2);
    assert!(report.notes()[0].contains("interrupted"));
}

#[test]
fn what_cannot_run_is_refused_with_the_apps_name() {
    let error = |loads: &[Load]| format!("{:#}", run_quietly(loads, &options()).unwrap_err());
    assert!(error(&[]).contains("no app given"));
    let twice = [load("a:rw=read", ram()), load("a:rw=read", ram())];
    assert!(error(&twice).contains("given twice"));
    let nowhere = [load("a:rw=read,cpu=1023", ram()), load("b:rw=read", ram())];
    let text = error(&nowhere);
    assert!(
        text.contains("app \"a\"") && text.contains("cpu=1023"),
        "{text}"
    );
}

#[test]
fn the_report_has_the_documented_fields() {
    let report = run_quietly(&[load("a:rw=randread", ram())], &options()).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let app = &json["apps"][0];
    for field in ["iops", "bytes_per_second", "cpu_seconds"] {
        assert!(app[field].is_f64(), "{field}");
    }
    assert!(app["name"].is_string() && app["errors"].is_u64());
    for field in ["avg", "p50", "p95", "p99", "p999", "max"] {
        assert!(app["latency_us"][field].is_f64(), "{field}");
    }
    for field in ["cores", "model_name", "kernel", "congestion_control"] {
        assert!(!json["machine"][field].is_null(), "{field}");
    }
    let table = report.to_string();
    assert!(table.contains("IOPS") && table.contains("p99.9"));
}

/// Loads a local device by [`bench`].
fn run_cached(app: &str, device: Arc<dyn Device>, options: &LoadOptions) -> LoadReport {
    run_layered(&[app], device, options)
}

fn run_layered(apps: &[&str], device: Arc<dyn Device>, options: &LoadOptions) -> LoadReport {
    let apps: Vec<App> = apps.iter().map(|app| app.parse().unwrap()).collect();
    bench(
        &apps,
        &Storage::Local(device),
        KnobTurns::of(&[], options.knobs, options.measured, false).unwrap(),
        options.clone(),
        None,
        &AtomicBool::new(false),
        &mut |_| {},
    )
    .unwrap()
}

#[test]
fn apps_share_a_cache_and_the_report_counts_what_it_did() {
    for path in [
        None,
        Some((switch::Path::Stm, switch::PathRules::default())),
    ] {
        for verify in [false, true] {
            let options = LoadOptions {
                cache: Some(CacheOptions::of_bytes(1 << 20).unwrap()),
                path,
                verify,
                prefill: true,
                // Progress reports, which read the counters, come every 100 ms.
                measured: Duration::from_millis(400),
                ..options()
            };
            let run = |options: &LoadOptions| {
                run_cached("a:rw=randrw,depth=4,count=3", Arc::new(ram()), options)
            };
            let report = until(&options, run, |report| {
                let counters = &report.cache[0].counters;
                counters.hits + counters.misses > 0
            });
            assert_eq!(report.errors(), 0, "{:?}", report.apps[0].first_error);
            assert_eq!(report.cache.len(), 1);
            assert_eq!(report.path.len(), usize::from(path.is_some()));
            let cache = report.cache[0];
            assert!(cache.counters.hits + cache.counters.misses > 0, "{cache:?}");
            assert!(cache.counters.dirty_peak > 0, "{cache:?}");
            assert_eq!((cache.lost, cache.counters.failed), (0, 0), "{cache:?}");
            assert_eq!(report.apps[0].software_us, None);
            assert!(report.to_string().contains("\ncache pages: "), "{report}");
        }
    }
}

#[test]
fn time_in_software_is_told_where_the_mean_of_the_device_is_that_of_each_app() {
    let of_device = |apps: &[&str], device: Arc<dyn Device>, measured| {
        let options = LoadOptions {
            path: Some((switch::Path::Sync, switch::PathRules::default())),
            measured,
            ..options()
        };
        let report = run_layered(apps, device, &options);
        let apps = report.apps.iter();
        apps.map(|app| app.software_us.is_some())
            .collect::<Vec<_>>()
    };
    let told = |apps: &[&str], measured| {
        let device = Flash::new("dram-ssd".parse().unwrap(), 4 << 20, 4096).unwrap();
        of_device(apps, Arc::new(device), measured)
    };
    let small = "a:rw=randread";
    // Progress reports, which read the counters, come every 100 ms, and later on a busy machine: a
    // longer run contains them anyway.
    let times = || {
        [300, 1_000, 5_000, 20_000]
            .map(Duration::from_millis)
            .into_iter()
    };
    let longer = |apps: &[&str]| {
        let all_told = |time: &Duration| told(apps, *time).iter().all(|told| *told);
        times().find(all_told)
    };
    assert!(longer(&[small]).is_some());
    assert!(times().any(|time| of_device(&[small], Arc::new(ram()), time) == [true]));
    let enough = longer(&[small, "b:rw=read"]).expect("apps of one kind");
    for other in ["b:rw=randread,bs=128k", "b:rw=randwrite"] {
        assert_eq!(told(&[small, other], enough), [false; 2], "{other}");
    }
}

#[test]
fn pages_that_a_cache_cannot_write_are_lost_and_said() {
    let options = LoadOptions {
        cache: Some(CacheOptions::of_bytes(1 << 20).unwrap()),
        ..options()
    };
    let quirk = Quirk::Fails(BlockError::WriteFailure);
    // The first request is the probe, a read; the cache absorbs a few writes before one fails.
    let run = |options: &LoadOptions| {
        run_cached("a:rw=randwrite,bs=4k", Arc::new(quirky(quirk, 1)), options)
    };
    let report = until(&options, run, |report| report.cache[0].lost > 0);
    assert!(report.cache[0].lost > 0, "{:?}", report.cache);
    assert!(report.errors() >= u64::from(report.cache[0].lost));
    let notes = report.notes().join("\n");
    assert!(
        notes.contains("could not be written to the device"),
        "{notes}"
    );
}

/// A channel that completes at once, and records each operation with the number then in flight.
#[derive(Debug)]
struct NotingChannel {
    below: Box<dyn Channel>,
    notes: Arc<std::sync::Mutex<Vec<(Operation, usize)>>>,
    held: VecDeque<Completion>,
}

impl Channel for NotingChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        let mut notes = self.notes.lock().unwrap();
        notes.push((request.operation, self.held.len()));
        match self.below.submit(request, cx) {
            Submit::Done(completion) => {
                self.held.push_back(completion);
                Submit::Queued
            }
            other => other,
        }
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.below.kick(cx);
    }

    fn reap(&mut self) -> Option<Completion> {
        self.held.pop_front()
    }

    fn deadline(&self) -> base::Time {
        if self.held.is_empty() {
            base::Time::NEVER
        } else {
            base::Time::ZERO
        }
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.below.close(cx);
    }

    fn closed(&self) -> bool {
        self.below.closed()
    }
}

#[test]
fn a_journal_commits_when_its_data_is_complete() {
    for verify in [false, true] {
        let notes: Arc<std::sync::Mutex<Vec<(Operation, usize)>>> = Arc::default();
        let own = Arc::clone(&notes);
        let device = TestDevice::new(Arc::new(ram()), move |below| {
            Box::new(NotingChannel {
                below,
                notes: Arc::clone(&own),
                held: VecDeque::new(),
            })
        });
        let options = LoadOptions {
            verify,
            ..options()
        };
        let load = [load("j:rw=write,depth=4,journal=6", device)];
        let run = |options: &LoadOptions| {
            notes.lock().unwrap().clear();
            run_quietly(&load, options).unwrap()
        };
        let written = || {
            let mut written = notes.lock().unwrap().clone();
            written.retain(|(operation, _)| *operation != Operation::Read);
            written
        };
        let report = until(&options, run, |_| written().len() > 80);
        assert_eq!(report.errors(), 0, "{:?}", report.apps[0].first_error);
        let written = written();
        assert!(written.len() > 80, "{} requests", written.len());
        for transaction in written.chunks_exact(8) {
            let (data, commit) = transaction.split_at(6);
            assert!(
                data.iter()
                    .all(|(operation, _)| *operation == Operation::Write { durable: false })
            );
            assert!(
                data.iter().any(|(_, in_flight)| *in_flight == 3),
                "{data:?}"
            );
            assert_eq!(data[0].1, 0, "the record before was waited for");
            assert_eq!(commit[0], (Operation::Flush, 0));
            assert_eq!(commit[1], (Operation::Write { durable: true }, 0));
        }
    }
}

#[test]
fn a_journal_runs_through_every_path_and_a_cache() {
    for path in switch::Path::ALL {
        let options = LoadOptions {
            cache: Some(CacheOptions::of_bytes(1 << 20).unwrap()),
            path: Some((path, switch::PathRules::default())),
            ..options()
        };
        let run = |options: &LoadOptions| {
            let app = "j:rw=write,depth=8,count=2,journal=16";
            let report = run_cached(app, Arc::new(ram()), options);
            let first_error = &report.apps[0].first_error;
            assert_eq!(report.errors(), 0, "{path}: {first_error:?}");
            report
        };
        let report = until(&options, run, |report| report.apps[0].iops > 0.0);
        assert!(report.apps[0].iops > 0.0, "{path}: {report}");
    }
}
