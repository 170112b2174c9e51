//! Chooses the next request of a thread of the load.

use super::app::Access;
use super::job::Job;
use super::written::Written;
use base::{Prng, Time};
use block::Operation;

/// Role of a request in a journal's transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// Data, of a transaction or of a load without a journal.
    #[default]
    Data,
    /// Makes the data durable.
    Flush,
    /// The record that ends the transaction; a durable write.
    Commit,
}

/// A planned request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Planned {
    pub(super) unit: u64,
    pub(super) read: bool,
    pub(super) role: Role,
    /// Time from which its latency counts.
    pub(super) begins: Time,
}

impl Planned {
    pub(super) fn operation(&self) -> Operation {
        match self.role {
            Role::Flush => Operation::Flush,
            Role::Data | Role::Commit if self.read => Operation::Read,
            role => Operation::Write {
                durable: role == Role::Commit,
            },
        }
    }

    /// Its name in messages.
    pub(super) fn word(&self) -> &'static str {
        match self.operation() {
            Operation::Flush => "flush",
            Operation::Read => "read",
            _ => "write",
        }
    }
}

/// Addresses of a load, derived from its seed.
#[derive(Debug)]
pub(super) struct Planner {
    random: Prng,
    /// Next unit of a sequential application.
    cursor: u64,
    /// Requests of the current transaction planned so far.
    step: u32,
}

impl Planner {
    /// A planner of a sequential load that begins at unit `first`.
    pub(super) fn new(random: Prng, first: u64) -> Self {
        Self {
            random,
            cursor: first,
            step: 0,
        }
    }

    /// Returns true if the next request need not wait for those in flight. In a transaction only
    /// data requests are in flight together.
    pub(super) fn may_plan(&self, job: &Job, in_flight: usize) -> bool {
        let Some(blocks) = job.journal else {
            return true;
        };
        in_flight == 0 || (0 < self.step && self.step < blocks)
    }

    fn next_role(&mut self, job: &Job) -> Role {
        let Some(blocks) = job.journal else {
            return Role::Data;
        };
        let step = self.step;
        self.step = (step + 1) % (blocks + 2);
        match step.checked_sub(blocks) {
            None => Role::Data,
            Some(0) => Role::Flush,
            Some(_) => Role::Commit,
        }
    }

    /// Plans the next request. A verified request never overlaps one in flight.
    pub(super) fn plan(&mut self, begins: Time, job: &Job, written: Option<&Written>) -> Planned {
        let span = &job.span;
        let role = self.next_role(job);
        let after = |unit: u64| {
            if unit + 1 < span.end {
                unit + 1
            } else {
                span.start
            }
        };
        let mut unit = match job.access {
            // A Flush has no address.
            _ if role == Role::Flush => span.start,
            Access::Random => span.start + self.random.below(span.end - span.start),
            Access::Sequential => {
                let unit = self.cursor;
                self.cursor = after(unit);
                unit
            }
        };
        if let (Some(written), true) = (written, role != Role::Flush) {
            // Terminates, because there are more units than requests.
            while written.is_busy(unit - span.start) {
                unit = after(unit);
            }
        }
        let read = self.random.chance(u64::from(job.read_percent), 100);
        Planned {
            unit,
            read,
            role,
            begins,
        }
    }
}
