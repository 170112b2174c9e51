//! A device that loses its cache when a test says so, and tells of it as a remote one does: each of
//! its channels reports a loss to the first Flush after it. It goes away as a remote one does, too.
#![allow(clippy::unwrap_used)] // What fails here fails the test.

use block::{BlockError, Capabilities, Channel, Completion, Device, DeviceError, Geometry};
use block::{Operation, Request, Submit};
use reactor::{Context, Driver};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Forgetful {
    below: block::device::Null,
    losses: Arc<AtomicU32>,
    /// Losses that a Flush has reported.
    told: Arc<AtomicU32>,
    gone: Arc<AtomicBool>,
}

impl Forgetful {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            below: block::device::Null::new(1 << 20, 512).unwrap(),
            losses: Arc::default(),
            told: Arc::default(),
            gone: Arc::default(),
        })
    }

    pub(crate) fn go(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    pub(crate) fn lose(&self) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }
}

impl Device for Forgetful {
    fn geometry(&self) -> Geometry {
        let geometry = self.below.geometry();
        let blocks = match self.gone.load(Ordering::SeqCst) {
            true => 0,
            false => geometry.blocks,
        };
        Geometry { blocks, ..geometry }
    }

    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn cache_losses(&self) -> u32 {
        self.told.load(Ordering::SeqCst)
    }

    fn open(&self, _: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(ForgetfulChannel {
            losses: Arc::clone(&self.losses),
            told: Arc::clone(&self.told),
            gone: Arc::clone(&self.gone),
            reported: self.cache_losses(),
        }))
    }
}

#[derive(Debug)]
struct ForgetfulChannel {
    losses: Arc<AtomicU32>,
    told: Arc<AtomicU32>,
    gone: Arc<AtomicBool>,
    reported: u32,
}

impl Channel for ForgetfulChannel {
    fn submit(&mut self, request: Request, _: &mut Context<'_>) -> Submit {
        if self.gone.load(Ordering::SeqCst) {
            return Submit::Done(request.ended(Err(BlockError::Gone)));
        }
        let losses = self.losses.load(Ordering::SeqCst);
        let is_news = request.operation == Operation::Flush && losses != self.reported;
        if is_news {
            self.reported = losses;
            self.told.fetch_max(losses, Ordering::SeqCst);
        }
        Submit::Done(request.ended(if is_news {
            Err(BlockError::CacheLost)
        } else {
            Ok(())
        }))
    }

    fn losses(&self) -> Option<u32> {
        Some(self.reported)
    }

    fn reap(&mut self) -> Option<Completion> {
        None
    }

    fn closed(&self) -> bool {
        true
    }
}
