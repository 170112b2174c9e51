//! The client's end: a closed loop of constant depth that counts exchanges and measures latency.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base::{Latencies, Nanos, Prng};
use serde::Serialize;

use load::Latency;
use reactor::clock::thread_cpu;

use super::case::{Poll, RawCase};
use super::error::RawError;
use super::limits;
use super::message::{Message, Parser, REQUEST_HEADER_BYTES, RESPONSE_HEADER_BYTES};
use super::outbox::{Outbox, Sent};
use super::region::Region;
use super::socket::{self, Received};

/// Measurements of a client between warm-up and end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RawResult {
    /// Exchanges that ended in the measured time.
    pub exchanges: u64,
    /// Exchanges per second.
    pub exchanges_per_second: f64,
    /// Time from when a request was due, i.e. when its predecessor in the same slot had completed,
    /// to its complete response.
    pub latency_us: Latency,
    /// CPU seconds of the client's thread in the measured time.
    pub cpu_seconds: f64,
}

/// Connects to the server at `addr` and exchanges messages for `warmup` and then `measured`, on a
/// separate thread that is pinned to `core`.
///
/// # Errors
/// The case is invalid; the connection fails; the server violates the exchange, or sends nothing
/// for [`limits::STALL`].
pub fn run_client(
    case: &RawCase,
    addr: SocketAddr,
    core: Option<usize>,
    warmup: Duration,
    measured: Duration,
) -> Result<RawResult, RawError> {
    case.check()?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("raw-client".into())
            .spawn_scoped(scope, || {
                socket::pin(core)?;
                let stream = TcpStream::connect(addr)
                    .map_err(|source| RawError::Connect { addr, source })?;
                socket::tune(&stream)?;
                run_tuned(&stream, case, warmup, measured)
            })
            .map_err(RawError::call("clone"))?;
        RawError::of_end("client", thread.join())
    })
}

/// As [`run_client`], on the calling thread and a socket whose buffers are already set.
pub(super) fn run_tuned(
    stream: &TcpStream,
    case: &RawCase,
    warmup: Duration,
    measured: Duration,
) -> Result<RawResult, RawError> {
    socket::set_receive_timeout(stream, limits::STALL)?;
    let mut receive_region = Region::new(limits::RECEIVE_BYTES);
    let written = Region::new(case.request_payload() * case.depth);
    let mut parser = Parser::new(RESPONSE_HEADER_BYTES, case.response_payload());
    let mut window = Window::new(case);
    let mut clock = Clock::new(warmup, measured);
    while !(clock.is_over() && window.outstanding() == 0 && window.outbox.is_empty()) {
        window.issue(&clock);
        let unsent = window.outbox.send(stream, written.bytes())? == Sent::Part;
        let buffer = receive_region.bytes_mut();
        match socket::receive(stream, buffer, case.poll, unsent)? {
            Received::Bytes(bytes) => {
                clock.progress();
                let now_ns = clock.now_ns;
                let mut latencies = ReceivedBatch::new(&mut clock);
                parser.feed(&buffer[..bytes], |message| {
                    latencies.add(window.complete(message, now_ns)?);
                    Ok(())
                })?;
                latencies.finish();
            }
            Received::Nothing => clock.idle(case.poll, &window)?,
            Received::End => {
                return Err(RawError::Closed {
                    outstanding: window.outstanding(),
                });
            }
        }
    }
    stream
        .shutdown(Shutdown::Write)
        .map_err(RawError::call("shutdown"))?;
    clock.result()
}

/// The requests in flight.
#[derive(Debug)]
struct Window {
    outbox: Outbox,
    random: Prng,
    blocks: u64,
    depth: usize,
    request_payload: usize,
    next: u64,
    expected: u64,
    /// Time at which each request became due, by its masked sequence number. In a closed loop that
    /// is when the request `depth` before it completed, even if the outbox has no room yet.
    issued_ns: Vec<u64>,
    mask: u64,
}

impl Window {
    fn new(case: &RawCase) -> Self {
        let slots = case.depth.next_power_of_two();
        // Without payload a send is one piece of memory, whatever the number of requests.
        let together = if case.request_payload() == 0 {
            case.depth
        } else {
            case.messages_per_send
        };
        Self {
            outbox: Outbox::new(REQUEST_HEADER_BYTES, case.request_payload(), together),
            random: Prng::from_seed(2),
            blocks: case.response_blocks() as u64,
            depth: case.depth,
            request_payload: case.request_payload(),
            next: 0,
            expected: 0,
            issued_ns: vec![0; slots],
            mask: slots as u64 - 1,
        }
    }

    fn outstanding(&self) -> usize {
        usize::try_from(self.next - self.expected).expect("at most the depth is outstanding")
    }

    fn slot(&self, sequence: u64) -> usize {
        usize::try_from(sequence & self.mask).expect("the mask is a length less one")
    }

    /// Adds requests within depth and outbox room; none after the end.
    fn issue(&mut self, clock: &Clock) {
        if clock.is_over() {
            return;
        }
        let count = self.outbox.room().min(self.depth - self.outstanding());
        for _ in 0..count {
            let message = Message {
                sequence: self.next,
                block: self.random.below(self.blocks),
            };
            let payload = self.slot(self.next) % self.depth;
            self.outbox.push(message, payload * self.request_payload);
            self.next += 1;
        }
    }

    /// Handles a response; returns when its request became due.
    #[inline]
    fn complete(&mut self, message: Message, now_ns: u64) -> Result<u64, RawError> {
        if message.sequence != self.expected || self.expected == self.next {
            let (got, expected, next) = (message.sequence, self.expected, self.next);
            let what = format!("response {got} instead of {expected} (requests issued: {next})");
            return Err(RawError::Peer { what });
        }
        self.expected += 1;
        let issued_ns = self.issued_ns[self.slot(message.sequence)];
        let successor = self.slot(message.sequence + self.depth as u64);
        self.issued_ns[successor] = now_ns;
        Ok(issued_ns)
    }
}

/// Current part of the run, and its measurements. The clock is read once per receive.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    now_ns: u64,
    measure_from_ns: u64,
    end_ns: u64,
    /// Wall and CPU time at the begin and at the end of the measured time.
    began: Option<(u64, Duration)>,
    ended: Option<(u64, Duration)>,
    latencies: Latencies,
    idle_polls: u32,
    progress_ns: u64,
}

impl Clock {
    pub(super) fn new(warmup: Duration, measured: Duration) -> Self {
        let measure_from_ns = nanos(warmup);
        Self {
            start: Instant::now(),
            now_ns: 0,
            measure_from_ns,
            end_ns: measure_from_ns.saturating_add(nanos(measured)),
            began: None,
            ended: None,
            latencies: Latencies::new(),
            idle_polls: 0,
            progress_ns: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Nanoseconds from the start to the last received bytes.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Records `count` exchanges that end now, within the measured time.
    pub(super) fn record(&mut self, issued_ns: u64, count: u64) {
        if self.is_measuring() {
            let latency = Nanos(self.now_ns - issued_ns);
            self.latencies.record_times(latency, count);
        }
    }

    fn is_measuring(&self) -> bool {
        self.began.is_some() && self.ended.is_none()
    }

    /// Notes that bytes have arrived.
    pub(super) fn progress(&mut self) {
        self.advance();
        self.progress_ns = self.now_ns;
    }

    /// Handles a poll or wait without data.
    fn idle(&mut self, poll: Poll, window: &Window) -> Result<(), RawError> {
        self.idle_polls += 1;
        if poll == Poll::Always && self.idle_polls < limits::POLLS_PER_CLOCK_READ {
            return Ok(());
        }
        self.idle_polls = 0;
        self.advance();
        let waited = Duration::from_nanos(self.now_ns - self.progress_ns);
        if waited < limits::STALL {
            return Ok(());
        }
        Err(RawError::Stalled {
            seconds: waited.as_secs(),
            outstanding: window.outstanding(),
        })
    }

    fn advance(&mut self) {
        self.now_ns = nanos(self.start.elapsed());
        if self.began.is_none() && self.now_ns >= self.measure_from_ns {
            self.began = Some((self.now_ns, thread_cpu()));
        } else if self.is_measuring() && self.now_ns >= self.end_ns {
            self.ended = Some((self.now_ns, thread_cpu()));
        }
    }

    pub(super) fn result(&self) -> Result<RawResult, RawError> {
        let (Some((began_ns, began_cpu)), Some((ended_ns, ended_cpu))) = (self.began, self.ended)
        else {
            unreachable!("the loop ends after the measured time, which begins before it ends");
        };
        let exchanges = self.latencies.count();
        Ok(RawResult {
            exchanges,
            exchanges_per_second: exchanges as f64 * 1e9 / (ended_ns - began_ns) as f64,
            latency_us: Latency::of(&self.latencies),
            cpu_seconds: ended_cpu.saturating_sub(began_cpu).as_secs_f64(),
        })
    }
}

/// Records the latencies of one receive. Requests that were sent together and answered together
/// have equal latencies, which are recorded in one call.
#[derive(Debug)]
struct ReceivedBatch<'a> {
    clock: &'a mut Clock,
    issued_ns: u64,
    count: u64,
}

impl<'a> ReceivedBatch<'a> {
    fn new(clock: &'a mut Clock) -> Self {
        Self {
            clock,
            issued_ns: 0,
            count: 0,
        }
    }

    #[inline]
    fn add(&mut self, issued_ns: u64) {
        if issued_ns != self.issued_ns {
            self.record();
            self.issued_ns = issued_ns;
        }
        self.count += 1;
    }

    fn finish(mut self) {
        self.record();
    }

    fn record(&mut self) {
        if self.count > 0 {
            self.clock.record(self.issued_ns, self.count);
        }
        self.count = 0;
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
