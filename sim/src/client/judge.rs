//! Checks of answers.

use super::content::version_of;
use super::{Client, InFlight, RequestKind, WARM_UP, Way};
use crate::application::Tolerance;
use crate::oracle::{StepNumber, Version};
use crate::trace::say;
use base::{SlabKey, Time};
use block::{BlockError, Completion};
use reactor::IoSlice;
use std::ops::Range;

impl Client {
    /// Processes an answer. `sent`: a command of the request may have left the host.
    pub(super) fn answered(&mut self, completion: Completion, sent: bool) {
        let key = SlabKey::from_tag(completion.tag);
        let request = self
            .in_flight
            .remove(key)
            .expect("each request is answered once");
        say(|| {
            let (range, kind) = (&request.range, &request.kind);
            let (now, name, result) = (self.now, &self.name, completion.result);
            format!("{now:?}: {name} is answered {result:?} to {range:?} {kind:?}")
        });
        let asks_anew = self.asks_anew(completion.result);
        let mut report = self.work.report.borrow_mut();
        if asks_anew {
            report.unconnected += 1;
        } else {
            self.work.answered.update(|answered| answered + 1);
            report.answered += 1;
            report.failed += u64::from(is_failure(completion.result));
        }
        report.timed_out += u64::from(completion.result == Err(BlockError::TimedOut));
        report.bytes += completion.data.as_ref().map_or(0, IoSlice::len) as u64;
        if report.answered > WARM_UP {
            report.slowest = report.slowest.max(self.now.since(request.since));
        }
        let mix = completion.tag ^ u64::from(completion.result.is_ok()) << 63;
        report.fingerprint = (report.fingerprint ^ mix).wrapping_mul(0x0100_0000_01B3);
        drop(report);
        if self.work.judged {
            self.judge(request, completion, sent);
        } else if completion.result == Err(BlockError::Gone) {
            // A changed PDU caused the error; further requests would fail the same way.
            self.work.workload.requests = self.issued;
            self.work.report.borrow_mut().gave_up = true;
        }
    }

    /// Asserts that the target's permissions allow the answer. Returns the blocks that the request
    /// did not touch.
    fn judge_by_law(&self, request: &InFlight, answer: Result<(), BlockError>) -> Vec<usize> {
        let (Some(law), Some(operation), Some(asked)) =
            (&self.work.law, request.operation, request.asked)
        else {
            return Vec::new();
        };
        // The refused extent may be another extent of the same command.
        let refused = matches!(answer, Err(BlockError::Denied | BlockError::OutOfRange));
        if request.together.is_some() && refused {
            return Vec::new();
        }
        law.judge(operation, &request.range, asked, answer)
    }

    /// Asserts that the device may give this answer.
    fn judge(&mut self, request: InFlight, completion: Completion, sent: bool) {
        let answer = completion.result;
        let untouched = self.judge_by_law(&request, answer);
        self.note_given_up(&request, answer);
        let comes_late = sent && self.may_come_late(&request, answer);
        let range = request.range;
        let differs = matches!(request.kind, RequestKind::Compare(..))
            && answer == Err(BlockError::CompareFailure);
        if let (RequestKind::Flush(began, _), Err(BlockError::CacheLost)) = (&request.kind, answer)
        {
            return self.told_of_loss(*began);
        }
        if let Err(error) = answer
            && !differs
        {
            assert!(
                self.work.tolerance.allows(error),
                "{:?} of blocks {range:?} failed: {error}, and nothing provokes that",
                request.kind
            );
        }
        match request.kind {
            RequestKind::Flush(began, settled) if answer.is_ok() => {
                self.check_medium(settled.into_iter().enumerate());
                let (host, (_, told)) = (self.work.host, self.told);
                self.oracle.borrow_mut().flushed(began, host, told);
            }
            RequestKind::Write { version, durable } if answer.is_ok() => {
                self.check_order(&range, version);
                if durable {
                    self.check_medium(range.clone().map(|block| (block, version)));
                }
                let mut oracle = self.oracle.borrow_mut();
                oracle.acknowledge(range, version, durable, self.work.host);
            }
            RequestKind::Write { version, .. } if comes_late => {
                let mut oracle = self.oracle.borrow_mut();
                if answer == Err(BlockError::Gone) {
                    oracle.orphan(range, version, self.work.host);
                } else {
                    oracle.leave(range, version, self.work.host);
                }
            }
            RequestKind::Write { version, .. } => {
                let mut oracle = self.oracle.borrow_mut();
                oracle.fail(range, version);
                let denied = answer == Err(BlockError::Denied);
                for block in untouched.into_iter().filter(|_| denied) {
                    oracle.never(block..block + 1, version);
                }
            }
            RequestKind::Read(began) => {
                if answer.is_ok() {
                    let data = completion.data.expect("a read's data comes back");
                    self.check_read(&range, began, request.since, &data);
                }
                self.oracle.borrow_mut().end_read(began);
            }
            RequestKind::Compare(began, expected) => {
                if answer.is_ok() || differs {
                    self.check_compared(&range, began, &expected, differs);
                }
                self.oracle.borrow_mut().end_read(began);
            }
            RequestKind::Verify | RequestKind::Flush(..) => {}
        }
    }

    /// Checks the data of a read, and records its latency.
    fn check_read(&mut self, range: &Range<usize>, began: StepNumber, since: Time, data: &IoSlice) {
        if let Some(log) = &self.log {
            let took = self.now.since(since);
            log.borrow_mut().push((self.now, took));
        }
        if let Some(bytes) = data.bytes() {
            return self.check(range, began, bytes);
        }
        let mut bytes = Vec::new();
        data.append_to(0, &mut bytes);
        self.check(range, began, &bytes);
    }

    /// Processes a Flush, begun at `began`, that failed because unflushed data may be lost. Every
    /// loss is reported once, including losses before the Flush began. A loss during the Flush may
    /// be a later one than the reported loss: the answer may have arrived before the connection
    /// broke, and be read later.
    fn told_of_loss(&mut self, began: StepNumber) {
        let mut oracle = self.oracle.borrow_mut();
        let (losses, told) = self.told;
        let forgets = match self.work.tolerance {
            Tolerance::Any => true,
            Tolerance::Only { forgets, .. } => forgets,
        };
        // A switchboard reports the loss at the next Flush of each lane, and there are several
        // lanes.
        let again = matches!(self.channel, Way::Any(_)) && losses > 0;
        assert!(
            forgets || again || oracle.losses() > losses || began < told,
            "a Flush says that writes may be lost, and nothing provokes that"
        );
        self.told = (oracle.losses_before(began), oracle.begin_flush());
    }

    /// A comparison that succeeds found the expected content; one that fails found other content in
    /// some block.
    fn check_compared(
        &self,
        range: &Range<usize>,
        began: StepNumber,
        expected: &[Version],
        differs: bool,
    ) {
        let oracle = self.oracle.borrow();
        let mut blocks = range.clone().zip(expected);
        let right = if differs {
            blocks.any(|(block, &expected)| {
                let mut allowed = oracle.allowed(block, began);
                allowed.any(|found| found != expected)
            })
        } else {
            blocks.all(|(block, &expected)| oracle.allows(block, began, expected))
        };
        assert!(
            right,
            "a comparison of blocks {range:?} with versions {expected:?} said differs={differs}, \
             which it could not have found"
        );
    }

    /// Asserts that a write did not pass an older write that was lost with a connection. If the
    /// older write was read before the host reconnected, it was sent on the lost connection.
    fn check_order(&self, range: &Range<usize>, version: Version) {
        if matches!(self.channel, Way::Any(_)) {
            // Other threads reconnect, at a time that is not known here.
            return;
        }
        let oracle = self.oracle.borrow();
        for (_, other) in self.in_flight.iter() {
            let RequestKind::Write { version: older, .. } = other.kind else {
                continue;
            };
            for block in range.start.max(other.range.start)..range.end.min(other.range.end) {
                assert!(
                    !oracle.overtakes(block, version, older, self.reconnected),
                    "version {version} of block {block} was acknowledged before version {older}, \
                     which was lost with a connection"
                );
            }
        }
    }

    /// Asserts that writes acknowledged before a Flush, or written with FUA, are on the medium.
    fn check_medium(&self, promised: impl Iterator<Item = (usize, Version)>) {
        let Some(medium) = &self.medium else { return };
        for (block, promised) in promised {
            let durable = medium.durable(block);
            assert!(
                durable >= promised,
                "block {block} was promised to be on the medium as version {promised}; there is \
                 {durable}"
            );
        }
    }

    fn check(&mut self, range: &Range<usize>, began: StepNumber, bytes: &[u8]) {
        let size = self.geometry.block_bytes as usize;
        for (block, found) in range.clone().zip(bytes.chunks(size)) {
            let version = version_of(block, found);
            let oracle = self.oracle.borrow();
            assert!(
                oracle.allows(block, began, version),
                "block {block} holds version {version}; allowed were {:?}",
                oracle.allowed(block, began).collect::<Vec<_>>()
            );
            drop(oracle);
            self.oracle.borrow_mut().note_read(block, version);
            let mut report = self.work.report.borrow_mut();
            report.fingerprint = (report.fingerprint ^ version).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

/// Returns true for an error. A failed comparison is a regular answer.
fn is_failure(result: Result<(), BlockError>) -> bool {
    result.is_err_and(|error| error != BlockError::CompareFailure)
}
