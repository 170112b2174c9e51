//! NBD servers for tests, and data for their devices.
#![allow(clippy::unwrap_used)] // What fails here fails the test.
#![allow(dead_code)] // No test uses all of it.

use block::Device;
use block::device::{FileDevice, FileOptions, Ram};
use reactor::PollPolicy;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use switch::{Class, PerClass};
use switchyard_frontend::ClassRules;
use switchyard_frontend::nbd::{Address, NbdOptions, NbdServer};

pub(crate) const BLOCK: u64 = 4096;

pub(crate) const BYTES: u64 = 64 << 20;

pub(crate) fn socket() -> PathBuf {
    block::temporary("nbd.sock")
}

pub(crate) fn options(socket: &Path) -> NbdOptions {
    NbdOptions {
        address: Address::Unix(socket.to_owned()),
        class: Class::Throughput,
        rules: ClassRules::default(),
        tls: None,
        read_only: false,
        cores: Vec::new(),
        poll: PollPolicy::Never,
    }
}

pub(crate) fn ram() -> Arc<dyn Device> {
    Arc::new(Ram::new(BYTES, 4096).unwrap())
}

pub(crate) fn serve(device: Arc<dyn Device>) -> (NbdServer, PathBuf) {
    let path = socket();
    let devices = PerClass::from_fn(|_| Arc::clone(&device));
    (NbdServer::start(&devices, &options(&path)).unwrap(), path)
}

pub(crate) fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

pub(crate) fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| low_byte(at / 512) ^ low_byte(at).wrapping_add(seed))
        .collect()
}

/// A device without memory of its own, and its file.
pub(crate) fn file_device() -> (Arc<dyn Device>, PathBuf) {
    let path = socket().with_extension("img");
    let options = FileOptions {
        path: path.clone(),
        block_bytes: 512,
        size: Some(BYTES),
        create: true,
        read_only: false,
        direct: false,
    };
    (Arc::new(FileDevice::open(options).unwrap()), path)
}
