//! A well-behaved host: one command at a time, with every response verified.

use crate::peer::Peer;
use anyhow::{Result, ensure};
use base::{Latencies, Prng};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};
use testing::Client;
use wire::nvme::{IoOpcode, SglDescriptor};

const HOST: &str = "nqn.2026-11.io.switchyard:neighbour";

/// Bytes of each command.
const BYTES: u32 = 4096;

/// One of this number of commands is a write.
const WRITE_EVERY: u64 = 16;

/// Blocks of [`BYTES`] that it uses, from the beginning of the namespace.
const PLACES: u64 = 1024;

/// Number of failures after which it stops, because its connection is lost.
const FAILURES_MAX: u64 = 10;

/// A host with an admin queue and an I/O queue.
#[derive(Debug)]
pub(super) struct Neighbour {
    peer: Peer,
    _admin: Client,
    queue: Client,
    random: Prng,
    /// Content written so far, by block.
    written: BTreeMap<u64, u64>,
    commands: u64,
}

/// Measurements of the neighbour.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    /// Commands that succeeded with correct data.
    pub commands: u64,
    /// Commands that failed or returned wrong data.
    pub failed: u64,
    /// Median time from command to response, in microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum.
    pub max_us: f64,
    /// 99th percentile of the time from sending a command until the kernel has received its
    /// response: the time of target and network, without the wait for a processor shared with the
    /// load.
    pub answer_p99_us: f64,
    /// Reason of the first failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Neighbour {
    /// Connects; with `latency`, its queue has class `Latency`, set as this project's host does.
    ///
    /// # Errors
    /// A target that cannot be used, or that has blocks larger than a command.
    pub(super) fn connect(peer: &Peer, latency: bool) -> Result<Self> {
        ensure!(
            BYTES.is_multiple_of(peer.block_bytes),
            "the namespace's blocks are larger than {BYTES} bytes"
        );
        let (mut admin, controller) = Client::admin(peer.address, &peer.nqn, HOST)?;
        let queue = match latency {
            true => peer.latency_queue(&mut admin, HOST, (controller, 1), 128)?,
            false => peer.queue(HOST, (controller, 1), 128)?,
        };
        queue.report_arrivals()?;
        Ok(Self {
            peer: peer.clone(),
            _admin: admin,
            queue,
            random: Prng::from_seed(7),
            written: BTreeMap::new(),
            commands: 0,
        })
    }

    /// Reads, and occasionally writes, one command at a time.
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel says by this clock when an answer arrived"
    )]
    pub(super) fn run(&mut self, time: Duration) -> Measured {
        let mut latencies = Latencies::new();
        let mut answers = Latencies::new();
        let (mut failed, mut failure) = (0, None);
        let begun = Instant::now();
        while begun.elapsed() < time && failed < FAILURES_MAX {
            let start = Instant::now();
            let sent = SystemTime::now();
            match self.command() {
                Ok(()) => {
                    latencies.record(start.elapsed().into());
                    // The kernel begins to report arrival times some time after the request.
                    let arrived = self.queue.arrived.take();
                    if let Some(Ok(time)) = arrived.map(|arrived| arrived.duration_since(sent)) {
                        answers.record(time.into());
                    }
                }
                Err(error) => {
                    failed += 1;
                    failure.get_or_insert(format!("{error:#}"));
                }
            }
        }
        Measured {
            commands: latencies.count(),
            failed,
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            max_us: latencies.max_us(),
            answer_p99_us: answers.quantile_us(0.99),
            failure,
        }
    }

    fn command(&mut self) -> Result<()> {
        self.commands += 1;
        let place = self.random.below(PLACES);
        let blocks = BYTES / self.peer.block_bytes;
        let slba = place * u64::from(blocks);
        let cid = self.queue.session.cid();
        if self.commands.is_multiple_of(WRITE_EVERY) {
            let data = content(self.commands);
            let mut write = self.peer.command(IoOpcode::WRITE, slba, blocks);
            write.set_cid(cid);
            write.set_sgl(SglDescriptor::in_capsule(0, BYTES));
            // Until the write completes, the block may have either content.
            self.written.remove(&place);
            self.queue
                .send(&self.queue.session.capsule(&write, &data))?;
            self.answer(cid)?;
            self.written.insert(place, self.commands);
            return Ok(());
        }
        let read = self.peer.read(cid, slba, blocks);
        self.queue.send(&self.queue.session.capsule(&read, &[]))?;
        let data = self.answer(cid)?;
        ensure!(data.len() == BYTES as usize, "{} bytes of data", data.len());
        if let Some(&seed) = self.written.get(&place) {
            ensure!(
                data == content(seed),
                "the data differs from the written data"
            );
        }
        Ok(())
    }

    /// Returns the data of the successful response to this command.
    fn answer(&mut self, cid: u16) -> Result<Vec<u8>> {
        let (completion, data) = self.queue.answer()?;
        ensure!(
            completion.cid == cid && completion.status.is_success(),
            "{completion:?}"
        );
        Ok(data)
    }
}

fn content(seed: u64) -> Vec<u8> {
    let mut data = vec![0; BYTES as usize];
    Prng::from_seed(seed).fill(&mut data);
    data
}
