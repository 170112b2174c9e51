//! Ranges that are erased below while pages outside of them are used.

use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Memory that reports when it begins to erase, and continues on request.
#[derive(Debug)]
struct HeldErase {
    ram: Arc<dyn Device>,
    begun: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Device for HeldErase {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.ram.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        self.ram.open(driver)
    }

    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.begun.send(()).expect("the test waits");
        let go_on = self.go_on.lock().expect("no panic");
        go_on.recv().expect("the test says so");
        self.ram.erase(offset, len)
    }
}

/// Read-ahead and write-back of other pages must continue until all of the range is erased.
#[test]
fn pages_beside_a_range_that_is_erased_come_and_go() {
    let ((begun, begins), (goes_on, go_on)) = (channel(), channel());
    let below = HeldErase {
        ram: ram(512),
        begun,
        go_on: Mutex::new(go_on),
    };
    let below = Arc::new(below);
    // Every dirty page is written back at once.
    let cache = cache(Arc::clone(&below) as _, options(64, 0, 32));
    let mut bench = open(&cache);
    bench.write(0, &[7; 4096]).expect("it is in the cache");
    bench.write(96, &[7; 4096]).expect("it is in the cache");
    bench.write(1024, &[7; 4096]).expect("it is in the cache");
    std::thread::scope(|scope| {
        // The range begins in the middle of a page.
        let erased = scope.spawn(|| cache.erase(100 * 512, 4000 * 512));
        begins.recv().expect("it erases");
        bench.write(8, &[8; 4096]).expect("it is in the cache");
        bench.turn_until("write-back", |bench| {
            bench.turn(Nanos::ZERO);
            let mut kept = open(&*below.ram);
            let found = kept.read(8, 8);
            kept.close();
            found == Ok(vec![8; 4096])
        });
        assert_eq!(bench.read(0, 8), Ok(vec![7; 4096]));
        goes_on.send(()).expect("it waits");
        erased.join().expect("it does not panic").expect("memory");
    });
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
    let expected = [vec![7; 4 * 512], vec![0; 4 * 512]].concat();
    for device in [&cache as &dyn Device, &*below.ram] {
        let mut looks = open(device);
        assert_eq!(looks.read(96, 8), Ok(expected.clone()));
        assert_eq!(looks.read(1024, 8), Ok(vec![0; 4096]));
        looks.close();
    }
    bench.close();
}
