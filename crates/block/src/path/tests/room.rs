//! Submitters that get no room in the channel below.

use super::*;
use crate::Completion;

/// A device with room for one request in each of its channels.
#[derive(Debug)]
struct Narrow(Arc<dyn Device>);

#[derive(Debug)]
struct NarrowChannel {
    below: Box<dyn Channel>,
    is_full: bool,
}

impl Device for Narrow {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(NarrowChannel {
            below: self.0.open(driver)?,
            is_full: false,
        }))
    }
}

impl Channel for NarrowChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if self.is_full {
            return Submit::Busy(request);
        }
        self.is_full = true;
        self.below.submit(request, cx)
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.below.tick(cx);
    }

    fn reap(&mut self) -> Option<Completion> {
        let done = self.below.reap()?;
        self.is_full = false;
        Some(done)
    }

    fn deadline(&self) -> Time {
        self.below.deadline()
    }
}

/// An attempt without success must not count as progress: it would poll as long as the device
/// takes, or its connection is down.
#[test]
fn a_thread_that_finds_no_room_polls_no_longer_for_it() {
    let options = DelayOptions {
        write: Nanos::from_millis(50),
        ..DelayOptions::default()
    };
    let delayed = Arc::new(Delay::new(ram(64), options));
    let device =
        PathDevice::unattended(Arc::new(Narrow(delayed)), Path::Sync, PathRules::default());
    let device = device.expect("good rules").with_requests(8, BLOCK);
    let mut driver = clocked();
    let mut channel = device.open(&mut driver).expect("it opens");
    let micros = |micros| Time::ZERO + Nanos::from_micros(micros);
    let write = |now: Time, lba, channel: &mut dyn Channel, driver: &mut ClockedDriver| {
        let request = Request {
            tag: lba,
            operation: Operation::Write { durable: false },
            lba: Lba(lba),
            blocks: 1,
            data: channel.memory(BLOCK as usize),
        };
        driver.replaced.set(now);
        channel.submit(request, &mut Context::begin(driver))
    };
    let first = write(micros(10), 1, &mut *channel, &mut driver);
    assert!(matches!(first, Submit::Queued));
    for now in [510, 1_010, 1_510, 2_010].map(micros) {
        turn(&mut *channel, &mut driver, now);
        let next = write(now, 2, &mut *channel, &mut driver);
        assert!(matches!(next, Submit::Busy(_)));
    }
    assert_eq!(channel.deadline(), micros(50_010), "it sleeps");
}
