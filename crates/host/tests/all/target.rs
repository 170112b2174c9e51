//! Host and target together over real sockets: the test suite of every device, discovery, and
//! changes during I/O.

use crate::setup::{NQN, connect, driver, namespace, start, start_with};
use base::units::{Lba, MIB};
use block::device::Ram;
use block::layer::{Fault, FaultEffect, FaultOptions, FaultRule};
use block::{BlockError, Device, Extent, Extents, Operation};
use host::{Host, RemoteNamespace, SubsystemKind};
use std::sync::Arc;
use std::time::Duration;
use switch::Path;
use target::{Limits, NamespaceOptions};
use testing::device::conformance::{Bench, Suite, run};

fn conforms(block_bytes: u32, digests: bool, queues: u16) {
    let running = start(2);
    running
        .handle
        .add_namespace(NQN, namespace(2, block_bytes))
        .unwrap();
    let address = running.addresses[0].to_string();
    let host = Host::builder()
        .digests(digests, digests)
        .queues(queues, 64)
        .build()
        .unwrap();
    let subsystem = host.connect(&address, NQN).unwrap();
    let remote = RemoteNamespace::new(subsystem.association(), 2).unwrap();
    run(driver, &remote, Suite::default());
}

#[test]
fn a_remote_namespace_is_a_device_like_any_other() {
    conforms(4096, false, 1);
}

#[test]
fn a_remote_namespace_conforms_with_digests_small_blocks_and_several_queues() {
    conforms(512, true, 3);
}

#[test]
fn a_remote_namespace_conforms_by_each_io_path() {
    let running = start(2);
    let address = running.addresses[0].to_string();
    let host = Host::builder().queues(2, 64).build().unwrap();
    let disk = host.connect(&address, NQN).unwrap().namespace(1).unwrap();
    for path in Path::ALL {
        let device = disk.device_by(path).unwrap();
        let suite = Suite {
            requests: 500,
            fresh: false,
            ..Suite::default()
        };
        run(driver, &device, suite);
        assert!(device.snapshot().commands() > 0, "{path}");
    }
}

#[test]
fn threads_share_the_queues_of_a_remote_namespace() {
    let running = start(2);
    let (_host, subsystem) = connect(&running);
    let disk = subsystem.namespace(1).unwrap();
    let device = disk.device_by(Path::Stm).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let device = device.clone();
            scope.spawn(move || {
                let mut bench = Bench::open(driver(), &device).unwrap();
                for lba in (0..600).filter(|lba| lba % 3 == u64::from(thread)) {
                    bench.write(lba, &[thread; 4096]).unwrap();
                }
                bench.close();
            });
        }
    });
    let mut page = [0; 4096];
    for lba in 0..600 {
        disk.read(lba * 4096, &mut page).unwrap();
        assert_eq!(u64::from(page[4095]), lba % 3, "block {lba}");
    }
    let merged = device.snapshot().commands();
    assert!((1..=600).contains(&merged), "{merged}");
}

#[test]
fn extents_go_by_one_command_where_the_target_announces_that() {
    for extents in [64, 3, 0] {
        let limits = Limits {
            extents,
            ..Limits::default()
        };
        let running = start_with(1, limits);
        let (_host, subsystem) = connect(&running);
        let remote = RemoteNamespace::new(subsystem.association(), 1).unwrap();
        assert_eq!(remote.capabilities().extents_max, u32::from(extents));
        if extents == 0 {
            continue;
        }
        let mut bench = Bench::open(driver(), &remote).unwrap();
        let table = |bench: &Bench<_>, seed: u8| -> Vec<Extent> {
            let extent = |n: u64| {
                let mut data = bench.buffer(2 * 4096).unwrap();
                data.copy_in(0, &[seed; 2 * 4096]);
                Extent {
                    tag: n,
                    lba: Lba(5 * n),
                    blocks: 2,
                    data: Some(data),
                    result: Ok(()),
                }
            };
            (0..u64::from(extents.min(16))).map(extent).collect()
        };
        for (operation, seed) in [
            (Operation::Write { durable: true }, 7),
            (Operation::Read, 0),
        ] {
            let command = Extents {
                tag: bench.tag(),
                operation,
                extents: table(&bench, seed),
            };
            let done = bench.run_extents(command);
            for extent in done.extents {
                assert_eq!(extent.result, Ok(()));
                let data = extent.data.unwrap();
                assert!(data.bytes().unwrap().iter().all(|&byte| byte == 7));
            }
        }
        bench.close();
    }
}

/// Each extent has its own status, not the command's.
#[test]
fn a_partial_failure_says_which_extents_failed() {
    let running = start(1);
    let fails = FaultRule {
        first: Lba(10),
        blocks: Some(1),
        ..FaultRule::new(FaultEffect::Error(BlockError::Corrupt))
    };
    let options = FaultOptions {
        seed: 1,
        rules: vec![fails],
    };
    let ram = Ram::new(16 * MIB as u64, 4096).unwrap();
    let device = Fault::new(Arc::new(ram), &options).unwrap();
    let namespace = NamespaceOptions::new(2, Arc::new(device), [2; 16]);
    running.handle.add_namespace(NQN, namespace).unwrap();
    let (_host, subsystem) = connect(&running);
    let remote = RemoteNamespace::new(subsystem.association(), 2).unwrap();
    let mut bench = Bench::open(driver(), &remote).unwrap();
    // In the capsule, and by R2T.
    for blocks in [1, 4] {
        for (operation, seed) in [
            (Operation::Write { durable: true }, 7),
            (Operation::Read, 0),
        ] {
            let extent = |n: u64| {
                let bytes = blocks as usize * 4096;
                let mut data = bench.buffer(bytes).unwrap();
                data.copy_in(0, &vec![seed; bytes]);
                Extent {
                    tag: n,
                    lba: Lba(5 * n),
                    blocks,
                    data: Some(data),
                    result: Ok(()),
                }
            };
            let extents = (0..4).map(extent).collect();
            let command = Extents {
                tag: bench.tag(),
                operation,
                extents,
            };
            let done = bench.run_extents(command);
            let failed: Vec<_> = done.extents.iter().map(|e| e.result.is_err()).collect();
            // A read returns nothing beyond the first extent that failed.
            let last = operation == Operation::Read;
            assert_eq!(failed, [false, false, true, last], "{operation:?}");
            for extent in done.extents.iter().filter(|e| e.result.is_ok()) {
                let data = extent.data.as_ref().unwrap().bytes().unwrap();
                assert!(data.iter().all(|&byte| byte == 7), "{operation:?}");
            }
        }
    }
    bench.close();
}

#[test]
fn discovery_finds_the_subsystem() {
    let running = start(1);
    let host = Host::builder().build().unwrap();
    let found = host.discover(&running.addresses[0].to_string()).unwrap();
    assert_eq!(found.failed, []);
    let mut entries = found.entries.iter();
    let found = entries.find(|entry| entry.subsystem == NQN).unwrap();
    assert_eq!(found.kind, SubsystemKind::Nvm);
    assert_eq!(found.transport, "tcp");
    assert_eq!(
        found.socket_address.unwrap().port(),
        running.addresses[0].port()
    );
}

#[test]
fn namespaces_come_grow_and_go_while_the_host_looks_on() {
    let running = start(1);
    let host = Host::builder().build().unwrap();
    let subsystem = host
        .connect(&running.addresses[0].to_string(), NQN)
        .unwrap();
    assert_eq!(subsystem.namespaces().len(), 1);
    running
        .handle
        .add_namespace(NQN, namespace(2, 512))
        .unwrap();
    while subsystem.namespaces().len() != 2 {
        std::thread::yield_now();
    }
    let two = subsystem.namespace(2).unwrap();
    two.write(0, &[2; 1024]).unwrap();
    running.handle.resize_namespace(NQN, 2, 65_536).unwrap();
    while two.size() != 32 * MIB as u64 {
        std::thread::yield_now();
    }
    two.write(31 * MIB as u64, &[3; 1024]).unwrap();
    running.handle.remove_namespace(NQN, 2).unwrap();
    while subsystem.namespaces().len() != 1 {
        std::thread::yield_now();
    }
    two.read(0, &mut [0; 512]).unwrap_err();
    let one = subsystem.namespace(1).unwrap();
    one.write(0, &[1; 4096]).unwrap();
}

#[test]
fn a_long_write_arrives_whole_through_blocking_calls_and_queues() {
    let running = start(2);
    let host = Host::builder()
        .keep_alive(Duration::from_secs(2))
        .build()
        .unwrap();
    let subsystem = host
        .connect(&running.addresses[0].to_string(), NQN)
        .unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    let data: Vec<u8> = (0..5 * MIB)
        .map(|i| u8::try_from(i % 251).unwrap())
        .collect();
    let whole = data.len() / 4096 * 4096;
    namespace.write(4096, &data[..whole]).unwrap();
    let mut back = vec![0; whole];
    namespace.read(4096, &mut back).unwrap();
    assert!(back == data[..whole]);
    let mut queue = namespace.queue(16).unwrap();
    queue.read(1, 4096, MIB).unwrap();
    let done = queue.wait(1).unwrap().next().unwrap();
    done.result.unwrap();
    assert!(done.data.unwrap().bytes().unwrap() == &data[..MIB]);
    assert_eq!(namespace.device().geometry().blocks, 4096);
}
