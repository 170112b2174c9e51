//! What a device must answer, if every acknowledged write is there and nothing else is.
//!
//! A slow, obvious model of a block device under concurrency: for each block, which contents a
//! read may find. A write that is under way, or that failed, may or may not be there; a write
//! that was acknowledged is there, and everything older is gone for good.

/// Which write a block's content comes from; 0 is the content at the beginning.
pub type Version = u64;

#[derive(Clone, Debug, Default)]
struct Block {
    /// The last acknowledged write.
    settled: Version,
    /// Writes whose effect is open: under way, or failed since the last acknowledged one.
    open: Vec<Version>,
    /// A write that is under way; at most one at a time per block.
    writing: Option<Version>,
}

/// The model of a device's content.
#[derive(Debug)]
pub struct Oracle {
    blocks: Vec<Block>,
    next: Version,
}

/// What a read that began earlier may find in one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed(Vec<Version>);

impl Oracle {
    /// A device of `blocks` blocks, all with version 0.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        Self {
            blocks: vec![Block::default(); blocks],
            next: 1,
        }
    }

    /// Whether a write to this block is under way.
    #[must_use]
    pub fn is_writing(&self, block: usize) -> bool {
        self.blocks[block].writing.is_some()
    }

    /// The last acknowledged write of every block.
    #[must_use]
    pub fn settled(&self) -> Vec<Version> {
        self.blocks.iter().map(|block| block.settled).collect()
    }

    /// A write of some blocks begins; its version.
    ///
    /// # Panics
    /// If another write to one of them is under way: then the order would be open.
    pub fn begin_write(&mut self, range: std::ops::Range<usize>) -> Version {
        let version = self.next;
        self.next += 1;
        for block in &mut self.blocks[range] {
            assert!(block.writing.is_none(), "one write at a time per block");
            block.writing = Some(version);
            block.open.push(version);
        }
        version
    }

    /// A write was acknowledged: it, and nothing older, is there.
    pub fn acknowledge(&mut self, range: std::ops::Range<usize>, version: Version) {
        for block in &mut self.blocks[range] {
            assert_eq!(block.writing.take(), Some(version));
            block.settled = version;
            block.open.clear();
        }
    }

    /// A write failed: each of its blocks may have it or not.
    pub fn fail(&mut self, range: std::ops::Range<usize>, version: Version) {
        for block in &mut self.blocks[range] {
            assert_eq!(block.writing.take(), Some(version));
        }
    }

    /// What a read that begins now may find, as things stand.
    #[must_use]
    pub fn begin_read(&self, block: usize) -> Allowed {
        let state = &self.blocks[block];
        let mut allowed = vec![state.settled];
        allowed.extend(&state.open);
        Allowed(allowed)
    }

    /// Whether a read that began with `began` may end with `found`: what was allowed then, or
    /// what was written since.
    #[must_use]
    pub fn allows(&self, block: usize, began: &Allowed, found: Version) -> bool {
        let state = &self.blocks[block];
        // Versions only grow, so a write that began and ended while the read was under way is
        // newer than everything allowed at its beginning, and no newer than what is settled now.
        let newest = began.0.iter().max().copied().unwrap_or(0);
        let since = found > newest && found <= state.settled;
        began.0.contains(&found) || state.open.contains(&found) || since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_write_replaces_everything_older() {
        let mut oracle = Oracle::new(4);
        let lost = oracle.begin_write(1..3);
        oracle.fail(1..3, lost);
        let open = oracle.begin_read(1);
        assert!(oracle.allows(1, &open, 0) && oracle.allows(1, &open, lost));
        let kept = oracle.begin_write(1..2);
        oracle.acknowledge(1..2, kept);
        let settled = oracle.begin_read(1);
        assert!(oracle.allows(1, &settled, kept));
        assert!(
            !oracle.allows(1, &settled, lost),
            "a write that was lost must not come back"
        );
        assert!(!oracle.allows(1, &settled, 0));
        // The neighbour was not overwritten, so its write is still open.
        assert!(oracle.allows(2, &oracle.begin_read(2), lost));
        assert!(!oracle.allows(3, &oracle.begin_read(3), lost));
    }

    #[test]
    fn a_read_may_find_what_was_written_while_it_was_under_way() {
        let mut oracle = Oracle::new(1);
        let began = oracle.begin_read(0);
        let version = oracle.begin_write(0..1);
        assert!(oracle.allows(0, &began, version));
        oracle.acknowledge(0..1, version);
        assert!(oracle.allows(0, &began, version) && oracle.allows(0, &began, 0));
        assert!(!oracle.allows(0, &oracle.begin_read(0), 0));
    }
}
