use super::config::{CONFIG_BYTES, Properties, driver_flushes, features, space};
use super::*;
use block::Geometry;
use reactor::{BufferClass, BufferPool, IoSlice};
use switch::Class;
use virtio_queue::{Queue, QueueOwnedT as _, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const HEADER: u64 = 0x4000;
const DATA: u64 = 0x8000;
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// Two adjacent regions: a range that crosses the border is still one range.
fn memory() -> GuestMemoryMmap {
    let ranges = [(GuestAddress(0), 0x9000), (GuestAddress(0x9000), 0x7000)];
    GuestMemoryMmap::from_ranges(&ranges).expect("a small memory")
}

/// Parses the chain of these descriptors: address, length, flags.
fn chain(memory: &GuestMemoryMmap, descriptors: &[(u64, u32, u16)]) -> Result<Request, Malformed> {
    for (index, &(address, len, flags)) in (0u64..).zip(descriptors) {
        let at = |offset: u64| GuestAddress(TABLE + 16 * index + offset);
        memory.write_obj(address, at(0)).expect("inside");
        memory.write_obj(len, at(8)).expect("inside");
        memory.write_obj(flags, at(12)).expect("inside");
        let next = u16::try_from(index + 1).expect("few");
        memory.write_obj(next, at(14)).expect("inside");
    }
    memory
        .write_obj(1u16, GuestAddress(AVAILABLE + 2))
        .expect("inside");
    let entries = descriptors.len().next_power_of_two().max(16);
    let entries = u16::try_from(entries).expect("few");
    let mut queue = Queue::new(entries).expect("a power of two");
    queue
        .try_set_desc_table_address(GuestAddress(TABLE))
        .expect("aligned");
    queue
        .try_set_avail_ring_address(GuestAddress(AVAILABLE))
        .expect("aligned");
    queue.set_ready(true);
    let chain = queue.iter(memory).expect("one").next().expect("one");
    parse(chain, memory, Vec::new(), &mut Vec::new())
}

fn header(memory: &GuestMemoryMmap, kind: u32, priority: u32, sector: u64) {
    memory
        .write_obj(kind, GuestAddress(HEADER))
        .expect("inside");
    memory
        .write_obj(priority, GuestAddress(HEADER + 4))
        .expect("inside");
    memory
        .write_obj(sector, GuestAddress(HEADER + 8))
        .expect("inside");
}

#[test]
fn any_layout_of_a_request_is_understood() {
    let memory = memory();
    header(&memory, 1, 1 << 13, 8);
    let expected = Ok(Command::Write {
        offset: 4096,
        bytes: 4096,
    });
    let layouts: [&[(u64, u32, u16)]; 3] = [
        &[(HEADER, 16, NEXT), (DATA, 4096, NEXT), (DATA - 1, 1, WRITE)],
        // A header in three pieces, the last of which also contains data; an empty descriptor.
        &[
            (HEADER, 3, NEXT),
            (HEADER + 3, 9, NEXT),
            (0, 0, NEXT),
            (HEADER + 12, 4 + 96, NEXT),
            (DATA, 4000, NEXT),
            (DATA - 1, 1, WRITE),
        ],
        // A status segment longer than 1 byte.
        &[(HEADER, 16, NEXT), (DATA, 4096, NEXT), (DATA - 9, 9, WRITE)],
    ];
    for layout in layouts {
        let request = chain(&memory, layout).expect("well-formed");
        assert_eq!(request.command, expected, "{layout:?}");
        assert_eq!(request.status, GuestAddress(DATA - 1));
        assert_eq!(request.class(), Class::Latency);
        let bytes: u32 = request.data.iter().map(|segment| segment.len).sum();
        assert_eq!(bytes, 4096);
    }
    // A read whose status follows the data, in one descriptor.
    header(&memory, 0, 0, 0);
    let request = chain(&memory, &[(HEADER, 16, NEXT), (DATA, 513, WRITE)]);
    let request = request.expect("well-formed");
    let read = Command::Read {
        offset: 0,
        bytes: 512,
    };
    assert_eq!(request.command, Ok(read));
    assert_eq!(request.status, GuestAddress(DATA + 512));
    assert_eq!(request.class(), Class::Throughput);
}

#[test]
fn what_cannot_be_answered_is_malformed_and_the_rest_is_refused() {
    let memory = memory();
    header(&memory, 1, 0, 0);
    let malformed = |descriptors: &[_]| chain(&memory, descriptors).expect_err("malformed");
    assert_eq!(malformed(&[(HEADER, 16, 0)]), Malformed::NoStatus);
    assert_eq!(
        malformed(&[(HEADER, 16, NEXT), (DATA, 0, WRITE)]),
        Malformed::NoStatus
    );
    assert_eq!(
        malformed(&[(HEADER, 16, NEXT), (1 << 40, 1, WRITE)]),
        Malformed::Outside
    );
    assert_eq!(
        malformed(&[(HEADER, 16, NEXT), (u64::MAX, 2, WRITE)]),
        Malformed::Outside
    );
    let endless = [(HEADER, 16, NEXT); 16];
    assert_eq!(malformed(&endless), Malformed::Chain);
    let refused = |descriptors: &[_]| {
        let request = chain(&memory, descriptors).expect("answerable");
        request.command.expect_err("refused")
    };
    let status = (DATA, 1, WRITE);
    assert_eq!(refused(&[status]), Status::IoError);
    assert_eq!(refused(&[(HEADER, 15, NEXT), status]), Status::IoError);
    assert_eq!(refused(&[(1 << 40, 16, NEXT), status]), Status::IoError);
    // Beyond the end of memory, and longer than the limit of a request.
    assert_eq!(
        refused(&[(HEADER, 16, NEXT), (0xF000, 8192, NEXT), status]),
        Status::IoError
    );
    assert_eq!(
        refused(&[(HEADER, 16, NEXT), (0, 1 << 31, NEXT), status]),
        Status::IoError
    );
    // More segments than reported to the driver, as some drivers send.
    let mut pieces = vec![(HEADER, 16, NEXT)];
    pieces.extend([(DATA, 4, NEXT | WRITE); 248]);
    header(&memory, 0, 0, 0);
    let request = chain(&memory, &[&pieces[..], &[status]].concat());
    let request = request.expect("answerable");
    let read = Command::Read {
        offset: 0,
        bytes: 4 * 248,
    };
    assert_eq!((request.command, request.data.len()), (Ok(read), 248));
    header(&memory, 7, 0, 0);
    assert_eq!(refused(&[(HEADER, 16, NEXT), status]), Status::Unsupported);
    header(&memory, 0, 0, u64::MAX);
    assert_eq!(refused(&[(HEADER, 16, NEXT), status]), Status::IoError);
    // A discard with two ranges; one is allowed.
    header(&memory, 11, 0, 0);
    assert_eq!(
        refused(&[(HEADER, 16, NEXT), (DATA, 32, NEXT), status]),
        Status::IoError
    );
}

/// Waiting requests must not keep their full descriptor capacity: 16 KiB each, for as many requests
/// as all queues have entries.
#[test]
fn a_request_that_is_refused_keeps_no_memory_for_its_segments() {
    let memory = memory();
    let mut pieces = vec![(HEADER, 16, NEXT)];
    pieces.extend([(DATA, 4, NEXT | WRITE); 248]);
    pieces.push((DATA, 1, WRITE));
    for kind in [4, 99] {
        header(&memory, kind, 0, 0);
        let request = chain(&memory, &pieces).expect("answerable");
        let capacity = request.data.capacity();
        assert!(capacity <= SEGMENTS_KEPT, "{kind}: room for {capacity}");
    }
}

#[test]
fn data_is_copied_whatever_the_pieces() {
    let memory = memory();
    let class = BufferClass {
        bytes: 4096,
        count: 2,
    };
    let pool = BufferPool::new(&[class]).expect("a small mapping");
    let slice = |len| IoSlice::from_buffer(pool.take(len).expect("free"), len);
    let mut slices = vec![slice(1000), slice(3000)];
    let segment = |address, len| Segment {
        address: GuestAddress(address),
        len,
    };
    // The second segment crosses the border of two regions.
    let from = [
        segment(0x100, 10),
        segment(0x8F00, 1990),
        segment(0x5000, 2000),
    ];
    let to = [segment(0xA000, 3999), segment(0x200, 1)];
    let pattern: Vec<u8> = (0..=250u8).cycle().take(4000).collect();
    let mut at = 0;
    for piece in &from {
        let len = piece.len as usize;
        memory
            .write_slice(&pattern[at..at + len], piece.address)
            .expect("inside");
        at += len;
    }
    let mut scratch = Vec::new();
    copy_in(&memory, (&from, 0), &mut slices, &mut scratch).expect("inside");
    copy_out(&memory, (&to, 0), &slices, &mut scratch).expect("inside");
    let mut copied = vec![0; 4000];
    memory
        .read_slice(&mut copied[..3999], to[0].address)
        .expect("inside");
    memory
        .read_slice(&mut copied[3999..], to[1].address)
        .expect("inside");
    assert!(copied == pattern);
    // After each offset, in segments one of which is skipped.
    let behind = [
        segment(0xA000, 3),
        segment(0xB000, 4),
        segment(0xC000, 4000),
    ];
    for skip in 0..8 {
        copy_out(&memory, (&behind, skip), &slices[..1], &mut scratch).expect("inside");
        let mut last = [0; 1];
        let at = 0xC000 + 1000 + skip - 3 - 4 - 1;
        let read = memory.read_slice(&mut last, GuestAddress(at));
        read.expect("inside");
        assert_eq!(last[0], pattern[999], "{skip}");
    }
    let short = [segment(0x100, 3999)];
    assert_eq!(
        copy_out(&memory, (&short, 0), &slices, &mut scratch),
        Err(Status::IoError)
    );
    let outside = [segment(0xFFFF, 4000)];
    assert_eq!(
        copy_in(&memory, (&outside, 0), &mut slices, &mut scratch),
        Err(Status::IoError)
    );
}

#[test]
fn the_configuration_is_what_a_driver_reads() {
    let properties = Properties {
        geometry: Geometry {
            block_bytes: 4096,
            blocks: 1 << 40,
        },
        preferred_bytes: 65_536,
        queues: 3,
    };
    let space = space(&properties);
    assert_eq!(space.len(), CONFIG_BYTES);
    assert_eq!(space[..8], (1u64 << 43).to_le_bytes());
    assert_eq!(space[20..24], 4096u32.to_le_bytes());
    assert_eq!(space[28..32], 16u32.to_le_bytes());
    assert_eq!(space[34..36], 3u16.to_le_bytes());
    assert_eq!(space[44..48], 8u32.to_le_bytes());
    assert_eq!(space[56], 1);
    // Read-only instead of discard and write zeroes.
    assert_eq!(features(true) ^ features(false), 1 << 5 | 1 << 13 | 1 << 14);
    assert!(driver_flushes(features(false)));
    assert!(!driver_flushes(1 << 32));
}
