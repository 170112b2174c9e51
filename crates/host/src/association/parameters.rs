//! Properties of the controller that channels need.

use base::Nanos;
use block::Operation;
use wire::nvme::ExtentTerms;

/// Properties of the live association that I/O queues need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) cntlid: u16,
    /// Commands on one I/O queue.
    pub(crate) depth: u16,
    /// I/O queues granted.
    pub(crate) io_queues: u16,
    pub(crate) in_capsule_bytes: u32,
    pub(crate) max_transfer_bytes: u32,
    pub(crate) lengths: CommandLengths,
    pub(crate) features: Features,
    /// The controller ends others on demand: it says when none of their commands can take effect
    /// any more.
    pub(crate) fenced: bool,
    /// The controller respects the class that a queue's Connect command names, and knows that we
    /// mean it.
    pub(crate) queue_classes: bool,
    /// The controller takes commands over extents, on these terms: its own, within ours.
    pub(crate) extents: Option<ExtentTerms>,
    /// Time after the close of its connections in which it must have ended by itself.
    pub(crate) quiet: Nanos,
    /// Which life of its write caches it is; 0 where it does not say.
    pub(crate) cache_life: u64,
    /// Which process of the target it is; 0 where it does not say.
    pub(crate) incarnation: u64,
}

/// The longest ranges, in bytes or blocks, of commands that carry no such data that MDTS would
/// bound them. `[NVMe NVM 1.0 §4.1.5.2]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLengths {
    /// Bytes of a Write Zeroes.
    pub(crate) write_zeroes_bytes: u64,
    /// Bytes of a Verify.
    pub(crate) verify_bytes: u64,
    /// Blocks of the one range of our Dataset Management.
    pub(crate) deallocate_blocks: u32,
}

/// Optional commands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) compare: bool,
    pub(crate) dataset_management: bool,
    pub(crate) write_zeroes: bool,
    pub(crate) verify: bool,
    pub(crate) volatile_cache: bool,
}

impl Features {
    /// Returns true if the controller supports the command of an operation.
    pub(crate) const fn supports(self, operation: Operation) -> bool {
        match operation {
            Operation::Compare => self.compare,
            Operation::Deallocate => self.dataset_management,
            Operation::WriteZeroes { .. } => self.write_zeroes,
            Operation::Verify => self.verify,
            Operation::Read | Operation::Write { .. } | Operation::Flush => true,
        }
    }
}
