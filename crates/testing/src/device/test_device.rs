//! A device for tests of layers above devices.

use block::device::{Capabilities, Channel, Device, DeviceError, Geometry};
use reactor::Driver;
use std::fmt;
use std::sync::Arc;

/// Makes a test's channel over a channel of the device below.
type Over = dyn Fn(Box<dyn Channel>) -> Box<dyn Channel> + Send + Sync;

/// A layer over a device, with the test's own channels over the device's channels.
pub struct TestDevice {
    below: Arc<dyn Device>,
    capabilities: Capabilities,
    over: Box<Over>,
}

impl TestDevice {
    /// A layer over the device `below`; `over` makes its channels.
    pub fn new(
        below: Arc<dyn Device>,
        over: impl Fn(Box<dyn Channel>) -> Box<dyn Channel> + Send + Sync + 'static,
    ) -> Self {
        Self {
            capabilities: below.capabilities(),
            below,
            over: Box::new(over),
        }
    }

    /// The same device with other capabilities.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Capabilities)) -> Self {
        change(&mut self.capabilities);
        self
    }
}

impl fmt::Debug for TestDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a test's device over {:?}", self.below)
    }
}

impl Device for TestDevice {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok((self.over)(self.below.open(driver)?))
    }

    fn resize(&self, blocks: u64) -> Result<(), DeviceError> {
        self.below.resize(blocks)
    }
}
