//! A host that asks for much gets a caravan in a turn, beside one that asks for little.

use crate::common::{BLOCK, Bed, Client, Dialect, any_read, eventually, io};
use switch::{Class, Knobs};
use wire::nvme::{IoOpcode, SglDescriptor};
use wire::tcp::framer::Role;
use wire::tcp::limits::TERM_REQ_BYTES_MAX;
use wire::tcp::{FatalErrorStatus, TermReq};

const BATCH: u16 = 128;
const ROUNDS: u64 = 10;

/// Connections that end; where the machine is slow, the light host counts as gone for some.
const ENDS: u64 = 20;

/// Capsules of `count` reads of `blocks` blocks each.
fn reads(client: &Client, count: u16, blocks: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for cid in 0..count {
        let mut command = io(IoOpcode::READ, u64::from(cid), blocks as u32);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport((blocks * BLOCK) as u32));
        bytes.extend(client.session.capsule(&command, &[]));
    }
    bytes
}

/// Sends a whole batch of reads of 4 KiB at once, and takes the answers.
fn batch(client: &mut Client) {
    let bytes = reads(client, BATCH, 1);
    client.send(&bytes);
    for _ in 0..BATCH {
        any_read(client);
    }
}

/// Receives that the target made while one host sent batches, and another one asked for a block
/// before each.
fn receives(bed: &Bed, light: &mut Client, heavy: &mut Client) -> u64 {
    let stats = || bed.handle().snapshot().cores[0];
    let before = stats();
    for _ in 0..ROUNDS {
        light.read(0, 1);
        batch(heavy);
    }
    let commands = before.io_commands + ROUNDS * u64::from(BATCH + 1);
    eventually("the core shows its counters", || {
        stats().io_commands >= commands
    });
    stats().receives - before.receives
}

#[test]
fn beside_a_light_host_a_deep_queue_is_received_a_caravan_at_a_time() {
    let bed = Bed::new();
    let (_admin, mut light) = bed.host_named("nqn.2026-11.com.example:light", 1);
    let (_other, mut heavy) = bed.host_named("nqn.2026-11.com.example:heavy", 1);
    let (light, heavy) = (&mut light[0], &mut heavy[0]);
    // 128 commands are eight caravans. Where the machine is slow, the light host counts as gone
    // now and then.
    let mut rounds = 0..1_000;
    assert!(rounds.any(|_| receives(&bed, light, heavy) >= 5 * ROUNDS));
    let off = Knobs {
        light_hosts: false,
        ..Knobs::default()
    };
    bed.handle().set_knobs(off).expect("valid knobs");
    receives(&bed, light, heavy);
    assert!(receives(&bed, light, heavy) < 5 * ROUNDS);
}

/// A host with a queue of class `Latency` was not light, so that its neighbours' deep queues, and
/// their admin queues, had no quantum: it waited longer than one that names no class.
#[test]
fn a_host_with_a_latency_queue_is_light() {
    let bed = Bed::new();
    let (mut admin, cntlid) = bed.controller(Dialect::default());
    admin.mean_classes(true);
    let mut light = bed.queue_of(cntlid, 1, Class::Latency);
    let (_other, mut heavy) = bed.host_named("nqn.2026-11.com.example:heavy", 1);
    let mut rounds = 0..1_000;
    assert!(rounds.any(|_| receives(&bed, &mut light, &mut heavy[0]) >= 5 * ROUNDS));
}

/// A quantum was set on the socket of a connection that its last receive had closed: the driver has
/// let go of such a socket if the ring does not watch it, and the core panicked.
#[test]
fn a_receive_that_asks_for_much_and_ends_the_connection_sets_no_quantum() {
    let bed = Bed::new();
    let (_admin, mut light) = bed.host_named("nqn.2026-11.com.example:light", 1);
    let request = TermReq {
        status: FatalErrorStatus::PDU_SEQUENCE_ERROR,
        information: 0,
    };
    let mut termination = [0; TERM_REQ_BYTES_MAX];
    let length = request.encode(Role::Host, &[], &mut termination);
    for _ in 0..ENDS {
        let (_other, mut heavy) = bed.host_named("nqn.2026-11.com.example:heavy", 1);
        // A caravan is eight of these; a queue that has just been connected brings 16 at most.
        let mut bytes = reads(&heavy[0], 9, 2);
        bytes.extend_from_slice(&termination[..length]);
        light[0].read(0, 1);
        heavy[0].send(&bytes);
        while heavy[0].try_receive().is_some() {}
    }
    light[0].read(0, 1);
    eventually("the core counts the ends", || {
        bed.handle().snapshot().cores[0].terminations_received == ENDS
    });
}

/// With the termination request the bound of its sends went: what was left of the answers before it
/// left in one, and the light host waited for that.
#[test]
fn answers_before_a_termination_request_leave_in_pieces() {
    let bed = Bed::new();
    let (_admin, mut light) = bed.host_named("nqn.2026-11.com.example:light", 1);
    let mut commands = 0;
    let is_in_pieces = |_| {
        let (_other, mut heavy) = bed.host_named("nqn.2026-11.com.example:heavy", 1);
        // All of it comes in one receive, as a queue that has just been connected has it.
        let mut bytes = reads(&heavy[0], 8, 32);
        // No PDU has this type.
        bytes.extend_from_slice(&[0xff, 0, 8, 0, 8, 0, 0, 0]);
        let stats = || bed.handle().snapshot().cores[0];
        eventually("the core shows its counters", || {
            stats().io_commands >= commands
        });
        let before = stats();
        light[0].read(0, 1);
        heavy[0].send(&bytes);
        commands += 9;
        while heavy[0].try_receive().is_some() {}
        eventually("the core shows its counters", || {
            stats().sent_bytes >= before.sent_bytes + (1 << 20)
        });
        // One MiB takes so many at least; in one it took eight, with those of the connections. Where
        // the machine is slow, the light host counts as gone.
        stats().sends - before.sends >= 16
    };
    assert!((0..1_000).any(is_in_pieces));
}
