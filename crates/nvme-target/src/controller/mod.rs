//! Controllers: the association of a host with a subsystem or the discovery service.
//!
//! [`Controller`](state::Controller) belongs to the admin queue's connection and lives on its core.
//! The part that I/O queues on other cores need is the
//! [`SharedController`](registry::SharedController). Admin and Fabrics commands arrive here with
//! their data, and the result is a [`Reply`](reply::Reply). Invariant: this module changes no
//! connection, core or device.

pub(crate) mod admin;
pub(crate) mod async_events;
pub(crate) mod connect;
pub(crate) mod discovery;
pub(crate) mod features;
pub(crate) mod handed;
pub(crate) mod identify;
pub(crate) mod keep_alive;
pub(crate) mod log_pages;
pub(crate) mod properties;
pub(crate) mod registers;
pub(crate) mod registry;
pub(crate) mod reply;
pub(crate) mod state;
