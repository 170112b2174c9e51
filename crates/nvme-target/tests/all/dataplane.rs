//! Reads and writes over real sockets: every way of data transfer.

use crate::common;
use crate::common::{BLOCK, Bed, Client, Dialect, io, pattern};
use block::Operation;
use std::sync::atomic::Ordering;
use switchyard_target::Limits;
use wire::fabrics::Property;
use wire::nvme::io::LbaControl;
use wire::nvme::{Command, ExtentEntry, ExtentsCommand, IoOpcode, SglDescriptor, Status};

#[test]
fn what_is_written_is_read() {
    let bed = Bed::new();
    let (_admin, mut io) = bed.host();
    for (slba, blocks) in [(0, 1), (7, 4), (100, 8), (200, 32), (512, 256)] {
        let data = pattern(slba, blocks * BLOCK);
        let completion = io.write(slba, &data);
        assert!(completion.status.is_success(), "{}", completion.status);
        let (completion, read) = io.read(slba, blocks as u32);
        assert!(completion.status.is_success(), "{}", completion.status);
        assert!(read == data, "blocks {slba}+{blocks}");
    }
    bed.target.stop().expect("an orderly end");
}

#[test]
fn digests_and_alignment_change_nothing_but_the_bytes_on_the_wire() {
    for (header_digest, data_digest, alignment) in [
        (true, false, 0),
        (false, true, 0),
        (true, true, 0),
        (true, true, 31),
        (false, false, 15),
    ] {
        let bed = Bed::new();
        let dialect = Dialect {
            header_digest,
            data_digest,
            alignment,
            max_r2t: 0,
        };
        let (mut admin, mut io) = bed.host_with(dialect);
        assert_eq!(io.session.format.header_digest, header_digest);
        assert_eq!(io.session.format.data_digest, data_digest);
        assert_ne!(admin.property(Property::CAP), 0);
        for blocks in [1, 4, 64, 256] {
            let data = pattern(9, blocks * BLOCK);
            assert!(io.write(3, &data).status.is_success());
            assert!(io.read(3, blocks as u32).1 == data);
        }
    }
}

#[test]
fn a_stream_may_be_cut_anywhere() {
    let bed = Bed::new();
    for dialect in [
        Dialect::default(),
        Dialect {
            data_digest: true,
            ..Dialect::default()
        },
    ] {
        let (_admin, mut client) = bed.host_with(dialect);
        let data = pattern(5, BLOCK);
        let mut command = io(IoOpcode::WRITE, 5, 1);
        command.set_cid(77);
        command.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
        for byte in client.session.capsule(&command, &data) {
            client.send(&[byte]);
        }
        assert!(client.completion().status.is_success());
        assert!(client.read(5, 1).1 == data);
    }
}

#[test]
fn many_commands_at_a_time_are_all_answered() {
    let bed = Bed::new();
    let mut admin = Client::dial(bed.address(), Dialect::default());
    let cntlid = admin.connect_admin(common::NQN, 0);
    admin.enable();
    let mut client = Client::dial(bed.address(), Dialect::default());
    client.connect_io(common::NQN, cntlid, 1, 1023);
    let data = pattern(1, 1024 * BLOCK);
    let mut bytes = Vec::new();
    for cid in 0..1024u16 {
        let mut command = io(IoOpcode::WRITE, u64::from(cid), 1);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
        let at = usize::from(cid) * BLOCK;
        bytes.extend(client.session.capsule(&command, &data[at..at + BLOCK]));
    }
    client.send(&bytes);
    for cid in 0..1024 {
        let completion = client.completion();
        assert_eq!((completion.cid, completion.status), (cid, Status::SUCCESS));
    }
    let mut bytes = Vec::new();
    for cid in 0..1024u16 {
        let mut command = io(IoOpcode::READ, u64::from(cid), 1);
        command.set_cid(cid);
        command.set_sgl(SglDescriptor::transport(BLOCK as u32));
        bytes.extend(client.session.capsule(&command, &[]));
    }
    client.send(&bytes);
    for cid in 0..1024u16 {
        let (_, read) = client.fetched(cid);
        let at = usize::from(cid) * BLOCK;
        assert!(read == data[at..at + BLOCK], "command {cid}");
    }
}

#[test]
fn several_r2ts_fill_one_command() {
    let limits = Limits {
        r2t_bytes: 64 * 1024,
        h2c_data_bytes: 16 * 1024,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    for max_r2t in [0, 1, 7] {
        for data_digest in [false, true] {
            let dialect = Dialect {
                max_r2t,
                data_digest,
                ..Dialect::default()
            };
            let (_admin, mut client) = bed.host_with(dialect);
            let data = pattern(u64::from(max_r2t), 1 << 20);
            assert!(client.write_by_r2t(64, &data).status.is_success());
            assert!(client.read(64, 256).1 == data);
        }
    }
}

/// Regression: the first R2T requested all the data, so `max_r2t` had no effect.
#[test]
fn a_large_write_is_asked_for_in_as_many_r2ts_as_host_and_target_allow() {
    for (ours, theirs, expected) in [(4, 7, 4), (2, 7, 2), (4, 1, 2), (4, 0, 1), (1, 7, 1)] {
        let limits = Limits {
            r2ts_per_command: ours,
            ..Limits::default()
        };
        let bed = Bed::with(limits, 1);
        let (_admin, mut client) = bed.host_with(Dialect {
            max_r2t: theirs,
            ..Dialect::default()
        });
        let data = pattern(u64::from(theirs), 1 << 20);
        let mut write = io(IoOpcode::WRITE, 0, 256);
        write.set_cid(9);
        write.set_sgl(SglDescriptor::transport(1 << 20));
        client.capsule(&write, &[]);
        // No R2T is answered before all of them have arrived.
        let asked: Vec<_> = (0..expected).map(|_| client.r2t()).collect();
        let lengths: u32 = asked.iter().map(|r2t| r2t.length).sum();
        assert!(expected > 1 || lengths == 1 << 20, "{ours} {theirs}");
        for r2t in &asked {
            client.answer_r2t(r2t, &data);
        }
        assert!(client.finish_write(&data).status.is_success());
        assert!(client.read(0, 256).1 == data);
    }
}

/// Regression: a read with FUA returned data from the device's volatile write cache that was not
/// committed.
#[test]
fn what_reads_with_fua_has_the_device_commit_first() {
    let (bed, state) = common::late::bed_on(1, 8, Limits::default());
    state.open.store(true, Ordering::SeqCst);
    let (_admin, mut client) = bed.host();
    let data = pattern(1, BLOCK);
    let fua = |opcode| {
        let mut command = io(opcode, 5, 1);
        let bits = u32::from(LbaControl::FORCE_UNIT_ACCESS.0) << 16;
        command.set_cdw(12, command.cdw(12) | bits);
        command
    };
    assert!(client.write(5, &data).status.is_success());
    let (completion, found) = client.fetch(fua(IoOpcode::READ), BLOCK);
    assert!(completion.status.is_success() && found == data);
    let compared = client.execute(fua(IoOpcode::COMPARE), &data).status;
    assert!(compared.is_success(), "{compared}");
    let verified = client.execute(fua(IoOpcode::VERIFY), &[]).status;
    assert!(verified.is_success(), "{verified}");
    let extents = ExtentsCommand {
        nsid: 1,
        extents: 1,
        blocks: 1,
        fua: true,
        outcomes: false,
    };
    let table = ExtentEntry { slba: 5, blocks: 1 }.to_bytes();
    let mut command = extents.encode(IoOpcode::READ_EXTENTS, 0);
    let cid = client.cid();
    command.set_cid(cid);
    command.set_sgl(SglDescriptor::in_capsule(0, table.len() as u32));
    client.capsule(&command, &table);
    let (completion, found) = client.fetched(cid);
    assert!(completion.status.is_success() && found == data);
    assert!(client.read(5, 1).1 == data);
    use Operation::{Compare, Flush, Read, Verify, Write};
    let write = Write { durable: false };
    let each = [
        write, Flush, Read, Flush, Compare, Flush, Verify, Flush, Read,
    ];
    assert_eq!(*state.taken.lock().expect("no panic"), each);
}

/// Regression: data digest errors were counted for some commands only.
#[test]
fn each_digest_that_does_not_match_is_counted() {
    let bed = Bed::new();
    let dialect = Dialect {
        data_digest: true,
        ..Dialect::default()
    };
    let mut admin = Client::dial(bed.address(), dialect);
    let connect = Client::connect_command(0, 31, 0);
    let names = Client::connect_data(common::NQN, 0xffff).to_bytes();
    let (_other, mut client) = bed.host_with(dialect);
    let (deallocate, list) = common::deallocate(0, 1);
    let write = io(IoOpcode::WRITE, 0, 1);
    let data = pattern(1, BLOCK);
    let damaged = |client: &mut Client, mut command: Command, data: &[u8]| {
        command.set_sgl(SglDescriptor::in_capsule(0, data.len() as u32));
        let mut bytes = client.session.capsule(&command, data);
        *bytes.last_mut().expect("a capsule") ^= 1;
        client.send(&bytes);
        let status = client.completion().status;
        assert!(status.is(Status::TRANSIENT_TRANSPORT_ERROR), "{status}");
    };
    damaged(&mut admin, connect.encode(0), &names);
    damaged(&mut client, deallocate, &list);
    damaged(&mut client, write, &data);
    let core = || bed.handle().snapshot().cores[0];
    common::eventually("three are counted", || core().data_digest_errors == 3);
}
