//! The attachments of a `switchyard attach` process: their file, and how the control plane asks for
//! them and changes them.

mod file;
mod shared;
mod snapshot;

pub use file::{ClassCondition, Entry, Fault, File, Interface, Kind, Word, load, parse};
pub(crate) use shared::SharedAttachments;
pub use snapshot::{AttachmentClass, AttachmentSnapshot, AttachmentState, AttachmentsAnswer};

use crate::error::ApplyError;
use std::fmt;
use std::path::Path;

/// The attachments of a process. Calls may block, and come from any thread.
pub trait Attachments: fmt::Debug + Send + Sync + 'static {
    /// Returns the state of all attachments.
    fn snapshot(&self) -> AttachmentsAnswer;

    /// Ends an attachment; one that is in use only by `force`.
    ///
    /// # Errors
    /// [`NotFound`](crate::ApplyErrorKind::NotFound) for an unknown name,
    /// [`Conflict`](crate::ApplyErrorKind::Conflict) for one in use, and where the process is to end,
    /// which detaches all.
    fn detach(&self, name: &str, force: bool) -> Result<(), ApplyError>;

    /// Attaches and detaches what changed in the file, and logs it.
    fn reload(&self, path: &Path);

    /// Takes note of a signal to end; called at each.
    fn terminate(&self);

    /// Returns true once the process was told to end.
    fn is_draining(&self) -> bool;
}
