//! A driver with a clock that the test sets: what a thread does in time is the same on any machine.

use base::Time;
use base::units::CoreId;
use reactor::uring::UringDriver;
use reactor::{
    BufferPool, Completion, Driver, DriverStats, FileId, ListenerId, Op, OpKey, OpNamespace,
    SocketId, SocketOptions, Stream, Wait, Wake,
};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// The kernel's driver but for the time; several may share a clock. It does no I/O.
#[derive(Debug)]
pub struct ClockedDriver {
    time: Rc<Cell<Time>>,
    inner: UringDriver,
}

impl ClockedDriver {
    /// A driver that has the buffers of another one, and this time.
    #[must_use]
    pub fn new(inner: UringDriver, time: Rc<Cell<Time>>) -> Self {
        Self { time, inner }
    }

    /// Sets the clock.
    pub fn set(&self, now: Time) {
        self.time.set(now);
    }
}

impl Driver for ClockedDriver {
    fn now(&self) -> Time {
        self.time.get()
    }

    fn buffers(&self) -> &BufferPool {
        self.inner.buffers()
    }

    fn op_namespace(&mut self) -> OpNamespace {
        self.inner.op_namespace()
    }

    fn submit(&mut self, _: OpKey, _: Op) {
        unreachable!("memory needs no operation")
    }

    fn reap(&mut self, _: Wait, _: &mut Vec<Completion>) -> io::Result<()> {
        Ok(())
    }

    fn listen(&mut self, _: SocketAddr, _: &SocketOptions) -> io::Result<(ListenerId, SocketAddr)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn close_listener(&mut self, _: ListenerId) {}

    fn adopt(&mut self, _: Stream) -> SocketId {
        unreachable!("memory needs no connection")
    }

    fn open_file(&mut self, _: Arc<File>) -> io::Result<FileId> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn close_file(&mut self, _: FileId) {}

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
