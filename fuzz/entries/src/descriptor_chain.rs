//! Chains of descriptors of a hostile guest, as requests of virtio-blk.

use arbitrary::{Result, Unstructured};
use frontend::virtio_blk::{
    Command, DESCRIPTORS_MAX, Request, SECTOR_BYTES, Segment, copy_in, copy_out, parse,
};
use reactor::{BufferClass, BufferPool, IoSlice};
use virtio_queue::{Queue, QueueOwnedT as _, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress, GuestMemory as _, GuestMemoryMmap, Permissions};

/// Entries of the queue.
const ENTRIES: u16 = 16;

/// Places in the guest's memory: the table, the available and the used ring. Everything is 64 KiB,
/// with a hole in its middle.
const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const HOLE: u64 = 0x8000;
const MEMORY_BYTES: u64 = 0x1_0000;

/// The largest data that is copied.
const COPIED_BYTES_MAX: u64 = 1 << 20;

/// Longer inputs are not tried.
const INPUT_BYTES_MAX: usize = 4096;

struct Guest {
    memory: GuestMemoryMmap,
    pool: BufferPool,
}

impl Guest {
    fn new() -> Self {
        let bytes = usize::try_from(HOLE).expect("small");
        let ranges = [
            (GuestAddress(0), bytes),
            (GuestAddress(HOLE + 0x1000), bytes - 0x1000),
        ];
        let class = BufferClass {
            bytes: 1 << 20,
            count: 1,
        };
        Self {
            memory: GuestMemoryMmap::from_ranges(&ranges).expect("a small memory"),
            pool: BufferPool::new(&[class]).expect("a small mapping"),
        }
    }

    /// Writes what the guest puts where; addresses without memory are passed over.
    fn put(&self, bytes: &[u8], at: u64) {
        let _ = self.memory.write_slice(bytes, GuestAddress(at));
    }

    /// Writes one descriptor, mostly to where there is memory.
    fn describe(&self, input: &mut Unstructured<'_>, at: u64) -> Result<()> {
        let address = match input.int_in_range(0..=9)? {
            0 => input.arbitrary()?,
            _ => u64::from(input.arbitrary::<u16>()?),
        };
        let len: u32 = match input.int_in_range(0..=9)? {
            0 => input.arbitrary()?,
            1..=4 => input.int_in_range(0..=33)?,
            _ => 16 * u32::from(input.arbitrary::<u8>()?),
        };
        let flags: u16 = match input.int_in_range(0..=9)? {
            0 => input.arbitrary()?,
            _ => input.int_in_range(0..=4)?,
        };
        let next: u16 = match input.int_in_range(0..=9)? {
            0 => input.arbitrary()?,
            _ => input.int_in_range(0..=ENTRIES)?,
        };
        self.put(&address.to_le_bytes(), at);
        self.put(&len.to_le_bytes(), at + 8);
        self.put(&flags.to_le_bytes(), at + 12);
        self.put(&next.to_le_bytes(), at + 14);
        Ok(())
    }

    /// Fills the memory.
    fn fill(&self, input: &mut Unstructured<'_>) -> Result<()> {
        self.put(
            &input.int_in_range(0..=2 * ENTRIES)?.to_le_bytes(),
            AVAILABLE + 2,
        );
        for entry in 0..u64::from(ENTRIES) {
            let head = input.int_in_range(0..=ENTRIES)?;
            self.put(&head.to_le_bytes(), AVAILABLE + 4 + 2 * entry);
            self.describe(input, TABLE + 16 * entry)?;
        }
        // Headers and indirect tables.
        while !input.is_empty() {
            let at = u64::from(input.arbitrary::<u16>()?);
            if input.arbitrary()? {
                self.describe(input, at)?;
            } else {
                let kind: u32 = input.int_in_range(0..=14)?;
                self.put(&kind.to_le_bytes(), at);
                self.put(&input.arbitrary::<u64>()?.to_le_bytes(), at + 8);
            }
        }
        Ok(())
    }

    /// Does with a request what a front end does, and checks what it relies on.
    fn check(&self, request: &Request) {
        let inside = |segment: &Segment, access| {
            let len = usize::try_from(segment.len).expect("32 bits");
            segment.len > 0 && self.memory.check_range(segment.address, len, access)
        };
        let status = Segment {
            address: request.status,
            len: 1,
        };
        assert!(inside(&status, Permissions::Write), "{request:?}");
        assert!(request.data.len() <= DESCRIPTORS_MAX);
        let (offset, bytes, moves) = match request.command {
            Ok(Command::Read { offset, bytes } | Command::Write { offset, bytes }) => {
                (offset, bytes, true)
            }
            Ok(Command::Discard { offset, bytes } | Command::WriteZeroes { offset, bytes, .. }) => {
                (offset, bytes, false)
            }
            _ => (0, 0, false),
        };
        assert_eq!(offset % SECTOR_BYTES, 0);
        if !moves {
            return;
        }
        let sum: u64 = request
            .data
            .iter()
            .map(|segment| u64::from(segment.len))
            .sum();
        assert_eq!(sum, bytes, "{request:?}");
        assert!(
            request
                .data
                .iter()
                .all(|segment| inside(segment, Permissions::ReadWrite))
        );
        if bytes == 0 || bytes > COPIED_BYTES_MAX {
            return;
        }
        // Large requests are carried out in parts.
        for skip in [0, bytes / 2] {
            let len = usize::try_from(bytes - skip).expect("bounded");
            let buffer = self.pool.take(len).expect("one at a time");
            let mut slices = [IoSlice::from_buffer(buffer, len)];
            let mut scratch = Vec::new();
            let data = (&request.data[..], skip);
            let copied = copy_in(&self.memory, data, &mut slices, &mut scratch);
            copied.expect("the segments were checked");
            let copied = copy_out(&self.memory, data, &slices, &mut scratch);
            copied.expect("the segments were checked");
        }
    }
}

/// A guest's memory as the input makes it: each chain is refused, or is a request that touches the
/// guest's memory alone.
pub fn descriptor_chain(input: &[u8]) {
    thread_local! {
        static GUEST: Guest = Guest::new();
    }
    GUEST.with(|guest| {
        let zeroes = [0; 0x1000];
        for at in (0..MEMORY_BYTES).step_by(zeroes.len()) {
            guest.put(&zeroes, at);
        }
        let input = &input[..input.len().min(INPUT_BYTES_MAX)];
        // An input that ends early leaves the rest of the memory empty.
        let _ = guest.fill(&mut Unstructured::new(input));
        let mut queue = Queue::new(ENTRIES).expect("a power of two");
        for (place, at) in [TABLE, AVAILABLE, USED].into_iter().enumerate() {
            let at = GuestAddress(at);
            let set = match place {
                0 => queue.try_set_desc_table_address(at),
                1 => queue.try_set_avail_ring_address(at),
                _ => queue.try_set_used_ring_address(at),
            };
            set.expect("aligned");
        }
        queue.set_ready(true);
        let (mut requests, mut other) = (Vec::new(), Vec::new());
        let Ok(chains) = queue.iter(&guest.memory) else {
            return;
        };
        for chain in chains {
            match parse(chain, &guest.memory, Vec::new(), &mut other) {
                Ok(request) => requests.push(request),
                Err(_) => break,
            }
        }
        assert!(requests.len() <= usize::from(ENTRIES));
        for request in &requests {
            guest.check(request);
            let used = queue.add_used(&guest.memory, request.head, 1);
            used.expect("the head is one of the table");
        }
    });
}
