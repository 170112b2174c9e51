//! Commands over several extents. Each extent is checked as a separate request.

use super::{Client, Way};
use crate::application::Mix;
use crate::trace::say;
use base::SlabKey;
use base::units::Lba;
use block::{Completion, Extent, Extents, Operation, SubmitExtents};
use reactor::Context;

impl Client {
    /// Occasionally draws a command over several extents.
    pub(super) fn next_extents(&mut self, cx: &Context<'_>) -> Option<Extents> {
        const WRITE: Operation = Operation::Write { durable: false };
        let left = usize::try_from(self.work.workload.requests - self.issued).unwrap_or(usize::MAX);
        let free = self.work.workload.depth - self.in_flight.len();
        let (prng, most) = self.extents.as_mut()?;
        let most = (*most).min(left).min(free);
        let mut ranges = Vec::new();
        let mut operation = Operation::Read;
        if most > 1 && prng.chance(1, 4) {
            if prng.chance(1, 2) {
                let durable = prng.chance(1, 8);
                operation = if durable {
                    Operation::Write { durable }
                } else {
                    WRITE
                };
            }
            let mut next = prng.below(self.geometry.blocks);
            let mut blocks = 0;
            while ranges.len() < most {
                let start = next + prng.below(3);
                next = start + 1 + prng.below(self.work.workload.blocks_max);
                blocks += next - start;
                if next > self.geometry.blocks || blocks > self.transfer_blocks {
                    break;
                }
                let index = |n: u64| usize::try_from(n).expect("a small device");
                ranges.push(index(start)..index(next));
            }
        }
        let oracle = self.oracle.borrow();
        let plain = self.work.mix == Mix::Plain && operation.is_write();
        let mut blocks = ranges.iter().cloned().flatten();
        if ranges.is_empty() || plain && blocks.any(|block| oracle.is_writing(block)) {
            return None;
        }
        drop(oracle);
        let size = self.geometry.block_bytes as usize;
        // Distinct from the tags of requests, which are keys.
        let tag = u64::MAX - self.issued;
        let lengths = ranges.iter().map(|range| range.len() * size);
        let memory: Option<Vec<_>> = lengths.map(|bytes| self.memory(bytes, cx)).collect();
        let extents = ranges.into_iter().zip(memory?).map(|(range, data)| {
            let kind = self.begin(operation, &range);
            let data = self.fill(data, range.clone(), &kind);
            let (now, name) = (cx.now, &self.name);
            say(|| format!("{now:?}: {name} asks together {operation:?} {range:?} {kind:?}"));
            let lba = Lba(range.start as u64);
            let blocks = u32::try_from(range.len()).expect("a small device");
            let key = self.note(Some(operation), range, kind, cx.now, Some(tag));
            Extent {
                tag: key.tag(),
                lba,
                blocks,
                data: Some(data),
                result: Ok(()),
            }
        });
        Some(Extents {
            tag,
            operation,
            extents: extents.collect(),
        })
    }

    /// Submits a command over extents. Returns false if the channel is full.
    pub(super) fn submit_extents(&mut self, command: Extents, cx: &mut Context<'_>) -> bool {
        let gives_up = self.gives_up.as_mut();
        let limit = gives_up.and_then(|gives_up| gives_up.limit_of_extents(cx.now));
        let submit = match (&mut self.channel, limit) {
            (Way::Remote(channel), Some(limit)) => {
                say(|| format!("{:?}: they wait until {limit:?}", cx.now));
                for extent in &command.extents {
                    if let Some(known) = self.in_flight.get_mut(SlabKey::from_tag(extent.tag)) {
                        known.given_up = true;
                    }
                }
                channel.submit_extents_until(command, limit, cx)
            }
            (way, _) => way.as_mut().submit_extents(command, cx),
        };
        match submit {
            SubmitExtents::Done(command) => self.answered_extents(command, false),
            SubmitExtents::Queued => {}
            SubmitExtents::Busy(command) => {
                self.refused_extents = Some(command);
                return false;
            }
        }
        true
    }

    /// Processes the answer to each extent as that of a separate request.
    pub(super) fn answered_extents(&mut self, command: Extents, sent: bool) {
        for extent in command.extents {
            let Extent {
                tag, result, data, ..
            } = extent;
            self.answered(Completion { tag, result, data }, sent);
        }
    }
}
