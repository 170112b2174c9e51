//! The oracle: the answers that a device may give, if every acknowledged write is there and nothing
//! else is.
//!
//! A slow, obvious model of a block device that many writers share: for each block, all writes that
//! a read may still find. Every step of every actor has a number of its own, so that two requests
//! either follow each other or overlap in time. Writes that overlap may take effect in any order; a
//! write that was answered is there before everything that begins later; one that failed, or that
//! nothing can carry out any more, may take effect or not, but not after a write that began later was
//! answered.

use std::collections::BTreeMap;
use std::ops::Range;

/// Which write a block's content comes from; 0 is a block of zeroes.
pub type Version = u64;

/// The number of a step, which is the beginning or the end of a request, in the order of their time.
pub type StepNumber = u64;

/// The content that a request puts into its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Its version, all over each block.
    Version,
    /// Zeroes, whichever request it is.
    Zeroes,
}

#[derive(Clone, Debug)]
struct Write {
    version: Version,
    content: Content,
    began: StepNumber,
    /// Step at which it was answered, or from which on nothing can carry it out any more.
    ended: Option<StepNumber>,
    /// The host that it was acknowledged to; 0 for none.
    host: u64,
    /// It took effect before it ended, and that has not been lost since.
    holds: bool,
    /// The power failed while it was under way: its answer may be older than that.
    shaken: bool,
    /// It is on the medium.
    durable: bool,
    /// Step at which it was read for the first time.
    read: Option<StepNumber>,
    /// Its host, and the step from which on that lets no newer write pass it, although it may still be
    /// carried out.
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

/// A write that its application does not wait for any more: it may be carried out as long as a controller
/// that may have it is there.
#[derive(Debug)]
struct Orphan {
    host: u64,
    range: Range<usize>,
    version: Version,
    /// The controllers of its host that were there when it was looked at first, as far as they still
    /// are; `None` before.
    controllers: Option<Vec<u16>>,
}

/// Writes of a block that are kept before those that no read can find any more are dropped.
const WRITES_KEPT: usize = 16;

/// The model of a device's content.
#[derive(Debug)]
pub struct Oracle {
    /// In the order in which they began.
    blocks: Vec<Vec<Write>>,
    step: StepNumber,
    next: Version,
    /// Reads under way, by when they began.
    reads: BTreeMap<StepNumber, usize>,
    /// True if power may be lost: then what is not durable is not for ever.
    volatile: bool,
    /// The steps at which power was lost.
    losses: Vec<StepNumber>,
    /// Blocks with acknowledged writes that a Flush may make durable, and whether each block is one.
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

    /// The same device, which may lose what was not flushed ([`power_lost`](Self::power_lost)).
    #[must_use]
    pub fn with_volatile_cache(mut self) -> Self {
        self.volatile = true;
        self
    }

    /// The same device; its writes have versions from `first` on.
    #[must_use]
    pub fn numbered_from(mut self, first: Version) -> Self {
        self.next = first;
        self
    }

    fn step(&mut self) -> StepNumber {
        self.step += 1;
        self.step
    }

    /// Returns true if a write to this block is under way.
    #[must_use]
    pub fn is_writing(&self, block: usize) -> bool {
        self.blocks[block].iter().any(|write| write.ended.is_none())
    }

    /// The write of every block that began last among those that were acknowledged.
    #[must_use]
    pub fn settled(&self) -> Vec<Version> {
        let settled = |writes: &Vec<Write>| {
            let last = writes.iter().rfind(|write| write.holds);
            last.map_or(0, |write| write.version)
        };
        self.blocks.iter().map(settled).collect()
    }

    /// A write of some blocks begins; its version.
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

    /// A write was acknowledged to a host: whatever began later finds it, or something newer. With
    /// `durable` it survives everything.
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

    /// A write failed: each of its blocks may have it or not.
    pub fn fail(&mut self, range: Range<usize>, version: Version) {
        let now = self.step();
        self.end(range, version, now, |_| {});
    }

    /// The application of a host does not wait for a write any more: it crashed, or was told that it may
    /// still take effect.
    pub fn orphan(&mut self, range: Range<usize>, version: Version, host: u64) {
        self.orphans.push(Orphan {
            host,
            range,
            version,
            controllers: None,
        });
    }

    /// The application of a host was told that a write may still be carried out: as an
    /// [`orphan`](Self::orphan), but what the host writes later, and is told is done, replaces it. Not where its
    /// namespace was gone: with that its blocks are open again.
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

    /// Returns true if a write may be carried out that its application does not wait for.
    #[must_use]
    pub const fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Ends such writes that no controller can have any more: `controllers`
    /// returns those that a host has now. A host sends no command of a write again that it has given
    /// up, so one that comes later does not have it. It takes no step of its own.
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

    /// A flush begins; its name for [`flushed`](Self::flushed).
    pub fn begin_flush(&mut self) -> StepNumber {
        self.step()
    }

    /// The flush that began then was acknowledged to a host: what was acknowledged before it is
    /// durable. If it was lost before, that is so all the same for what was acknowledged to this
    /// host, unless it was `told` of a loss later than that.
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
                // One that failed was not acknowledged.
                stays |= write.ended.is_some() && write.host > 0 && !write.durable;
            }
            is_unflushed[block] = stays;
            stays
        });
    }

    /// The device lost its power: of what is not durable any part may be gone.
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

    /// Returns the number of times that power was lost, and with it perhaps what was not flushed.
    #[must_use]
    pub const fn losses(&self) -> usize {
        self.losses.len()
    }

    /// Returns the number of those that were over when a step began.
    #[must_use]
    pub fn losses_before(&self, step: StepNumber) -> usize {
        self.losses.partition_point(|&loss| loss < step)
    }

    /// A read begins; its name for [`allows`](Self::allows), until [`end_read`](Self::end_read).
    pub fn begin_read(&mut self) -> StepNumber {
        let step = self.step();
        *self.reads.entry(step).or_default() += 1;
        step
    }

    /// The read that began then has ended.
    pub fn end_read(&mut self, began: StepNumber) {
        self.reads.remove(&began);
    }

    /// A read found this write in a block.
    pub fn note_read(&mut self, block: usize, found: Version) {
        let step = self.step();
        let mut writes = self.blocks[block].iter_mut();
        if let Some(write) = writes.rfind(|write| write.version == found) {
            write.read.get_or_insert(step);
        }
    }

    /// A step of its own for whatever happens now.
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

    /// Returns true if a read that began then may find `found` in a block now.
    #[must_use]
    pub fn allows(&self, block: usize, began: StepNumber, found: Version) -> bool {
        let writes = &self.blocks[block];
        let floor = floor(writes, began, |_| true);
        let mut same = writes.iter().filter(|write| write.found_as() == found);
        same.any(|write| may_be_found(writes, write, began, floor))
    }

    /// Everything that a read that began then may find in a block now, by when it began.
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

    /// A write failed, and these blocks were not its to write: it had no effect on them.
    pub fn never(&mut self, range: Range<usize>, version: Version) {
        for block in &mut self.blocks[range] {
            block.retain(|write| write.version != version);
        }
    }
}

/// Returns true if a read that began at `read` may find `write`, unless that ended before `floor`.
fn may_be_found(writes: &[Write], write: &Write, read: StepNumber, floor: StepNumber) -> bool {
    write.ended.is_none_or(|ended| ended >= floor) && !is_replaced(writes, write, read)
}

/// Returns true if a newer write of its host, which lets none pass it, was acknowledged when a read
/// began at `read`.
fn is_replaced(writes: &[Write], write: &Write, read: StepNumber) -> bool {
    write.left.is_some_and(|(host, left)| {
        writes.iter().any(|other| {
            let over = other.holds && other.ended.is_some_and(|ended| ended < read);
            over && other.host == host && other.began > left
        })
    })
}

/// Writes that ended before this cannot be found by a read that begins at `read`: a later one,
/// which still holds, had replaced them by then.
fn floor(writes: &[Write], read: StepNumber, counts: impl Fn(&Write) -> bool) -> StepNumber {
    let replacing = writes
        .iter()
        .filter(|write| write.holds && write.ended.is_some_and(|ended| ended < read))
        .filter(|write| counts(write));
    replacing.map(|write| write.began).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
