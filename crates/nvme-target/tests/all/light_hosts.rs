//! A host with high demand gets one caravan per turn while a host with low demand is active.

use crate::common::{BLOCK, Bed, Client, Dialect, any_read, eventually, io};
use switch::{Class, Knobs};
use wire::nvme::{IoOpcode, SglDescriptor};
use wire::tcp::framer::Role;
use wire::tcp::limits::TERM_REQ_BYTES_MAX;
use wire::tcp::{FatalErrorStatus, TermReq};

const BATCH: u16 = 128;
const ROUNDS: u64 = 10;

/// Number of connections that end; on a slow machine, the light host counts as inactive for some of
/// them.
const ENDS: u64 = 20;

/// Returns the capsules of `count` reads of `blocks` blocks each.
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

/// Sends a whole batch of 4 KiB reads at once, and receives the answers.
fn batch(client: &mut Client) {
    let bytes = reads(client, BATCH, 1);
    client.send(&bytes);
    for _ in 0..BATCH {
        any_read(client);
    }
}

/// Returns the number of the target's receives while one host sent batches, and another host read a
/// block before each.
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
    // 128 commands are eight caravans. On a slow machine, the light host sometimes counts as
    // inactive.
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

/// Regression: a host with a queue of class `Latency` was not light, so deep queues of other hosts,
/// and their admin queues, had no quantum: it waited longer than a host that names no class.
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

/// Regression: a quantum was set on the socket of a connection that its last receive had closed.
/// The driver has dropped such a socket if the ring does not watch it, and the core panicked.
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
        // A caravan is eight of these; a newly connected queue receives at most 16.
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

/// Regression: the termination request removed the limit on sends, so the earlier answers left in
/// one send, and the light host waited for it.
#[test]
fn answers_before_a_termination_request_leave_in_pieces() {
    let bed = Bed::new();
    let (_admin, mut light) = bed.host_named("nqn.2026-11.com.example:light", 1);
    let mut commands = 0;
    let is_in_pieces = |_| {
        let (_other, mut heavy) = bed.host_named("nqn.2026-11.com.example:heavy", 1);
        // All of it arrives in one receive, as is possible for a newly connected queue.
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
        // 1 MiB takes at least 16 sends in pieces; as one send it took eight, including those of
        // the connections. On a slow machine, the light host counts as inactive.
        stats().sends - before.sends >= 16
    };
    assert!((0..1_000).any(is_in_pieces));
}
