//! The simulated world: the production crates in virtual time, with faults drawn from a seed.
//!
//! A [`World`] has a clock that advances only when no actor has work, and a network that splits,
//! joins, delays and cuts streams. Cores run in it as on a machine: the same [`reactor::Core`] over
//! the same services, on a [`SimDriver`] instead of io_uring. The same seed gives the same events
//! in the same order.

mod app;
mod application;
mod by_hand;
mod cache;
mod calendar;
mod changing;
pub mod check;
mod client;
mod controlling;
mod disk;
mod driver;
mod host_core;
mod knob_changes;
pub mod model;
mod network;
pub mod oracle;
mod path_core;
pub mod paths;
mod peer;
mod raw;
pub mod rights;
pub mod scaling;
mod shared;
mod stirred;
pub mod storage;
pub mod switched;
pub mod tenants;
pub mod trace;
mod wiretap;
mod world;

pub use app::{App, Job};
pub use application::{Application, ApplicationReport, Mix, Tolerance, Workload};
pub use cache::{Cache, Medium};
pub use client::{Client, ReadLog, WARM_UP};
pub use disk::{Disk, DiskFaults, DiskTotals};
pub use driver::SimDriver;
pub use host_core::{HostCore, Provoked};
pub use knob_changes::{KnobChanger, Turns, random_position};
pub use network::{Lies, NetworkFaults, NetworkTotals};
pub use raw::{RawEnd, RawState};
pub use shared::{Memory, Pace};
pub use world::{Actor, Outcome, World};
