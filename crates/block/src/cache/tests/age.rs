//! Pages that are dirty for longer than `dirty_expire`.

use super::*;
use base::Time;
use std::sync::atomic::{AtomicBool, Ordering};

fn expiring() -> CacheOptions {
    CacheOptions {
        dirty_expire: Nanos::from_millis(100),
        ..options(256, 128, 128)
    }
}

#[test]
fn few_dirty_pages_are_written_back_when_they_are_old_enough() {
    let ram = ram(4096);
    let cache = cache(ram.clone(), expiring());
    let mut bench = open(&cache);
    assert_eq!(bench.deadline(), Time::NEVER, "nothing is dirty");
    let before = bench.driver().now();
    bench.write(9, &[9; 4096]).expect("it is in the cache");
    bench.write(7, &[7; 4096]).expect("it is in the cache");
    let expire = expiring().dirty_expire;
    let expected = before + expire..=bench.driver().now() + expire;
    assert!(expected.contains(&bench.deadline()));
    bench.turn_until("write-back", |_| cache.snapshot().dirty == 0);
    assert!(bench.driver().now() >= before + expire, "not before");
    assert_eq!(bench.deadline(), Time::NEVER);
    let mut below = open(&*ram);
    assert_eq!(below.read(9, 1), Ok(vec![9; 4096]));
    assert_eq!(below.read(7, 1), Ok(vec![7; 4096]));
    below.close();
    assert_eq!(cache.snapshot().written_back, 2);
    bench.close();
}

#[test]
fn a_page_that_is_written_all_the_time_grows_old_all_the_same() {
    let cache = cache(ram(4096), expiring());
    let mut bench = open(&cache);
    bench.turn_until("write-back", |bench| {
        bench.write(9, &[9; 4096]).expect("it is in the cache");
        cache.snapshot().written_back > 0
    });
    bench.close();
}

/// As before another process takes the device over.
#[test]
fn a_cache_that_drains_keeps_no_page_dirty() {
    let never = Nanos::from_secs(3600);
    let cache = cache(
        ram(4096),
        CacheOptions {
            dirty_expire: never,
            ..options(256, 128, 128)
        },
    );
    let mut bench = open(&cache);
    bench.write(9, &[9; 4096]).expect("it is in the cache");
    cache.set_draining(true);
    bench.turn_until("write-back", |_| cache.snapshot().dirty == 0);
    bench.write(7, &[7; 4096]).expect("it is in the cache");
    bench.turn_until("write-back", |_| cache.snapshot().dirty == 0);
    cache.set_draining(false);
    let before = bench.driver().now();
    bench.write(5, &[5; 4096]).expect("it is in the cache");
    bench.turn_until("write-back by age", |bench| {
        bench.deadline() >= before + never
    });
    assert_eq!(cache.snapshot().dirty, 1);
    bench.close();
}

/// A sleeping thread learns of the pages that another thread leaves only when it is woken.
#[test]
fn a_channel_that_closes_leaves_its_pages_to_those_that_stay() {
    let patience = Nanos::from_secs(60);
    let cache = cache(ram(4096), expiring());
    let (stays, closed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bench = open(&cache);
            stays.store(true, Ordering::SeqCst);
            loop {
                if closed.load(Ordering::SeqCst) && cache.snapshot().dirty == 0 {
                    break;
                }
                let before = bench.driver().now();
                bench.turn(patience);
                let slept = bench.driver().now().since(before);
                assert!(slept < patience, "it was not woken");
            }
            assert_eq!(cache.snapshot().written_back, 1);
            bench.close();
        });
        let mut bench = open(&cache);
        while !stays.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        bench.write(5, &[5; 4096]).expect("it is in the cache");
        closed.store(true, Ordering::SeqCst);
        bench.close();
    });
}

/// Otherwise no channel would write back while it does not run.
#[test]
fn a_channel_that_writes_back_and_does_not_run_any_more_is_replaced() {
    const HANG: u64 = crate::limits::CACHE_WRITES as u64;
    const LEFT: u64 = 8;
    let rule = FaultRule {
        operation: FaultOperation::Write,
        times: Some(HANG),
        ..FaultRule::new(FaultEffect::Hang)
    };
    let below = faulty(ram(4096), rule);
    let dirty_background = 0;
    let cache = cache(
        below.clone(),
        CacheOptions {
            dirty_background,
            ..expiring()
        },
    );
    let mut stuck = open(&cache);
    for page in 0..HANG + LEFT {
        // Not adjacent: each takes its own transfer.
        let written = stuck.write(2 * page, &[5; 4096]);
        written.expect("it is in the cache");
    }
    stuck.turn(Nanos::ZERO);
    assert_eq!(below.strikes()[0], HANG);
    let mut bench = open(&cache);
    bench.turn_until("write-back", |_| u64::from(cache.snapshot().dirty) == HANG);
    assert_eq!(cache.snapshot().written_back, LEFT);
    below.release();
    stuck.turn_until("the rest", |_| cache.snapshot().dirty == 0);
    bench.close();
    stuck.close();
}

/// The change waits for a page that is in transfer at that moment.
#[test]
fn a_device_is_changed_when_the_pages_on_their_way_have_arrived() {
    let rule = FaultRule {
        operation: FaultOperation::Write,
        times: Some(1),
        ..FaultRule::new(FaultEffect::Hang)
    };
    let below = faulty(ram(4096), rule);
    let cache = cache(below.clone(), options(64, 0, 32));
    let mut bench = open(&cache);
    bench.write(5, &[5; 4096]).expect("it is in the cache");
    bench.turn_until("write-back", |_| below.strikes()[0] == 1);
    std::thread::scope(|scope| {
        let erased = scope.spawn(|| cache.erase(5 * 4096, 4096));
        while !cache.shared.lock().table.is_claimed(5) && !erased.is_finished() {
            std::thread::yield_now();
        }
        below.release();
        bench.turn_until("its end", |_| cache.snapshot().dirty == 0);
        let erased = erased.join().expect("it does not panic");
        erased.expect("it waited");
    });
    assert_eq!(bench.read(5, 1), Ok(vec![0; 4096]));
    bench.close();
}

/// A plan has room for only some of the dirty pages: pages that it cannot write must not delay the
/// remaining ones.
#[test]
fn younger_pages_do_not_wait_for_old_ones_that_are_claimed() {
    const CLAIMED: u32 = 1_500;
    const OTHERS: u32 = 300;
    let cache = cache(
        ram(4096),
        CacheOptions {
            dirty_expire: Nanos::from_millis(100),
            ..options(4096, 4000, 4096)
        },
    );
    let mut bench = open(&cache);
    cache.shared.lock().held = true;
    for page in 0..u64::from(CLAIMED + OTHERS) {
        bench.write(page, &[5; 4096]).expect("it is in the cache");
    }
    let claim = cache.shared.lock().table.claim(&(0..u64::from(CLAIMED)));
    cache.shared.lock().held = false;
    bench.turn_until("write-back", |_| cache.snapshot().dirty == CLAIMED);
    assert_eq!(cache.snapshot().written_back, u64::from(OTHERS));
    let claim = claim.expect("there is no other claim");
    cache.shared.lock().table.release(claim);
    bench.turn_until("the rest", |_| cache.snapshot().dirty == 0);
    bench.close();
}
