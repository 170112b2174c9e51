//! Connections with one command in flight each, and their longest latencies.

use crate::peer::Peer;
use anyhow::{Context as _, Result, bail, ensure};
use base::{Latencies, Nanos};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::SystemTime;
use testing::Client;
use wire::nvme::{AdminCommand, Command, IoOpcode};

/// Rounds within which the kernel must begin to note times of arrival.
const ROUNDS_WITHOUT_TIMES_MAX: u64 = 10_000;

/// The part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Undisturbed,
    TakeOver,
    Over,
}

/// The longest latencies of each connection in each phase, and the number of all commands.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) undisturbed: Latencies,
    pub(super) taken_over: Latencies,
    pub(super) commands: u64,
}

/// What the load's thread and its owner share.
#[derive(Debug)]
struct Progress {
    phase: Phase,
    /// Rounds with times of arrival, of all phases; `None` once the load has ended.
    rounds: Option<u64>,
}

#[derive(Debug)]
struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running load. Its thread ends with its owner.
#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Waits>>>,
}

impl Load {
    /// Starts the load over these queues, each with its QID.
    ///
    /// # Errors
    /// No room for a thread, or for time stamps.
    pub(super) fn start(peer: Peer, queues: Vec<(u16, Client)>) -> Result<Self> {
        for (_, queue) in &queues {
            queue.report_arrivals()?;
        }
        let progress = Progress {
            phase: Phase::Undisturbed,
            rounds: Some(0),
        };
        let shared = Arc::new(Shared {
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("load".to_owned());
        let thread = thread.spawn(move || {
            let waits = Connections::new(peer, queues).work(&of_thread);
            of_thread.lock().rounds = None;
            of_thread.changed.notify_all();
            waits
        })?;
        let thread = Some(thread);
        Ok(Self { shared, thread })
    }

    /// Enters a phase, and waits until this number of rounds has begun in it.
    ///
    /// # Errors
    /// The load has failed: see [`end`](Self::end).
    pub(super) fn enter(&self, phase: Phase, rounds: u64) -> Result<()> {
        self.shared.lock().phase = phase;
        self.pass(rounds)
    }

    /// Waits until this number of further rounds has begun.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub(super) fn pass(&self, rounds: u64) -> Result<()> {
        let mut progress = self.shared.lock();
        let Some(begun) = progress.rounds else {
            bail!("the load has ended");
        };
        let end = begun + rounds;
        while progress.rounds.is_some_and(|rounds| rounds < end) {
            let changed = self.shared.changed.wait(progress);
            progress = changed.unwrap_or_else(PoisonError::into_inner);
        }
        ensure!(progress.rounds.is_some(), "the load has failed");
        Ok(())
    }

    /// Ends the load. Returns the longest latencies.
    ///
    /// # Errors
    /// A connection that broke, a command that failed, or data that differ.
    pub(super) fn end(mut self) -> Result<Waits> {
        self.shared.lock().phase = Phase::Over;
        let thread = self.thread.take().context("it runs")?;
        thread.join().expect("a load does not panic")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.lock().phase = Phase::Over;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the load: {error:#}");
        }
    }
}

/// The connections, each with its block.
struct Connections {
    peer: Peer,
    queues: Vec<(u16, Client)>,
    /// When the command in flight was sent.
    sent: Vec<SystemTime>,
    /// The longest latency of each in the current phase.
    longest: Vec<Nanos>,
    /// The kernel notes times of arrival.
    has_times: bool,
}

impl Connections {
    fn new(peer: Peer, queues: Vec<(u16, Client)>) -> Self {
        Self {
            peer,
            sent: vec![SystemTime::UNIX_EPOCH; queues.len()],
            longest: vec![Nanos::ZERO; queues.len()],
            has_times: false,
            queues,
        }
    }

    /// Works until the owner ends it.
    fn work(mut self, shared: &Shared) -> Result<Waits> {
        let mut waits = Waits {
            undisturbed: Latencies::new(),
            taken_over: Latencies::new(),
            commands: 0,
        };
        let mut now = Phase::Undisturbed;
        let mut measured = 0;
        for round in 0_u64.. {
            let mut progress = shared.lock();
            let next = progress.phase;
            progress.rounds = Some(measured);
            drop(progress);
            shared.changed.notify_all();
            if next != now {
                let into = match now {
                    Phase::TakeOver => &mut waits.taken_over,
                    _ => &mut waits.undisturbed,
                };
                for longest in &mut self.longest {
                    into.record(std::mem::replace(longest, Nanos::ZERO));
                }
                now = next;
            }
            if now == Phase::Over {
                break;
            }
            self.round(round)
                .with_context(|| format!("round {round}, {now:?}"))?;
            waits.commands += self.queues.len() as u64;
            ensure!(
                self.has_times || round < ROUNDS_WITHOUT_TIMES_MAX,
                "the kernel notes no times of arrival"
            );
            measured += u64::from(self.has_times);
        }
        Ok(waits)
    }

    /// Sends a command on every connection, and then receives all answers. The kernel notes the times
    /// of arrival.
    fn round(&mut self, round: u64) -> Result<()> {
        let writes = round.is_multiple_of(2);
        for index in 0..self.queues.len() {
            let (command, data) = self.command(index, round);
            let (_, queue) = &mut self.queues[index];
            let (bytes, _) = queue.session.command(command, &data);
            #[expect(clippy::disallowed_methods, reason = "the clock of arrivals")]
            let now = SystemTime::now();
            self.sent[index] = now;
            let sent = queue.send(&bytes);
            sent.with_context(|| format!("connection {index}"))?;
        }
        for index in 0..self.queues.len() {
            let (id, queue) = &mut self.queues[index];
            let answer = queue.answer();
            let (completion, data) = answer.with_context(|| format!("connection {index}"))?;
            ensure!(completion.status.is_success(), "{}", completion.status);
            if !writes && *id > 0 {
                let expected = self.content(index, round - 1);
                ensure!(
                    data == expected,
                    "connection {index}: other data than written"
                );
            }
            let Some(arrived) = self.queues[index].1.arrived else {
                // The kernel begins to note times a moment after it was asked to.
                ensure!(!self.has_times, "connection {index}: no time of arrival");
                continue;
            };
            self.has_times = true;
            // The clock may have been set back.
            let latency = arrived.duration_since(self.sent[index]).unwrap_or_default();
            self.longest[index] = self.longest[index].max(latency.into());
        }
        Ok(())
    }

    /// Returns the command of a connection in a round, and its data.
    fn command(&self, index: usize, round: u64) -> (Command, Vec<u8>) {
        let at = index as u64;
        match self.queues[index].0 {
            0 => (AdminCommand::KeepAlive.encode(0), Vec::new()),
            _ if round.is_multiple_of(2) => {
                let command = self.peer.command(IoOpcode::WRITE, at, 1);
                (command, self.content(index, round))
            }
            _ => (self.peer.read(0, at, 1), Vec::new()),
        }
    }

    /// Returns what a connection writes in a round.
    fn content(&self, index: usize, round: u64) -> Vec<u8> {
        let number = (index as u64) << 32 | round & 0xffff_ffff;
        let blocks = self.peer.block_bytes as usize / size_of::<u64>();
        number.to_le_bytes().repeat(blocks)
    }
}
