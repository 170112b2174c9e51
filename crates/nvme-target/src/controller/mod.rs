//! Controllers: the association of a host with a subsystem, or with the discovery service.
//!
//! [`Controller`](state::Controller) belongs to the admin queue's connection and lives on its core.
//! The part that I/O queues on other cores need is the
//! [`SharedController`](registry::SharedController). Admin and Fabrics commands come here with
//! their data, and a [`Reply`](reply::Reply) goes back; no connection, no core and no device is
//! changed here.

pub(crate) mod admin;
pub(crate) mod async_events;
pub(crate) mod connect;
pub(crate) mod discovery;
pub(crate) mod features;
pub(crate) mod identify;
pub(crate) mod keep_alive;
pub(crate) mod log_pages;
pub(crate) mod properties;
pub(crate) mod registers;
pub(crate) mod registry;
pub(crate) mod reply;
pub(crate) mod state;
