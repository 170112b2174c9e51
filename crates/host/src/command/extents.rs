//! A command over several extents, for a controller that supports it.
//!
//! Its capsule carries a buffer owned by the command: the data of a write that is small enough to
//! be copied, followed by the table. Other data stays in the submitter's memory.

use crate::info::Parameters;
use crate::limits::EXTENTS_MAX;
use crate::recovery::span::Span;
use block::{BlockError, Extent, Extents, Operation};
use reactor::{BufferPool, IoSlice};
use wire::nvme::{Command, Completion, ExtentEntry, ExtentsCommand, IoOpcode, done_extents};

/// A command over extents, and the location of its data.
#[derive(Debug)]
pub(crate) struct ExtentsRequest {
    pub(crate) nsid: u32,
    /// The namespace's number in its channel.
    pub(crate) namespace: u16,
    /// The command, which is returned with its completion.
    pub(crate) command: Extents,
    /// The capsule carries the data of a write too.
    pub(crate) inside: bool,
    /// The controller reports the outcome of each extent.
    outcomes: bool,
    /// Bit mask of the extents of a failed command that were done.
    pub(crate) done: u64,
    block_bytes: u32,
    /// Bit mask of the extents whose data had other owners when it was submitted.
    pub(crate) lent: u64,
}

const _: () = assert!(EXTENTS_MAX as u32 <= u64::BITS);

impl ExtentsRequest {
    /// Returns a request without extents, to be [begun](Self::begin).
    pub(crate) const fn new() -> Self {
        Self {
            nsid: 0,
            namespace: 0,
            command: Extents {
                tag: 0,
                operation: Operation::Read,
                extents: Vec::new(),
            },
            inside: false,
            outcomes: false,
            done: 0,
            block_bytes: 512,
            lent: 0,
        }
    }

    /// Starts a command that was checked. Returns the data of its capsule, which includes the data
    /// of a write if it and a buffer are large enough. Returns the command while there is no buffer
    /// for the table.
    pub(crate) fn begin(
        &mut self,
        command: Extents,
        names: (u16, u32),
        block_bytes: u32,
        parameters: &Parameters,
        buffers: &BufferPool,
    ) -> Result<IoSlice, Extents> {
        let table = command.extents.len() * ExtentEntry::SIZE;
        let data = command.blocks() * u64::from(block_bytes);
        let data = usize::try_from(data).expect("at most a transfer");
        let fits = table + data <= parameters.in_capsule_bytes as usize;
        let inside = fits && command.operation.is_write();
        // A driver may have no buffers of that size, so waiting would not help.
        let whole = inside.then(|| buffers.take(data + table)).flatten();
        let inside = whole.is_some();
        let start = if inside { data } else { 0 };
        let Some(mut buffer) = whole.or_else(|| buffers.take(table)) else {
            return Err(command);
        };
        let (mut at, mut entry_at) = (0, start);
        for extent in &command.extents {
            let entry = ExtentEntry {
                slba: extent.lba.0,
                blocks: extent.blocks,
            };
            buffer[entry_at..][..ExtentEntry::SIZE].copy_from_slice(&entry.to_bytes());
            entry_at += ExtentEntry::SIZE;
            if let Some(data) = extent.data.as_ref().filter(|_| inside) {
                data.copy_out(0, &mut buffer[at..][..data.len()]);
                at += data.len();
            }
        }
        self.keep(command, names, block_bytes);
        self.inside = inside;
        self.outcomes = parameters.extents.is_some_and(|terms| terms.outcomes);
        Ok(IoSlice::from_buffer(buffer, start + table))
    }

    /// Starts a command that was checked and is sent as one command per extent.
    pub(crate) fn keep(
        &mut self,
        mut command: Extents,
        (namespace, nsid): (u16, u32),
        block_bytes: u32,
    ) {
        let mut lent = 0;
        for (index, extent) in command.extents.iter_mut().enumerate() {
            let is_lent = extent.data.as_mut().is_some_and(has_more_owners);
            lent |= u64::from(is_lent) << index;
        }
        *self = Self {
            nsid,
            namespace,
            command,
            block_bytes,
            lent,
            ..Self::new()
        };
    }

    /// Returns the bytes of data of all extents.
    pub(crate) fn data_bytes(&self) -> usize {
        let data = self.command.extents.iter();
        let data = data.filter_map(|extent| extent.data.as_ref());
        data.map(IoSlice::len).sum()
    }

    /// The command, without its identifier and data pointer.
    pub(crate) fn command(&self) -> Command {
        let Extents {
            operation, extents, ..
        } = &self.command;
        let opcode = if operation.is_write() {
            IoOpcode::WRITE_EXTENTS
        } else {
            IoOpcode::READ_EXTENTS
        };
        let command = ExtentsCommand {
            nsid: self.nsid,
            extents: u16::try_from(extents.len()).expect("at most 64"),
            blocks: u32::try_from(self.command.blocks()).expect("at most a transfer"),
            fua: matches!(operation, Operation::Write { durable: true }),
            outcomes: self.outcomes,
        };
        command.encode(opcode, 0)
    }

    /// The ranges of the extents.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let extents = self.command.extents.iter();
        extents.map(|extent| Span {
            nsid: self.nsid,
            start: extent.lba.0,
            end: extent.lba.0 + u64::from(extent.blocks),
        })
    }

    /// Returns true if a controller with these parameters supports the command.
    pub(crate) fn is_taken_by(&self, parameters: &Parameters, capsule_bytes: usize) -> bool {
        let extents = self.command.extents.len();
        parameters.extents.is_some_and(|terms| {
            let bytes = self.command.blocks() * u64::from(self.block_bytes);
            let knows = terms.outcomes || !self.outcomes;
            extents <= usize::from(terms.extents) && bytes <= u64::from(terms.bytes) && knows
        }) && capsule_bytes <= parameters.in_capsule_bytes as usize
    }

    /// Records the extents that were done although the command failed: those named in the
    /// completion; of a read, only those whose data is within the `moved` bytes.
    pub(crate) fn note_done(&mut self, completion: &Completion, moved: u32) {
        if !self.outcomes || completion.status.is_success() {
            return;
        }
        let mut end = 0;
        let all_moved = u64::from(moved) == self.command.blocks() * u64::from(self.block_bytes);
        let is_write = self.command.operation.is_write();
        let each = self.command.extents.iter().map(|extent| {
            end += u64::from(extent.blocks) * u64::from(self.block_bytes);
            // A write whose data was not requested as a whole is not done.
            if is_write {
                all_moved
            } else {
                end <= u64::from(moved)
            }
        });
        self.done = completion.result & done_extents(each);
    }

    /// Returns the result of each extent of a command with this result.
    pub(crate) fn result_of(
        &self,
        index: usize,
        of_all: Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        if self.done >> index & 1 == 1 {
            return Ok(());
        }
        of_all
    }

    /// Returns the extent that holds the byte at `offset` of the data, and the byte's offset in it.
    fn at(&self, offset: u32) -> Option<(usize, usize)> {
        let mut left = offset as usize;
        for (index, extent) in self.command.extents.iter().enumerate() {
            let bytes = extent.blocks as usize * self.block_bytes as usize;
            if left < bytes {
                return Some((index, left));
            }
            left -= bytes;
        }
        None
    }

    /// Returns the number of bytes from `offset` of the data to the end of the extent.
    pub(crate) fn contiguous(&self, offset: u32) -> u32 {
        let Some((index, at)) = self.at(offset) else {
            return 0;
        };
        let bytes = self.command.extents[index].blocks * self.block_bytes;
        bytes - u32::try_from(at).expect("less than the extent")
    }

    /// Returns another slice of the data, within one extent; `None` if the data is not shared.
    pub(crate) fn duplicate(&self, offset: u32, length: usize) -> Option<IoSlice> {
        let (index, at) = self.at(offset)?;
        let data = self.command.extents[index].data.as_ref()?;
        data.duplicate(at, length)
    }

    /// Copies received data to `offset` of the data.
    pub(crate) fn copy_in(&mut self, offset: u32, bytes: &[u8]) {
        let (mut offset, mut left) = (offset, bytes);
        while let Some((index, at)) = self.at(offset)
            && !left.is_empty()
        {
            let length = left.len().min(self.contiguous(offset) as usize);
            let (now, later) = left.split_at(length);
            if let Some(data) = &mut self.command.extents[index].data {
                data.copy_in(at, now);
            }
            left = later;
            offset += u32::try_from(length).expect("at most a transfer");
        }
    }

    /// Takes the command with its data out; its operation and ranges remain.
    pub(crate) fn detach(&mut self) -> Extents {
        let extents = self.command.extents.iter().map(|extent| Extent {
            data: None,
            result: Ok(()),
            ..*extent
        });
        let left = Extents {
            extents: extents.collect(),
            ..self.command
        };
        std::mem::replace(&mut self.command, left)
    }

    /// Lets sends share the data.
    pub(crate) fn share(&mut self) {
        for extent in &mut self.command.extents {
            extent.data = extent.data.take().map(IoSlice::into_shared);
        }
    }

    /// Takes the data back from sends. Returns false while a send still reads some of it.
    pub(crate) fn reclaim(&mut self) -> bool {
        let mut all = true;
        for (index, extent) in self.command.extents.iter_mut().enumerate() {
            let Some(data) = extent.data.take() else {
                continue;
            };
            let data = data.into_exclusive().unwrap_or_else(|shared| {
                all &= self.lent >> index & 1 == 1;
                shared
            });
            extent.data = Some(data);
        }
        all
    }
}

/// Returns true if the buffer has further owners, so that it can only be read.
pub(crate) fn has_more_owners(data: &mut IoSlice) -> bool {
    data.bytes().is_some() && data.bytes_mut().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::units::Lba;
    use reactor::BufferClass;

    const BLOCK: u32 = 4096;

    #[test]
    fn a_write_without_a_buffer_for_its_data_has_only_its_table_in_the_capsule() {
        let parameters = Parameters {
            in_capsule_bytes: 4 * BLOCK,
            ..Parameters::default()
        };
        for (bytes, inside) in [(BLOCK, false), (3 * BLOCK, true)] {
            let class = BufferClass {
                bytes: bytes as usize,
                count: 3,
            };
            let buffers = BufferPool::new(&[class]).expect("a small mapping");
            let extent = |lba| Extent {
                tag: lba,
                lba: Lba(lba),
                blocks: 1,
                data: buffers
                    .take(BLOCK as usize)
                    .map(|data| IoSlice::from_buffer(data, BLOCK as usize)),
                result: Ok(()),
            };
            let command = Extents {
                tag: 1,
                operation: Operation::Write { durable: false },
                extents: vec![extent(0), extent(7)],
            };
            let mut request = ExtentsRequest::new();
            let capsule = request
                .begin(command, (0, 1), BLOCK, &parameters, &buffers)
                .expect("a buffer for the table");
            assert_eq!(request.inside, inside);
            let data = if inside { 2 * BLOCK as usize } else { 0 };
            assert_eq!(capsule.len(), data + 2 * ExtentEntry::SIZE);
        }
    }
}
