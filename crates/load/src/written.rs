//! The expected content of a verifying thread's part of the device: the last acknowledged write of
//! each unit, and the units with a request in flight. Units count from the part's beginning.

use super::content::Content;
use block::BlockError;
use reactor::IoSlice;

/// Expected content of a verifying thread's span.
pub(super) struct Written {
    pub(super) content: Content,
    /// Sequence number of each unit's last acknowledged write; 0 if unknown.
    sequences: Vec<u32>,
    /// A bit for each unit that a request in flight uses.
    busy: Vec<u64>,
    next_sequence: u32,
}

impl Written {
    /// A span of `units` units, none of them written yet; their blocks will hold `content`.
    pub(super) fn new(content: Content, units: u64) -> Self {
        let units = Self::index(units);
        Self {
            content,
            sequences: vec![0; units],
            busy: vec![0; units.div_ceil(64)],
            next_sequence: 1,
        }
    }

    fn index(unit: u64) -> usize {
        usize::try_from(unit).expect("a span is bounded by a limit")
    }

    pub(super) fn sequence(&self, unit: u64) -> u32 {
        self.sequences[Self::index(unit)]
    }

    pub(super) fn is_busy(&self, unit: u64) -> bool {
        self.busy[Self::index(unit / 64)] >> (unit % 64) & 1 == 1
    }

    pub(super) fn set_busy(&mut self, unit: u64, busy: bool) {
        let word = &mut self.busy[Self::index(unit / 64)];
        let bit = 1 << (unit % 64);
        if busy { *word |= bit } else { *word &= !bit }
    }

    pub(super) fn take_sequence(&mut self) -> u32 {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.checked_add(1).unwrap_or(1);
        sequence
    }

    /// Records a write, or verifies a read. Returns true if anything was verified.
    pub(super) fn settle(
        &mut self,
        unit: u64,
        lba: u64,
        read: bool,
        sequence: u32,
        result: Result<(), BlockError>,
        data: Option<&IoSlice>,
    ) -> Result<bool, (BlockError, Option<String>)> {
        let known = &mut self.sequences[Self::index(unit)];
        if !read {
            // After a failed write the unit may hold either content, so it is not verified again.
            *known = if result.is_ok() { sequence } else { 0 };
        }
        result.map_err(|error| (error, None))?;
        if !read || *known == 0 {
            return Ok(false);
        }
        let Some(bytes) = data.and_then(IoSlice::bytes) else {
            return Err((
                BlockError::Internal,
                Some("the read returned no data".into()),
            ));
        };
        let checked = self.content.check(lba, u64::from(*known), bytes);
        checked.map(|()| true).map_err(|(lba, difference)| {
            (
                BlockError::Corrupt,
                Some(format!("block {lba} {difference}")),
            )
        })
    }
}
