//! What a write of 4 KiB to a device's region costs: `cargo run --release -p switchyard-reactor --example region_writes`.
//!
//! Each goes to a random page, and some 200 ns of work lie between two of them, which is less than
//! a target does for a request. Prints nanoseconds of a write without that work, five times, for
//! an ordinary copy, one past the caches that is ordered by itself, and those that are ordered 62 at a
//! time, as many as a full receive buffer brings.

use base::Prng;
use reactor::{Region, UnorderedStores};
use std::hint::black_box;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const WRITES: u32 = 200_000;

fn main() {
    let large = Region::for_device(256 << 20)
        .expect("address space")
        .handle();
    // As many small ones make as much memory.
    let small: Vec<_> = (0..8)
        .map(|_| Region::new(32 << 20).expect("address space").handle())
        .collect();
    let source = vec![7; 64 * PAGE];
    let mut random = Prng::from_seed(1);
    let mut place = |bytes: usize| {
        let page = random.below((bytes / PAGE) as u64);
        usize::try_from(page).expect("a page of ours") * PAGE
    };
    for (region, len) in small
        .iter()
        .chain([&large])
        .map(|region| (region, region.len()))
    {
        for at in (0..len).step_by(PAGE) {
            region.copy_in(at, &source[..PAGE]);
        }
    }
    for _ in 0..5 {
        let work = time(|_| {});
        let ordinary = time(|i| small[i % 8].copy_in(place(32 << 20), page_of(&source, i)));
        let past = time(|i| large.copy_in(place(256 << 20), page_of(&source, i)));
        let mut stores = UnorderedStores::default();
        let together = time(|i| {
            let page = page_of(&source, i);
            stores.join(large.copy_in_unordered(place(256 << 20), page));
            if i % 62 == 0 {
                stores.order();
            }
        });
        let nanos = |span: Duration| span.saturating_sub(work).as_nanos() / u128::from(WRITES);
        println!(
            "ordinary {} ns, past the caches {} ns, ordered 62 at a time {} ns",
            nanos(ordinary),
            nanos(past),
            nanos(together)
        );
    }
}

fn page_of(source: &[u8], i: usize) -> &[u8] {
    &source[i % 64 * PAGE..][..PAGE]
}

/// Time of all writes, with the work between them.
fn time(mut write: impl FnMut(usize)) -> Duration {
    let start = Instant::now();
    for i in 0..WRITES as usize {
        write(i);
        for step in 0..400_u64 {
            black_box(step);
        }
    }
    start.elapsed()
}
