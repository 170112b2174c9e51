//! The commands, one file each.

pub mod attach;
pub mod attachments;
pub mod bench;
pub mod calibrate;
pub mod calibrate_live;
mod change;
pub mod completions;
pub mod config;
pub mod device;
pub mod discover;
pub mod doctor;
mod encrypted;
pub mod identify;
pub mod import;
pub mod key;
pub mod man;
pub mod objects;
pub mod read;
pub mod serve;
pub mod share;
mod signals;
pub mod support_bundle;
pub mod switch;
pub mod tenant;
mod tenant_events;
pub mod top;
pub mod write;
