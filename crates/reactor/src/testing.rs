//! A driver for tests: the kernel's, with parts replaced by the test.

use crate::uring::UringDriver;
use crate::{
    BufferPool, Completion, Driver, DriverStats, FileId, ListenerId, ListeningSocket, Op, OpKey,
    OpNamespace, OpNamespaceLease, SendListPool, SocketId, SocketOptions, Stream, Wait, Wake,
};
use base::Time;
use base::units::CoreId;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The parts of a driver that a test can replace; by default those of the kernel's driver.
pub trait Replace {
    /// Returns the current time.
    fn now(&self, inner: &UringDriver) -> Time {
        inner.now()
    }

    /// Accepts an operation.
    fn submit(&mut self, inner: &mut UringDriver, key: OpKey, op: Op) {
        inner.submit(key, op);
    }

    /// Returns completed operations.
    ///
    /// # Errors
    /// As [`Driver::reap`].
    fn reap(
        &mut self,
        inner: &mut UringDriver,
        wait: Wait,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        inner.reap(wait, completions)
    }
}

/// The kernel's driver with the parts in `R` replaced.
#[derive(Debug)]
pub struct PassThrough<R> {
    /// The kernel's driver.
    pub inner: UringDriver,
    /// The replaced parts.
    pub replaced: R,
}

impl<R: Replace> Driver for PassThrough<R> {
    fn now(&self) -> Time {
        self.replaced.now(&self.inner)
    }

    fn buffers(&self) -> &BufferPool {
        self.inner.buffers()
    }

    fn send_lists(&self) -> &SendListPool {
        self.inner.send_lists()
    }

    fn op_namespace(&mut self) -> OpNamespace {
        self.inner.op_namespace()
    }

    fn lease_op_namespace(&mut self) -> OpNamespaceLease {
        self.inner.lease_op_namespace()
    }

    fn submit(&mut self, key: OpKey, op: Op) {
        self.replaced.submit(&mut self.inner, key, op);
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.replaced.reap(&mut self.inner, wait, completions)
    }

    fn listen(
        &mut self,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        self.inner.listen(address, options)
    }

    fn close_listener(&mut self, listener: ListenerId) {
        self.inner.close_listener(listener);
    }

    fn release_listener(&mut self, listener: ListenerId) -> io::Result<ListeningSocket> {
        self.inner.release_listener(listener)
    }

    fn adopt_listener(
        &mut self,
        socket: ListeningSocket,
        options: &SocketOptions,
    ) -> io::Result<(ListenerId, SocketAddr)> {
        self.inner.adopt_listener(socket, options)
    }

    fn adopt(&mut self, stream: Stream) -> SocketId {
        self.inner.adopt(stream)
    }

    fn open_file(&mut self, file: Arc<File>) -> io::Result<FileId> {
        self.inner.open_file(file)
    }

    fn close_file(&mut self, file: FileId) {
        self.inner.close_file(file);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.inner.waker()
    }

    fn core(&self) -> CoreId {
        self.inner.core()
    }

    fn stats(&self) -> DriverStats {
        self.inner.stats()
    }
}
