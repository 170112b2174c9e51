//! A device for tests of what is above devices.

use block::device::{Capabilities, Channel, Device, DeviceError, Geometry};
use reactor::Driver;
use std::fmt;
use std::sync::Arc;

/// Makes a test's channel over one of the device below.
type Over = dyn Fn(Box<dyn Channel>) -> Box<dyn Channel> + Send + Sync;

/// A device over another one, with channels of the test's own over its channels.
pub struct TestDevice {
    below: Arc<dyn Device>,
    capabilities: Capabilities,
    over: Box<Over>,
}

impl TestDevice {
    /// The device over `below` of which `over` makes the channels.
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
