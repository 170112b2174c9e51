//! A device whose requests take their class from the submitting thread's I/O priority.
//!
//! It opens the same device once per class, on lanes of that class. Each turn of the thread's loop
//! reads its I/O priority, at most 100 times a second ([`reactor::priority::io_class`]). After a
//! change at run time (`ionice -p`), later requests use the other class's lanes; requests in flight
//! finish on theirs.

use block::{Capabilities, Channel, Completion, Device, DeviceError, Geometry, Request, Submit};
use reactor::{Context, Driver, Guard, OpNamespace, priority};
use std::sync::Arc;
use switch::{Class, PerClass};

/// A device whose requests take their class from the thread's I/O priority. See the module.
#[derive(Debug)]
pub struct ByPriority {
    devices: PerClass<Arc<dyn Device>>,
}

impl ByPriority {
    /// `open` returns the device for requests of a class; all of these devices are the same
    /// storage.
    pub fn new(open: impl FnMut(Class) -> Arc<dyn Device>) -> Self {
        Self {
            devices: PerClass::of(Class::ALL.map(open)),
        }
    }
}

impl Device for ByPriority {
    fn geometry(&self) -> Geometry {
        self.devices[Class::DEFAULT].geometry()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // Its channels take no extents.
            extents_max: 0,
            ..self.devices[Class::DEFAULT].capabilities()
        }
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let mut channels = Vec::with_capacity(Class::COUNT);
        for (_, device) in self.devices.iter() {
            channels.push(device.open(driver)?);
        }
        Ok(Box::new(Channels {
            channels,
            class: priority::io_class(driver.now()),
        }))
    }
}

/// The channels of all classes, and the current class.
#[derive(Debug)]
struct Channels {
    /// By [`Class::index`].
    channels: Vec<Box<dyn Channel>>,
    class: Class,
}

impl Channel for Channels {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.channels[self.class.index()].submit(request, cx)
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        for channel in &mut self.channels {
            channel.kick(cx);
        }
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        self.channels
            .iter()
            .any(|channel| channel.owns(op_namespace))
    }

    fn complete(&mut self, completion: reactor::Completion, cx: &mut Context<'_>) {
        let op_namespace = completion.key.op_namespace;
        let owner = self
            .channels
            .iter_mut()
            .find(|channel| channel.owns(op_namespace));
        if let Some(owner) = owner {
            owner.complete(completion, cx);
        }
    }

    fn reap(&mut self) -> Option<Completion> {
        self.channels.iter_mut().find_map(|channel| channel.reap())
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.class = priority::io_class(cx.now);
        for channel in &mut self.channels {
            channel.tick(cx);
        }
    }

    fn is_served_elsewhere(&self) -> bool {
        let mut channels = self.channels.iter();
        channels.all(|channel| channel.is_served_elsewhere())
    }

    fn deadline(&self) -> base::Time {
        let deadlines = self.channels.iter().map(|channel| channel.deadline());
        deadlines.min().unwrap_or(base::Time::NEVER)
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        for channel in &mut self.channels {
            channel.close(cx);
        }
    }

    fn closed(&self) -> bool {
        self.channels.iter().all(|channel| channel.closed())
    }

    fn abandon(&mut self, guard: &Guard) {
        for channel in &mut self.channels {
            channel.abandon(guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Load, LoadOptions, run};
    use block::device::{Null, Ram};
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    #[test]
    fn requests_go_by_the_device_of_the_thread_s_class() {
        // The thread's I/O priority is the default, so its requests are not `Latency`. The device
        // of `Latency` would lose writes; the device of the other class keeps them.
        let device = ByPriority::new(|class| match class {
            Class::Latency => Arc::new(Null::new(4 << 20, 4096).unwrap()) as Arc<dyn Device>,
            Class::Throughput => Arc::new(Ram::new(4 << 20, 4096).unwrap()),
        });
        let load = Load {
            app: "a:rw=randrw,depth=4,class=ioprio".parse().unwrap(),
            device: Arc::new(device),
        };
        let options = LoadOptions {
            warmup: Duration::from_millis(5),
            measured: Duration::from_millis(50),
            seed: 7,
            verify: true,
            prefill: true,
            ..LoadOptions::default()
        };
        let report = run(&[load], &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!(report.errors(), 0, "{:?}", report.notes());
        assert!(report.apps[0].verified > Some(0));
    }
}
