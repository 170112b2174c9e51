//! Read Extents and Write Extents: announced, checked before any block is accessed, and executed by
//! devices with and without support for them.

use crate::common;
use crate::common::{
    BLOCK, Bed, Client, Dialect, HOST, NQN, extents as command, namespace, pattern,
};
use base::Time;
use base::units::{Lba, MIB};
use block::device::Flash;
use block::layer::{Fault, FaultEffect, FaultOptions, FaultRule};
use block::{BlockError, Channel, Completion as Done, Device, Request, Submit};
use reactor::Context;
use std::collections::VecDeque;
use std::sync::Arc;
use switchyard_target::limits::EXTENTS_MAX;
use switchyard_target::{AccessGrant, Limits, Others, Tenancy, TenantGrant, TenantOptions};
use testing::device::TestDevice;
use wire::nvme::identify::Cns;
use wire::nvme::vendor::Extensions;
use wire::nvme::{
    AdminCommand, Command, Completion, Identify, IdentifyController, IoOpcode, SglDescriptor,
    Status,
};
use wire::tcp::PduHeader;
use wire::tcp::c2h_data::C2hProgress;

fn bytes(extents: &[(u64, u32)]) -> usize {
    extents
        .iter()
        .map(|&(_, blocks)| blocks as usize)
        .sum::<usize>()
        * BLOCK
}

fn send(client: &mut Client, mut command: Command, data: &[u8]) -> u16 {
    let cid = client.cid();
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
    client.capsule(&command, data);
    cid
}

fn read(client: &mut Client, nsid: u32, extents: &[(u64, u32)]) -> (Completion, Vec<u8>) {
    let (command, table) = command(IoOpcode::READ_EXTENTS, nsid, extents);
    let cid = send(client, command, &table);
    client.fetched(cid)
}

/// Writes extents, with the data in the capsule or by R2T.
fn write(client: &mut Client, nsid: u32, extents: &[(u64, u32)], inside: bool) -> Completion {
    let (command, table) = command(IoOpcode::WRITE_EXTENTS, nsid, extents);
    let data = pattern(extents[0].0, bytes(extents));
    if inside {
        return client.execute(command, &[data, table].concat());
    }
    send(client, command, &table);
    client.finish_write(&data)
}

/// Checks by single Reads the data that [`write`] wrote.
fn check(client: &mut Client, extents: &[(u64, u32)]) {
    let data = pattern(extents[0].0, bytes(extents));
    let mut at = 0;
    for &(slba, blocks) in extents {
        let (completion, found) = client.read(slba, blocks);
        assert!(completion.status.is_success(), "{}", completion.status);
        let length = blocks as usize * BLOCK;
        assert_eq!(found, data[at..at + length], "block {slba}");
        at += length;
    }
}

fn announced(bed: &Bed) -> Extensions {
    let identify = AdminCommand::Identify(Identify::new(Cns::CONTROLLER, 0));
    let (completion, data) = bed.admin().fetch(identify.encode(0), 4096);
    assert!(completion.status.is_success());
    let identify = IdentifyController::parse_prefix(&data).expect("4096 bytes");
    Extensions::parse(&identify.vendor)
}

fn without() -> Limits {
    Limits {
        extents: 0,
        ..Limits::default()
    }
}

#[test]
fn they_are_announced_with_their_terms_or_not_known() {
    let terms = announced(&Bed::new()).extents.expect("announced");
    assert_eq!(
        (terms.extents, terms.in_flight, terms.bytes),
        (EXTENTS_MAX, 64, 1 << 20)
    );
    let small = Limits {
        in_capsule_bytes: 48,
        ..Limits::default()
    };
    let terms = announced(&Bed::with(small, 1)).extents.expect("announced");
    assert_eq!(terms.extents, 3, "a table fits into a capsule");
    let bed = Bed::with(without(), 1);
    assert_eq!(announced(&bed).extents, None);
    let (_admin, mut queue) = bed.host();
    for opcode in [IoOpcode::READ_EXTENTS, IoOpcode::WRITE_EXTENTS] {
        let (command, table) = command(opcode, 1, &[(0, 1)]);
        let completion = queue.execute(command, &table);
        assert!(completion.status.is(Status::INVALID_OPCODE));
    }
}

#[test]
fn extents_go_where_their_table_says_on_every_connection() {
    for data_digest in [false, true] {
        for alignment in [0, 31] {
            let bed = Bed::new();
            let dialect = Dialect {
                header_digest: data_digest,
                data_digest,
                alignment,
                ..Dialect::default()
            };
            let (_admin, mut queue) = bed.host_with(dialect);
            let some = [(7, 1), (8, 1), (30, 1)];
            assert!(write(&mut queue, 1, &some, true).status.is_success());
            check(&mut queue, &some);
            let large = [(100, 3), (110, 1), (111, 70)];
            assert!(write(&mut queue, 1, &large, false).status.is_success());
            check(&mut queue, &large);
            let many: Vec<_> = (0..u64::from(EXTENTS_MAX))
                .map(|n| (200 + 3 * n, 2))
                .collect();
            assert!(write(&mut queue, 1, &many, false).status.is_success());
            check(&mut queue, &many);
            for extents in [&some[..], &large, &many] {
                let (completion, found) = read(&mut queue, 1, extents);
                assert!(completion.status.is_success());
                assert_eq!(found, pattern(extents[0].0, bytes(extents)));
            }
        }
    }
}

#[test]
fn a_large_table_arrives_in_pieces() {
    let bed = Bed::new();
    let (_admin, mut queue) = bed.host();
    let extents = [(1, 1), (5, 2)];
    let (command, table) = command(IoOpcode::WRITE_EXTENTS, 1, &extents);
    let data = [pattern(1, 3 * BLOCK), table].concat();
    let mut command = command;
    command.set_cid(9);
    command.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
    for piece in queue.session.capsule(&command, &data).chunks(5000) {
        queue.send(piece);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(queue.completion().status.is_success());
    check(&mut queue, &extents);
}

#[test]
fn a_bad_table_is_refused_before_any_block_is_touched() {
    let bed = Bed::new();
    let (_admin, mut queue) = bed.host();
    let blocks = 16 * MIB as u64 / BLOCK as u64;
    let (field, range) = (Status::INVALID_FIELD, Status::LBA_OUT_OF_RANGE);
    for (extents, index, expected) in [
        (&[(1, 1), (1, 1)][..], 1, field),
        (&[(1, 2), (2, 1)], 1, field),
        (&[(1, 1), (3, 1), (2, 1)], 2, field),
        (&[(1, 1), (2, 0)], 1, field),
        (&[(1, 1), (blocks - 1, 2)], 1, range),
        (&[(1, 1), (2, 1), (blocks, 1)], 2, range),
        (&[(1, 1), (u64::MAX, 1)], 1, range),
    ] {
        for opcode in [IoOpcode::WRITE_EXTENTS, IoOpcode::READ_EXTENTS] {
            let (command, table) = command(opcode, 1, extents);
            let data = pattern(77, bytes(extents));
            let brings = opcode == IoOpcode::WRITE_EXTENTS;
            let data = if brings {
                [data, table].concat()
            } else {
                table
            };
            let completion = queue.execute(command, &data);
            assert!(
                completion.status.is(expected),
                "{extents:?}: {}",
                completion.status
            );
            assert!(completion.status.dnr());
            assert_eq!(completion.dword0(), index, "{extents:?}");
        }
    }
    let (_, found) = queue.read(1, 3);
    assert_eq!(found, vec![0; 3 * BLOCK], "nothing was written");
}

#[test]
fn every_field_of_a_command_over_extents_is_checked() {
    let bed = Bed::new();
    let (_admin, mut queue) = bed.host();
    let write = IoOpcode::WRITE_EXTENTS;
    let (good, table) = command(write, 1, &[(1, 1), (3, 1)]);
    let inside = [pattern(1, 2 * BLOCK), table.clone()].concat();
    let field = Status::INVALID_FIELD;
    let length = Status::DATA_SGL_LENGTH_INVALID;
    let mut refused = |what: &str, edit: &dyn Fn(&mut Command), data: &[u8], expected: Status| {
        let mut command = good;
        let cid = queue.cid();
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
        edit(&mut command);
        queue.capsule(&command, data);
        let completion = queue.completion();
        assert!(
            completion.status.is(expected),
            "{what}: {}",
            completion.status
        );
    };
    refused("fused", &|c| c.set_fuse(1), &inside, field);
    refused("a PRP", &|c| c.set_psdt(0), &inside, field);
    refused("no extent", &|c| c.set_cdw(10, 0), &inside, field);
    refused("too many extents", &|c| c.set_cdw(10, 65), &inside, field);
    refused(
        "one more than in the table",
        &|c| c.set_cdw(10, 3),
        &inside,
        length,
    );
    refused("another sum", &|c| c.set_cdw(11, 3), &table, field);
    refused(
        "more than a transfer",
        &|c| c.set_cdw(11, 257),
        &table,
        field,
    );
    refused(
        "no namespace",
        &|c| c.set_nsid(9),
        &inside,
        Status::INVALID_NAMESPACE,
    );
    refused(
        "all namespaces",
        &|c| c.set_nsid(u32::MAX),
        &inside,
        Status::INVALID_NAMESPACE,
    );
    refused("a part of the data", &|_| {}, &inside[BLOCK..], length);
    refused("a part of the table", &|_| {}, &table[1..], length);
    let read = |c: &mut Command| {
        let mut bytes = *c.as_bytes();
        bytes[0] = IoOpcode::READ_EXTENTS.0;
        *c = Command::from_bytes(bytes);
    };
    refused("a read that brings data", &read, &inside, length);
    let outside = |c: &mut Command| c.set_sgl(SglDescriptor::transport(32));
    refused("a table with the host", &outside, &[], field);
    let beyond = |c: &mut Command| c.set_sgl(SglDescriptor::in_capsule(8, 32));
    refused("a table beyond the capsule", &beyond, &table, length);
    // Reserved fields are ignored.
    let mut reserved = good;
    reserved.set_cdw(10, 2 | 0xffff << 16);
    reserved.set_cdw(12, !(1 << 30));
    for dword in 13..16 {
        reserved.set_cdw(dword, u32::MAX);
    }
    assert!(queue.execute(reserved, &inside).status.is_success());
}

/// A channel of RAM that takes two requests for odd blocks per turn, and fails requests for the
/// last block, which is odd.
#[derive(Debug)]
struct NarrowChannel {
    ram: Box<dyn Channel>,
    last_block: u64,
    pending: VecDeque<Request>,
    done: VecDeque<Done>,
}

impl Channel for NarrowChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        if self.pending.len() == 2 {
            return Submit::Busy(request);
        }
        if request.lba.0.is_multiple_of(2) {
            return self.ram.submit(request, cx);
        }
        self.pending.push_back(request);
        Submit::Queued
    }

    fn reap(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        while let Some(request) = self.pending.pop_front() {
            if request.lba.0 == self.last_block {
                self.done
                    .push_back(request.ended(Err(BlockError::ReadFailure)));
            } else if let Submit::Done(completion) = self.ram.submit(request, cx) {
                self.done.push_back(completion);
            }
        }
    }

    fn deadline(&self) -> Time {
        if self.pending.is_empty() {
            Time::NEVER
        } else {
            Time::ZERO
        }
    }
}

#[test]
fn a_device_without_extents_gets_one_request_for_each() {
    let bed = Bed::new();
    let ram = common::ram(16 * MIB);
    let last_block = ram.geometry().blocks - 1;
    let narrow = TestDevice::new(ram, move |ram| {
        Box::new(NarrowChannel {
            ram,
            last_block,
            pending: VecDeque::new(),
            done: VecDeque::new(),
        })
    });
    let device = Arc::new(narrow.with(|capabilities| capabilities.extents_max = 0));
    bed.handle()
        .add_namespace(NQN, namespace(2, device))
        .expect("a new namespace");
    let (_admin, mut queue) = bed.host();
    let many: Vec<_> = (0..64).map(|n| (3 * n, 2)).collect();
    assert!(write(&mut queue, 2, &many, false).status.is_success());
    let (completion, found) = read(&mut queue, 2, &many);
    assert!(completion.status.is_success());
    assert_eq!(found, pattern(0, bytes(&many)));
    let last = 16 * MIB as u64 / BLOCK as u64 - 1;
    let (completion, found) = read(&mut queue, 2, &[(1, 1), (4, 1), (last, 1)]);
    assert!(completion.status.is(Status::UNRECOVERED_READ_ERROR));
    assert_eq!((completion.dword0(), found.len()), (2, 0));
    let (completion, found) = read(&mut queue, 2, &[(1, 1), (4, 1)]);
    assert!(completion.status.is_success());
    assert_eq!(found.len(), 2 * BLOCK);
}

/// A host that requests the outcome of each extent gets one bit per completed extent, and for a
/// read the data of those before the first failed extent; the device executes all, regardless of
/// failures.
#[test]
fn a_partial_failure_says_which_extents_were_done() {
    let bed = Bed::new();
    let fails = |lba| FaultRule {
        first: Lba(lba),
        blocks: Some(1),
        ..FaultRule::new(FaultEffect::Error(BlockError::WriteFailure))
    };
    let options = FaultOptions {
        seed: 1,
        rules: vec![fails(8), fails(12)],
    };
    let device = Fault::new(common::ram(16 * MIB), &options).expect("good rules");
    bed.handle()
        .add_namespace(NQN, namespace(2, Arc::new(device)))
        .expect("a new namespace");
    let (_admin, mut queue) = bed.host();
    let table = [(0, 1), (4, 2), (8, 1), (10, 1), (12, 1), (14, 1)];
    let with = |opcode, outcomes| {
        let (mut command, table) = command(opcode, 2, &table);
        if outcomes {
            command.set_cdw(12, 1 << 29);
        }
        (command, table)
    };
    let data = pattern(3, bytes(&table));
    for (outcomes, result) in [(false, 2), (true, 0b10_1011)] {
        let (command, table) = with(IoOpcode::WRITE_EXTENTS, outcomes);
        send(&mut queue, command, &table);
        let completion = queue.finish_write(&data);
        assert!(completion.status.is(Status::WRITE_FAULT), "{completion:?}");
        assert_eq!(completion.result, result);
        let (command, table) = with(IoOpcode::READ_EXTENTS, outcomes);
        let cid = send(&mut queue, command, &table);
        let (completion, found) = queue.fetched(cid);
        assert!(!completion.status.is_success());
        let (result, sent) = if outcomes { (0b11, 3 * BLOCK) } else { (2, 0) };
        assert_eq!((completion.result, &found[..]), (result, &data[..sent]));
    }
    // A command that is refused as a whole was not begun.
    let (mut command, table) = command(IoOpcode::READ_EXTENTS, 2, &[(0, 1), (1 << 40, 1)]);
    command.set_cdw(12, 1 << 29);
    let cid = send(&mut queue, command, &table);
    let (completion, _) = queue.fetched(cid);
    assert!(completion.status.is(Status::LBA_OUT_OF_RANGE));
    assert_eq!(completion.result, 0);
}

/// The device completes its commands in a later turn than that of their arrival.
#[test]
fn a_device_that_takes_time_gets_one_command() {
    let bed = Bed::new();
    let profile = "dram-ssd".parse().expect("a profile");
    let device = Flash::new(profile, 16 * MIB as u64, BLOCK as u32).expect("16 MiB");
    let device: Arc<dyn Device> = Arc::new(device);
    bed.handle()
        .add_namespace(NQN, namespace(2, Arc::clone(&device)))
        .expect("a new namespace");
    let (_admin, mut queue) = bed.host();
    let many: Vec<_> = (0..64).map(|n| (3 * n, 2)).collect();
    let status = write(&mut queue, 2, &many, false).status;
    assert!(status.is_success(), "{status:?}");
    let (completion, found) = read(&mut queue, 2, &many);
    assert!(completion.status.is_success(), "{:?}", completion.status);
    assert_eq!(found, pattern(0, bytes(&many)));
}

#[test]
fn rights_count_for_every_extent() {
    let bed = Bed::new();
    let grant = |first, blocks, write| TenantGrant {
        subsystem: None,
        grant: AccessGrant {
            namespace: Some(1),
            range: Some((first, blocks)),
            read: true,
            write,
        },
    };
    let tenant = TenantOptions {
        name: "a".to_owned(),
        hosts: vec![HOST.to_owned()],
        grants: Some(vec![grant(0, 8, true), grant(16, 8, false)]),
        ..TenantOptions::default()
    };
    let tenancy = Tenancy {
        tenants: vec![tenant],
        others: Others::Refuse,
    };
    bed.handle().set_tenants(&tenancy).expect("a good tenancy");
    let (_admin, mut queue) = bed.host();
    for (extents, index) in [(&[(0, 1), (16, 1)][..], 1), (&[(0, 1), (3, 2), (7, 2)], 2)] {
        for inside in [true, false] {
            let (command, table) = command(IoOpcode::WRITE_EXTENTS, 1, extents);
            let data = pattern(5, bytes(extents));
            let data = if inside {
                [data, table].concat()
            } else {
                table
            };
            if data.len() > 16 * 1024 {
                continue;
            }
            let completion = queue.execute(command, &data);
            assert!(
                completion.status.is(Status::ACCESS_DENIED),
                "{}",
                completion.status
            );
            assert_eq!(completion.dword0(), index);
        }
    }
    let (completion, found) = read(&mut queue, 1, &[(0, 8), (16, 8)]);
    assert!(completion.status.is_success());
    assert_eq!(found, vec![0; 16 * BLOCK], "nothing was written");
    let (completion, _) = read(&mut queue, 1, &[(0, 8), (15, 2)]);
    assert!(completion.status.is(Status::ACCESS_DENIED));
    assert!(
        write(&mut queue, 1, &[(0, 1), (4, 2)], true)
            .status
            .is_success()
    );
}

#[test]
fn more_than_the_announced_number_in_flight_are_sent_back() {
    let limits = Limits {
        extents_in_flight: 1,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let (_admin, mut queue) = bed.host();
    let (first, table) = command(IoOpcode::WRITE_EXTENTS, 1, &[(1, 1), (3, 1)]);
    send(&mut queue, first, &table);
    let r2t = queue.r2t();
    let completion = queue.execute(first, &table);
    assert!(completion.status.is(Status::COMMAND_INTERRUPTED));
    assert!(!completion.status.dnr());
    let core = || bed.handle().snapshot().cores[0];
    common::eventually("it is counted", || core().extents_in_flight_refused == 1);
    assert_eq!(
        (core().extent_tables_used, core().extent_tables_refused),
        (1, 0)
    );
    let data = pattern(1, 2 * BLOCK);
    queue.answer_r2t(&r2t, &data);
    assert!(queue.completion().status.is_success());
    assert!(
        write(&mut queue, 1, &[(1, 1), (3, 1)], true)
            .status
            .is_success()
    );
}

#[test]
fn the_answer_of_a_read_is_one_data_pdu_for_each_extent() {
    let bed = Bed::new();
    let (_admin, mut queue) = bed.host();
    let (command, table) = command(IoOpcode::READ_EXTENTS, 1, &[(1, 1), (3, 2), (9, 1)]);
    let cid = send(&mut queue, command, &table);
    let mut offset = 0;
    for (blocks, last) in [(1, false), (2, false), (1, true)] {
        let PduHeader::C2hData(data) = queue.receive().header else {
            panic!("data comes first");
        };
        assert_eq!((data.command_id, data.data_offset), (cid, offset));
        assert_eq!(data.data_length, blocks * BLOCK as u32);
        assert_eq!(data.progress != C2hProgress::More, last);
        offset += data.data_length;
    }
}
