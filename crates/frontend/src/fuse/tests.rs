//! The dataplane of a mount without a kernel: a socket replaces the kernel's end of the session.
#![expect(
    clippy::host_endian_bytes,
    reason = "the kernel's structures have this machine's order"
)]

use super::abi::MINOR_MIN;
use super::filesystem::{Files, Handles};
use super::limits::REQUESTS_MAX;
use super::service::{Dataplane, Message};
use super::session::Session;
use super::thread_classes::ThreadClasses;
use super::{ClassChoice, ClassRules, Options as Mounting, SharedMount, entries};
use base::Time;
use block::Device;
use block::layer::fault::{Fault, FaultEffect, FaultOptions, FaultRule};
use reactor::uring::{Options, UringDriver};
use reactor::{BufferClass, Core, PollPolicy, Service as _, Wait};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use switch::{Class, PerClass};

/// A dataplane and the kernel's end of its session.
struct Bed {
    kernel: File,
    core: Core<UringDriver, Dataplane>,
    answer: Vec<u8>,
}

/// Node number of the first file.
const FIRST: u32 = 2;
const READ: u32 = 15;
const WRITE: u32 = 16;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A message with a body; its identifier and node number are below 2^32.
fn message(opcode: u32, unique: u32, node: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(40 + body.len()).expect("short");
    let thread = std::process::id();
    let header = words(&[len, opcode, unique, 0, node, 0, 0, 0, thread, 0]);
    [&header, body].concat()
}

/// Both ends of a session; the kernel's end has sent its version.
fn session(minor: u32) -> (File, std::io::Result<Session>) {
    let pair = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    let (ours, theirs) = pair.expect("sockets");
    let mut kernel = File::from(ours);
    let init = message(INIT, 1, 0, &words(&[7, minor, 1 << 17, 1]));
    kernel.write_all(&init).expect("there is room");
    (kernel, Session::begin(theirs))
}

impl Bed {
    fn new(devices: &[Arc<dyn Device>]) -> Self {
        Self::with_driver(devices, &Options::default())
    }

    fn with_driver(devices: &[Arc<dyn Device>], options: &Options) -> Self {
        let (kernel, session) = session(40);
        let namespaces: Vec<_> = devices
            .iter()
            .zip(1..)
            .map(|(device, nsid)| (nsid, PerClass::from_fn(|_| Arc::clone(device))))
            .collect();
        let names = Files {
            entries: entries(&namespaces, &Mounting::new("unused")),
            began: Duration::ZERO,
            shared: Arc::new(SharedMount::default()),
            under_way: Rc::default(),
            shut: false,
            handles: Handles::default(),
            class: Some(Class::Throughput),
            threads: ThreadClasses::new(
                ClassChoice::Fixed(Class::Throughput),
                ClassRules::default(),
            ),
            mode: 0o600,
            owner: (0, 0),
            bypass: true,
        };
        let mut driver = UringDriver::new(options).expect("io_uring works here");
        let poll = PollPolicy::Auto;
        let session = session.expect("served");
        let service = Dataplane::open(session, names, &namespaces, (poll, false), &mut driver);
        let mut bed = Self {
            kernel,
            core: Core::new(driver, service.expect("all open"), poll),
            answer: vec![0; 2 << 20],
        };
        assert_eq!(bed.answer(), (1, 0), "to INIT");
        rustix::io::ioctl_fionbio(&bed.kernel, true).expect("a socket");
        bed
    }

    fn ask(&mut self, opcode: u32, unique: u32, node: u32, body: &[u8]) {
        let message = message(opcode, unique, node, body);
        self.kernel.write_all(&message).expect("there is room");
    }

    fn read(&mut self, unique: u32, node: u32, len: u32) {
        let body = words(&[0, 0, 0, 0, len, 0, 0, 0, 0, 0]);
        self.ask(READ, unique, node, &body);
    }

    /// Writes to the first file.
    fn write(&mut self, unique: u32, offset: u32, data: &[u8]) {
        let len = u32::try_from(data.len()).expect("short");
        let body = words(&[0, 0, offset, 0, len, 0, 0, 0, 0, 0]);
        self.ask(WRITE, unique, FIRST, &[&body, data].concat());
    }

    fn turn(&mut self) {
        self.core.turn(Wait::No).expect("the ring works");
    }

    /// The next reply: its identifier and error number.
    fn answer(&mut self) -> (u64, i32) {
        let len = self.kernel.read(&mut self.answer).expect("there is one");
        let field = |at: usize| self.answer[at..at + 4].try_into().expect("four bytes");
        assert_eq!(u32::from_ne_bytes(field(0)) as usize, len);
        let unique = self.answer[8..16].try_into().expect("eight bytes");
        (u64::from_ne_bytes(unique), -i32::from_ne_bytes(field(4)))
    }

    /// Outstanding requests, and bytes held for them.
    fn under_way(&self) -> (usize, usize) {
        self.core.service.under_way()
    }

    /// Runs turns until there is a reply.
    fn answered(&mut self) -> (u64, i32) {
        while !self.has_answer() {
            self.turn();
        }
        self.answer()
    }

    fn has_answer(&self) -> bool {
        recv(&self.kernel, &mut [0], RecvFlags::PEEK).is_ok()
    }
}

fn ram(bytes: u64) -> Arc<dyn Device> {
    Arc::new(block::device::Ram::new(bytes, 512).expect("memory"))
}

#[test]
fn files_take_turns_where_a_turn_answers_no_more() {
    let mut bed = Bed::new(&[ram(1 << 20), ram(1 << 20)]);
    for unique in 0..8 {
        bed.read(10 + unique, FIRST, 64 << 10);
        bed.read(20 + unique, FIRST + 1, 64 << 10);
    }
    let first: Vec<u64> = (0..4).map(|_| bed.answered().0 / 10).collect();
    assert!(first.contains(&1) && first.contains(&2), "{first:?}");
}

#[test]
fn requests_wait_for_memory_that_answers_hold() {
    let four = Options {
        buffers: vec![BufferClass {
            bytes: 64 << 10,
            count: 4,
        }],
        ..Options::default()
    };
    let mut bed = Bed::with_driver(&[ram(1 << 20)], &four);
    for unique in 2..22 {
        bed.read(unique, FIRST, 64 << 10);
    }
    for unique in 2..22 {
        assert_eq!(bed.answered(), (unique, 0));
    }
}

#[test]
fn many_writes_of_parts_of_blocks_end_behind_large_reads() {
    let mut bed = Bed::new(&[ram(1 << 20)]);
    let (reads, writes) = (100, 1000);
    for unique in 2..2 + reads {
        bed.read(unique, FIRST, 64 << 10);
    }
    let mut answers = 0;
    for unique in 0..writes {
        bed.write(1000 + unique, unique * 512 + 100, &[7; 10]);
        // The socket has room for some requests and some replies.
        while bed.has_answer() {
            bed.answer();
            answers += 1;
        }
        bed.turn();
    }
    while answers < reads + writes {
        let (unique, errno) = bed.answered();
        assert_eq!(errno, 0, "{unique}");
        answers += 1;
    }
    assert_eq!(bed.under_way(), (0, 0));
}

#[test]
fn an_attachment_is_drained_when_no_request_is_under_way() {
    let mut bed = Bed::new(&[ram(1 << 20)]);
    let shared = Arc::clone(bed.core.service.shared());
    bed.read(2, FIRST, 512);
    assert_eq!(bed.answered(), (2, 0));
    assert!(!shared.drained.load(Ordering::Relaxed));
    bed.core.sender().send_always(Message::Shut);
    while !shared.drained.load(Ordering::Relaxed) {
        bed.turn();
    }
    bed.read(3, FIRST, 512);
    assert_eq!(bed.answered(), (3, Errno::NODEV.raw_os_error()));
}

#[test]
fn a_kernel_that_is_too_old_is_refused() {
    let (_kernel, session) = session(MINOR_MIN - 1);
    let error = session.expect_err("too old");
    assert!(error.to_string().contains("7.27"), "{error}");
}

#[test]
fn writes_that_wait_keep_their_data() {
    let mut bed = Bed::new(&[ram(1 << 20)]);
    // The second write waits for the first, which changes part of a block; so does the third.
    bed.write(1, 100, &[1; 10]);
    bed.write(2, 0, &[2; 512]);
    bed.write(3, 500, &[3; 20]);
    for unique in 1..=3 {
        assert_eq!(bed.answered(), (unique, 0));
    }
    bed.read(4, FIRST, 1024);
    assert_eq!(bed.answered(), (4, 0));
    let data = &bed.answer[16..16 + 1024];
    let of = |value: u8| data.iter().filter(|&&byte| byte == value).count();
    assert_eq!((of(1), of(2), of(3)), (0, 500, 20));
    assert_eq!(bed.under_way(), (0, 0));
}

/// A device that completes nothing.
fn hangs() -> Arc<dyn Device> {
    let options = FaultOptions {
        rules: vec![FaultRule::new(FaultEffect::Hang)],
        ..FaultOptions::default()
    };
    Arc::new(Fault::new(ram(1 << 20), &options).expect("rules that can be"))
}

#[test]
fn the_thread_polls_for_the_answer_to_a_request_that_is_the_only_one() {
    let mut bed = Bed::new(&[hangs()]);
    assert_eq!(bed.core.service.poll_policy(), Some(PollPolicy::Never));
    for (unique, policy) in [(2, PollPolicy::Spare), (4, PollPolicy::Never)] {
        bed.read(unique, FIRST, 512);
        while bed.under_way().0 * 2 < unique as usize {
            bed.turn();
        }
        assert_eq!(bed.core.service.poll_policy(), Some(policy));
    }
}

#[test]
fn an_interrupted_request_of_a_thread_that_lives_goes_on() {
    let mut bed = Bed::new(&[hangs()]);
    bed.read(1, FIRST, 512);
    bed.ask(INTERRUPT, 2, 0, &words(&[1, 0]));
    // An identifier of no known request.
    bed.ask(INTERRUPT, 4, 0, &words(&[77, 0]));
    // More requests than the device accepts; the last ones are in no queue of it.
    for unique in 0..REQUESTS_MAX {
        bed.read(10 + u32::try_from(unique).expect("few"), FIRST, 512);
        bed.turn();
    }
    assert_eq!(bed.under_way(), (REQUESTS_MAX + 1, 0));
    assert!(bed.core.service.deadline() < Time::NEVER, "it asks again");
    bed.ask(READ, 3, FIRST, &[]);
    assert_eq!(bed.answered(), (3, Errno::IO.raw_os_error()), "cut off");
    drop(bed.kernel);
    bed.core.sender().send_always(Message::End);
}
