//! A host that asks for much gets a caravan in a turn, beside one that asks for little.
#![allow(clippy::tests_outside_test_module)] // The whole file is one.
#![allow(clippy::cast_possible_truncation)] // Sizes in tests are small.

mod common;

use common::{BLOCK, Bed, Client, any_read, eventually, io};
use switch::Knobs;
use wire::nvme::{IoOpcode, SglDescriptor};

const BATCH: u16 = 128;
const ROUNDS: u64 = 10;

/// Sends a whole batch of reads of 4 KiB at once, and takes the answers.
fn batch(client: &mut Client) {
    let mut bytes = Vec::new();
    for cid in 0..BATCH {
        let mut command = io(IoOpcode::READ, u64::from(cid), 4096 / BLOCK as u32);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(4096));
        bytes.extend(client.capsule_bytes(&command, &[]));
    }
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
