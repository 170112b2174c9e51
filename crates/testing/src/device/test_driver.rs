//! The kernel's driver, with small resources for many tests at once, and a driver that holds
//! operations.

use base::units::{KIB, MIB};
use reactor::testing::{PassThrough, Replace};
use reactor::uring::{Options, UringDriver};
use reactor::{BufferClass, Driver as _, FileId, Op, OpKey};
use std::io::PipeWriter;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A driver for one test.
///
/// # Panics
/// If the kernel forbids io_uring.
#[must_use]
pub fn driver() -> UringDriver {
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

/// Replaces the file of reads and writes by this empty pipe.
#[derive(Debug)]
pub struct Hold(FileId);

impl Replace for Hold {
    fn submit(&mut self, inner: &mut UringDriver, key: OpKey, op: Op) {
        let op = match op {
            Op::Read { slice, .. } | Op::Write { slice, .. } => Op::Read {
                file: self.0,
                offset: 0,
                slice,
            },
            op => op,
        };
        inner.submit(key, op);
    }
}

/// A driver whose reads and writes stay in flight in the kernel until the writer is dropped.
///
/// # Panics
/// If the kernel forbids io_uring, or has no file descriptors left.
#[must_use]
pub fn holding_driver() -> (PassThrough<Hold>, PipeWriter) {
    let (empty, writer) = std::io::pipe().expect("a pipe");
    let mut inner = driver();
    let file = OwnedFd::from(empty).into();
    let file = inner.open_file(Arc::new(file)).expect("there is room");
    let replaced = Hold(file);
    (PassThrough { inner, replaced }, writer)
}
