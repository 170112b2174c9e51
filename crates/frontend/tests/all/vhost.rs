//! The vhost-user back end, with this project's own front end, and with guests that no monitor
//! would run.

use crate::back_ends::{BYTES, forgetful, options, ram, serve};
use crate::growing::Growing;
use crate::guests;
use crate::guests::{FLUSH, GET_ID, Guest, IN, IO_ERROR, OK, OUT, UNSUPPORTED, WRITE_ZEROES};
use base::Nanos;
use block::device::{Null, Ram};
use block::layer::{Delay, DelayOptions};
use block::{BlockError, Device, Operation, Submit};
use load::vhost::VhostDisk;
use load::vhost::ring::Data;
use reactor::PollPolicy;
use reactor::uring::{Options as DriverOptions, UringDriver};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use switch::{Class, PerClass};
use switchyard_frontend::ClassChoice;
use switchyard_frontend::vhost::{VhostOptions, VhostServer};
use testing::device::conformance::{Bench, Suite, run};
use testing::eventually;
use vhost::VhostBackend as _;
use vhost::vhost_user::VhostUserFrontend as _;
use vhost::vhost_user::message::FrontendReq;
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes as _, VolatileMemory as _};

fn slow(latency: Nanos) -> DelayOptions {
    DelayOptions {
        read: latency,
        write: latency,
        ..DelayOptions::default()
    }
}

fn driver() -> UringDriver {
    UringDriver::new(&DriverOptions::default()).expect("a ring")
}

fn bench(path: &Path) -> (VhostDisk, Bench<UringDriver>) {
    let disk = VhostDisk::connect(path).unwrap();
    let bench = Bench::open(driver(), &disk).unwrap();
    (disk, bench)
}

#[test]
fn the_device_suite_passes_whatever_the_policy() {
    for (poll, block) in [
        (PollPolicy::Never, 4096),
        (PollPolicy::Auto, 512),
        (PollPolicy::Always, 4096),
    ] {
        let device: Arc<dyn Device> = Arc::new(Ram::new(BYTES, block).unwrap());
        let options = VhostOptions {
            poll,
            queues: Some(2),
            ..options()
        };
        let server = serve(&device, &options);
        let disk = VhostDisk::connect(server.socket()).unwrap();
        let suite = Suite {
            compares: false,
            atomic: true,
            ..Suite::default()
        };
        run(driver, &disk, suite);
    }
}

#[test]
fn a_read_only_device_refuses_writes_alone() {
    let options = VhostOptions {
        read_only: true,
        ..options()
    };
    let server = serve(&ram(), &options);
    let (disk, mut bench) = bench(server.socket());
    assert!(disk.capabilities().read_only);
    assert_eq!(
        bench.operate(Operation::Write { durable: false }, 0, 1),
        Err(BlockError::ReadOnly)
    );
    bench.read(0, 1).unwrap();
    bench.close();
    drop(disk);
    let mut guest = Guest::connect(server.socket());
    guest.ring.add(0, OUT, 0, 0, Data::Out(4096));
    guest.ring.add(1, IN, 0, 0, Data::In(4096));
    guest.ring.add(2, WRITE_ZEROES, 0, 0, Data::Out(16));
    assert_eq!(guest.answers(3), [IO_ERROR, OK, IO_ERROR]);
}

#[test]
fn a_new_size_is_told_and_seen() {
    let growing = Growing::new(ram());
    let device: Arc<dyn Device> = Arc::clone(&growing) as _;
    let server = serve(&device, &options());
    let mut guest = Guest::connect(server.socket());
    let channel = guest.backend_channel();
    assert_eq!(guest.sectors(), BYTES / 1024);
    growing.grow();
    assert_eq!(guests::message(&channel), 2, "CONFIG_CHANGE_MSG");
    assert_eq!(guest.sectors(), BYTES / 512);
    guest.ring.add(0, IN, 0, BYTES / 1024, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
}

/// A guest may convert the sector count into a signed number of bytes, which must not overflow.
#[test]
fn a_device_that_grows_beyond_what_a_guest_can_say_ends_there() {
    let growing = Growing::new(Arc::new(Null::new(1 << 63, 4096).unwrap()));
    let device: Arc<dyn Device> = Arc::clone(&growing) as _;
    let server = serve(&device, &options());
    let mut guest = Guest::connect(server.socket());
    assert_eq!(guest.sectors(), 1 << 53);
    growing.grow();
    let sectors = (1 << 54) - 8;
    assert_eq!(guest.sectors(), sectors);
    guest.ring.add(0, IN, 0, sectors - 8, Data::In(4096));
    guest.ring.add(1, IN, 0, sectors, Data::In(4096));
    assert_eq!(guest.answers(2), [OK, IO_ERROR]);
}

#[test]
fn classes_come_from_the_priority_in_the_request() {
    for (class, expected) in [
        (ClassChoice::ByIoPriority, [2, 3]),
        (ClassChoice::Fixed(Class::Latency), [5, 0]),
        (ClassChoice::Fixed(Class::Throughput), [0, 5]),
    ] {
        let options = VhostOptions { class, ..options() };
        let server = serve(&ram(), &options);
        let mut guest = Guest::connect(server.socket());
        // Real-time, best effort, idle, none, and an invalid priority.
        for (slot, priority) in [1 << 13 | 4, 2 << 13, 1 << 13, 0, u32::MAX]
            .into_iter()
            .enumerate()
        {
            let slot = u16::try_from(slot).unwrap();
            guest.ring.add(slot, IN, priority, 0, Data::In(4096));
        }
        assert_eq!(guest.answers(5), [OK; 5]);
        let counts = server.counts();
        let served = [Class::Latency, Class::Throughput].map(|class| counts[class].requests());
        assert_eq!(served, expected, "{class:?}");
        assert!(server.is_connected());
    }
}

#[test]
fn the_name_is_told_and_unknown_requests_are_not_supported() {
    let server = serve(&ram(), &options());
    let mut guest = Guest::connect(server.socket());
    guest.ring.add(0, GET_ID, 0, 0, Data::In(20));
    guest.ring.add(1, 99, 0, 0, Data::In(4096));
    guest.ring.add(2, FLUSH, 0, 0, Data::None);
    assert_eq!(guest.answers(3), [OK, UNSUPPORTED, OK]);
    let mut name = [0; 20];
    guest.ring.get(0, &mut name);
    assert_eq!(&name, b"switchyard\0\0\0\0\0\0\0\0\0\0");
}

#[test]
fn wrong_requests_are_refused_and_the_queue_lives() {
    let server = serve(&ram(), &options());
    let mut guest = Guest::connect(server.socket());
    let sectors = BYTES / 512;
    let cases = [
        ("nothing", 0, Data::In(0)),
        ("part of a block", 0, Data::In(512)),
        ("no whole sector", 0, Data::In(4095)),
        ("not on a block", 1, Data::In(4096)),
        ("the end", sectors, Data::In(4096)),
        ("beyond the end", sectors - 8, Data::In(8192)),
        (
            "a sector that is no number of bytes",
            u64::MAX,
            Data::In(4096),
        ),
        ("no write of part", 0, Data::Out(100)),
        ("no write beyond the end", u64::MAX >> 9, Data::Out(4096)),
    ];
    for (what, sector, data) in cases {
        let kind = if matches!(data, Data::Out(_)) {
            OUT
        } else {
            IN
        };
        guest.ring.add(0, kind, 0, sector, data);
        assert_eq!(guest.answers(1), [IO_ERROR], "{what}");
    }
    for (range, expected) in [
        // Sector, sectors, flags.
        ((0u64, 8u32, 2u32), UNSUPPORTED),
        ((0, 8, 1), OK),
        ((0, 0, 0), IO_ERROR),
        ((0, u32::MAX, 0), IO_ERROR),
        ((u64::MAX, 8, 0), IO_ERROR),
    ] {
        guest.ring.put(0, 0, &range.0.to_le_bytes());
        guest.ring.put(0, 8, &range.1.to_le_bytes());
        guest.ring.put(0, 12, &range.2.to_le_bytes());
        guest.ring.add(0, WRITE_ZEROES, 0, 0, Data::Out(16));
        assert_eq!(guest.answers(1), [expected], "{range:?}");
    }
    // Data outside the guest's memory.
    for (address, len) in [(1 << 50, 4096), (u64::MAX - 100, 4096), (0, 1 << 30)] {
        guest.ring.add(0, IN, 0, 0, Data::In(4096));
        guest
            .ring
            .describe(1, address, len, guests::NEXT | guests::WRITE, 2);
        assert_eq!(guest.answers(1), [IO_ERROR], "{address:#x}+{len}");
    }
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
}

#[test]
fn a_broken_queue_stops_and_the_next_guest_is_served() {
    type Break = fn(&mut Guest);
    let breaks: [(&str, Break); 9] = [
        ("a head outside of the table", |guest| {
            guest.ring.offer(u16::MAX)
        }),
        ("a loop", |guest| {
            guest.ring.describe(0, 0x1000, 16, guests::NEXT, 0);
            guest.ring.offer(0);
        }),
        ("a next outside of the table", |guest| {
            guest.ring.describe(0, 0x1000, 16, guests::NEXT, 5000);
            guest.ring.offer(0);
        }),
        ("no status", |guest| {
            guest.ring.describe(0, 0x1000, 16, 0, 0);
            guest.ring.offer(0);
        }),
        ("a status outside of memory", |guest| {
            guest.ring.describe(0, 0x1000, 16, guests::NEXT, 1);
            guest.ring.describe(1, u64::MAX - 7, 9, guests::WRITE, 0);
            guest.ring.offer(0);
        }),
        ("an indirect table in an indirect table", |guest| {
            guest.indirect(guests::INDIRECT);
            guest.ring.offer(0);
        }),
        ("an indirect table of half a descriptor", |guest| {
            guest.ring.describe(0, 0x1000, 24, guests::INDIRECT, 0);
            guest.ring.offer(0);
        }),
        ("4 GiB", |guest| {
            guest.ring.describe(0, 0x1000, u32::MAX, guests::NEXT, 1);
            guest.ring.describe(1, 0x1000, 16, guests::WRITE, 0);
            guest.ring.offer(0);
        }),
        ("an available ring that jumps", |guest| {
            guest.ring.jump(5000)
        }),
    ];
    let server = serve(&ram(), &options());
    for (what, broken) in breaks {
        let mut guest = Guest::connect(server.socket());
        guest.ring.add(3, FLUSH, 0, 0, Data::None);
        assert_eq!(guest.answers(1), [OK], "{what}");
        guest.change_error();
        broken(&mut guest);
        guest.publish();
        guest.wait_for_error();
        assert!(!guest.ring.has_used(), "{what}");
        // A broken queue can be stopped, too.
        guest.stop();
    }
    let mut guest = Guest::connect(server.socket());
    guest.indirect(0);
    guest.ring.offer(0);
    assert_eq!(guest.answers(1), [OK], "one indirect table is right");
}

/// Sends a request with a data segment of this size at the start of `memory`, which has the guest
/// address `at`. Returns its status.
fn one_segment(guest: &mut Guest, memory: &MmapRegion, kind: u32, sector: u64, len: u32) -> u8 {
    let at = 1 << 40;
    let slice = memory.as_volatile_slice();
    let place = memory.size() - 4096;
    let address = |offset: usize| at + (place + offset) as u64;
    slice.write_obj(kind, place).unwrap();
    slice.write_obj(sector, place + 8).unwrap();
    slice.write_obj(u8::MAX, place + 16).unwrap();
    let writes = if kind == IN { guests::WRITE } else { 0 };
    guest.ring.describe(0, address(0), 16, guests::NEXT, 1);
    guest.ring.describe(1, at, len, guests::NEXT | writes, 2);
    guest.ring.describe(2, address(16), 1, guests::WRITE, 0);
    guest.ring.offer(0);
    assert_eq!(guest.answers(1).len(), 1);
    slice.read_obj(place + 16).unwrap()
}

/// Firmware reads files of up to 1 GiB with one descriptor.
#[test]
fn a_segment_may_be_larger_than_a_driver_is_told() {
    const LEN: usize = 63 << 20;
    let server = serve(&ram(), &options());
    let mut guest = Guest::connect(server.socket());
    let memory = guest.add_memory(1 << 40, LEN + 4096);
    let slice = memory.as_volatile_slice();
    let block = |number: usize| [u8::try_from(number % 251).unwrap(); 4096];
    let bytes = u32::try_from(LEN).unwrap();
    for number in 0..LEN / 4096 {
        slice.write_slice(&block(number), 4096 * number).unwrap();
    }
    assert_eq!(one_segment(&mut guest, &memory, OUT, 8, bytes), OK);
    for number in 0..LEN / 4096 {
        slice.write_slice(&[255; 4096], 4096 * number).unwrap();
    }
    assert_eq!(one_segment(&mut guest, &memory, IN, 8, bytes), OK);
    let mut found = [0; 4096];
    for number in 0..LEN / 4096 {
        slice.read_slice(&mut found, 4096 * number).unwrap();
        assert!(found == block(number), "{number}");
    }
    // Nothing is executed if the last part is beyond the end, or is not a whole block.
    let end = BYTES / 512;
    for (sector, len) in [(end - 8 * (LEN as u64 / 4096) + 8, bytes), (0, bytes - 512)] {
        let status = one_segment(&mut guest, &memory, OUT, sector, len);
        assert_eq!(status, IO_ERROR, "{sector} {len}");
    }
    slice.write_slice(&[255; 4096], 0).unwrap();
    assert_eq!(one_segment(&mut guest, &memory, IN, 0, 4096), OK);
    slice.read_slice(&mut found, 0).unwrap();
    assert!(found == [0; 4096]);
}

/// Windows' driver sends up to 515 segments.
#[test]
fn a_request_may_have_as_many_segments_as_a_queue_has_entries() {
    const SEGMENTS: usize = 1022;
    let device: Arc<dyn Device> = Arc::new(Ram::new(BYTES, 512).unwrap());
    let server = serve(&device, &options());
    let mut guest = Guest::connect(server.socket());
    let at: u64 = 1 << 40;
    let memory = guest.add_memory(at, 2 << 20);
    let slice = memory.as_volatile_slice();
    let [table, header, status] = [1 << 20, 3 << 19, (3 << 19) + 64];
    for (kind, sector) in [(OUT, 8u64), (IN, 8)] {
        slice.write_obj(kind, header).unwrap();
        slice.write_obj(sector, header + 8).unwrap();
        slice.write_obj(u8::MAX, status).unwrap();
        let writes = if kind == IN { guests::WRITE } else { 0 };
        // The data from the last block to the first, and back.
        let data = (0..SEGMENTS).map(|number| {
            let place = if kind == IN {
                number
            } else {
                SEGMENTS - 1 - number
            };
            (512 * place, 512u32, guests::NEXT | writes)
        });
        let first = [(header, 16, guests::NEXT)];
        let last = [(status, 1, guests::WRITE)];
        let chain = first.into_iter().chain(data).chain(last);
        for (number, (place, len, flags)) in chain.enumerate() {
            let entry = table + 16 * number;
            slice.write_obj(at + place as u64, entry).unwrap();
            slice.write_obj(len, entry + 8).unwrap();
            slice.write_obj(flags, entry + 12).unwrap();
            slice
                .write_obj(u16::try_from(number + 1).unwrap(), entry + 14)
                .unwrap();
        }
        if kind == OUT {
            for number in 0..SEGMENTS {
                let byte = u8::try_from(number % 251).unwrap();
                slice.write_slice(&[byte; 512], 512 * number).unwrap();
            }
        }
        let len = u32::try_from(16 * (SEGMENTS + 2)).unwrap();
        guest
            .ring
            .describe(0, at + table as u64, len, guests::INDIRECT, 0);
        guest.ring.offer(0);
        assert_eq!(guest.answers(1).len(), 1);
        assert_eq!(slice.read_obj::<u8>(status).unwrap(), OK, "{kind}");
    }
    let mut block = [0; 512];
    for number in 0..SEGMENTS {
        slice.read_slice(&mut block, 512 * number).unwrap();
        let byte = u8::try_from((SEGMENTS - 1 - number) % 251).unwrap();
        assert!(block == [byte; 512], "{number}");
    }
}

#[test]
fn a_machine_may_have_many_modules_of_memory() {
    let server = serve(&ram(), &options());
    let mut guest = Guest::connect(server.socket());
    let most = guest.connection.get_max_mem_slots();
    assert_eq!(most.unwrap(), 509);
    // With the first one, the maximum number of regions.
    for module in 1..509u64 {
        let memory = guest.add_memory((1 << 40) + (module << 20), 4096);
        drop(memory);
    }
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
}

/// A machine with two processors uses two queues.
#[test]
fn a_machine_finds_a_queue_for_each_of_its_processors() {
    let server = serve(&ram(), &options());
    assert_eq!(server.queues(), 64);
    let mut guest = Guest::connect(server.socket());
    let queues = guest.connection.get_queue_num();
    assert_eq!(queues.unwrap(), 64);
}

#[test]
fn wrong_messages_end_the_connection_and_nothing_else() {
    let one_queue = VhostOptions {
        queues: Some(1),
        ..options()
    };
    let server = serve(&ram(), &one_queue);
    let state = |index: u64, number: u64| number << 32 | index;
    for (request, payload) in [
        (FrontendReq::SET_VRING_NUM, state(0, 3)),
        (FrontendReq::SET_VRING_NUM, state(0, 2048)),
        (FrontendReq::SET_VRING_NUM, state(7, 8)),
        (FrontendReq::SET_VRING_BASE, state(0, 1 << 20)),
        (FrontendReq::SET_VRING_ENABLE, state(9, 1)),
        (FrontendReq::SET_FEATURES, u64::MAX),
        (FrontendReq::SET_VRING_KICK, 0x1FF),
    ] {
        let mut guest = Guest::connect(server.socket());
        assert!(guest.is_refused(request, payload), "{request:?}");
    }
    let mut guest = Guest::connect(server.socket());
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
}

#[test]
fn a_front_end_that_is_silent_or_deaf_does_not_keep_a_server_from_its_end() {
    let part = (FrontendReq::GET_FEATURES as u32).to_le_bytes();
    let whole = [FrontendReq::GET_FEATURES as u32, 1, 0]
        .map(u32::to_le_bytes)
        .concat();
    let short = [FrontendReq::SET_FEATURES as u32, 1, 8]
        .map(u32::to_le_bytes)
        .concat();
    // Part of a header, a header without its payload, and requests whose replies are not read.
    for (message, count) in [(&part[..], 1), (&short, 1), (&whole, 100_000)] {
        let server = serve(&ram(), &options());
        let mut front_end = UnixStream::connect(server.socket()).unwrap();
        let patience = Some(Duration::from_millis(200));
        front_end.set_write_timeout(patience).unwrap();
        for _ in 0..count {
            if front_end.write_all(message).is_err() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(100));
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(server);
            ended.send(()).unwrap();
        });
        // Waiting for the drain would take 10 s.
        let result = end.recv_timeout(Duration::from_secs(9));
        assert!(result.is_ok(), "{message:?}");
    }
}

#[test]
fn a_front_end_that_goes_with_requests_under_way_is_waited_for() {
    let slow = DelayOptions {
        write: Nanos::from_millis(500),
        ..DelayOptions::default()
    };
    let device: Arc<dyn Device> = Arc::new(Delay::new(ram(), slow));
    let server = serve(&device, &options());
    let mut guest = Guest::connect(server.socket());
    for slot in 0..8 {
        guest.ring.put(slot, 0, &[7; 4096]);
        guest
            .ring
            .add(slot, OUT, 0, u64::from(slot) * 8, Data::Out(4096));
    }
    let begun = Instant::now();
    guest.publish();
    eventually("it comes", || server.counts()[Class::Throughput].begun == 8);
    drop(guest);
    // The next front end is served only after they are finished.
    let (_disk, mut bench) = bench(server.socket());
    assert!(begun.elapsed() >= Duration::from_millis(500));
    for lba in 0..8 {
        assert_eq!(bench.read(lba, 1).unwrap(), [7; 4096]);
    }
    bench.close();
}

#[test]
fn a_queue_stops_at_the_request_after_the_last_that_was_answered() {
    let server = serve(&ram(), &options());
    let mut guest = Guest::connect(server.socket());
    for slot in 0..100 {
        guest.ring.add(slot, IN, 0, 0, Data::In(4096));
    }
    assert_eq!(guest.answers(100), [OK; 100]);
    assert_eq!(guest.stop(), 100);
    // Requests made available meanwhile wait for the next start.
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    guest.publish();
    assert!(!guest.ring.has_used());
    guest.start(100);
    assert_eq!(guest.answers(1), [OK]);
    assert_eq!(guest.stop(), 101);
}

#[test]
fn memory_is_changed_while_a_queue_runs() {
    let server = serve(&ram(), &options());
    let mut guest = Guest::connect(server.socket());
    for _ in 0..3 {
        guest.ring.add(0, IN, 0, 0, Data::In(4096));
        assert_eq!(guest.answers(1), [OK]);
        guest.share_again();
    }
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
}

#[test]
fn a_back_end_that_was_lost_leaves_its_requests_to_the_next() {
    // Like a lost device: nothing completes when it ends.
    let forever = slow(Nanos::from_secs(3600));
    let device = ram();
    let stuck: Arc<dyn Device> = Arc::new(Delay::new(Arc::clone(&device), forever));
    let server = serve(&stuck, &options());
    let mut guest = Guest::connect(server.socket());
    guest.track();
    for slot in [3, 1, 2] {
        guest
            .ring
            .put(slot, 0, &[u8::try_from(slot).unwrap(); 4096]);
        guest
            .ring
            .add(slot, OUT, 0, u64::from(slot) * 8, Data::Out(4096));
    }
    guest.publish();
    guest.wait_until_tracked(3);
    drop(server);
    assert!(!guest.ring.has_used());
    // The next back end executes the requests with the current content of the guest's memory.
    for slot in [3, 1, 2] {
        let byte = u8::try_from(slot).unwrap() + 100;
        guest.ring.put(slot, 0, &[byte; 4096]);
    }
    let server = serve(&device, &options());
    guest.reconnect(server.socket());
    assert_eq!(guest.answers(3), [OK; 3]);
    guest.ring.add(9, IN, 0, 16, Data::In(4096));
    assert_eq!(guest.answers(1), [OK]);
    let mut block = [0; 4096];
    guest.ring.get(9, &mut block);
    assert_eq!(block, [102; 4096]);
}

#[test]
fn no_machine_gets_a_disk_of_a_device_that_is_gone() {
    let remote = forgetful(&Arc::new(AtomicU64::new(7)));
    let device: Arc<dyn Device> = Arc::clone(&remote) as _;
    let server = serve(&device, &options());
    let mut guest = Guest::connect(server.socket());
    remote.set_gone(true);
    assert_eq!(
        guest.sectors(),
        BYTES / 512,
        "one that is connected keeps it"
    );
    guest.ring.add(0, IN, 0, 0, Data::In(4096));
    assert_eq!(guest.answers(1), [IO_ERROR]);
    drop(guest);
    let (refused, _) = guests::open(server.socket());
    refused.get_features().unwrap_err();
    remote.set_gone(false);
    assert_eq!(Guest::connect(server.socket()).sectors(), BYTES / 512);
}

/// A longer name must not be truncated silently: two long names could become equal in the guest.
#[test]
fn a_serial_number_that_is_too_long_is_refused() {
    let devices = PerClass::from_fn(|_| ram());
    let options = VhostOptions {
        id: "a".repeat(21),
        ..options()
    };
    let refused = VhostServer::start(&devices, &options).unwrap_err();
    assert!(refused.to_string().contains("20 bytes"), "{refused}");
}

#[test]
fn a_socket_in_use_is_refused_and_one_left_behind_is_replaced() {
    let options = options();
    let server = serve(&ram(), &options);
    let devices = PerClass::from_fn(|_| ram());
    let refused = VhostServer::start(&devices, &options).unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    drop(server);
    assert!(!options.socket.exists());
    drop(std::os::unix::net::UnixListener::bind(&options.socket).unwrap());
    let server = serve(&ram(), &options);
    let (_disk, bench) = bench(server.socket());
    bench.close();
}

#[test]
fn requests_under_way_end_with_the_server() {
    let slow = slow(Nanos::from_millis(20));
    let device: Arc<dyn Device> = Arc::new(Delay::new(ram(), slow));
    let server = serve(&device, &options());
    let (_disk, mut bench) = bench(server.socket());
    let request = bench.request(Operation::Read, 0, 1);
    assert!(matches!(bench.submit(request), Submit::Queued));
    bench.turn(Nanos::ZERO);
    eventually("it comes", || server.counts()[Class::Throughput].begun > 0);
    drop(server);
    assert_eq!(bench.wait().result, Ok(()));
}

#[test]
fn what_a_back_end_that_is_gone_leaves_ends_with_an_error() {
    let device: Arc<dyn Device> = Arc::new(Delay::new(ram(), slow(Nanos::from_secs(3600))));
    let server = serve(&device, &options());
    let (_disk, mut bench) = bench(server.socket());
    let request = bench.request(Operation::Read, 0, 1);
    assert!(matches!(bench.submit(request), Submit::Queued));
    bench.turn(Nanos::ZERO);
    drop(server);
    assert_eq!(bench.wait().result, Err(BlockError::Gone));
    assert_eq!(bench.read(0, 1).err(), Some(BlockError::Gone));
    bench.close();
}
