//! The oracle: decides which answers a device may give if it keeps every acknowledged write and
//! adds no other content.
//!
//! A simple, slow model of a block device with many writers: for each block, all writes that a read
//! may still return. Every step of every actor has a unique number, so that two requests either
//! follow each other or overlap in time. Writes that overlap may take effect in any order; an
//! acknowledged write precedes everything that begins later. A write that failed, or that nothing
//! can execute any more, may or may not take effect, but not after a write that began later was
//! acknowledged.

use std::collections::BTreeMap;
use std::ops::Range;

/// The write that a block's content comes from; 0 for a block of zeroes.
pub type Version = u64;

/// Number of a step: the start or end of a request, in time order.
pub type StepNumber = u64;

/// Content that a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Its version, repeated over each block.
    Version,
    /// Zeroes, for every request.
    Zeroes,
}

#[derive(Clone, Debug)]
struct Write {
    version: Version,
    content: Content,
    began: StepNumber,
    /// Step at which it was answered, or after which nothing can execute it any more.
    ended: Option<StepNumber>,
    /// Host that it was acknowledged to; 0 for none.
    host: u64,
    /// It took effect before it ended, and was not lost since.
    holds: bool,
    /// Power failed while it was outstanding: its effect may precede the failure.
    shaken: bool,
    /// It is on the medium.
    durable: bool,
    /// Step at which it was first read.
    read: Option<StepNumber>,
    /// Its host, and the step after which that host lets no newer write pass it, although it may
    /// still be executed.
    left: Option<(u64, StepNumber)>,
}

impl Write {
    const INITIAL: Self = Self {
        version: 0,
        content: Content::Zeroes,
        began: 0,
        ended: Some(0),
        host: 0,
        holds: true,
        shaken: false,
        durable: true,
        read: None,
        left: None,
    };

    fn found_as(&self) -> Version {
        match self.content {
            Content::Version => self.version,
            Content::Zeroes => 0,
        }
    }
}

/// A write that its application no longer waits for: it may be executed while a controller that may
/// hold it exists.
#[derive(Debug)]
struct Orphan {
    host: u64,
    range: Range<usize>,
    version: Version,
    /// Controllers of its host at the first check that still exist; `None` before the first check.
    controllers: Option<Vec<u16>>,
}

/// Writes kept per block before those that no read can return any more are dropped.
const WRITES_KEPT: usize = 16;

/// The model of a device's content.
#[derive(Debug)]
pub struct Oracle {
    /// Writes of each block, in the order of their start.
    blocks: Vec<Vec<Write>>,
    step: StepNumber,
    next: Version,
    /// Outstanding reads, by start.
    reads: BTreeMap<StepNumber, usize>,
    /// True if power may be lost: until durable, an acknowledged write can be lost.
    volatile: bool,
    /// Steps at which power was lost.
    losses: Vec<StepNumber>,
    /// Blocks with acknowledged writes that a Flush may make durable: their list, and a flag per
    /// block.
    unflushed: Vec<usize>,
    is_unflushed: Vec<bool>,
    orphans: Vec<Orphan>,
}

impl Oracle {
    /// A device of `blocks` blocks of zeroes.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        Self {
            blocks: vec![vec![Write::INITIAL]; blocks],
            step: 0,
            next: 1,
            reads: BTreeMap::new(),
            volatile: false,
            losses: Vec::new(),
            unflushed: Vec::new(),
            is_unflushed: vec![false; blocks],
            orphans: Vec::new(),
        }
    }

    /// Returns the same device with a volatile write cache, which may lose unflushed writes
    /// ([`power_lost`](Self::power_lost)).
    #[must_use]
    pub fn with_volatile_cache(mut self) -> Self {
        self.volatile = true;
        self
    }

    /// Returns the same device with versions from `first` on.
    #[must_use]
    pub fn numbered_from(mut self, first: Version) -> Self {
        self.next = first;
        self
    }

    fn step(&mut self) -> StepNumber {
        self.step += 1;
        self.step
    }

    /// Returns true if a write to this block is outstanding.
    #[must_use]
    pub fn is_writing(&self, block: usize) -> bool {
        self.blocks[block].iter().any(|write| write.ended.is_none())
    }

    /// Returns for each block the acknowledged write that began last.
    #[must_use]
    pub fn settled(&self) -> Vec<Version> {
        let settled = |writes: &Vec<Write>| {
            let last = writes.iter().rfind(|write| write.holds);
            last.map_or(0, |write| write.version)
        };
        self.blocks.iter().map(settled).collect()
    }

    /// Begins a write of some blocks; returns its version.
    pub fn begin_write(&mut self, range: Range<usize>, content: Content) -> Version {
        let began = self.step();
        let version = self.next;
        self.next += 1;
        for block in &mut self.blocks[range] {
            block.push(Write {
                version,
                content,
                began,
                ended: None,
                holds: false,
                durable: false,
                ..Write::INITIAL
            });
        }
        version
    }

    /// Acknowledges a write to a host: everything that begins later finds this write or a newer
    /// one. With `durable` it survives every power loss.
    pub fn acknowledge(&mut self, range: Range<usize>, version: Version, durable: bool, host: u64) {
        if self.volatile && !durable {
            for block in range.clone() {
                if !std::mem::replace(&mut self.is_unflushed[block], true) {
                    self.unflushed.push(block);
                }
            }
        }
        let now = self.step();
        self.end(range, version, now, |write| {
            write.host = host;
            write.holds = durable || !write.shaken;
            write.durable = durable;
        });
    }

    /// Fails a write: each of its blocks may have it or not.
    pub fn fail(&mut self, range: Range<usize>, version: Version) {
        let now = self.step();
        self.end(range, version, now, |_| {});
    }

    /// Marks a write that the application of a host no longer waits for: the host crashed, or
    /// learned that the write may still take effect.
    pub fn orphan(&mut self, range: Range<usize>, version: Version, host: u64) {
        self.orphans.push(Orphan {
            host,
            range,
            version,
            controllers: None,
        });
    }

    /// Marks a write that may still be executed, as its host knows: as an [`orphan`](Self::orphan),
    /// but later acknowledged writes of this host replace it. Not to be used if its namespace was
    /// removed: then its blocks are open again.
    pub fn leave(&mut self, range: Range<usize>, version: Version, host: u64) {
        let now = self.step();
        for block in &mut self.blocks[range.clone()] {
            let mut writes = block.iter_mut();
            if let Some(write) = writes.find(|write| write.version == version) {
                write.left = Some((host, now));
            }
        }
        self.orphan(range, version, host);
    }

    /// Returns true if a write that no application waits for may still be executed.
    #[must_use]
    pub const fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Ends orphans that no controller can hold any more: `controllers` returns the current
    /// controllers of a host. A host never resends a command of a write that it gave up, so a later
    /// controller cannot hold it. Takes no step of its own.
    pub fn end_orphans(&mut self, controllers: impl Fn(u64) -> Vec<u16>) {
        let mut orphans = std::mem::take(&mut self.orphans);
        orphans.retain_mut(|orphan| {
            let live = controllers(orphan.host);
            let known = orphan.controllers.get_or_insert_with(|| live.clone());
            known.retain(|id| live.contains(id));
            let stays = !known.is_empty();
            if !stays {
                self.end(orphan.range.clone(), orphan.version, self.step, |_| {});
            }
            stays
        });
        self.orphans = orphans;
    }

    fn end(
        &mut self,
        range: Range<usize>,
        version: Version,
        now: StepNumber,
        how: impl Fn(&mut Write),
    ) {
        let oldest = self.reads.keys().next().copied().unwrap_or(now);
        for block in &mut self.blocks[range] {
            let write = block.iter_mut().find(|write| write.version == version);
            let write = write.expect("a write that ends has begun");
            assert_eq!(write.ended, None, "a write ends once");
            write.ended = Some(now);
            how(write);
            if block.len() > WRITES_KEPT {
                let volatile = self.volatile;
                let floor = floor(block, oldest, |write| write.durable || !volatile);
                block.retain(|write| write.ended.is_none_or(|ended| ended >= floor));
            }
        }
    }

    /// Begins a flush; returns its identifier for [`flushed`](Self::flushed).
    pub fn begin_flush(&mut self) -> StepNumber {
        self.step()
    }

    /// Acknowledges to a host the flush that began at `began`: writes acknowledged before it are
    /// durable. That includes writes lost before it that were acknowledged to this host, unless the
    /// host was `told` of a loss after them.
    pub fn flushed(&mut self, began: StepNumber, host: u64, told: StepNumber) {
        let Self {
            blocks,
            unflushed,
            is_unflushed,
            ..
        } = self;
        unflushed.retain(|&block| {
            let mut stays = false;
            for write in &mut blocks[block] {
                if let Some(ended) = write.ended.filter(|&ended| ended < began) {
                    write.holds |= write.host == host && ended > told;
                    write.durable |= write.holds;
                }
                // A failed write was not acknowledged.
                stays |= write.ended.is_some() && write.host > 0 && !write.durable;
            }
            is_unflushed[block] = stays;
            stays
        });
    }

    /// Simulates a power loss: any part of the content that is not durable may be lost.
    pub fn power_lost(&mut self) {
        if !self.volatile {
            return;
        }
        let step = self.step();
        self.losses.push(step);
        for write in self.blocks.iter_mut().flatten() {
            write.holds &= write.durable;
            write.shaken |= write.ended.is_none();
        }
    }

    /// Returns the number of power losses, each of which may have lost unflushed writes.
    #[must_use]
    pub const fn losses(&self) -> usize {
        self.losses.len()
    }

    /// Returns the number of power losses before a step.
    #[must_use]
    pub fn losses_before(&self, step: StepNumber) -> usize {
        self.losses.partition_point(|&loss| loss < step)
    }

    /// Begins a read; returns its identifier for [`allows`](Self::allows), until
    /// [`end_read`](Self::end_read).
    pub fn begin_read(&mut self) -> StepNumber {
        let step = self.step();
        *self.reads.entry(step).or_default() += 1;
        step
    }

    /// Ends the read that began at `began`.
    pub fn end_read(&mut self, began: StepNumber) {
        self.reads.remove(&began);
    }

    /// Notes that a read found the write `found` in a block.
    pub fn note_read(&mut self, block: usize, found: Version) {
        let step = self.step();
        let mut writes = self.blocks[block].iter_mut();
        if let Some(write) = writes.rfind(|write| write.version == found) {
            write.read.get_or_insert(step);
        }
    }

    /// Returns a new step number for an event that happens now.
    pub fn mark(&mut self) -> StepNumber {
        self.step()
    }

    /// Returns true if the write `newer` of a block began after `mark`, and `older` was read before
    /// it.
    #[must_use]
    pub fn overtakes(
        &self,
        block: usize,
        newer: Version,
        older: Version,
        mark: StepNumber,
    ) -> bool {
        let write = |version| {
            self.blocks[block]
                .iter()
                .find(move |w| w.version == version)
        };
        let began = write(newer).is_some_and(|write| write.began > mark);
        let read = write(older).and_then(|write| write.read);
        began && read.is_some_and(|read| read < mark)
    }

    /// Returns true if a read that began at `began` may find `found` in a block now.
    #[must_use]
    pub fn allows(&self, block: usize, began: StepNumber, found: Version) -> bool {
        let writes = &self.blocks[block];
        let floor = floor(writes, began, |_| true);
        let mut same = writes.iter().filter(|write| write.found_as() == found);
        same.any(|write| may_be_found(writes, write, began, floor))
    }

    /// Lists all versions that a read that began at `began` may find in a block now, with their
    /// start.
    pub fn allowed(
        &self,
        block: usize,
        began: StepNumber,
    ) -> impl DoubleEndedIterator<Item = Version> + '_ {
        let writes = &self.blocks[block];
        let floor = floor(writes, began, |_| true);
        let allowed = writes.iter();
        allowed
            .filter(move |write| may_be_found(writes, write, began, floor))
            .map(Write::found_as)
    }

    /// Fails a write to blocks that it had no permission for: it had no effect on them.
    pub fn never(&mut self, range: Range<usize>, version: Version) {
        for block in &mut self.blocks[range] {
            block.retain(|write| write.version != version);
        }
    }
}

/// Returns true if a read that began at `read` may find `write`, unless that write ended before
/// `floor`.
fn may_be_found(writes: &[Write], write: &Write, read: StepNumber, floor: StepNumber) -> bool {
    write.ended.is_none_or(|ended| ended >= floor) && !is_replaced(writes, write, read)
}

/// Returns true if a newer write of its host, which lets no write pass it, was acknowledged when a
/// read began at `read`.
fn is_replaced(writes: &[Write], write: &Write, read: StepNumber) -> bool {
    write.left.is_some_and(|(host, left)| {
        writes.iter().any(|other| {
            let over = other.holds && other.ended.is_some_and(|ended| ended < read);
            over && other.host == host && other.began > left
        })
    })
}

/// Returns the step before which ended writes cannot be found by a read that begins at `read`: a
/// later write, still in effect, had replaced them by then.
fn floor(writes: &[Write], read: StepNumber, counts: impl Fn(&Write) -> bool) -> StepNumber {
    let replacing = writes
        .iter()
        .filter(|write| write.holds && write.ended.is_some_and(|ended| ended < read))
        .filter(|write| counts(write));
    replacing.map(|write| write.began).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
