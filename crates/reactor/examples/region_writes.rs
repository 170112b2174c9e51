//! Measures the cost of a 4 KiB write to a device's region. Run:
//! `cargo run --release -p switchyard-reactor --example region_writes`.
//!
//! Each write goes to a random page, with about 200 ns of work between two writes, less than a
//! target does per request. Prints the nanoseconds of a write without that work, five times: for an
//! ordinary copy, for a non-temporal one with its own fence, and for non-temporal ones with a fence
//! every 62 writes, as many as a full receive buffer carries.

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
    // Many small regions make up the same amount of memory.
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

/// Returns the time of all writes, including the work between them.
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
