//! Changes of a namespace's size.

use super::Target;
use crate::change::step::AfterPause;
use crate::error::TargetError;
use base::mutation::{self, Mutation};

impl Target {
    /// Changes the size of a namespace while it is in use; hosts are notified. Where a core cannot
    /// open the device again, it has the size from before, and its content, unless the device drops
    /// that when it shrinks. Once this returned, no core reaches a block beyond a smaller size.
    ///
    /// # Errors
    /// A device that cannot be resized, or a core that did not follow, or not in time.
    /// [`TargetError::NotUndone`] where it has not the size from before.
    pub fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: u64) -> Result<(), TargetError> {
        let _order = self.change()?;
        let (subsystem, namespace) = self.namespace(nqn, nsid)?;
        let device = &namespace.options.device;
        let before = device.geometry().blocks;
        let to = |blocks| {
            let resize = || Ok(device.resize(blocks)?);
            self.paused(&subsystem, nsid, AfterPause::Reopen, resize)
        };
        let mut done = to(blocks);
        if let Err(error) = &done {
            // Cores that followed would take commands for blocks that others do not have.
            if device.geometry().blocks != before
                && let Err(undo) = to(before)
            {
                done = Err(TargetError::NotUndone(format!("{error}, then {undo}")));
            }
        }
        // Also where it failed: a host that connected meanwhile may have seen another size.
        let shrunk = device.geometry().blocks < before;
        if !(shrunk && mutation::active(Mutation::ShrinkNotTold)) {
            self.namespace_changed(&subsystem, nsid);
        }
        done
    }
}
