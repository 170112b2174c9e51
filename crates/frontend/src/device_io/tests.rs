//! The channels of a core, and requests of both classes on them.

use super::*;
use block::device::Ram;
use reactor::uring::{Options, UringDriver};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device whose target grants a limited number of queues.
#[derive(Debug)]
struct Granted {
    ram: Ram,
    left: AtomicUsize,
}

impl Device for Granted {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.ram.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let less = |left: usize| left.checked_sub(1);
        let took = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        took.map_err(|_| DeviceError::NoQueue("none is left".to_owned()))?;
        self.ram.open(driver)
    }
}

#[test]
fn classes_share_the_only_queue_that_there_is() {
    for queues in 0..=2 {
        let device: Arc<dyn Device> = Arc::new(Granted {
            ram: Ram::new(16 * 4096, 4096).unwrap(),
            left: AtomicUsize::new(queues),
        });
        let mut driver = UringDriver::new(&Options::default()).unwrap();
        let devices = PerClass::from_fn(|_| Arc::clone(&device));
        let io = DeviceIo::<Class>::open(&devices, 16, &mut driver);
        let Ok(mut io) = io else {
            assert_eq!(queues, 0, "one is enough");
            continue;
        };
        let mut cx = Context::begin(&mut driver);
        for class in Class::ALL {
            let mut data = io.memory(class, 4096, &mut cx).unwrap();
            let byte = u8::try_from(class.index()).unwrap() + 1;
            data[0].copy_in(0, &[byte; 4096]);
            let at = 4096 * class.index() as u64;
            let write = Operation::Write { durable: false };
            io.submit(class, write, (at, 4096), data, class);
            io.submit(class, Operation::Flush, (0, 0), Vec::new(), class);
            let data = io.memory(class, 4096, &mut cx).unwrap();
            io.turn(&mut cx);
            io.submit(class, Operation::Read, (at, 4096), data, class);
            io.turn(&mut cx);
            for _ in 0..3 {
                let done = io.finished_of(class).unwrap();
                assert_eq!((done.owner, done.result), (class, Ok(())));
                if let Some(data) = done.data.first() {
                    let mut read = [0; 4096];
                    data.copy_out(0, &mut read);
                    assert_eq!(read, [byte; 4096]);
                }
            }
        }
        io.close(&mut cx);
        assert!(io.closed());
    }
}

/// A channel whose queue the target refuses, unless it is the `taken`th.
#[derive(Debug)]
struct Refusing {
    granted: Granted,
    taken: usize,
}

#[derive(Debug)]
struct Channels {
    ram: Box<dyn Channel>,
    /// Turns until the refusal is known.
    turns: usize,
    refused: bool,
}

impl Device for Refusing {
    fn geometry(&self) -> Geometry {
        self.granted.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.granted.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let nth = self.granted.left.load(Ordering::Relaxed);
        Ok(Box::new(Channels {
            ram: self.granted.open(driver)?,
            turns: 3,
            refused: nth != self.taken,
        }))
    }
}

impl Channel for Channels {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        assert!(!self.refused, "it has no queue");
        self.ram.submit(request, cx)
    }

    fn tick(&mut self, _: &mut Context<'_>) {
        self.turns = self.turns.saturating_sub(1);
    }

    fn opened(&self) -> Option<Result<(), DeviceError>> {
        let refused = || DeviceError::NoQueue("Connect is refused".to_owned());
        let result = if self.refused { Err(refused()) } else { Ok(()) };
        (self.turns == 0).then_some(result)
    }
}

/// A core must not report ready before its queues are connected.
#[test]
fn classes_share_the_only_queue_that_is_not_refused() {
    for taken in 0..=2 {
        let device: Arc<dyn Device> = Arc::new(Refusing {
            granted: Granted {
                ram: Ram::new(16 * 4096, 4096).unwrap(),
                left: AtomicUsize::new(2),
            },
            taken,
        });
        let mut driver = UringDriver::new(&Options::default()).unwrap();
        let devices = PerClass::from_fn(|_| Arc::clone(&device));
        let mut io = DeviceIo::<Class>::open(&devices, 16, &mut driver).unwrap();
        let connected = connect([&mut io], &mut driver);
        let Ok(()) = connected else {
            let (_, error) = connected.unwrap_err();
            assert_eq!(error.to_string(), "Connect is refused");
            assert_eq!(taken, 0, "one is enough");
            continue;
        };
        let mut cx = Context::begin(&mut driver);
        for class in Class::ALL {
            io.submit(class, Operation::Flush, (0, 0), Vec::new(), class);
            io.turn(&mut cx);
            assert_eq!(io.finished_of(class).unwrap().result, Ok(()));
        }
    }
}
