//! The tests of this crate that may share a process, in one program to save link time.
#![allow(
    clippy::big_endian_bytes,
    clippy::host_endian_bytes,
    clippy::tests_outside_test_module,
    clippy::unwrap_used
)]

mod back_ends;
mod closed_gate;
mod forgetful;
mod fuse;
mod fuse_attachment;
mod fuse_take_over;
mod gated;
mod growing;
mod guests;
mod mounts;
mod nbd;
mod nbd_client;
mod nbd_device;
mod nbd_pipelines;
mod nbd_reconnects;
mod nbd_servers;
mod nbd_take_over;
mod nbd_tls;
mod suites;
mod vhost;
mod vhost_caches;
mod vhost_classes;
mod vhost_take_over;
