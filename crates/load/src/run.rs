//! Starts the threads of a load together, and collects their measurements.

use super::app::App;
use super::job::{Common, Job, plan};
use super::limits;
use super::measured::Measured;
use super::progress::Progress;
use super::report::{AppReport, LoadReport};
use super::worker::{Message, Worker};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base::units::{CoreId, KIB};
use base::{Nanos, Time};
use block::{CacheOptions, Device};
use reactor::clock::monotonic;
use reactor::priority::{self, Privilege};
use reactor::uring::{self, UringDriver};
use reactor::{BufferClass, Core, Driver as _, MailboxSender, PollPolicy, placement};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant, SystemTime};
use switch::knobs::{Polling, ThreadPriority};
use switch::{Knobs, Path, PathRules};

base::with_defaults! {
    /// Options of a load.
    ///
    /// Defaults: 10 s after 1 s of warm-up, on the devices' own I/O path, without cache.
    #[derive(Clone, Debug)]
    pub struct LoadOptions {
        /// Warm-up before the measured time.
        pub warmup: Duration = Duration::from_secs(1),
        /// Measured time, the same for all threads.
        pub measured: Duration = Duration::from_secs(10),
        /// Seed of offsets, mixes and content.
        pub seed: u64 = 1,
        /// Gives each thread its own part of the device, derives the content of every block from
        /// its address and the number of the write, and compares data read with data written.
        pub verify: bool = false,
        /// Writes the whole device once before the start.
        pub prefill: bool = false,
        /// Knobs for polling by idle threads and for the priority of `Latency` threads. A remote
        /// device has its own copy of all other knobs, from the options of its controller.
        pub knobs: Knobs = Knobs::default(),
        /// The devices are behind a switchboard whose threads share the apps' processors, so no app
        /// may poll for their completions.
        pub switched: bool = false,
        /// The I/O path that all apps share, with its parameters; `None` for the devices' own path.
        /// A thread that waits for another thread's work sleeps.
        pub path: Option<(Path, PathRules)> = None,
        /// The cache that all apps share, above the path; `None` for no cache.
        pub cache: Option<CacheOptions> = None,
        /// Hosts among which a device divides its requests, each with its own connections
        /// ([`RunSummary`](super::RunSummary)); 1 for any other device. Each connection is checked
        /// before the start.
        pub hosts: u32 = 1,
        /// Additional times of progress reports, from the start of the measured time; accurate to
        /// about a millisecond.
        pub moments: Vec<Duration> = Vec::new(),
    }
}

impl LoadOptions {
    /// Poll policy of idle threads.
    pub(super) fn poll(&self) -> PollPolicy {
        match self.knobs.polling {
            _ if self.path.is_some() || self.switched && self.cache.is_some() => PollPolicy::Never,
            Polling::Adaptive => PollPolicy::Auto,
            Polling::Always => PollPolicy::Always,
            Polling::Never => PollPolicy::Never,
        }
    }
}

/// An app and its device.
#[derive(Clone, Debug)]
pub struct Load {
    /// The app.
    pub app: App,
    /// Its device.
    pub device: Arc<dyn Device>,
}

/// Progress of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Current stage.
    pub stage: Stage,
    /// Time since the start of the warm-up.
    pub elapsed: Duration,
    /// Requests completed by all threads since their start.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The 99th percentile of the latencies measured so far, exact to an eighth.
    pub p99: Option<Nanos>,
}

/// Stage of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Devices are opened, and written once if requested.
    Preparing,
    /// The load runs, but is not measured yet.
    WarmingUp,
    /// The load is measured.
    Measuring,
    /// Requests in flight complete, and written data is read back when verifying.
    Ending,
}

impl Stage {
    /// Returns the stage of a load that begins or began at `start`, and the time since then.
    pub(super) fn at(
        start: Option<Instant>,
        warmup: Duration,
        measured: Duration,
    ) -> (Self, Duration) {
        let elapsed = start.map_or(Duration::ZERO, |start| start.elapsed());
        let stage = match start {
            None => Self::Preparing,
            Some(_) if elapsed < warmup => Self::WarmingUp,
            Some(_) if elapsed < warmup + measured => Self::Measuring,
            Some(_) => Self::Ending,
        };
        (stage, elapsed)
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Preparing => "preparing",
            Self::WarmingUp => "warming up",
            Self::Measuring => "measuring",
            Self::Ending => "ending",
        })
    }
}

enum Event {
    Opened(usize, MailboxSender<Message>),
    Ready,
    Ended(usize, Result<Measured>),
}

/// Interval at which progress is reported and `stop` is checked.
const LOOK: Duration = Duration::from_millis(100);

/// Time between the announcement of the start and the start, so that every thread has received it.
const START_AHEAD: Nanos = Nanos::from_millis(2);

/// Start of a load together with those of other processes.
pub struct FollowerStart {
    /// Number of threads of the preceding apps.
    pub threads_before: u32,
    /// Number of threads of all apps.
    pub threads: u32,
    /// Called when the load can start. Returns false if the leader has ended; the load then stops.
    pub ready: Box<dyn FnOnce() -> bool>,
    /// Receives the start time, of [`monotonic`]; if the sender is dropped, the load stops.
    pub start: Receiver<Time>,
}

impl std::fmt::Debug for FollowerStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FollowerStart")
            .field("threads_before", &self.threads_before)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// Runs `loads` together. `stop` ends them early; the results until then are kept.
///
/// # Errors
/// An app does not fit its device; a thread cannot be pinned or set up; a device cannot be opened
/// or read. Requests that fail later are counted, not returned.
pub fn run(
    loads: &[Load],
    options: &LoadOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadReport> {
    run_led(loads, options, None, stop, progress)
}

/// The same; with `led`, as a part of a load that runs in several processes.
///
/// # Errors
/// As [`run`].
pub fn run_led(
    loads: &[Load],
    options: &LoadOptions,
    led: Option<FollowerStart>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadReport> {
    let jobs = match &led {
        Some(led) => plan_part(loads, options, led.threads_before, led.threads)?,
        None => plan_all(loads, options)?,
    };
    let counters = jobs.iter().map(|(_, job)| Progress::new(job.unit_bytes));
    let counters: Vec<_> = counters.map(Arc::new).collect();
    let (events, inbox) = channel();
    let measured = std::thread::scope(|scope| {
        for (thread, (load, job)) in jobs.iter().enumerate() {
            let (load, job) = (&loads[*load], job.clone());
            let (events, counter) = (events.clone(), Arc::clone(&counters[thread]));
            std::thread::Builder::new()
                .name(format!("{}/{thread}", load.app.name))
                .spawn_scoped(scope, move || {
                    let name = &load.app.name;
                    let result = run_thread(thread, load, job, options, &events, counter)
                        .with_context(|| format!("app \"{name}\""));
                    // The receiver waits for every thread.
                    let _ = events.send(Event::Ended(thread, result));
                })
                .context("cannot start a thread")?;
        }
        drop(events);
        Conductor::new(inbox, options, &counters, led).conduct(stop, progress)
    })?;
    let mut reports: Vec<Vec<Measured>> = loads.iter().map(|_| Vec::new()).collect();
    for ((load, _), measured) in jobs.iter().zip(measured) {
        reports[*load].push(measured);
    }
    let apps = loads
        .iter()
        .zip(reports)
        .map(|(Load { app, .. }, threads)| {
            AppReport::of(
                &app.name,
                app.block_bytes,
                app.rate,
                options.verify,
                threads,
            )
        });
    Ok(LoadReport {
        interrupted: stop.load(Ordering::Relaxed),
        ..LoadReport::of(apps.collect())
    })
}

/// Returns every thread's job, with the number of its load.
pub(super) fn plan_all(loads: &[Load], options: &LoadOptions) -> Result<Vec<(usize, Job)>> {
    let threads = loads.iter().map(|load| load.app.count).sum();
    plan_part(loads, options, 0, threads)
}

/// The same if these are a part of `threads` threads, and `first` threads precede them.
fn plan_part(
    loads: &[Load],
    options: &LoadOptions,
    first: u32,
    threads: u32,
) -> Result<Vec<(usize, Job)>> {
    ensure!(
        !loads.is_empty(),
        "no app given; add one with --app {}",
        super::APP_FORM
    );
    for (index, load) in loads.iter().enumerate() {
        let name = &load.app.name;
        let twice = loads[..index].iter().any(|other| &other.app.name == name);
        ensure!(
            !twice,
            "app \"{name}\" is given twice; use a different name for each app"
        );
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "a number that differs from run to run"
    )]
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let common = Common {
        threads,
        warmup: options.warmup.into(),
        measured: options.measured.into(),
        seed: options.seed,
        nonce: options.verify.then(|| Nanos::from(now).0),
        prefill: options.prefill,
        punctual: !options.switched && options.poll() != PollPolicy::Never,
        hosts: options.hosts,
    };
    let mut jobs = Vec::new();
    for (index, Load { app, device }) in loads.iter().enumerate() {
        let before = first + u32::try_from(jobs.len()).expect("threads are bounded");
        let planned = plan(
            app,
            device.geometry(),
            device.capabilities(),
            before,
            &common,
        )?;
        jobs.extend(planned.into_iter().map(|job| (index, job)));
    }
    Ok(jobs)
}

/// Body of a thread of the load.
fn run_thread(
    thread: usize,
    load: &Load,
    job: Job,
    options: &LoadOptions,
    events: &Sender<Event>,
    progress: Arc<Progress>,
) -> Result<Measured> {
    if let Some(cpu) = load.app.cpu {
        placement::pin_to(CoreId(cpu)).with_context(|| format!("cpu={cpu}"))?;
    }
    let mut driver = UringDriver::new(&driver_options(&job))?;
    let channel = load.device.open(&mut driver)?;
    let ready = events.clone();
    let on_ready = Box::new(move || {
        // The receiver waits for every thread.
        let _ = ready.send(Event::Ready);
    });
    let pool = driver.buffers().clone();
    let worker = Worker::new(job, channel, &pool, progress, on_ready)?;
    let privilege = raise(&load.app, options);
    let mut core = Core::new(driver, worker, options.poll());
    let _ = events.send(Event::Opened(thread, core.sender()));
    core.run().context("io_uring failed")?;
    let mut measured = core.service.into_result()?;
    measured.privilege = privilege;
    Ok(measured)
}

/// Sets the calling thread's priority by the knobs, if its work is `Latency`. Returns the priority
/// that it has, or `None` for other work.
fn raise(app: &App, options: &LoadOptions) -> Option<Privilege> {
    if app.class.is_none_or(|class| class.properties().may_wait) {
        return None;
    }
    Some(match options.knobs.latency_threads {
        ThreadPriority::Nice => priority::raise_nice().privilege(),
        ThreadPriority::Default => Privilege::Unprivileged,
    })
}

pub(super) fn driver_options(job: &Job) -> uring::Options {
    let (bytes, depth) = (job.unit_bytes as usize, job.depth as usize);
    let small = BufferClass {
        bytes: 4 * KIB,
        count: limits::SPARE_BUFFERS,
    };
    let buffers = if bytes <= small.bytes {
        vec![BufferClass {
            count: small.count + depth,
            ..small
        }]
    } else {
        vec![
            small,
            BufferClass {
                bytes,
                count: depth + 1,
            },
        ]
    };
    let tries = usize::try_from(job.tries).expect("fewer connections than addresses");
    uring::Options {
        buffers,
        sockets: limits::SOCKETS.max(limits::SOCKETS_PER_QUEUE * tries),
        file_operations: 2 * depth,
    }
}

/// Leads the threads of a load through their stages.
struct Conductor<'a> {
    inbox: Receiver<Event>,
    counters: &'a [Arc<Progress>],
    warmup: Duration,
    measured: Duration,
    moments: &'a [Duration],
    mailboxes: Vec<Option<MailboxSender<Message>>>,
    results: Vec<Option<Result<Measured>>>,
    ready: usize,
    ended: usize,
    started: Option<Instant>,
    told_to_stop: bool,
    led: Option<FollowerStart>,
    /// Receives the start time, once all threads are ready.
    start: Option<Receiver<Time>>,
}

impl<'a> Conductor<'a> {
    fn new(
        inbox: Receiver<Event>,
        options: &'a LoadOptions,
        counters: &'a [Arc<Progress>],
        led: Option<FollowerStart>,
    ) -> Self {
        let threads = counters.len();
        Self {
            inbox,
            counters,
            warmup: options.warmup,
            measured: options.measured,
            moments: &options.moments,
            mailboxes: (0..threads).map(|_| None).collect(),
            results: (0..threads).map(|_| None).collect(),
            ready: 0,
            ended: 0,
            started: None,
            told_to_stop: false,
            led,
            start: None,
        }
    }

    fn conduct(
        mut self,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Vec<Measured>> {
        while self.ended < self.results.len() {
            match self.inbox.recv_timeout(self.next_look()) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("a load thread panicked"),
            }
            if stop.load(Ordering::Relaxed) && !self.told_to_stop {
                self.stop();
            }
            self.look_for_start();
            progress(self.progress());
        }
        let results = self.results.into_iter();
        results
            .map(|result| result.unwrap_or_else(|| Err(anyhow!("a load thread did not end"))))
            .collect()
    }

    /// Returns the time until the next report.
    fn next_look(&self) -> Duration {
        let Some(started) = self.started else {
            return LOOK;
        };
        let elapsed = started.elapsed();
        let ahead = |moment: &Duration| (self.warmup + *moment).checked_sub(elapsed);
        let moments = self.moments.iter().filter_map(ahead);
        moments
            .filter(|left| !left.is_zero())
            .fold(LOOK, Duration::min)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Opened(thread, mailbox) => {
                if self.told_to_stop {
                    // Cannot fail: the mailbox has room.
                    let _ = mailbox.send(Message::Stop);
                }
                self.mailboxes[thread] = Some(mailbox);
            }
            Event::Ready => {
                self.ready += 1;
                if self.ready == self.results.len() && !self.told_to_stop {
                    match self.led.take() {
                        Some(led) => {
                            if (led.ready)() {
                                self.start = Some(led.start);
                            } else {
                                self.stop();
                            }
                        }
                        None => self.begin(monotonic() + START_AHEAD),
                    }
                }
            }
            Event::Ended(thread, result) => {
                // The other threads cannot replace the result of a missing one.
                if result.is_err() && !self.told_to_stop {
                    self.stop();
                }
                self.results[thread] = Some(result);
                self.mailboxes[thread] = None;
                self.ended += 1;
            }
        }
    }

    fn begin(&mut self, start: Time) {
        // The start time of a leader lies in the future.
        self.started = Some(Instant::now() + start.since(monotonic()).into());
        self.tell(Message::Start(start));
    }

    /// Begins once the leader has sent the start time.
    fn look_for_start(&mut self) {
        let Some(start) = &self.start else { return };
        match start.try_recv() {
            Ok(start) => self.begin(start),
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) if self.told_to_stop => {}
            Err(TryRecvError::Disconnected) => self.stop(),
        }
        self.start = None;
    }

    fn stop(&mut self) {
        self.told_to_stop = true;
        self.tell(Message::Stop);
    }

    fn tell(&self, message: Message) {
        for mailbox in self.mailboxes.iter().flatten() {
            // At most two messages are ever sent, and a mailbox has room for more.
            let _ = mailbox.send(message);
        }
    }

    fn progress(&self) -> LoadProgress {
        let (stage, elapsed) = Stage::at(self.started, self.warmup, self.measured);
        let counters = || self.counters.iter().map(|counter| &**counter);
        let counts = counters().map(|it| (it.completed.load(Ordering::Relaxed), it.request_bytes));
        let (requests, bytes) = counts.fold((0, 0), |(requests, sum), (count, bytes)| {
            (requests + count, sum + count * bytes)
        });
        LoadProgress {
            stage,
            elapsed,
            requests,
            bytes,
            p99: Progress::p99(counters()),
        }
    }
}
