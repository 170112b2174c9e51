//! A device whose second half is added while it is in use, as with a remote namespace.

use block::{Capabilities, Channel, Device, DeviceError, Geometry};
use reactor::Driver;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct Growing {
    all: Arc<dyn Device>,
    grown: AtomicBool,
}

impl Growing {
    pub(crate) fn new(all: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            all,
            grown: AtomicBool::new(false),
        })
    }

    pub(crate) fn grow(&self) {
        self.grown.store(true, Ordering::Relaxed);
    }
}

impl Device for Growing {
    fn geometry(&self) -> Geometry {
        let all = self.all.geometry();
        let part = if self.grown.load(Ordering::Relaxed) {
            1
        } else {
            2
        };
        Geometry {
            blocks: all.blocks / part,
            ..all
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.all.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        self.all.open(driver)
    }
}
