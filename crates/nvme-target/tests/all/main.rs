//! The tests that can share a process, as a single program that is linked once.
#![allow(
    clippy::cast_possible_truncation,
    clippy::tests_outside_test_module,
    clippy::too_many_lines
)]

mod aborts;
mod access;
mod admin;
mod ana;
mod changes;
mod chap;
mod classes;
mod command_fields;
mod common;
mod connection_limits;
mod dataplane;
mod disconnect;
mod end_controller;
mod ending_moves;
mod extents;
mod fields;
mod fused;
mod identifiers;
mod interoperate;
mod knobs;
mod light_hosts;
mod overload;
mod pdu_fields;
mod progress;
mod refusals;
mod removals;
mod reservations;
mod resets;
mod retry_delay;
mod scaling;
mod shutdown;
mod slow_device;
mod steering;
mod strangers;
mod takeover;
mod tokens;
mod trace;
mod undone_resizes;
mod without_buffers;
