//! Barrier: what came before it is waited for, what follows waits, on every queue of the tenant and
//! on no other; and nothing waits for ever.

use crate::common::late::{QUICK, State, bed, bed_started, bed_with};
use crate::common::{BLOCK, Bed, Client, HOST, eventually, few, io, pattern, with_buffers};
use base::Nanos;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use switchyard_target::{Limits, Others, Tenancy, TenantOptions};
use wire::fabrics::Property;
use wire::limits::IDENTIFY_BYTES;
use wire::nvme::identify::Cns;
use wire::nvme::vendor::{Barrier, Extensions};
use wire::nvme::{
    Abort, AdminCommand, Completion, Identify, IdentifyController, IoOpcode, SglDescriptor, Status,
};

const OTHER: &str = "nqn.2026-11.io.example:other";

/// A host with an admin queue and I/O queues, which cores serve in turn.
struct Host {
    admin: Client,
    queues: Vec<Client>,
}

impl Host {
    fn new(bed: &Bed, name: &str, queues: u16) -> Self {
        let (admin, queues) = bed.host_named(name, queues);
        Self { admin, queues }
    }
}

/// Sends a barrier, and does not wait for its answer.
fn barrier(client: &mut Client) -> u16 {
    let cid = client.cid();
    client.capsule(&Barrier { nsid: 1 }.encode(cid), &[]);
    cid
}

/// Sends a write of some blocks, and does not wait for its answer.
fn write(client: &mut Client, slba: u64, data: &[u8]) -> u16 {
    let cid = client.cid();
    let mut command = io(IoOpcode::WRITE, slba, (data.len() / BLOCK) as u32);
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
    client.capsule(&command, data);
    cid
}

/// The next answer is this command's.
fn answer(client: &mut Client, cid: u16) -> Status {
    let Completion {
        cid: found, status, ..
    } = client.completion();
    assert_eq!(found, cid);
    status
}

fn succeeds(client: &mut Client, cid: u16) {
    let status = answer(client, cid);
    assert!(status.is_success(), "{status}");
}

fn waits(bed: &Bed) -> u64 {
    let cores = bed.handle().snapshot().cores;
    cores.iter().map(|core| core.barrier_waits).sum()
}

/// Writes to a block that the device takes at once, until such a write is held; its command. So many
/// commands were held `already`: cores publish what they count when they have time, and one more than
/// those is this one.
fn until_held(bed: &Bed, client: &mut Client, already: u64) -> u16 {
    eventually("what came before is held", || waits(bed) == already);
    for seed in 0.. {
        let cid = write(client, QUICK + 50, &pattern(seed, BLOCK));
        eventually("the write is answered or held", || {
            waits(bed) > already || !client.is_silent()
        });
        if client.is_silent() {
            return cid;
        }
        succeeds(client, cid);
    }
    unreachable!("barriers reach every core")
}

/// Lets go what the device holds.
fn open(state: &State) {
    state.open.store(true, Ordering::SeqCst);
}

/// Sends a write that the device holds; its command. Others that it held already are `before`.
fn late_write(client: &mut Client, data: &[u8], state: &State, before: usize) -> u16 {
    let cid = write(client, 0, data);
    eventually("the device has the request", || {
        state.held.load(Ordering::SeqCst) == before + 1
    });
    cid
}

#[test]
fn what_came_before_is_through_and_what_follows_waits_on_every_queue() {
    let (bed, state) = bed(64);
    let mut host = Host::new(&bed, HOST, 2);
    let [one, two] = &mut host.queues[..] else {
        panic!("two queues")
    };
    let first = late_write(one, &pattern(1, BLOCK), &state, 0);
    let second = late_write(two, &pattern(2, BLOCK), &state, 1);
    let waits_for_both = barrier(one);
    let follows = write(one, QUICK, &pattern(3, BLOCK));
    let elsewhere = until_held(&bed, two, 1);
    // Admin commands are nobody's to hold.
    assert_ne!(host.admin.property(Property::CAP), 0);
    assert!(one.is_silent() && two.is_silent());
    open(&state);
    succeeds(one, first);
    succeeds(one, waits_for_both);
    succeeds(one, follows);
    succeeds(two, second);
    succeeds(two, elsewhere);
    // Nothing is left of it.
    let again = barrier(two);
    succeeds(two, again);
    assert!(one.write(QUICK, &pattern(4, BLOCK)).status.is_success());
}

#[test]
fn barriers_of_one_tenant_follow_each_other() {
    let (bed, state) = bed(64);
    let mut host = Host::new(&bed, HOST, 4);
    let late = late_write(&mut host.queues[0], &pattern(1, BLOCK), &state, 0);
    let mut sent = vec![Vec::new(); 4];
    for round in 0..20 {
        for (queue, sent) in host.queues.iter_mut().zip(&mut sent) {
            sent.push(barrier(queue));
            sent.push(write(queue, QUICK + round, &pattern(round, BLOCK)));
        }
    }
    for queue in &host.queues[1..] {
        assert!(queue.is_silent());
    }
    open(&state);
    succeeds(&mut host.queues[0], late);
    for (queue, sent) in host.queues.iter_mut().zip(sent) {
        for cid in sent {
            succeeds(queue, cid);
        }
    }
}

#[test]
fn a_write_that_is_asked_for_its_data_comes_before_and_what_is_read_behind_it_is_new() {
    let bed = Bed::with(Limits::default(), 2);
    let mut host = Host::new(&bed, HOST, 1);
    let queue = &mut host.queues[0];
    let (old, new) = (pattern(1, 8 * BLOCK), pattern(2, 8 * BLOCK));
    assert!(queue.write_by_r2t(0, &old).status.is_success());
    let cid = queue.cid();
    let mut command = io(IoOpcode::WRITE, 0, 8);
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::transport(new.len() as u32));
    queue.capsule(&command, &[]);
    let between = barrier(queue);
    let read = queue.cid();
    let mut command = io(IoOpcode::READ, 0, 8);
    command.set_cid(read);
    command.set_sgl(SglDescriptor::transport(new.len() as u32));
    queue.capsule(&command, &[]);
    assert_eq!(queue.finish_write(&new).cid, cid);
    succeeds(queue, between);
    let (completion, found) = queue.fetched(read);
    assert!(completion.status.is_success() && found == new);
}

#[test]
fn reads_before_a_barrier_do_not_find_what_is_written_behind_it() {
    let bed = Bed::with(Limits::default(), 1);
    let mut host = Host::new(&bed, HOST, 2);
    let blocks = 256;
    let old = pattern(1, blocks * BLOCK);
    let Host { queues, .. } = &mut host;
    assert!(queues[0].write_by_r2t(0, &old).status.is_success());
    // More than the sockets take, so that the device's memory is read for long after.
    let reads: Vec<_> = (0..20)
        .map(|_| {
            let cid = queues[0].cid();
            let mut read = io(IoOpcode::READ, 0, blocks as u32);
            read.set_cid(cid);
            read.set_sgl(SglDescriptor::transport(old.len() as u32));
            queues[0].capsule(&read, &[]);
            cid
        })
        .collect();
    eventually("the reads are taken", || {
        bed.handle().snapshot().cores[0].io_commands == 21
    });
    let between = barrier(&mut queues[1]);
    let new = write(&mut queues[1], 0, &pattern(2, BLOCK));
    for cid in reads {
        let (completion, found) = queues[0].fetched(cid);
        assert!(completion.status.is_success());
        assert!(
            found == old,
            "a read found what was written behind the barrier"
        );
    }
    succeeds(&mut queues[1], between);
    succeeds(&mut queues[1], new);
}

#[test]
fn a_barrier_that_is_lost_or_aborted_holds_nobody() {
    let (bed, state) = bed(64);
    let mut host = Host::new(&bed, HOST, 3);
    let late = late_write(&mut host.queues[0], &pattern(1, BLOCK), &state, 0);
    // Its connection goes.
    barrier(&mut host.queues[1]);
    let held = until_held(&bed, &mut host.queues[0], 0);
    drop(host.queues.remove(1));
    succeeds(&mut host.queues[0], held);
    // It is aborted, and so is one that waits behind it.
    let [one, three] = &mut host.queues[..] else {
        panic!("two queues are left")
    };
    let first = barrier(three);
    let second = barrier(three);
    let held = until_held(&bed, one, 2);
    for cid in [second, first] {
        let abort = AdminCommand::Abort(Abort { sq_id: 3, cid });
        let aborted = host.admin.execute(abort.encode(0), &[]);
        assert_eq!((aborted.status, aborted.dword0()), (Status::SUCCESS, 0));
        assert_eq!(answer(three, cid), Status::ABORTED_BY_REQUEST);
    }
    succeeds(one, held);
    assert!(three.write(QUICK, &pattern(2, BLOCK)).status.is_success());
    open(&state);
    succeeds(one, late);
}

/// A barrier marked all earlier commands of its tenant when it came into force, and unmarked them when it
/// was over: pairs of a barrier and its Abort had every core look at all of them, again and again.
#[test]
fn a_barrier_waits_for_all_of_many_commands_however_many_barriers_were_aborted() {
    const EACH: usize = 1000;
    let (bed, state) = bed(4 * EACH);
    let mut host = Host::new(&bed, HOST, 4);
    let before: Vec<Vec<u16>> = host
        .queues
        .iter_mut()
        .map(|queue| {
            let data = pattern(1, BLOCK);
            (0..EACH).map(|_| write(queue, 0, &data)).collect()
        })
        .collect();
    eventually("the device has them", || {
        state.held.load(Ordering::SeqCst) == 4 * EACH
    });
    for round in 0..50 {
        let queue = 1 + round % 4;
        let client = &mut host.queues[queue - 1];
        let cid = barrier(client);
        let abort = AdminCommand::Abort(Abort {
            sq_id: queue as u16,
            cid,
        });
        eventually("it is aborted", || {
            host.admin.execute(abort.encode(0), &[]).dword0() == 0
        });
        assert_eq!(answer(client, cid), Status::ABORTED_BY_REQUEST);
    }
    let last = barrier(&mut host.queues[2]);
    let after = write(&mut host.queues[2], QUICK, &pattern(2, BLOCK));
    // Half of them are through, and it waits on.
    state.permits.store(2 * EACH, Ordering::SeqCst);
    eventually("the device finished them", || {
        state.permits.load(Ordering::SeqCst) == 0
    });
    open(&state);
    for (index, (queue, before)) in host.queues.iter_mut().zip(before).enumerate() {
        let more = if index == 2 { 2 } else { 0 };
        let answers = (0..EACH + more).map(|_| queue.completion().cid);
        let mut cids: Vec<_> = answers.collect();
        let rest = cids.split_off(EACH);
        assert!(rest.is_empty() || rest == [last, after]);
        cids.sort_unstable();
        assert_eq!(cids, before);
    }
}

#[test]
fn a_command_that_a_barrier_holds_can_be_aborted() {
    let (bed, state) = bed(64);
    let mut host = Host::new(&bed, HOST, 1);
    let queue = &mut host.queues[0];
    let late = late_write(queue, &pattern(1, BLOCK), &state, 0);
    let waits = barrier(queue);
    let held = write(queue, QUICK, &pattern(2, BLOCK));
    let kept = write(queue, QUICK + 1, &pattern(3, BLOCK));
    eventually("the queue is taken", || self::waits(&bed) == 2);
    let abort = AdminCommand::Abort(Abort {
        sq_id: 1,
        cid: held,
    });
    assert_eq!(host.admin.execute(abort.encode(0), &[]).dword0(), 0);
    assert_eq!(answer(queue, held), Status::ABORTED_BY_REQUEST);
    open(&state);
    for cid in [late, waits, kept] {
        succeeds(queue, cid);
    }
    assert_eq!(queue.read(QUICK, 1).1, vec![0; BLOCK]);
}

#[test]
fn other_tenants_are_not_held_and_all_hosts_of_a_tenant_are() {
    let (bed, state) = bed(64);
    let mut host = Host::new(&bed, HOST, 1);
    let mut other = Host::new(&bed, OTHER, 2);
    let late = late_write(&mut host.queues[0], &pattern(1, BLOCK), &state, 0);
    let waits = barrier(&mut host.queues[0]);
    // Hosts that are no tenant have nothing to do with each other.
    for queue in &mut other.queues {
        for round in 0..50 {
            let written = queue.write(QUICK + round, &pattern(round, BLOCK));
            assert!(written.status.is_success());
        }
    }
    open(&state);
    succeeds(&mut host.queues[0], late);
    succeeds(&mut host.queues[0], waits);
    state.open.store(false, Ordering::SeqCst);

    share(&bed, &[HOST, OTHER]);
    let late = late_write(&mut host.queues[0], &pattern(2, BLOCK), &state, 1);
    let waits = barrier(&mut host.queues[0]);
    let held = until_held(&bed, &mut other.queues[1], 0);
    open(&state);
    succeeds(&mut host.queues[0], late);
    succeeds(&mut host.queues[0], waits);
    succeeds(&mut other.queues[1], held);
}

/// Makes these hosts one tenant.
fn share(bed: &Bed, hosts: &[&str]) {
    let tenant = TenantOptions {
        name: "both".to_owned(),
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        ..TenantOptions::default()
    };
    let tenancy = Tenancy {
        tenants: vec![tenant],
        others: Others::Serve,
    };
    bed.handle().set_tenants(&tenancy).expect("a good tenancy");
}

#[test]
fn a_change_of_tenants_interrupts_barriers() {
    let (bed, state) = bed(64);
    let mut host = Host::new(&bed, HOST, 2);
    let [one, two] = &mut host.queues[..] else {
        panic!("two queues")
    };
    let late = late_write(one, &pattern(1, BLOCK), &state, 0);
    let interrupted = barrier(one);
    let held = until_held(&bed, two, 0);
    share(&bed, &[HOST]);
    assert_eq!(answer(one, interrupted), Status::COMMAND_INTERRUPTED);
    succeeds(two, held);
    // The tenant that it is now has barriers, too, and what is under way came before them.
    let again = barrier(two);
    let held = until_held(&bed, one, 1);
    open(&state);
    succeeds(one, late);
    succeeds(two, again);
    succeeds(one, held);
}

#[test]
fn a_barrier_that_lasts_too_long_fails_and_holds_no_longer() {
    let limits = Limits {
        barrier_timeout: Nanos::from_millis(100),
        ..Limits::default()
    };
    let (bed, state) = bed_with(64, limits);
    let mut host = Host::new(&bed, HOST, 2);
    let [one, two] = &mut host.queues[..] else {
        panic!("two queues")
    };
    let late = late_write(one, &pattern(1, BLOCK), &state, 0);
    let fails = barrier(one);
    let follows = write(one, QUICK, &pattern(2, BLOCK));
    assert_eq!(answer(one, fails), Status::COMMAND_INTERRUPTED.with_dnr());
    succeeds(one, follows);
    assert!(two.write(QUICK, &pattern(3, BLOCK)).status.is_success());
    open(&state);
    succeeds(one, late);
}

/// A barrier fails where so many writes of these data wait for it, which succeed.
fn holds_too_much((bed, state): (Bed, Arc<State>), writes: u32, data: &[u8]) {
    let mut host = Host::new(&bed, HOST, 2);
    let [one, two] = &mut host.queues[..] else {
        panic!("two queues")
    };
    let late = late_write(one, &pattern(1, BLOCK), &state, 0);
    let fails = barrier(one);
    until_held(&bed, two, 0);
    for _ in 0..writes {
        write(two, QUICK, data);
    }
    assert_eq!(answer(one, fails), Status::COMMAND_INTERRUPTED.with_dnr());
    for _ in 0..=writes {
        assert!(two.completion().status.is_success());
    }
    open(&state);
    succeeds(one, late);
}

#[test]
fn a_barrier_that_would_hold_too_much_fails_and_nothing_else_does() {
    // 600 times 16 KiB, on the other core than the barrier's.
    holds_too_much(bed(64), 600, &pattern(2, 4 * BLOCK));
}

/// What waited for a barrier kept buffers by the size of its data, not by theirs, and kept the last
/// ones, for which what came before the barrier waited.
#[test]
fn a_barrier_fails_before_it_holds_the_buffers_that_others_wait_for() {
    let limits = Limits {
        barrier_timeout: Nanos::from_secs(60),
        ..Limits::default()
    };
    let bed = bed_started(1, 64, limits, |target| with_buffers(target, few()));
    // Each takes a buffer of 64 KiB. All together have 8 MiB, a quarter of which are 32 of these.
    holds_too_much(bed, 32, &pattern(2, 2 * BLOCK));
}

#[test]
fn a_target_that_does_not_announce_it_has_none() {
    for announced in [true, false] {
        let limits = Limits {
            barrier: announced,
            ..Limits::default()
        };
        let bed = Bed::with(limits, 1);
        let mut host = Host::new(&bed, HOST, 1);
        let identify = AdminCommand::Identify(Identify::new(Cns::CONTROLLER, 0));
        let (_, data) = host.admin.fetch(identify.encode(0), IDENTIFY_BYTES);
        let identify = IdentifyController::parse_prefix(&data).expect("4096 bytes");
        assert_eq!(Extensions::parse(&identify.vendor).barrier, announced);
        let cid = barrier(&mut host.queues[0]);
        let status = answer(&mut host.queues[0], cid);
        let expected = if announced {
            Status::SUCCESS
        } else {
            Status::INVALID_OPCODE.with_dnr()
        };
        assert_eq!(status, expected);
        let nowhere = host.queues[0].execute(Barrier { nsid: 7 }.encode(0), &[]);
        assert!(!nowhere.status.is_success());
    }
}
