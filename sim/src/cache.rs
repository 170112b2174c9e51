//! A device with a volatile write cache: writes stay in the cache until flushed.
//!
//! It exposes the content that would survive a power loss now, so that the checking application can
//! verify Flush and FUA. It never loses data by itself.

use crate::oracle::Version;
use block::device::Ram;
use block::{Capabilities, Channel, Device, DeviceError, Geometry, Operation, Request, Submit};
use reactor::{Context, Driver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Versions of each block in the cache and on the medium.
#[derive(Debug)]
struct Content {
    cached: Vec<Version>,
    durable: Vec<Version>,
}

/// The part of a [`Cache`] that its channels share with its observers.
#[derive(Clone, Debug)]
pub struct Medium(Arc<Mutex<Content>>);

impl Medium {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Version of a block that would survive a power loss.
    #[must_use]
    pub fn durable(&self, block: usize) -> Version {
        self.content().durable[block]
    }
}

/// Memory as a device with a volatile write cache.
#[derive(Debug)]
pub struct Cache {
    inner: Ram,
    medium: Medium,
}

impl Cache {
    /// Creates such a device over `inner`.
    #[must_use]
    pub fn new(inner: Ram) -> Self {
        let blocks = usize::try_from(inner.geometry().blocks).expect("a small device");
        let (cached, durable) = (vec![0; blocks], vec![0; blocks]);
        let medium = Medium(Arc::new(Mutex::new(Content { cached, durable })));
        Self { inner, medium }
    }

    /// Returns the content that would survive a power loss.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.medium.clone()
    }
}

impl Device for Cache {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            volatile_cache: true,
            extents_max: 0,
            ..self.inner.capabilities()
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(CacheChannel {
            inner: self.inner.open(driver)?,
            medium: self.medium.clone(),
            block_bytes: self.geometry().block_bytes as usize,
        }))
    }
}

#[derive(Debug)]
struct CacheChannel {
    inner: Box<dyn Channel>,
    medium: Medium,
    block_bytes: usize,
}

impl CacheChannel {
    fn write(&self, request: &Request, durable: bool) {
        let data = request.data.as_ref().expect("a write has data");
        let mut content = self.medium.content();
        let first = usize::try_from(request.lba.0).expect("a small device");
        for index in 0..request.blocks as usize {
            let mut version = [0; 8];
            data.copy_out(index * self.block_bytes, &mut version);
            let version = Version::from_le_bytes(version);
            content.cached[first + index] = version;
            if durable {
                content.durable[first + index] = version;
            }
        }
    }

    fn flush(&self) {
        let content = &mut *self.medium.content();
        content.durable.copy_from_slice(&content.cached);
    }
}

impl Channel for CacheChannel {
    /// Memory completes immediately, so submission order is the order of the device.
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        match request.operation {
            Operation::Write { durable } => self.write(&request, durable),
            Operation::Flush => self.flush(),
            _ => {}
        }
        let answer = self.inner.submit(request, cx);
        assert!(
            matches!(&answer, Submit::Done(done) if done.result.is_ok()),
            "memory answers at once: {answer:?}"
        );
        answer
    }
}
