//! The commands, one file each.

pub mod bench;
pub mod bench_goals;
pub mod bench_hostile;
mod bench_hosts;
pub mod bench_limit;
mod bench_processes;
pub mod calibrate;
mod calibrate_live;
mod child;
pub mod config;
mod connect;
pub mod discover;
pub mod figure;
pub mod identify;
mod knob_turns;
pub mod read;
pub mod serve;
mod signals;
pub mod sim;
pub mod switch;
pub mod tenant;
mod tenant_events;
pub mod top;
pub mod write;
