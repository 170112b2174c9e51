//! Many threads on one cache, each of which checks the content of its own blocks.

use super::*;

/// One thread's load on its own blocks, which are interleaved with those of the other threads.
fn load(device: &dyn Device, thread: u64, threads: u64, requests: u32) {
    let mut bench = open(device);
    let bytes = bench.geometry().block_bytes as usize;
    let mut random = Prng::from_seed(thread);
    let own = bench.geometry().blocks / threads;
    let mut content = vec![0_u8; usize::try_from(own).expect("a few")];
    for _ in 0..requests {
        let index = random.below(own);
        let lba = index * threads + thread;
        let known = &mut content[usize::try_from(index).expect("a few")];
        let what = || format!("block {lba} of thread {thread}");
        match random.below(20) {
            0..9 => {
                let found = bench.read(lba, 1).expect("a read");
                assert!(found.iter().all(|byte| byte == known), "{}", what());
            }
            9..16 => {
                *known = known.wrapping_add(1);
                let durable = random.chance(1, 8);
                let data = vec![*known; bytes];
                let write = Operation::Write { durable };
                assert_eq!(bench.send(write, lba, &data), Ok(()), "{}", what());
            }
            16 => {
                *known = 0;
                assert_eq!(bench.operate(Operation::Deallocate, lba, 1), Ok(()));
            }
            17 => {
                let data = vec![*known; bytes];
                assert_eq!(
                    bench.send(Operation::Compare, lba, &data),
                    Ok(()),
                    "{}",
                    what()
                );
            }
            18 => assert_eq!(bench.operate(Operation::Verify, lba, 1), Ok(())),
            _ => assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(())),
        }
    }
    bench.close();
}

fn run(below: &Arc<dyn Device>, options: CacheOptions, requests: u32) {
    let cache = cache(below.clone(), options);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || load(cache, thread, 4, requests));
        }
    });
    let counters = cache.snapshot();
    assert_eq!(counters.dirty, 0, "all is written back: {counters:?}");
    assert!(counters.dirty_peak <= options.dirty_max, "{counters:?}");
}

#[test]
fn threads_find_what_they_wrote_beside_others_in_the_same_pages() {
    for options in [options(256, 8, 64), options(16, 2, 6), options(4, 0, 1)] {
        let ram: Arc<dyn Device> = Arc::new(Ram::new(512 << 10, 512).expect("memory"));
        run(&ram, options, 3_000);
        let ram: Arc<dyn Device> = Arc::new(Ram::new(512 << 10, 512).expect("memory"));
        run(&slow(ram), options, 600);
    }
}

#[test]
fn threads_that_read_the_same_pages_read_each_once() {
    let below = Arc::new(Stats::new(slow(ram(4096))));
    let cache = cache(below.clone(), options(1024, 10, 10));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                let mut bench = open(cache);
                for page in 0..512 {
                    // No two consecutive pages follow each other.
                    let page = page * 389 % 512;
                    bench.read(page, 1).expect("a read");
                }
                bench.close();
            });
        }
    });
    assert_eq!(below.snapshot().total().completed, 512);
}

#[test]
fn a_thread_that_dies_leaves_the_others_at_work() {
    let cache = cache(slow(ram(512)), options(64, 4, 16));
    std::thread::scope(|scope| {
        let cache = &cache;
        for seed in 0..8_u64 {
            scope.spawn(move || {
                let mut bench = open(cache);
                let mut random = Prng::from_seed(seed);
                for _ in 0..100 {
                    let lba = random.below(1_000);
                    let _ = bench.write(lba, &[1; 3 * 512]);
                    let _ = bench.read(random.below(1_000), 3);
                }
                // Some are dropped with requests in flight.
                if seed % 2 == 0 {
                    for lba in 0..20 {
                        let durable = lba % 2 == 0;
                        let request = bench.request(Operation::Write { durable }, lba * 50, 3);
                        let _ = bench.submit(request);
                    }
                    drop(bench);
                } else {
                    bench.close();
                }
            });
        }
    });
    let mut bench = open(&cache);
    for lba in 0..1_000 {
        bench.read(lba, 1).expect("a read");
    }
    let _ = bench.operate(Operation::Flush, 0, 0);
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
    bench.close();
    assert_eq!(cache.snapshot().dirty, 0);
}
