//! Failing write-backs: a Flush reports each, and its page is written again.

use super::*;
use crate::testing::TestDevice;
use crate::{CacheLife, Capabilities, Channel, DeviceError, Geometry};
use crate::{Request, Submit};
use base::Time;
use base::units::Lba;
use reactor::{Context, Driver};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{OnceLock, Weak};

fn flush(bench: &mut Bench<UringDriver>) -> Result<(), BlockError> {
    bench.operate(Operation::Flush, 0, 0)
}

#[test]
fn failed_write_backs_are_reported_by_each_channel_once_and_tried_again() {
    let rule = FaultRule {
        operation: FaultOperation::Write,
        times: Some(2),
        ..FaultRule::new(FaultEffect::Error(BlockError::WriteFailure))
    };
    let ram = ram(4096);
    let cache = cache(faulty(ram.clone(), rule), options(64, 32, 32));
    let (mut first, mut second) = (open(&cache), open(&cache));
    let flush = |bench: &mut Bench<UringDriver>| bench.operate(Operation::Flush, 0, 0);
    first.write(5, &[5; 4096]).expect("it is in the cache");
    assert_eq!(flush(&mut first), Err(BlockError::WriteFailure));
    assert_eq!(cache.snapshot().dirty, 1, "it stays dirty");
    assert_eq!(first.read(5, 1), Ok(vec![5; 4096]), "and is read");
    assert_eq!(flush(&mut second), Err(BlockError::WriteFailure), "again");
    assert_eq!(
        flush(&mut first),
        Err(BlockError::WriteFailure),
        "the second's"
    );
    assert_eq!(cache.snapshot().dirty, 0, "but its own succeeded");
    assert_eq!(flush(&mut first), Ok(()));
    assert_eq!(flush(&mut second), Ok(()));
    first.close();
    second.close();
    let mut bench = open(&*ram);
    assert_eq!(bench.read(5, 1), Ok(vec![5; 4096]));
    bench.close();
}

#[test]
fn a_page_that_cannot_be_written_at_the_close_is_reported_after_the_next_open() {
    let rule = FaultRule {
        operation: FaultOperation::Write,
        times: Some(1),
        ..FaultRule::new(FaultEffect::Error(BlockError::NoSpace))
    };
    let cache = cache(faulty(ram(4096), rule), options(64, 32, 32));
    let mut bench = open(&cache);
    bench.write(5, &[5; 4096]).expect("it is in the cache");
    bench.close();
    assert_eq!(cache.snapshot().dirty, 1);
    let mut bench = open(&cache);
    let mut flush = || bench.operate(Operation::Flush, 0, 0);
    assert_eq!(flush(), Err(BlockError::NoSpace));
    assert_eq!(flush(), Ok(()));
    bench.close();
}

/// Random requests over a device that fails one write in ten: the cache content stays right, and so
/// is the device's once a Flush succeeds.
#[test]
fn nothing_is_lost_when_write_backs_fail() {
    for seed in 1..=20 {
        let rule = FaultRule {
            operation: FaultOperation::Write,
            one_in: 10,
            times: Some(60),
            ..FaultRule::new(FaultEffect::Torn { blocks: 3 })
        };
        let ram = ram(512);
        let below = faulty(
            if seed % 4 == 0 {
                slow(ram.clone())
            } else {
                ram.clone()
            },
            rule,
        );
        let cache = cache(below.clone(), options(256, 8, 256));
        let mut bench = open(&cache);
        let mut random = Prng::from_seed(seed);
        let mut content = vec![0; 1_000];
        for request in 0..600_u64 {
            let lba = random.below(990);
            let at = usize::try_from(lba).expect("a few");
            let value = u8::try_from(request % 251).expect("below 251");
            match random.below(10) {
                0..6 => {
                    bench
                        .write(lba, &[value; 9 * 512])
                        .expect("it is in the cache");
                    content[at..at + 9].fill(value);
                }
                6..9 => {
                    let found = bench.read(lba, 9).expect("a read");
                    let found = found.chunks(512).map(|block| block[0]);
                    assert!(found.eq(content[at..at + 9].iter().copied()), "seed {seed}");
                }
                _ => drop(bench.operate(Operation::Flush, 0, 0)),
            }
        }
        while bench.operate(Operation::Flush, 0, 0).is_err() {}
        let mut direct = open(&*ram);
        for (lba, value) in (0..).zip(&content) {
            assert_eq!(direct.read(lba, 1), Ok(vec![*value; 512]), "seed {seed}");
        }
        assert!(below.strikes()[0] > 0 && cache.snapshot().failed > 0);
        direct.close();
        bench.close();
    }
}

/// Two Flushes cover the same page, which could not be written: the second must fail too, although
/// the first has reported the failure.
#[test]
fn flushes_at_the_same_time_report_the_same_failure() {
    let rule = FaultRule {
        operation: FaultOperation::Write,
        times: Some(1),
        ..FaultRule::new(FaultEffect::Error(BlockError::WriteFailure))
    };
    let cache = cache(slow(faulty(ram(4096), rule)), options(64, 32, 32));
    let mut bench = open(&cache);
    bench.write(5, &[5; 4096]).expect("it is in the cache");
    for _ in 0..2 {
        let request = bench.request(Operation::Flush, 0, 0);
        assert!(matches!(bench.submit(request), Submit::Queued));
    }
    for _ in 0..2 {
        assert_eq!(bench.wait().result, Err(BlockError::WriteFailure));
    }
    assert_eq!(flush(&mut bench), Ok(()));
    bench.close();
}

/// This includes a page that is written at the second attempt, before a Flush.
#[test]
fn a_failure_in_the_background_is_reported_by_the_next_flush() {
    let rule = FaultRule {
        operation: FaultOperation::Write,
        times: Some(1),
        ..FaultRule::new(FaultEffect::Error(BlockError::WriteFailure))
    };
    let ram = ram(4096);
    let expiring = CacheOptions {
        dirty_expire: Nanos::from_millis(100),
        ..options(64, 32, 32)
    };
    let cache = cache(faulty(ram.clone(), rule), expiring);
    let mut bench = open(&cache);
    bench.write(5, &[5; 4096]).expect("it is in the cache");
    bench.turn_until("the second attempt", |_| cache.snapshot().written_back == 1);
    assert_eq!((cache.snapshot().failed, cache.snapshot().dirty), (1, 0));
    assert_eq!(flush(&mut bench), Err(BlockError::WriteFailure));
    assert_eq!(flush(&mut bench), Ok(()));
    bench.close();
    let mut bench = open(&*ram);
    assert_eq!(bench.read(5, 1), Ok(vec![5; 4096]));
    bench.close();
}

/// Several channels write and flush; whenever a Flush succeeds, all writes acknowledged before it
/// are on the device.
#[test]
fn a_flush_that_succeeds_has_put_everything_on_the_device() {
    for seed in 1..=12 {
        let rule = FaultRule {
            operation: FaultOperation::Write,
            one_in: 4,
            ..FaultRule::new(FaultEffect::Torn { blocks: 2 })
        };
        let ram = ram(512);
        let below = faulty(ram.clone(), rule);
        let cache = cache(below.clone(), options(256, 4, 200));
        let mut benches = [open(&cache), open(&cache), open(&cache)];
        let mut direct = open(&*ram);
        let mut random = Prng::from_seed(seed);
        let mut content = vec![0; 400];
        let mut succeeded = 0;
        for request in 0..1_200_u64 {
            let bench = &mut benches[usize::try_from(random.below(3)).expect("one of three")];
            let lba = random.below(390);
            let at = usize::try_from(lba).expect("a few");
            let value = u8::try_from(request % 251).expect("below 251");
            if random.below(8) > 0 {
                bench.write(lba, &[value; 9 * 512]).expect("it is cached");
                content[at..at + 9].fill(value);
                continue;
            }
            if flush(bench).is_ok() {
                succeeded += 1;
                let found = direct.read(0, 400).expect("a read");
                let found = found.chunks(512).map(|block| block[0]);
                assert!(found.eq(content.iter().copied()), "seed {seed}: {request}");
            }
        }
        assert!(below.strikes()[0] > 20 && succeeded > 5, "{succeeded}");
        for bench in benches {
            bench.close();
        }
        direct.close();
    }
}

/// A device that loses its cache like a remote one.
#[derive(Debug)]
struct Forgetful(Arc<dyn Device>, Arc<AtomicU32>);

#[derive(Debug)]
struct ForgetfulChannel(Box<dyn Channel>, Arc<AtomicU32>);

impl Device for Forgetful {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn cache_losses(&self) -> u32 {
        7
    }

    fn cache_life(&self) -> CacheLife {
        match self.1.load(Ordering::Relaxed) {
            0 => CacheLife::Unknown,
            life => CacheLife::Of(life.into()),
        }
    }

    fn inherit_writes(&self) {
        self.1.store(9, Ordering::Relaxed);
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        let (below, losses) = (self.0.open(driver)?, Arc::clone(&self.1));
        Ok(Box::new(ForgetfulChannel(below, losses)))
    }
}

impl Channel for ForgetfulChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        self.0.submit(request, cx)
    }

    fn losses(&self) -> Option<u32> {
        Some(self.1.load(Ordering::Relaxed))
    }
}

/// Each client of a shared channel receives the losses of the cache of the device below, not only
/// the first to flush.
#[test]
fn losses_of_the_device_below_are_told_with_each_flush() {
    let losses = Arc::new(AtomicU32::new(0));
    let below = Arc::new(Forgetful(ram(4096), Arc::clone(&losses)));
    let cache = cache(below, options(64, 32, 32));
    assert_eq!(cache.cache_losses(), 7);
    let mut driver = driver();
    let mut channel = cache.open(&mut driver).expect("it opens");
    assert_eq!(channel.losses(), Some(0));
    for count in 1..=2 {
        losses.store(count, Ordering::Relaxed);
        assert_eq!(channel.losses(), Some(count - 1), "no Flush");
        let request = Request {
            tag: 1,
            operation: Operation::Flush,
            lba: Lba(0),
            blocks: 0,
            data: None,
        };
        let now = Time::ZERO;
        let driver = &mut driver;
        let submit = channel.submit(request, &mut Context { now, driver });
        assert!(matches!(submit, Submit::Done(_)));
        assert_eq!(channel.losses(), Some(count));
    }
}

#[test]
fn a_cache_has_a_life_of_its_own_within_that_of_the_device_below() {
    let ram = ram(4096);
    let (one, other) = (
        cache(Arc::clone(&ram), options(64, 32, 32)),
        cache(ram, options(64, 32, 32)),
    );
    assert_eq!(one.cache_life(), one.clone().cache_life());
    assert_ne!(one.cache_life(), other.cache_life());
    // The same number as a layer above it reports.
    assert_eq!(slow(Arc::new(one.clone())).cache_life(), one.cache_life());
    let path = PathDevice::start(Arc::new(one.clone()), Path::Stm, PathRules::default());
    assert_eq!(path.expect("it starts").cache_life(), one.cache_life());
    let number = Arc::new(AtomicU32::new(0));
    let below = Arc::new(Forgetful(self::ram(4096), Arc::clone(&number)));
    let cache = cache(below, options(64, 32, 32));
    assert_eq!(cache.cache_life(), CacheLife::Unknown);
    number.store(1, Ordering::Relaxed);
    let before = cache.cache_life();
    number.store(2, Ordering::Relaxed);
    assert_ne!(cache.cache_life(), before);
    cache.inherit_writes();
    assert_eq!(number.load(Ordering::Relaxed), 9, "the device is told");
}

/// A device that answers no write, and records whether pages are in transfer when a channel of it
/// is dropped.
#[derive(Debug)]
struct Silent {
    below: Arc<dyn Device>,
    cache: Arc<OnceLock<Weak<SharedCache>>>,
    on_their_way: Arc<AtomicU32>,
}

#[derive(Debug)]
struct SilentChannel {
    cache: Arc<OnceLock<Weak<SharedCache>>>,
    on_their_way: Arc<AtomicU32>,
}

impl Device for Silent {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn open(&self, _: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(SilentChannel {
            cache: Arc::clone(&self.cache),
            on_their_way: Arc::clone(&self.on_their_way),
        }))
    }
}

impl Channel for SilentChannel {
    fn submit(&mut self, _: Request, _: &mut Context<'_>) -> Submit {
        Submit::Queued
    }
}

impl Drop for SilentChannel {
    fn drop(&mut self) {
        let shared = self.cache.get().and_then(Weak::upgrade);
        let idle = shared.is_none_or(|shared| shared.lock().table.is_idle());
        self.on_their_way
            .fetch_add(u32::from(!idle), Ordering::Relaxed);
    }
}

/// Otherwise another channel could write the page again before the old write lands.
#[test]
fn a_channel_that_is_dropped_lets_no_page_go_before_its_write_back_cannot_land() {
    let on_their_way = Arc::new(AtomicU32::new(0));
    let below = Arc::new(Silent {
        below: ram(4096),
        cache: Arc::default(),
        on_their_way: Arc::clone(&on_their_way),
    });
    let cache = cache(Arc::clone(&below) as _, options(64, 32, 32));
    below
        .cache
        .set(Arc::downgrade(&cache.shared))
        .expect("the first");
    let mut bench = open(&cache);
    bench.write(5, &[5; 4096]).expect("it is in the cache");
    let request = bench.request(Operation::Flush, 0, 0);
    assert!(matches!(bench.submit(request), Submit::Queued));
    bench.turn(Nanos(0));
    assert!(!cache.shared.lock().table.is_idle(), "it is written back");
    drop(bench);
    assert_eq!(on_their_way.load(Ordering::Relaxed), 1);
    assert!(cache.shared.lock().table.is_idle());
}

/// A channel that is gone and comes back.
#[derive(Debug)]
struct Returning {
    below: Box<dyn Channel>,
    gone: Arc<AtomicBool>,
}

impl Channel for Returning {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if self.gone.load(Ordering::SeqCst) {
            return Submit::Done(request.ended(Err(BlockError::Gone)));
        }
        self.below.submit(request, cx)
    }

    fn is_back(&self) -> bool {
        !self.gone.load(Ordering::SeqCst)
    }
}

/// Its requests must not fail for good once the device executes them again.
#[test]
fn a_channel_whose_device_is_back_is_used_again() {
    let gone = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&gone);
    let device = TestDevice::new(ram(4096), move |below| {
        let gone = Arc::clone(&own);
        Box::new(Returning { below, gone })
    });
    let cache = cache(Arc::new(device), options(64, 32, 32));
    let mut bench = open(&cache);
    bench.write(5, &[5; 4096]).expect("it is in the cache");
    gone.store(true, Ordering::SeqCst);
    assert_eq!(bench.read(100, 1), Err(BlockError::Gone));
    assert_eq!(bench.read(5, 1), Err(BlockError::Gone));
    gone.store(false, Ordering::SeqCst);
    bench.turn(Nanos::ZERO);
    assert_eq!(bench.read(5, 1), Ok(vec![5; 4096]), "what was cached");
    assert_eq!(bench.read(100, 1), Ok(vec![0; 4096]));
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
    bench.close();
}
