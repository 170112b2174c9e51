//! Tests of regions.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn large_writes_to_a_device_arrive_whole_wherever_they_begin() {
    let region = Region::for_device(5 * PAGE_BYTES)
        .expect("address space")
        .handle();
    let bytes: Vec<u8> = (0..=250).cycle().take(3 * PAGE_BYTES).collect();
    for (offset, len) in [
        (0, 4096),
        (1, 4096),
        (15, 4097),
        (4_099, 12_287),
        (16, 4_111),
    ] {
        region.zero(0, 5 * PAGE_BYTES);
        region.copy_in(offset, &bytes[..len]);
        assert!(region.equals(offset, &bytes[..len]), "{len} at {offset}");
        assert!(region.equals(offset + len, &[0; 64]), "{len} at {offset}");
        assert!(region.equals(0, &vec![0; offset]), "{len} at {offset}");
    }
}

#[test]
fn stores_that_join_others_are_ordered_with_them() {
    let region = Region::for_device(PAGE_BYTES).expect("address space");
    let region = region.handle();
    let mut stores = UnorderedStores::default();
    stores.join(region.copy_in_unordered(0, &[1; PAGE_BYTES - 1]));
    assert!(stores.is_empty(), "ordinary stores need no fence");
    stores.join(region.copy_in_unordered(0, &[1; PAGE_BYTES]));
    stores.join(UnorderedStores::default());
    assert!(!stores.is_empty(), "there is something to order");
    assert!(region.equals(0, &[1; PAGE_BYTES]), "this thread sees it");
    stores.order();
    assert!(stores.is_empty(), "it is ordered");
}

/// Memory that is not a device's is read again soon, whatever its size.
#[test]
fn only_writes_to_a_device_bypass_the_caches() {
    let large = Region::new(256 << 20).expect("address space").handle();
    assert!(large.copy_in_unordered(0, &[1; PAGE_BYTES]).is_empty());
}

#[test]
fn scattered_writes_to_a_device_take_a_page_each() {
    const WRITES: usize = 64;
    let region = Region::for_device(WRITES * HUGE_PAGE_BYTES).expect("address space");
    let region = region.handle();
    for page in 0..WRITES {
        region.copy_in(page * HUGE_PAGE_BYTES + page * PAGE_BYTES, &[1; PAGE_BYTES]);
    }
    assert_eq!(present(&region), WRITES);
}

#[test]
fn a_sequence_of_writes_to_a_device_gets_huge_pages() {
    let region = Region::for_device(8 * HUGE_PAGE_BYTES).expect("address space");
    let region = region.handle();
    for at in (0..region.len()).step_by(PAGE_BYTES) {
        region.copy_in(at, &[1; PAGE_BYTES]);
    }
    let device = region.region.device.as_ref().expect("it is a device's");
    let advised = device
        .advised
        .iter()
        .filter(|page| page.load(Ordering::Relaxed));
    // The first writes come too early, and the mapping's ends may be parts of a huge page.
    assert!((5..=7).contains(&advised.count()));
}

/// Number of pages of the region that occupy memory.
fn present(region: &RegionHandle) -> usize {
    use std::os::unix::fs::FileExt;
    let mut entries = vec![0; region.len() / PAGE_BYTES * 8];
    let at = region.address() as usize / PAGE_BYTES * 8;
    let pages = File::open("/proc/self/pagemap").expect("the kernel has it");
    pages
        .read_exact_at(&mut entries, at as u64)
        .expect("an entry for each page");
    // The highest bit of each little-endian entry.
    entries
        .chunks(8)
        .filter(|entry| entry[7] & 0x80 != 0)
        .count()
}

/// The caller of a large write must not need to know about a fence.
#[test]
fn another_thread_that_learns_of_a_large_write_sees_all_of_it() {
    large_writes_are_seen_by_another_thread(1);
}

#[test]
fn another_thread_that_learns_of_several_large_writes_sees_all_of_them() {
    large_writes_are_seen_by_another_thread(16);
}

/// Writes pages, and signals the reader after every `at_once` pages.
fn large_writes_are_seen_by_another_thread(at_once: usize) {
    let region = Region::for_device(64 << 20).expect("address space");
    let told = AtomicUsize::new(0);
    let (rounds, pages) = (2_000, region.len() / PAGE_BYTES);
    let place = |round: usize| round * 7_919 % (pages - 1) * PAGE_BYTES + 60;
    let content = |round: usize| [round.to_le_bytes()[0] | 1; PAGE_BYTES];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = region.handle();
            let mut stores = UnorderedStores::default();
            for round in 1..=rounds {
                stores.join(writer.copy_in_unordered(place(round), &content(round)));
                if round % at_once == 0 {
                    stores.order();
                    told.store(round, Ordering::Release);
                }
            }
        });
        let reader = region.handle();
        let mut seen = 0;
        while seen < rounds {
            seen = told.load(Ordering::Acquire);
            for round in seen.saturating_sub(at_once - 1).max(1)..=seen {
                assert!(
                    reader.equals(place(round), &content(round)),
                    "round {round}"
                );
            }
            std::hint::spin_loop();
        }
    });
}

#[test]
fn bytes_written_are_read_and_fresh_memory_is_zero() {
    let region = Region::new(10_000).expect("a small mapping").handle();
    assert_eq!(region.len(), 12_288);
    region.copy_in(4_090, b"across a page");
    assert!(region.equals(4_090, b"across a page"));
    assert!(!region.equals(4_090, b"across a pagf"));
    region.zero(4_092, 4);
    let mut out = [1u8; 8];
    region.copy_out(4_088, &mut out);
    assert_eq!(&out, b"\0\0ac\0\0\0\0");
}

#[test]
fn discarded_bytes_read_as_zeroes_and_their_neighbours_stay() {
    let region = Region::new(5 * 4_096).expect("a small mapping").handle();
    for (offset, len) in [
        (100, 50),
        (4_000, 200),
        (4_096, 8_192),
        (10, 16_000),
        (7, 0),
    ] {
        let mut expected = vec![0xA5u8; region.len()];
        region.copy_in(0, &expected);
        region.discard(offset, len);
        expected[offset..offset + len].fill(0);
        assert!(region.equals(0, &expected), "{len} bytes at {offset}");
    }
}

#[test]
#[should_panic(expected = "exceeds a region")]
fn a_range_beyond_the_end_is_refused() {
    let region = Region::new(4_096).expect("a small mapping").handle();
    region.copy_in(4_095, b"ab");
}

#[test]
fn a_copy_has_what_was_written_and_nothing_else() {
    let bytes = 3 * CHUNK_BYTES + 2 * PAGE_BYTES;
    let region = Region::for_device(bytes).expect("address space");
    let memory = region.handle();
    memory.copy_in(CHUNK_BYTES - 1, &[1, 2]);
    memory.copy_in(bytes - PAGE_BYTES, &[3; PAGE_BYTES]);
    let file = Region::unnamed_file().expect("a descriptor");
    let copy = Region::for_device(bytes).expect("address space");
    let (mut before, mut after) = (vec![0; bytes], vec![0; bytes]);
    for pages in [2 * CHUNK_BYTES / PAGE_BYTES + 2, 2] {
        region.copy_to(&file).expect("memory");
        copy.copy_from(&file).expect("the same size");
        assert!(present(&copy.handle()) <= pages);
        memory.copy_out(0, &mut before);
        copy.handle().copy_out(0, &mut after);
        assert!(before == after);
        // The second copy has nothing of the first one.
        memory.discard(0, 2 * CHUNK_BYTES);
    }
    let other = Region::for_device(bytes + PAGE_BYTES).expect("address space");
    other.copy_from(&file).expect_err("another size");
}
