//! The kernel's driver, small enough for many tests at once.

use base::units::{KIB, MIB};
use reactor::BufferClass;
use reactor::uring::{Options, UringDriver};

/// A driver for one test.
pub(crate) fn driver() -> UringDriver {
    let class = |bytes, count| BufferClass { bytes, count };
    let options = Options {
        buffers: vec![
            class(4 * KIB, 3_500),
            class(64 * KIB, 64),
            class(2 * MIB, 4),
        ],
        sockets: 4,
        file_operations: 512,
    };
    UringDriver::new(&options).expect("io_uring works here")
}
