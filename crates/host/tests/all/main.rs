//! The tests of this crate that may share a process: one program, to link only once.
#![allow(
    clippy::cast_possible_truncation,
    clippy::tests_outside_test_module,
    clippy::unwrap_used
)]

mod absence;
mod addresses;
mod blocking;
mod chap;
mod direct_lane;
mod extents;
mod extents_alone;
mod fields;
mod flush;
mod giving_up;
mod giving_up_extents;
mod page;
mod paths;
mod peer;
mod programs;
mod queues;
mod recovery;
mod restart;
mod setup;
mod smaller_transfers;
mod states;
mod switchboard;
mod switchboard_back;
mod switchboard_left;
mod switched_queue;
mod target;
mod violations;
mod volume;
