//! The device suite on a FUSE file, and through NBD.

use crate::mounts::{attach, ram, same};
use crate::nbd_device::NbdDevice;
use block::Device as _;
use block::device::{FileDevice, FileOptions};
use reactor::PollPolicy;
use reactor::uring::{Options as DriverOptions, UringDriver};
use switch::{Class, PerClass};
use switchyard_frontend::ClassRules;
use switchyard_frontend::nbd::{Address, NbdOptions, NbdServer};
use testing::device::conformance::{Suite, run};

const BYTES: u64 = 16 << 20;

fn driver() -> UringDriver {
    UringDriver::new(&DriverOptions::default()).expect("a ring")
}

#[test]
fn the_device_suite_passes_through_a_file_of_fuse() {
    for (block_bytes, direct) in [(512, true), (4096, true), (4096, false)] {
        let Some(mounted) = attach(vec![(1, same(ram(BYTES, block_bytes)))], |_| {}) else {
            return;
        };
        let file = FileDevice::open(FileOptions {
            path: mounted.file(1),
            block_bytes,
            size: None,
            create: false,
            read_only: false,
            direct,
        })
        .unwrap();
        assert_eq!(file.geometry().blocks * u64::from(block_bytes), BYTES);
        let suite = Suite {
            atomic: direct,
            ..Suite::default()
        };
        run(driver, &file, suite);
    }
}

#[test]
fn the_device_suite_passes_through_nbd() {
    for (block_bytes, poll) in [(512, PollPolicy::Never), (4096, PollPolicy::Auto)] {
        let socket = block::temporary("nbd.sock");
        let device = ram(BYTES, block_bytes);
        let options = NbdOptions {
            address: Address::Unix(socket.clone()),
            class: Class::Throughput,
            rules: ClassRules::default(),
            tls: None,
            read_only: false,
            cores: Vec::new(),
            poll,
        };
        let geometry = device.geometry();
        let _server = NbdServer::start(&PerClass::from_fn(|_| device.clone()), &options).unwrap();
        let suite = Suite {
            compares: false,
            atomic: true,
            ..Suite::default()
        };
        run(driver, &NbdDevice { socket, geometry }, suite);
    }
}
