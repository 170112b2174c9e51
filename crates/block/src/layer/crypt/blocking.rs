//! Blocking requests to a device, for the header of an encrypted one: before its first channel is
//! opened, or by a command.

use crate::device::{Channel, Device, DeviceError, Submit};
use crate::request::{BlockError, Completion, Operation, Request};
use base::units::{KIB, Lba};
use base::{Nanos, Time};
use reactor::uring::{Options, UringDriver};
use reactor::{BufferClass, Context, Driver as _, IoSlice, Wait};
use std::io;

/// Bytes of the largest request.
pub(super) const REQUEST_BYTES: usize = 128 * KIB;

/// The longest wait for a request.
const PATIENCE: Nanos = Nanos::from_secs(60);

/// A channel with a driver of its own.
pub(super) struct Blocking {
    driver: UringDriver,
    channel: Box<dyn Channel>,
    block_bytes: usize,
}

impl Blocking {
    pub(super) fn open(device: &dyn Device) -> Result<Self, DeviceError> {
        let class = BufferClass {
            bytes: REQUEST_BYTES,
            count: 1,
        };
        let options = Options {
            buffers: vec![class],
            sockets: 1,
            file_operations: 8,
        };
        let mut driver = UringDriver::new(&options).map_err(|error| {
            DeviceError::Invalid(format!("cannot access the encryption header: {error}"))
        })?;
        Ok(Self {
            channel: device.open(&mut driver)?,
            driver,
            block_bytes: device.geometry().block_bytes as usize,
        })
    }

    /// Reads `out.len()` bytes, whole blocks and at most [`REQUEST_BYTES`], from byte `at`.
    pub(super) fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let request = self.request(Operation::Read, at, out.len());
        let completion = self.run(request);
        let data = completion.result.map(|()| completion.data);
        match data {
            Ok(Some(data)) => data.copy_out(0, out),
            Ok(None) => return Err(failed("read", BlockError::Internal)),
            Err(error) => return Err(failed("read", error)),
        }
        Ok(())
    }

    /// Writes whole blocks, at most [`REQUEST_BYTES`], from byte `at`, on stable storage.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut request = self.request(Operation::Write { durable: true }, at, bytes.len());
        if let Some(data) = &mut request.data {
            data.copy_in(0, bytes);
        }
        let written = self.run(request).result;
        let flush = Request {
            data: None,
            blocks: 0,
            ..self.request(Operation::Flush, 0, 0)
        };
        let flushed = written.and_then(|()| self.run(flush).result);
        flushed.map_err(|error| failed("write", error))
    }

    fn request(&self, operation: Operation, at: u64, bytes: usize) -> Request {
        let block = self.block_bytes;
        let data = operation.has_data().then(|| {
            let buffer = self.driver.buffers().take(bytes);
            IoSlice::from_buffer(buffer.expect("one request at a time"), bytes)
        });
        Request {
            tag: 0,
            operation,
            lba: Lba(at / block as u64),
            blocks: u32::try_from(bytes / block).expect("a short request"),
            data,
        }
    }

    /// Runs a request to its end.
    fn run(&mut self, request: Request) -> Completion {
        let until = self.driver.now() + PATIENCE;
        let mut cx = Context::begin(&mut self.driver);
        let lost = |result| Completion {
            tag: 0,
            result: Err(result),
            data: None,
        };
        match self.channel.submit(request, &mut cx) {
            Submit::Done(completion) => return completion,
            Submit::Queued => {}
            Submit::Busy(request) => return request.ended(Err(BlockError::Internal)),
        }
        self.channel.kick(&mut cx);
        loop {
            if let Some(completion) = self.channel.reap() {
                return completion;
            }
            if self.driver.now() >= until {
                return lost(BlockError::TimedOut);
            }
            if self.turn(until).is_err() {
                return lost(BlockError::Internal);
            }
        }
    }

    fn turn(&mut self, until: Time) -> io::Result<()> {
        let until = self.channel.deadline().min(until);
        let mut completions = Vec::new();
        self.driver.reap(Wait::Until(until), &mut completions)?;
        let mut cx = Context::begin(&mut self.driver);
        for completion in completions {
            self.channel.complete(completion, &mut cx);
        }
        self.channel.tick(&mut cx);
        Ok(())
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let until = self.driver.now() + PATIENCE;
        let mut cx = Context::begin(&mut self.driver);
        self.channel.close(&mut cx);
        while !self.channel.closed() && self.driver.now() < until {
            if self.turn(until).is_err() {
                break;
            }
        }
    }
}

fn failed(action: &str, error: BlockError) -> DeviceError {
    DeviceError::Io {
        what: format!("cannot {action} the encryption header"),
        source: io::Error::other(error),
        remedy: "check the device",
    }
}
