//! The commands, one file each.

pub mod attach;
pub mod attachments;
pub mod bench;
pub mod calibrate;
pub mod calibrate_live;
pub mod config;
pub mod discover;
pub mod doctor;
pub mod encrypted;
pub mod identify;
pub mod import;
pub mod key;
pub mod man;
pub mod read;
pub mod serve;
mod signals;
pub mod support_bundle;
pub mod switch;
pub mod tenant;
mod tenant_events;
pub mod top;
pub mod write;
