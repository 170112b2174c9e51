//! A device that outlives the processes that serve it: slow, faulty, with a volatile write cache.

use crate::trace::say;
use base::units::Lba;
use base::{Nanos, Prng, Time};
use block::{
    BlockError, Capabilities, Channel, Completion, Device, DeviceError, Extents, Geometry,
    Operation, Request, Submit, SubmitExtents, check_extents,
};
use reactor::{Context, Driver};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Faults of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFaults {
    /// Maximum service time of a request.
    pub delay_max: Nanos,
    /// One request in this many takes [`late_by`](Self::late_by) or
    /// [`late_writes_by`](Self::late_writes_by) instead; 0 for never.
    pub late_one_in: u64,
    /// Service time of such a request if it changes no block.
    pub late_by: Nanos,
    /// Service time of such a request if it changes blocks.
    pub late_writes_by: Nanos,
    /// One request in this many fails after it has changed some of its blocks; 0 for never.
    pub fail_one_in: u64,
    /// One write in this many changes some of its blocks before it ends; 0 for never.
    pub tear_one_in: u64,
}

/// Totals of a disk so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskTotals {
    /// Requests that changed a block.
    pub writes: u64,
    /// Failed requests.
    pub failed: u64,
    /// Requests with the long service time of `late_one_in`.
    pub late: u64,
    /// Requests outstanding at a crash, and writes that changed some blocks before they ended.
    pub torn: u64,
    /// Completed Write Zeroes.
    pub zeroed: u64,
    /// Blocks that fell back to their flushed content.
    pub lost: u64,
}

#[derive(Debug)]
struct DiskState {
    /// Current size in blocks.
    blocks: u64,
    /// Content that a read returns.
    content: Vec<u8>,
    /// Content that survives a power loss, for each block that differs from it.
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// Number of the last change of each block, and of the change that survives a power loss; empty
    /// without a write cache.
    changes: Vec<(u64, u64)>,
    /// Number of changes.
    changed: u64,
    faults: DiskFaults,
    /// Remaining opens; `None` without a limit.
    opens: Option<u32>,
    totals: DiskTotals,
    prng: Prng,
}

/// The disk; each clone is the same one.
#[derive(Clone, Debug)]
pub struct Disk {
    state: Arc<Mutex<DiskState>>,
    geometry: Geometry,
    volatile: bool,
    /// Number of the disk, in a trace.
    name: u16,
}

impl Disk {
    /// Creates a disk of zeroes whose faults follow `seed`. With `volatile` it has a write cache
    /// that [`lose_power`](Self::lose_power) empties.
    #[must_use]
    pub fn new(geometry: Geometry, volatile: bool, faults: DiskFaults, seed: u64) -> Self {
        let blocks = usize::try_from(geometry.blocks).expect("a small disk");
        let bytes = blocks * geometry.block_bytes as usize;
        let state = DiskState {
            blocks: geometry.blocks,
            content: vec![0; bytes],
            durable: vec![0; if volatile { bytes } else { 0 }],
            dirty: BTreeSet::new(),
            changes: vec![(0, 0); if volatile { blocks } else { 0 }],
            changed: 0,
            faults,
            opens: None,
            totals: DiskTotals::default(),
            prng: Prng::from_seed(seed),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            geometry,
            volatile,
            name: u16::try_from(seed & 0xFFFF).expect("masked"),
        }
    }

    const fn size(&self) -> usize {
        self.geometry.block_bytes as usize
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the faults.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.state().faults = faults;
    }

    /// Limits further opens to `times`; `None` for no limit.
    pub(crate) fn open_at_most(&self, times: Option<u32>) {
        self.state().opens = times;
    }

    /// Returns the totals so far.
    #[must_use]
    pub fn totals(&self) -> DiskTotals {
        self.state().totals
    }

    /// Simulates a power loss while the disk is not open: any unflushed block may fall back to its
    /// flushed content.
    pub fn lose_power(&self) {
        let state = &mut *self.state();
        let size = self.geometry.block_bytes as usize;
        for block in std::mem::take(&mut state.dirty) {
            let bytes = block * size..(block + 1) * size;
            if state.prng.chance(1, 2) {
                state.totals.lost += 1;
                say(|| format!("    disk {:04x}: loses block {block}", self.name));
                state.content[bytes.clone()].copy_from_slice(&state.durable[bytes]);
                state.changes[block].0 = state.changes[block].1;
            } else {
                state.durable[bytes.clone()].copy_from_slice(&state.content[bytes]);
                state.changes[block].1 = state.changes[block].0;
            }
        }
    }

    /// Returns the current content of a block.
    ///
    /// # Panics
    /// If the block does not exist.
    #[must_use]
    pub fn block(&self, block: usize) -> Vec<u8> {
        self.look_at(block, <[u8]>::to_vec)
    }

    /// Writes bytes from byte `at` on, on stable storage: for a process that is not simulated.
    pub(crate) fn put_bytes(&self, at: u64, bytes: &[u8]) {
        let state = &mut *self.state();
        let at = usize::try_from(at).expect("a small disk");
        let range = at..at + bytes.len();
        state.content[range.clone()].copy_from_slice(bytes);
        if self.volatile {
            state.durable[range].copy_from_slice(bytes);
        }
    }

    /// Reads bytes from byte `at` on.
    pub(crate) fn get_bytes(&self, at: u64, out: &mut [u8]) {
        let at = usize::try_from(at).expect("a small disk");
        let len = out.len();
        out.copy_from_slice(&self.state().content[at..at + len]);
    }

    /// Calls `look` with the content of a block.
    pub(crate) fn look_at<R>(&self, block: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        let size = self.geometry.block_bytes as usize;
        look(&self.state().content[block * size..(block + 1) * size])
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        Geometry {
            blocks: self.state().blocks,
            ..self.geometry
        }
    }

    /// Blocks cut off by a shrink are zeroes when the disk grows again. The size never exceeds the
    /// initial size.
    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        if blocks == 0 || blocks > self.geometry.blocks {
            let reason = format!("a disk of 1 to {} blocks", self.geometry.blocks);
            return Err(DeviceError::Invalid(reason));
        }
        let state = &mut *self.state();
        let range = bytes_of(
            Lba(0),
            u32::try_from(blocks).expect("a small disk"),
            self.size(),
        );
        state.content[range.end..].fill(0);
        let kept = usize::try_from(blocks).expect("a small disk");
        if self.volatile {
            state.durable[range.end..].fill(0);
            state.changed += 1;
            state.changes[kept..].fill((state.changed, state.changed));
        }
        state.dirty.retain(|&block| block < kept);
        state.blocks = blocks;
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            volatile_cache: self.volatile,
            read_only: false,
            thin: true,
            max_transfer_bytes: 1 << 20,
            preferred_bytes: 0,
            extents_max: 16,
        }
    }

    fn open(&self, _: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        if let Some(opens) = &mut self.state().opens {
            let left = opens.checked_sub(1);
            *opens = left.ok_or_else(|| DeviceError::Invalid("it opens no more".to_owned()))?;
        }
        Ok(Box::new(DiskChannel {
            disk: self.clone(),
            under_way: VecDeque::new(),
            done: VecDeque::new(),
            extents: BTreeMap::new(),
            done_extents: VecDeque::new(),
            next: 0,
        }))
    }
}

/// A request takes effect when it ends, except a Flush, which may save the content at its start.
#[derive(Debug)]
struct DiskChannel {
    disk: Disk,
    /// Outstanding requests by their end; a Flush with the content it saves, if that is already
    /// fixed.
    under_way: VecDeque<(Time, Request, Option<Saved>)>,
    done: VecDeque<Completion>,
    /// Outstanding commands over extents by their numbers, with the count of outstanding extents.
    extents: BTreeMap<u64, (Extents, usize)>,
    done_extents: VecDeque<Extents>,
    /// Number of the next such command.
    next: u64,
}

/// Blocks that a Flush saves: index, number of the last change, content at that time.
type Saved = Vec<(usize, u64, Vec<u8>)>;

/// Marks the tag of a request for one extent; the index is below, and the command's number above
/// that.
const EXTENT: u64 = 1 << 63;

/// Bits of the index.
const INDEX_BITS: u32 = 8;

/// Formats a completed request for the trace. Written data begins with its version.
fn told(request: &Request, fails: bool) -> String {
    let mut version = [0; 8];
    let data = request.data.as_ref().filter(|data| data.len() >= 8);
    let version = data.map(|data| {
        data.copy_out(0, &mut version);
        u64::from_le_bytes(version)
    });
    let how = if fails { "fails" } else { "does" };
    let (operation, Lba(first)) = (request.operation, request.lba);
    let end = first + u64::from(request.blocks);
    format!("{how} {operation:?} {first}..{end}, version {version:?}")
}

/// Returns true if a request addresses a block beyond the end.
fn is_beyond(request: &Request, blocks: u64) -> bool {
    let end = request.lba.0.checked_add(request.blocks.into());
    request.operation != Operation::Flush && end.is_none_or(|end| end > blocks)
}

/// Byte range of these blocks.
fn bytes_of(lba: Lba, blocks: u32, size: usize) -> Range<usize> {
    let first = usize::try_from(lba.0).expect("a small disk") * size;
    first..first + blocks as usize * size
}

impl DiskState {
    /// Sets `block`, of `size` bytes, with `content`.
    fn put(&mut self, block: usize, size: usize, durable: bool, content: impl FnOnce(&mut [u8])) {
        let bytes = block * size..(block + 1) * size;
        content(&mut self.content[bytes.clone()]);
        if self.durable.is_empty() {
            return;
        }
        self.changed += 1;
        self.changes[block].0 = self.changed;
        if durable {
            self.durable[bytes.clone()].copy_from_slice(&self.content[bytes]);
            self.changes[block].1 = self.changed;
            self.dirty.remove(&block);
        } else {
            self.dirty.insert(block);
        }
    }

    /// Returns the blocks that a Flush starting now must save.
    fn unsaved(&self, size: usize) -> Saved {
        let blocks = self.dirty.iter();
        blocks
            .map(|&block| {
                let content = self.content[block * size..(block + 1) * size].to_vec();
                (block, self.changes[block].0, content)
            })
            .collect()
    }

    /// Saves these blocks, except those of which newer content is already saved.
    fn save(&mut self, saved: Saved, size: usize) {
        for (block, change, content) in saved {
            let (last, durable) = &mut self.changes[block];
            if change > *durable {
                *durable = change;
                self.durable[block * size..(block + 1) * size].copy_from_slice(&content);
            }
            if *last == *durable {
                self.dirty.remove(&block);
            }
        }
    }

    /// Executes a request; a Flush with the content it saves, if that is already fixed.
    fn carry_out(
        &mut self,
        request: &mut Request,
        saved: Option<Saved>,
        size: usize,
    ) -> Result<(), BlockError> {
        let bytes = bytes_of(request.lba, request.blocks, size);
        match request.operation {
            Operation::Read => {
                let data = request.data.as_mut().ok_or(BlockError::Malformed)?;
                data.copy_in(0, &self.content[bytes]);
            }
            Operation::Compare => {
                let data = request.data.as_ref().ok_or(BlockError::Malformed)?;
                let mut expected = vec![0; bytes.len()];
                data.copy_out(0, &mut expected);
                if self.content[bytes] != expected {
                    return Err(BlockError::CompareFailure);
                }
            }
            Operation::Flush => {
                let saved = saved.unwrap_or_else(|| self.unsaved(size));
                self.save(saved, size);
            }
            Operation::Verify => {}
            Operation::Write { durable } | Operation::WriteZeroes { durable, .. } => {
                self.write(request, size, true, durable);
            }
            Operation::Deallocate => self.write(request, size, true, false),
        }
        Ok(())
    }

    fn write(&mut self, request: &Request, size: usize, whole: bool, durable: bool) {
        self.totals.writes += 1;
        self.totals.zeroed += u64::from(whole && request.data.is_none());
        let first = usize::try_from(request.lba.0).expect("a small disk");
        for index in 0..request.blocks as usize {
            if !whole && self.prng.chance(1, 2) {
                continue;
            }
            let durable = durable && whole;
            self.put(first + index, size, durable, |block| match &request.data {
                Some(data) => data.copy_out(index * size, block),
                None => block.fill(0),
            });
        }
    }
}

impl DiskChannel {
    /// Completes an extent of a command, and the command with its last extent.
    fn end_extent(&mut self, completion: Completion) {
        let Completion { tag, result, data } = completion;
        let number = (tag & !EXTENT) >> INDEX_BITS;
        let Some((command, left)) = self.extents.get_mut(&number) else {
            return;
        };
        let index = usize::try_from(tag % (1 << INDEX_BITS)).expect("a byte");
        let extent = &mut command.extents[index];
        (extent.result, extent.data) = (result, data);
        *left -= 1;
        if *left == 0
            && let Some((command, _)) = self.extents.remove(&number)
        {
            self.done_extents.push_back(command);
        }
    }

    fn end(&self, mut request: Request, saved: Option<Saved>) -> Completion {
        let size = self.disk.geometry.block_bytes as usize;
        let state = &mut *self.disk.state();
        if is_beyond(&request, state.blocks) {
            return request.ended(Err(BlockError::OutOfRange));
        }
        let one_in = state.faults.fail_one_in;
        let fails = one_in > 0 && state.prng.chance(1, one_in);
        say(|| format!("    disk {:04x}: {}", self.disk.name, told(&request, fails)));
        let result = if fails {
            state.totals.failed += 1;
            if request.operation.is_write() {
                state.write(&request, size, false, false);
                Err(BlockError::WriteFailure)
            } else if request.operation == Operation::Flush {
                Err(BlockError::WriteFailure)
            } else {
                Err(BlockError::ReadFailure)
            }
        } else {
            state.carry_out(&mut request, saved, size)
        };
        request.ended(result)
    }
}

impl Channel for DiskChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        let mut state = self.disk.state();
        if is_beyond(&request, state.blocks) {
            return Submit::Done(request.ended(Err(BlockError::OutOfRange)));
        }
        let faults = state.faults;
        let late = faults.late_one_in > 0 && state.prng.chance(1, faults.late_one_in);
        state.totals.late += u64::from(late);
        let takes = if late && request.operation.is_write() {
            faults.late_writes_by
        } else if late {
            faults.late_by
        } else {
            Nanos(state.prng.below(faults.delay_max.0 + 1))
        };
        let tears = faults.tear_one_in > 0 && state.prng.chance(1, faults.tear_one_in);
        if tears && request.operation.is_write() && takes > Nanos::ZERO {
            state.totals.torn += 1;
            let size = self.disk.size();
            state.write(&request, size, false, false);
        }
        let flushes = self.disk.volatile && request.operation == Operation::Flush;
        let early = flushes && state.prng.chance(1, 2);
        let saved = early.then(|| state.unsaved(self.disk.size()));
        drop(state);
        if takes == Nanos::ZERO {
            return Submit::Done(self.end(request, saved));
        }
        let at = cx.now + takes;
        let place = self.under_way.partition_point(|(other, ..)| *other <= at);
        self.under_way.insert(place, (at, request, saved));
        Submit::Queued
    }

    fn submit_extents(&mut self, mut command: Extents, cx: &mut Context<'_>) -> SubmitExtents {
        let (geometry, capabilities) = (self.disk.geometry(), self.disk.capabilities());
        if let Err(error) = check_extents(&mut command, geometry, capabilities) {
            return SubmitExtents::Done(command.ended(Err(error)));
        }
        let number = self.next;
        self.next += 1;
        let requests: Vec<_> = (0..)
            .zip(&mut command.extents)
            .map(|(index, extent)| Request {
                tag: EXTENT | number << INDEX_BITS | index,
                ..extent.request(command.operation)
            })
            .collect();
        self.extents.insert(number, (command, requests.len()));
        for request in requests {
            if let Submit::Done(completion) = self.submit(request, cx) {
                self.end_extent(completion);
            }
        }
        if !self.extents.contains_key(&number)
            && let Some(command) = self.done_extents.pop_back()
        {
            return SubmitExtents::Done(command);
        }
        SubmitExtents::Queued
    }

    fn reap_extents(&mut self) -> Option<Extents> {
        self.done_extents.pop_front()
    }

    fn reap(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        while self.under_way.front().is_some_and(|(at, ..)| *at <= cx.now) {
            let Some((_, request, saved)) = self.under_way.pop_front() else {
                return;
            };
            let completion = self.end(request, saved);
            if completion.tag & EXTENT > 0 {
                self.end_extent(completion);
            } else {
                self.done.push_back(completion);
            }
        }
    }

    fn deadline(&self) -> Time {
        self.under_way.front().map_or(Time::NEVER, |(at, ..)| *at)
    }

    fn closed(&self) -> bool {
        self.under_way.is_empty()
    }
}

/// Its owner has crashed: each block of the outstanding requests may have changed or not.
impl Drop for DiskChannel {
    fn drop(&mut self) {
        let size = self.disk.geometry.block_bytes as usize;
        let state = &mut *self.disk.state();
        for (_, request, _) in &self.under_way {
            state.totals.torn += 1;
            say(|| {
                format!(
                    "    disk {:04x}: tears {}",
                    self.disk.name,
                    told(request, true)
                )
            });
            if request.operation.is_write() {
                state.write(request, size, false, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        block_bytes: 512,
        blocks: 8,
    };

    #[test]
    fn without_power_only_what_was_flushed_is_left_for_certain() {
        let disk = Disk::new(GEOMETRY, true, DiskFaults::default(), 1);
        let old = [1; 512];
        let put = |new: [u8; 512], durable| {
            let state = &mut *disk.state();
            state.put(0, 512, durable, |block| block.copy_from_slice(&new));
        };
        put(old, true);
        let mut lost = 0;
        for round in 2..32 {
            put([round; 512], false);
            assert_eq!(disk.block(0), [round; 512]);
            disk.lose_power();
            let left = disk.block(0);
            lost += u32::from(left != [round; 512]);
            assert!(left == [round; 512] || left == old || left == [round - 1; 512]);
            put(old, true);
        }
        assert!((1..30).contains(&lost), "{lost}");
        assert_eq!(disk.totals().lost, u64::from(lost));
    }

    /// The content at the start of a Flush is saved, whatever is written meanwhile, and nothing
    /// older.
    #[test]
    fn a_flush_saves_what_there_was_when_it_began() {
        let disk = Disk::new(GEOMETRY, true, DiskFaults::default(), 1);
        let state = &mut *disk.state();
        let put = |state: &mut DiskState, new: u8, durable| {
            state.put(0, 512, durable, |block| block.fill(new));
        };
        put(state, 1, false);
        let first = state.unsaved(512);
        put(state, 2, false);
        let second = state.unsaved(512);
        put(state, 3, false);
        state.save(second, 512);
        assert_eq!((state.durable[0], state.dirty.len()), (2, 1));
        state.save(first, 512);
        assert_eq!((state.durable[0], state.dirty.len()), (2, 1));
        let third = state.unsaved(512);
        put(state, 4, true);
        state.save(third, 512);
        assert_eq!((state.durable[0], state.dirty.len()), (4, 0));
    }
}
