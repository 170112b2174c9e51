//! Connecting the channels of a core before it serves.

use super::DeviceIo;
use crate::class_channel::NoChannel;
use base::Nanos;
use block::DeviceError;
use reactor::{Context, Driver, Wait};
use switch::{Class, PerClass};

/// Interval between checks of a channel that other threads connect.
const LOOK: Nanos = Nanos::from_millis(10);

/// Waits until all channels are connected. Their driver does nothing else yet. A class whose queue
/// the target refuses shares another class's channel.
///
/// # Errors The error of a device for which the target refuses all queues, with its index in `all`.
pub(crate) fn connect<'a, T: 'a, D: Driver>(
    all: impl IntoIterator<Item = &'a mut DeviceIo<T>>,
    driver: &mut D,
) -> Result<(), (usize, DeviceError)> {
    let mut all: Vec<_> = all.into_iter().collect();
    let mut events = Vec::new();
    loop {
        let mut cx = Context::begin(driver);
        for event in events.drain(..) {
            let owner = |event, io: &mut &mut DeviceIo<T>| io.apply(event, &mut cx);
            let left = all.iter_mut().try_fold(event, owner);
            debug_assert!(left.is_none(), "no other operation is under way");
        }
        let mut connected = true;
        for (place, io) in all.iter_mut().enumerate() {
            io.turn(&mut cx);
            connected &= io.is_connected().map_err(|error| (place, error))?;
        }
        if connected {
            return Ok(());
        }
        let deadlines = all.iter().map(|io| io.deadline());
        let until = deadlines.fold(cx.now + LOOK, |until, deadline| until.min(deadline));
        let waited = driver.reap(Wait::Until(until), &mut events);
        waited.map_err(|error| (0, DeviceError::Invalid(format!("io_uring: {error}"))))?;
    }
}

impl<T> DeviceIo<T> {
    /// Returns true if no channel is still connecting. A class whose queue is refused shares
    /// another class's channel from then on.
    fn is_connected(&mut self) -> Result<bool, DeviceError> {
        let mut open = None;
        let mut refused = Vec::new();
        for class in Class::ALL {
            if self.ways[class] != class {
                continue;
            }
            match self.channels[class].channel.opened() {
                None => return Ok(false),
                Some(Ok(())) => open = Some(class),
                Some(Err(error)) => refused.push((class, error)),
            }
        }
        for (class, error) in refused {
            let Some(open) = open else {
                return Err(error);
            };
            tracing::warn!("requests of class {class} share the queue of the other class: {error}");
            self.channels[class].channel = Box::new(NoChannel);
            self.ways = PerClass::from_fn(|_| open);
        }
        Ok(true)
    }
}
