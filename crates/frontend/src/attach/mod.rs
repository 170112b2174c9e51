//! Attachments: devices that front ends offer to unmodified applications, from start to end.
//!
//! A [`Wanted`] describes one attachment. [`run`] starts the requested ones, serves them, reads
//! their file again at SIGHUP, and drains them at the end. The HTTP interface lists and detaches
//! them meanwhile. The caller passes how the file is read ([`ReadFile`]) and where
//! attachments are reported ([`Reporter`]).

mod api;
mod attached;
pub mod file;
mod front_end;
mod identifier_hash;
mod lists;
mod metrics;
mod modified;
mod process;
mod queues;
mod reporter;
mod running;
mod shared;
mod snapshot;
mod source;
mod succession;
mod take_over;
#[cfg(test)]
mod test_front_end;
mod wanted;

pub use process::run;
pub use reporter::{Ready, Reporter};
pub use snapshot::{AttachmentClass, AttachmentSnapshot, AttachmentState, AttachmentsAnswer};
pub use source::{RemoteNamespaces, SourceDevice, block_size_of};
pub use wanted::{File, FrontEndOptions, Origin, ReadFile, Wanted};
