//! A target's namespace as seen by one process, whose cache is lost on the test's request. It
//! reports losses like a remote device: it counts a loss if there were unflushed writes, and each
//! of its channels reports it to the first Flush after it. It can also be removed like a remote
//! device.
#![allow(dead_code)] // No test uses all of it.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

use block::{BlockError, CacheLife, Capabilities, Channel, Completion, Device, DeviceError};
use block::{Geometry, Operation, Request, Submit};
use reactor::{Context, Driver};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Forgetful {
    below: Arc<dyn Device>,
    known: Arc<Known>,
}

#[derive(Debug)]
struct Known {
    /// Number of the target's cache life, visible to all processes; 0 if the target does not report
    /// one.
    life: Arc<AtomicU64>,
    /// The cache life with unflushed writes; 0 if there are none.
    unflushed: AtomicU64,
    /// Number of losses that a Flush has reported.
    told: AtomicU32,
    gone: AtomicBool,
}

impl Forgetful {
    pub(crate) fn new(below: impl Device + 'static, life: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            below: Arc::new(below),
            known: Arc::new(Known {
                life: Arc::clone(life),
                unflushed: AtomicU64::default(),
                told: AtomicU32::default(),
                gone: AtomicBool::new(false),
            }),
        })
    }

    pub(crate) fn set_gone(&self, gone: bool) {
        self.known.gone.store(gone, Ordering::SeqCst);
    }

    /// Returns true if there were unflushed writes.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.known.unflushed.load(Ordering::SeqCst) != 0
    }

    /// Loses an unflushed write.
    pub(crate) fn lose(&self) {
        self.inherit_writes();
        self.known.life.fetch_add(1, Ordering::SeqCst);
    }
}

impl Device for Forgetful {
    fn geometry(&self) -> Geometry {
        let geometry = self.below.geometry();
        let blocks = match self.known.gone.load(Ordering::SeqCst) {
            true => 0,
            false => geometry.blocks,
        };
        Geometry { blocks, ..geometry }
    }

    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn cache_losses(&self) -> u32 {
        self.known.told.load(Ordering::SeqCst)
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(ForgetfulChannel {
            below: self.below.open(driver)?,
            known: Arc::clone(&self.known),
            reported: self.cache_losses(),
        }))
    }

    fn cache_life(&self) -> CacheLife {
        match self.known.life.load(Ordering::SeqCst) {
            0 => CacheLife::Unknown,
            life => CacheLife::Of(life),
        }
    }

    fn inherit_writes(&self) {
        self.known.wrote();
    }
}

impl Known {
    fn wrote(&self) {
        let (order, life) = (Ordering::SeqCst, self.life.load(Ordering::SeqCst));
        // Writes of an earlier life are lost, which a Flush must report.
        let _ = self.unflushed.compare_exchange(0, life, order, order);
    }

    /// Returns the number of losses, which this Flush reports.
    fn flush(&self) -> u32 {
        let unflushed = self.unflushed.swap(0, Ordering::SeqCst);
        let lost = unflushed != 0 && unflushed != self.life.load(Ordering::SeqCst);
        self.told.fetch_add(lost.into(), Ordering::SeqCst) + u32::from(lost)
    }
}

#[derive(Debug)]
struct ForgetfulChannel {
    below: Box<dyn Channel>,
    known: Arc<Known>,
    reported: u32,
}

impl Channel for ForgetfulChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if self.known.gone.load(Ordering::SeqCst) {
            return Submit::Done(request.ended(Err(BlockError::Gone)));
        }
        if request.operation.is_write() {
            self.known.wrote();
        }
        if request.operation == Operation::Flush {
            let losses = self.known.flush();
            if std::mem::replace(&mut self.reported, losses) != losses {
                return Submit::Done(request.ended(Err(BlockError::CacheLost)));
            }
        }
        self.below.submit(request, cx)
    }

    fn losses(&self) -> Option<u32> {
        Some(self.reported)
    }

    fn reap(&mut self) -> Option<Completion> {
        self.below.reap()
    }

    fn closed(&self) -> bool {
        self.below.closed()
    }
}
