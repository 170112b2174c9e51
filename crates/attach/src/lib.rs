//! Attachments: devices that front ends offer to unmodified applications, from their start to their
//! end.
//!
//! A [`Wanted`] describes one attachment; [`run`] starts those that are asked for, serves them, reads
//! their file again, and drains them at the end. The control plane asks for their state and detaches
//! them while they serve ([`control::attachments`]). The caller reads the file and tells people: it
//! hands in a [`ReadFile`] and a [`Reporter`].
//!
//! This crate is above both the front ends and the control plane, which know nothing of each other.

mod attached;
mod front_end;
mod identifier_hash;
mod lists;
mod modified;
mod process;
mod queues;
mod reporter;
mod running;
mod source;
mod succession;
#[cfg(test)]
mod test_front_end;
mod wanted;

pub use process::{Origin, run};
pub use reporter::{Ready, Reporter};
pub use source::{RemoteNamespaces, SourceDevice, block_size_of};
pub use wanted::{File, FrontEndOptions, ReadFile, Wanted};
