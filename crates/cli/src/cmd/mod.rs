//! The commands, one file each.

pub mod attach;
mod attach_file;
pub mod attachments;
pub mod bench;
#[cfg(feature = "lab")]
pub mod bench_lab;
#[cfg(feature = "lab")]
pub mod calibrate;
pub mod calibrate_live;
pub mod config;
pub mod discover;
#[cfg(feature = "lab")]
pub mod figure;
pub mod identify;
pub mod man;
pub mod read;
pub mod serve;
mod signals;
#[cfg(feature = "lab")]
pub mod sim;
pub mod switch;
pub mod tenant;
mod tenant_events;
pub mod top;
pub mod write;
