//! More commands than buffers: none is refused, each gets its buffer in turn, and neither Keep
//! Alive nor requested data waits behind commands without a buffer.

use crate::common;
use crate::common::{
    BLOCK, Bed, Client, NQN, buffers, io, late, namespace, pattern, target_with, with_buffers,
};
use base::units::{KIB, MIB};
use block::{Capabilities, Channel, Device, DeviceError, Geometry};
use reactor::{BufferClass, Driver};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use switchyard_target::{CoreStats, Limits};
use wire::nvme::identify::Cns;
use wire::nvme::{AdminCommand, Command, Identify, IoOpcode, SglDescriptor};
use wire::tcp::{H2cData, R2t};

/// Size of a capsule's data.
const CAPSULE: usize = 16 * KIB;

/// Returns limits for which the largest of these buffers is sufficient.
fn limits(buffers: &[BufferClass]) -> Limits {
    let largest = buffers.last().expect("some");
    Limits {
        transfer_bytes: largest.bytes as u32,
        ..Limits::default()
    }
}

/// Starts a target with only these buffers, on a memory device.
fn with_memory(buffers: Vec<BufferClass>) -> Bed {
    let ram = common::ram(16 * MIB);
    let options = namespace(1, Arc::clone(&ram) as _);
    let target = target_with(limits(&buffers), 1, [options]);
    let target = with_buffers(target, buffers);
    Bed { target, ram }
}

/// Starts a target with only these buffers, on a device for which in-capsule data needs a buffer
/// first.
fn short_of_buffers(buffers: Vec<BufferClass>) -> Bed {
    let limits = limits(&buffers);
    let start = |target| with_buffers(target, buffers);
    let (bed, state) = late::bed_started(1, 1000, limits, start);
    state.open.store(true, Ordering::SeqCst);
    bed
}

fn core(bed: &Bed) -> CoreStats {
    bed.handle().snapshot().cores[0]
}

/// Returns an I/O queue of a separate host, with the host's admin queue.
fn host(bed: &Bed, name: &str) -> (Client, Client) {
    let (admin, mut queues) = bed.host_named(&format!("nqn.2026-11.io.example:{name}"), 1);
    (admin, queues.remove(0))
}

/// Returns a write whose data is requested by R2T.
fn write_by_r2t(cid: u16, bytes: usize) -> Command {
    let mut write = io(IoOpcode::WRITE, 0, (bytes / BLOCK) as u32);
    write.set_cid(cid);
    write.set_sgl(SglDescriptor::transport(bytes as u32));
    write
}

/// Sends such a write and receives its R2T: it holds a buffer until the R2T is answered.
fn hold(client: &mut Client, cid: u16, bytes: usize) -> R2t {
    client.capsule(&write_by_r2t(cid, bytes), &[]);
    client.r2t()
}

/// Returns a write with in-capsule data.
fn capsule(client: &Client, cid: u16, slba: u64, data: &[u8]) -> Vec<u8> {
    let mut write = io(IoOpcode::WRITE, slba, (data.len() / BLOCK) as u32);
    write.set_cid(cid);
    write.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
    client.session.capsule(&write, data)
}

/// Returns a PDU with a part of the data that an R2T requests.
fn part(client: &Client, r2t: &R2t, at: usize, data: &[u8]) -> Vec<u8> {
    let pdu = H2cData {
        command_id: r2t.command_id,
        transfer_tag: r2t.transfer_tag,
        data_offset: r2t.offset + at as u32,
        data_length: data.len() as u32,
        last: at + data.len() == r2t.length as usize,
    };
    client.session.h2c_data(&pdu, data)
}

/// Receives the answers of these commands in any order; all must succeed.
fn succeed(client: &mut Client, cids: impl IntoIterator<Item = u16>) {
    let mut left: BTreeSet<_> = cids.into_iter().collect();
    while !left.is_empty() {
        let completion = client.completion();
        assert!(completion.status.is_success(), "{}", completion.status);
        assert!(left.remove(&completion.cid), "{} twice", completion.cid);
    }
}

/// Regression: commands beyond a core's waiting capacity were interrupted. Linux retried five
/// times, and applications got EREMOTEIO.
#[test]
fn no_write_is_refused_however_many_wait_for_buffers() {
    let bed = short_of_buffers(vec![buffers(16 * KIB, 3), buffers(MIB, 1)]);
    let (_admins, mut holders): (Vec<_>, Vec<_>) =
        ["a", "b"].map(|name| host(&bed, name)).into_iter().unzip();
    let held: Vec<_> = (0..4)
        .map(|cid| hold(&mut holders[usize::from(cid == 3)], cid, CAPSULE))
        .collect();
    let data = pattern(3, CAPSULE);
    let mut hosts: Vec<_> = (0..12).map(|_| bed.host()).collect();
    for (at, (_, client)) in (0..).zip(&mut hosts) {
        for cid in 0..20 {
            let capsule = capsule(client, cid, 100 + at * 80 + u64::from(cid) * 4, &data);
            client.send(&capsule);
        }
    }
    common::eventually("all wait", || core(&bed).buffer_waiters == 12);
    for (r2t, at) in held.iter().zip([0, 0, 0, 1]) {
        holders[at].answer_r2t(r2t, &data);
        assert!(holders[at].completion().status.is_success());
    }
    for (at, (_, client)) in (0..).zip(&mut hosts) {
        succeed(client, 0..20);
        assert!(client.read(100 + at * 80 + 76, 4).1 == data);
    }
}

/// Regression: input waited for a buffer while the data of its own R2Ts, whose commands held the
/// buffers, was queued behind it.
#[test]
fn capsules_before_data_that_was_asked_for_find_buffers() {
    let bed = short_of_buffers(vec![buffers(16 * KIB, 3), buffers(MIB, 1)]);
    let [(_one, mut first), (_two, mut second)] = ["a", "b"].map(|name| host(&bed, name));
    let data = pattern(4, CAPSULE);
    // All four buffers, held by two hosts.
    let held: Vec<_> = (0..3).map(|cid| hold(&mut first, cid, CAPSULE)).collect();
    let other = hold(&mut second, 0, CAPSULE);
    for (client, cids) in [(&mut first, 10..110), (&mut second, 10..20)] {
        for cid in cids {
            let capsule = capsule(client, cid, 1000, &data);
            client.send(&capsule);
        }
    }
    succeed(&mut first, 10..110);
    succeed(&mut second, 10..20);
    second.answer_r2t(&other, &data);
    for r2t in &held {
        first.answer_r2t(r2t, &data);
    }
    succeed(&mut second, [0]);
    succeed(&mut first, 0..3);
}

/// The same case, with the R2T sent after input had begun to wait.
#[test]
fn input_that_waits_goes_on_when_data_is_asked_for_behind_it() {
    let bed = short_of_buffers(vec![buffers(16 * KIB, 2)]);
    let [(_one, mut first), (_two, mut third), (_three, mut second)] =
        ["a", "b", "c"].map(|name| host(&bed, name));
    let data = pattern(5, CAPSULE);
    let held = [&mut first, &mut third].map(|client| hold(client, 1, CAPSULE));
    // The first command waits for its buffer, and the input behind it for the second command's.
    let mut sent = second.session.capsule(&write_by_r2t(1, CAPSULE), &[]);
    sent.extend(capsule(&second, 2, 1000, &data));
    second.send(&sent);
    common::eventually("both wait", || core(&bed).buffer_waiters == 2);
    first.answer_r2t(&held[0], &data);
    succeed(&mut first, [1]);
    // The buffer belongs to the first command until its data arrives.
    let r2t = second.r2t();
    succeed(&mut second, [2]);
    second.answer_r2t(&r2t, &data);
    succeed(&mut second, [1]);
    third.answer_r2t(&held[1], &data);
    succeed(&mut third, [1]);
}

/// Regression: a controller was lost because Keep Alive waited behind an Identify without a buffer.
#[test]
fn keep_alive_does_not_wait_behind_identify_for_a_buffer() {
    let bed = short_of_buffers(vec![buffers(16 * KIB, 3), buffers(MIB, 1)]);
    let [(mut admin, mut first), (_two, mut second)] = ["a", "b"].map(|name| host(&bed, name));
    let held: Vec<_> = (0..3).map(|cid| hold(&mut first, cid, CAPSULE)).collect();
    let other = hold(&mut second, 0, CAPSULE);
    for _ in 0..10 {
        let identify = Identify::new(Cns::CONTROLLER, 0).encode(0);
        let (completion, page) = admin.fetch(identify, 4096);
        assert!(completion.status.is_success() && page[77] != 0);
        let keep_alive = AdminCommand::KeepAlive.encode(0);
        assert!(admin.execute(keep_alive, &[]).status.is_success());
    }
    let data = pattern(6, CAPSULE);
    for r2t in &held {
        first.answer_r2t(r2t, &data);
    }
    second.answer_r2t(&other, &data);
    succeed(&mut first, 0..3);
    succeed(&mut second, [0]);
}

/// Regression: with one list for all sizes, small commands waited behind a large one although small
/// buffers were free.
#[test]
fn a_command_that_waits_for_a_large_buffer_does_not_hold_up_small_ones() {
    let bed = with_memory(vec![buffers(BLOCK, 2), buffers(64 * KIB, 1)]);
    let names = ["a", "b", "c", "d", "e"];
    let [mut large, mut one, mut two, mut waits, mut small] = names.map(|name| host(&bed, name));
    let held = [
        hold(&mut large.1, 1, 64 * KIB),
        hold(&mut one.1, 1, BLOCK),
        hold(&mut two.1, 1, BLOCK),
    ];
    waits.1.capsule(&write_by_r2t(1, 64 * KIB), &[]);
    common::eventually("it waits", || core(&bed).buffer_waiters == 1);
    small.1.capsule(&write_by_r2t(1, BLOCK), &[]);
    common::eventually("both wait", || core(&bed).buffer_waiters == 2);
    let data = pattern(7, 64 * KIB);
    let finish = |host: &mut (Client, Client), r2t: &R2t| {
        host.1.answer_r2t(r2t, &data);
        succeed(&mut host.1, [1]);
    };
    finish(&mut one, &held[1]);
    let r2t = small.1.r2t();
    finish(&mut small, &r2t);
    finish(&mut large, &held[0]);
    let r2t = waits.1.r2t();
    finish(&mut waits, &r2t);
    finish(&mut two, &held[2]);
}

/// Regression: a command that arrived when a buffer had just become free took it from waiting
/// commands.
#[test]
fn a_newcomer_waits_behind_those_that_wait_already() {
    let bed = with_memory(vec![buffers(BLOCK, 1), buffers(64 * KIB, 1)]);
    let [mut large, mut holder, mut waits] = ["a", "b", "c"].map(|name| host(&bed, name));
    let held = hold(&mut large.1, 0, 64 * KIB);
    let few = hold(&mut holder.1, 0, BLOCK);
    waits.1.capsule(&write_by_r2t(0, BLOCK), &[]);
    common::eventually("it waits", || core(&bed).buffer_waiters == 1);
    // The buffer is freed with the data, and the next command follows at once.
    let data = pattern(8, 64 * KIB);
    let mut sent = part(&holder.1, &few, 0, &data[..BLOCK]);
    sent.extend(holder.1.session.capsule(&write_by_r2t(1, BLOCK), &[]));
    holder.1.send(&sent);
    let r2t = waits.1.r2t();
    waits.1.answer_r2t(&r2t, &data[..BLOCK]);
    succeed(&mut waits.1, [0]);
    succeed(&mut holder.1, [0]);
    let r2t = holder.1.r2t();
    holder.1.answer_r2t(&r2t, &data[..BLOCK]);
    succeed(&mut holder.1, [1]);
    large.1.answer_r2t(&held, &data);
    succeed(&mut large.1, [0]);
}

/// Regression: each data PDU queued the same R2T again, which made six million entries of one queue
/// that did not read.
#[test]
fn an_r2t_waits_to_be_sent_once_however_many_pdus_come() {
    let limits = Limits {
        r2t_bytes: BLOCK as u32,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let dialect = common::Dialect {
        max_r2t: 1,
        ..common::Dialect::default()
    };
    let (_admin, mut queue) = bed.host_with(dialect);
    queue.capsule(&write_by_r2t(0, CAPSULE), &[]);
    let r2ts = [queue.r2t(), queue.r2t()];
    // More than the socket buffers hold without a reader.
    let waits = || core(&bed).output_waits;
    for cid in 1..100 {
        let mut read = io(IoOpcode::READ, 0, 256);
        read.set_cid(cid);
        read.set_sgl(SglDescriptor::transport(256 * BLOCK as u32));
        queue.capsule(&read, &[]);
    }
    common::eventually("answers wait", || waits() > 0);
    common::eventually("all reads are taken", || bed.commands() == 100);
    let data = pattern(9, BLOCK);
    queue.answer_r2t(&r2ts[0], &data);
    let before = waits();
    let parts = (0..BLOCK).step_by(4);
    let parts = parts.flat_map(|at| part(&queue, &r2ts[1], at, &data[at..at + 4]));
    let parts: Vec<_> = parts.collect();
    queue.send(&parts);
    let mut verify = io(IoOpcode::VERIFY, 0, 1);
    verify.set_cid(100);
    queue.capsule(&verify, &[]);
    common::eventually("all data is taken", || bed.commands() == 101);
    assert!(waits() - before <= 4, "{} of 1024", waits() - before);
}

/// Memory whose geometry can be read on one thread only once a host has connected.
#[derive(Debug)]
struct Asked {
    ram: Arc<dyn Device>,
    on: Mutex<Option<std::thread::ThreadId>>,
    began: Mutex<Option<mpsc::Sender<()>>>,
    connected: AtomicBool,
}

impl Device for Asked {
    fn geometry(&self) -> Geometry {
        let here = Some(std::thread::current().id());
        if *self.on.lock().expect("no panic") == here {
            self.began.lock().expect("no panic").take();
            common::eventually("a host connects", || self.connected.load(Ordering::SeqCst));
        }
        self.ram.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.ram.capabilities()
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        self.ram.open(driver)
    }
}

/// Regression: while a scrape summed the histograms of all namespaces, Connect waited, and with it
/// the first core.
#[test]
fn hosts_connect_while_a_snapshot_is_made() {
    let (sender, began) = mpsc::channel();
    let device = Arc::new(Asked {
        ram: common::ram(MIB),
        on: Mutex::default(),
        began: Mutex::new(Some(sender)),
        connected: AtomicBool::new(false),
    });
    let target = target_with(
        Limits::default(),
        1,
        [namespace(1, Arc::clone(&device) as _)],
    );
    let target = common::run(target, 1);
    std::thread::scope(|scope| {
        let scrape = scope.spawn(|| {
            *device.on.lock().expect("no panic") = Some(std::thread::current().id());
            target.handle.snapshot()
        });
        // The sender is dropped when the snapshot reads the geometry.
        assert!(began.recv().is_err());
        let mut admin = Client::admin(target.addresses[0], NQN, 0);
        let list = Identify::new(Cns::ACTIVE_NAMESPACES, 0).encode(0);
        assert!(admin.fetch(list, 4096).0.status.is_success());
        device.connected.store(true, Ordering::SeqCst);
        assert_eq!(scrape.join().expect("no panic").subsystems.len(), 1);
    });
}
