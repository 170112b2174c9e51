//! Servers of vhost-user disks for tests, and their devices.
#![allow(dead_code)] // No test uses all of it.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

use crate::forgetful::Forgetful;
use block::Device;
use block::device::Ram;
use reactor::PollPolicy;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use switch::PerClass;
use switchyard_frontend::vhost::{VhostOptions, VhostServer};

pub(crate) const BYTES: u64 = 64 << 20;

pub(crate) fn socket() -> PathBuf {
    block::temporary("vhost.sock")
}

pub(crate) fn ram() -> Arc<dyn Device> {
    Arc::new(Ram::new(BYTES, 4096).unwrap())
}

pub(crate) fn options() -> VhostOptions {
    VhostOptions {
        poll: PollPolicy::Never,
        ..VhostOptions::new(socket())
    }
}

pub(crate) fn serve(device: &Arc<dyn Device>, options: &VhostOptions) -> VhostServer {
    let devices = PerClass::from_fn(|_| Arc::clone(device));
    VhostServer::start(&devices, options).unwrap()
}

/// A namespace with its own record of losses, as each process has.
pub(crate) fn forgetful(target: &Arc<AtomicU64>) -> Arc<Forgetful> {
    Forgetful::new(Ram::new(BYTES, 4096).unwrap(), target)
}
