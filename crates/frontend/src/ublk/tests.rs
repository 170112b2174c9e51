//! Queues of a core with a simulated kernel, which passes descriptors and records commands. A file
//! replaces the character device.

use super::abi::{DESCRIPTOR_BYTES, data_offset};
use super::queue::{Descriptions, Queue};
use super::service::{Message, SharedServer, UblkService};
use crate::class_rules::SizeRules;
use crate::log_budget::LogBudget;
use crate::{ClassRule, ClassRules, DeviceIo, IoCounters, KnownLosses};
use base::Nanos;
use block::Device;
use block::device::Ram;
use block::layer::{Delay, DelayOptions};
use reactor::testing::{PassThrough, Replace};
use reactor::uring::{Options, UringDriver};
use reactor::{
    Completion, Context, Driver as _, Op, OpKey, Outcome, Service as _, UblkCommand, Wait,
};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use switch::{Class, PerClass};

const DEPTH: u16 = 4;
const QUEUES: u16 = 2;
const REQUEST_BYTES: usize = 64 << 10;
const DEVICE_BYTES: u64 = 1 << 20;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const WRITE_ZEROES: u32 = 5;

/// A tag of a queue.
type Tag = (u16, u16);

/// The simulated kernel driver.
#[derive(Debug, Default)]
struct Kernel {
    descriptions: BTreeMap<Tag, [u8; DESCRIPTOR_BYTES]>,
    /// The commands that it holds.
    held: BTreeMap<Tag, OpKey>,
    /// Results of requests, in order of completion.
    results: Vec<(Tag, i32)>,
}

/// Descriptors of one queue.
#[derive(Debug)]
struct Shown(Rc<RefCell<Kernel>>, u16);

impl Descriptions for Shown {
    fn map(&mut self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, tag: u16) -> [u8; DESCRIPTOR_BYTES] {
        self.0.borrow().descriptions[&(self.1, tag)]
    }
}

/// Passes commands to the simulated kernel, and all other operations to the real one.
struct Split(Rc<RefCell<Kernel>>);

impl Replace for Split {
    fn submit(&mut self, inner: &mut UringDriver, key: OpKey, op: Op) {
        let Op::Ublk {
            queue,
            tag,
            command,
            ..
        } = op
        else {
            return inner.submit(key, op);
        };
        let mut kernel = self.0.borrow_mut();
        if let UblkCommand::Commit(result) = command {
            assert!(kernel.descriptions.remove(&(queue, tag)).is_some());
            kernel.results.push(((queue, tag), result));
        }
        let before = kernel.held.insert((queue, tag), key);
        assert!(before.is_none(), "a tag has one command at a time");
    }
}

/// A core, its simulated kernel, and the file with the request data.
struct Bed {
    driver: PassThrough<Split>,
    service: UblkService<Shown>,
    kernel: Rc<RefCell<Kernel>>,
    data: File,
    completions: Vec<Completion>,
    counters: [Arc<IoCounters>; 1],
    client: KnownLosses,
}

impl Bed {
    fn new(device: Arc<dyn Device>, read_only: bool) -> Self {
        Self::by_rules(device, read_only, SizeRules::default())
    }

    fn by_rules(device: Arc<dyn Device>, read_only: bool, rules: SizeRules) -> Self {
        let kernel = Rc::new(RefCell::new(Kernel::default()));
        let inner = UringDriver::new(&Options::default()).expect("a ring");
        let mut driver = PassThrough {
            inner,
            replaced: Split(Rc::clone(&kernel)),
        };
        let devices = PerClass::from_fn(|_| Arc::clone(&device));
        let io = DeviceIo::open(&devices, 16, &mut driver).expect("it opens");
        let client = KnownLosses::of(&*device);
        let io = io.for_client(&client);
        let counters = [Arc::clone(io.counters())];
        let queue = |number| {
            let shown = Shown(Rc::clone(&kernel), number);
            Queue::new(number, DEPTH, REQUEST_BYTES, shown)
        };
        let queues = (0..QUEUES).map(queue).collect();
        let data = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(block::temporary("data"))
            .expect("a temporary file");
        let file = Arc::new(data.try_clone().expect("a descriptor"));
        let shared = Arc::new(SharedServer {
            class: Class::Latency,
            read_only,
            client: client.clone(),
            rules,
            broken: AtomicBool::new(false),
            log: LogBudget::default(),
            rings: Mutex::default(),
        });
        let mut service = UblkService::start(shared, io, queues, &mut driver);
        service.message(Message::Fetch(file), &mut Context::begin(&mut driver));
        Self {
            driver,
            service,
            kernel,
            data,
            completions: Vec::new(),
            counters,
            client,
        }
    }

    fn ram(block_bytes: u32, read_only: bool) -> Self {
        let ram = Ram::new(DEVICE_BYTES, block_bytes).expect("memory");
        Self::new(Arc::new(ram), read_only)
    }

    /// One turn of the core.
    fn turn(&mut self) {
        let wait = Wait::Until(self.driver.now() + Nanos::from_millis(1));
        self.driver
            .reap(wait, &mut self.completions)
            .expect("the ring works");
        let mut cx = Context::begin(&mut self.driver);
        for completion in self.completions.drain(..) {
            self.service.apply(completion, &mut cx);
        }
        self.service.maintain(&mut cx);
    }

    /// Ends the command of a tag with this result.
    fn complete(&mut self, tag: Tag, result: io::Result<usize>) {
        let held = self.kernel.borrow_mut().held.remove(&tag);
        let outcome = Outcome::File {
            result,
            slice: None,
        };
        let key = held.expect("the tag has a command");
        self.completions.push(Completion { key, outcome });
    }

    /// Passes a request for a tag: operation and flags, first sector, number of sectors.
    fn request(&mut self, tag: Tag, word: u32, start: u64, sectors: u32) {
        let mut description = [0; DESCRIPTOR_BYTES];
        #[expect(clippy::host_endian_bytes, reason = "the kernel's order")]
        {
            description[..4].copy_from_slice(&word.to_ne_bytes());
            description[4..8].copy_from_slice(&sectors.to_ne_bytes());
            description[8..16].copy_from_slice(&start.to_ne_bytes());
        }
        let before = self
            .kernel
            .borrow_mut()
            .descriptions
            .insert(tag, description);
        assert!(before.is_none(), "the tag is free");
        self.complete(tag, Ok(0));
    }

    /// Runs turns until `count` requests have completed; returns their results.
    fn results(&mut self, count: usize) -> Vec<(Tag, i32)> {
        for _ in 0..2000 {
            if self.kernel.borrow().results.len() >= count {
                break;
            }
            self.turn();
        }
        let results = std::mem::take(&mut self.kernel.borrow_mut().results);
        assert_eq!(results.len(), count);
        results
    }

    /// Executes one request; returns its result.
    fn one(&mut self, word: u32, start: u64, sectors: u32) -> i32 {
        self.request((0, 0), word, start, sectors);
        self.results(1)[0].1
    }

    fn put(&self, (queue, tag): Tag, content: &[u8]) {
        let at = data_offset(queue, tag, 0);
        self.data.write_all_at(content, at).expect("a sparse file");
    }

    fn get(&self, (queue, tag): Tag, len: usize) -> Vec<u8> {
        let mut content = vec![0; len];
        let at = data_offset(queue, tag, 0);
        self.data
            .read_exact_at(&mut content, at)
            .expect("it was written");
        content
    }

    /// Ends all commands, as when the device stops.
    fn stop(&mut self) {
        let held: Vec<Tag> = self.kernel.borrow().held.keys().copied().collect();
        for tag in held {
            let gone = io::Error::from_raw_os_error(Errno::NODEV.raw_os_error());
            self.complete(tag, Err(gone));
        }
        for _ in 0..2000 {
            if self.service.finished() {
                return;
            }
            self.turn();
        }
        panic!("the service does not end");
    }
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0u8..251)
        .cycle()
        .take(len)
        .map(|byte| byte ^ seed)
        .collect()
}

#[test]
fn every_tag_has_a_command_from_the_start_until_the_device_stops() {
    let mut bed = Bed::ram(4096, false);
    let tags = usize::from(DEPTH * QUEUES);
    assert_eq!(bed.kernel.borrow().held.len(), tags);
    bed.turn();
    assert!(!bed.service.finished());
    assert_eq!(bed.one(FLUSH, 0, 0), 0);
    assert_eq!(bed.kernel.borrow().held.len(), tags);
    bed.stop();
}

#[test]
fn the_depth_of_a_rule_is_that_of_the_queue() {
    let rule = ClassRule {
        cgroup: None,
        command: None,
        user: None,
        max_bytes: None,
        max_depth: Some(1),
        class: Class::Throughput,
    };
    let ram = Arc::new(Ram::new(DEVICE_BYTES, 4096).expect("memory"));
    let mut bed = Bed::by_rules(ram, false, ClassRules::new(vec![rule]).of_unknown());
    let reads = |bed: &Bed| {
        let counts = IoCounters::total(&bed.counters);
        (
            counts[Class::Throughput].reads,
            counts[Class::Latency].reads,
        )
    };
    // One tag of each queue, and a second one of the first.
    for tag in [(0, 0), (1, 0), (0, 1)] {
        bed.request(tag, READ, 0, 8);
    }
    bed.results(3);
    assert_eq!(reads(&bed), (2, 1));
    bed.request((0, 1), READ, 0, 8);
    bed.results(1);
    assert_eq!(reads(&bed), (3, 1));
    bed.stop();
}

#[test]
fn what_is_written_is_read_by_every_tag() {
    for block in [512, 4096] {
        let mut bed = Bed::ram(block, false);
        let tags: Vec<Tag> = (0..QUEUES)
            .flat_map(|queue| (0..DEPTH).map(move |tag| (queue, tag)))
            .collect();
        let len = 24 << 10;
        let sectors = u32::try_from(len / 512).expect("few");
        for (&tag, number) in tags.iter().zip(0u8..) {
            bed.put(tag, &pattern(number, len));
            let fua = 1 << 13;
            bed.request(tag, WRITE | fua, u64::from(number) * 48, sectors);
        }
        let done = i32::try_from(len).expect("small");
        let results = bed.results(tags.len());
        assert!(
            results.iter().all(|(_, result)| *result == done),
            "{results:?}"
        );
        // With other tags than those that wrote.
        for (&tag, number) in tags.iter().rev().zip(0u8..) {
            bed.request(tag, READ, u64::from(number) * 48, sectors);
        }
        let results = bed.results(tags.len());
        assert!(
            results.iter().all(|(_, result)| *result == done),
            "{results:?}"
        );
        for (&tag, number) in tags.iter().rev().zip(0u8..) {
            assert!(bed.get(tag, len) == pattern(number, len), "{tag:?}");
        }
        bed.stop();
    }
}

#[test]
fn ranges_without_data_are_zeroed_and_discarded() {
    let mut bed = Bed::ram(4096, false);
    let len = 16 << 10;
    bed.put((0, 0), &pattern(1, len));
    assert_eq!(bed.one(WRITE, 0, 32), 16 << 10);
    assert_eq!(bed.one(WRITE_ZEROES, 8, 8), 0);
    assert_eq!(bed.one(DISCARD, 16, 8), 0);
    assert_eq!(bed.one(READ, 0, 32), 16 << 10);
    let mut expected = pattern(1, len);
    expected[4096..12288].fill(0);
    assert!(bed.get((0, 0), len) == expected);
    bed.stop();
}

#[test]
fn what_cannot_be_is_refused_with_its_number() {
    let mut bed = Bed::ram(4096, false);
    let number = |errno: Errno| -errno.raw_os_error();
    // Beyond the end, not whole blocks, too much data, no data, unknown operation.
    let sectors = DEVICE_BYTES / 512;
    assert_eq!(bed.one(DISCARD, sectors, 8), number(Errno::NOSPC));
    assert_eq!(bed.one(READ, sectors - 8, 16), number(Errno::NOSPC));
    assert_eq!(bed.one(READ, 1, 8), number(Errno::INVAL));
    assert_eq!(bed.one(READ, 0, 256), number(Errno::INVAL));
    assert_eq!(bed.one(WRITE, 0, 0), number(Errno::INVAL));
    assert_eq!(bed.one(4, 0, 8), number(Errno::OPNOTSUPP));
    // The data of the write is missing: the file is empty.
    assert_eq!(bed.one(WRITE, 0, 8), number(Errno::IO));
    assert_eq!(bed.one(READ, 0, 8), 4096);
    bed.stop();

    let mut bed = Bed::ram(4096, true);
    assert_eq!(bed.one(WRITE, 0, 8), number(Errno::ROFS));
    assert_eq!(bed.one(DISCARD, 0, 8), number(Errno::ROFS));
    assert_eq!(bed.one(FLUSH, 0, 0), 0);
    bed.stop();
}

/// A flush must not report success if the cache of an earlier server lost data.
#[test]
fn flushes_fail_until_a_loss_from_before_is_told() {
    let mut bed = Bed::ram(4096, false);
    let failed = -Errno::IO.raw_os_error();
    bed.client.lost_before();
    for tag in [(0, 0), (1, 1)] {
        bed.request(tag, FLUSH, 0, 0);
    }
    let results = bed.results(2);
    assert!(
        results.iter().all(|(_, result)| *result == failed),
        "{results:?}"
    );
    assert_eq!(bed.one(FLUSH, 0, 0), 0);
    bed.stop();
}

/// A server with an outstanding read of tag 1 that takes an hour.
fn with_a_read_under_way() -> Bed {
    let ram: Arc<dyn Device> = Arc::new(Ram::new(DEVICE_BYTES, 4096).expect("memory"));
    let slow = DelayOptions {
        read: Nanos::from_secs(3600),
        ..DelayOptions::default()
    };
    let mut bed = Bed::new(Arc::new(Delay::new(ram, slow)), false);
    bed.request((0, 1), READ, 0, 8);
    for _ in 0..5 {
        bed.turn();
    }
    bed
}

#[test]
fn requests_under_way_are_given_up_when_told() {
    let mut bed = with_a_read_under_way();
    assert!(bed.kernel.borrow().results.is_empty());
    let mut cx = Context::begin(&mut bed.driver);
    bed.service.message(Message::Abort, &mut cx);
    // This device completes it early instead of aborting it.
    assert_eq!(bed.results(1), [((0, 1), 4096)]);
    // Later requests are refused; the tags stay with the kernel.
    assert_eq!(bed.one(READ, 0, 8), -Errno::IO.raw_os_error());
    assert!(!bed.service.finished());
    bed.stop();
}

/// Requests outstanding when a server leaves its block device to the next one must not fail.
#[test]
fn a_core_leaves_its_requests_to_the_next_server() {
    let mut bed = with_a_read_under_way();
    let mut cx = Context::begin(&mut bed.driver);
    bed.service.message(Message::Leave, &mut cx);
    for tag in [(0, 2), (1, 0)] {
        bed.request(tag, WRITE, 0, 8);
    }
    for _ in 0..5 {
        bed.turn();
    }
    assert!(bed.service.finished());
    assert_eq!(bed.kernel.borrow().results, []);
}

/// Requests in the device must not be aborted when a server ends, because the next one repeats
/// them.
#[test]
fn a_core_that_quiesces_answers_what_it_has_begun_and_begins_nothing_more() {
    let ram: Arc<dyn Device> = Arc::new(Ram::new(DEVICE_BYTES, 4096).expect("memory"));
    let slow = DelayOptions {
        read: Nanos::from_millis(50),
        ..DelayOptions::default()
    };
    let mut bed = Bed::new(Arc::new(Delay::new(ram, slow)), false);
    bed.request((0, 1), READ, 0, 8);
    bed.turn();
    assert!(bed.kernel.borrow().results.is_empty());
    let mut cx = Context::begin(&mut bed.driver);
    bed.service.message(Message::Quiesce, &mut cx);
    bed.request((1, 0), FLUSH, 0, 0);
    assert_eq!(bed.results(1), [((0, 1), 4096)]);
    for _ in 0..5 {
        bed.turn();
    }
    assert!(bed.service.finished());
    assert_eq!(bed.kernel.borrow().results, [], "the next server answers");
}

#[test]
fn a_core_can_leave_its_tags_to_the_kernel() {
    let mut bed = Bed::ram(4096, false);
    let mut cx = Context::begin(&mut bed.driver);
    bed.service.message(Message::Leave, &mut cx);
    for _ in 0..5 {
        bed.turn();
    }
    assert!(bed.service.finished());
}
