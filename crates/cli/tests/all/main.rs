//! The tests of this crate that may share a process: one program, which links in the time of one.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used)]

mod attach;
mod attach_signals;
mod attachments;
mod attachments_again;
mod bench;
mod cache;
#[cfg(feature = "lab")]
mod calibrate;
#[cfg(feature = "lab")]
mod calibrate_destructive;
#[cfg(feature = "lab")]
mod calibrate_live;
mod common;
mod discover;
mod examples;
mod exercisers;
mod faults;
#[cfg(feature = "lab")]
mod figure;
mod hang;
#[cfg(feature = "lab")]
mod hostile;
mod identify;
mod knob_at;
#[cfg(feature = "lab")]
mod limit;
mod limits;
mod man;
mod nbd_tls;
mod passed_sockets;
mod process;
mod read_write;
mod ring;
mod serve;
mod sigterm;
#[cfg(feature = "lab")]
mod sim;
mod state;
mod switch;
mod tenant;
mod top;
