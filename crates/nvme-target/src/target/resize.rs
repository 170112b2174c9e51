//! Changes of a namespace's size.

use super::Target;
use crate::change::step::AfterPause;
use crate::error::TargetError;
use crate::namespace::Namespace;
use crate::subsystem::Subsystem;
use base::mutation::{self, Mutation};

impl Target {
    /// Changes the size of a namespace while it is in use; hosts are notified. Where a core cannot
    /// open the device again, it has the size from before, and its content, unless the device drops
    /// that when it shrinks: see [`Device::given_up`](block::Device::given_up).
    ///
    /// # Errors
    /// A device that cannot be resized, or a core that did not follow, or not in time. A device that
    /// fails to erase what it gives up: a part of that may be zeroes then.
    /// [`TargetError::NotUndone`] where it has not the size from before.
    pub fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: u64) -> Result<(), TargetError> {
        let _order = self.change()?;
        let (subsystem, namespace) = self.namespace(nqn, nsid)?;
        let device = &namespace.options.device;
        let before = device.geometry().blocks;
        let to = |blocks| {
            let resize = || Ok(device.resize(blocks)?);
            self.paused(&subsystem, nsid, AfterPause::Reopen, resize)?;
            self.erase_given_up(&subsystem, &namespace)
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

    /// Erases what a resize gave up, once no core has to go back to it.
    fn erase_given_up(
        &self,
        subsystem: &Subsystem,
        namespace: &Namespace,
    ) -> Result<(), TargetError> {
        let device = &namespace.options.device;
        let blocks = device.given_up();
        if blocks.is_empty() {
            return Ok(());
        }
        let mut erased = false;
        let erase = || {
            device.erase(blocks.start, blocks.end - blocks.start)?;
            erased = true;
            Ok(())
        };
        let nsid = namespace.nsid();
        match self.paused(subsystem, nsid, AfterPause::Keep, erase) {
            // Every core has the new size, and each goes on with its next message.
            Err(error) if erased => {
                let nqn = &subsystem.nqn;
                tracing::warn!(nqn, nsid, %error, "a namespace is resized, but not used again yet");
                Ok(())
            }
            other => other,
        }
    }
}
