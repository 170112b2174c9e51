//! The process of a target: its confinement, its limits, and the service manager above it.

pub mod confine;
pub mod open_files;
pub mod service_manager;
