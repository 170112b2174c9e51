//! Blocking calls over real sockets to the test controller: every kind of transfer and every
//! option.

use crate::peer::{Behaviour, NQN, Peer, builder, connect};
use host::{Host, HostError, Namespace, RequestError};
use rustix::net::{AddressFamily, SocketType, getsockname, socket};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use testing::pattern;
use wire::nvme::identify_controller::NvmIdentifyController;

#[test]
fn what_was_written_is_read_however_it_travels() {
    let kib = 1024;
    let base = Behaviour::default();
    let variants = [
        base.clone(),
        Behaviour {
            in_capsule_bytes: 8192,
            ..base.clone()
        },
        Behaviour {
            success_flag: false,
            data_pdu_bytes: 4096,
            ..base.clone()
        },
        Behaviour {
            max_h2c_data: 4096,
            ..base.clone()
        },
        Behaviour {
            transfer_bytes: 8192,
            max_h2c_data: 4096,
            ..base.clone()
        },
        Behaviour {
            transfer_bytes: 4096,
            transfers_at_once: 4,
            ..base.clone()
        },
        Behaviour {
            alignment: 31,
            in_capsule_bytes: 4096,
            ..base.clone()
        },
        Behaviour {
            data_pdu_bytes: 512,
            ..base
        },
    ];
    for (number, behaviour) in variants.into_iter().enumerate() {
        for digests in [false, true] {
            let peer = Peer::start(4096 * kib, behaviour.clone());
            let namespace = connect(&peer, builder().digests(digests, digests));
            for length in [
                512,
                4096,
                8192,
                20 * kib,
                64 * kib,
                1024 * kib,
                3 * 1024 * kib,
            ] {
                let data = pattern(number as u64 | 1, length);
                namespace.write(512, &data).unwrap();
                assert_eq!(peer.memory()[512..512 + length], data, "variant {number}");
                let mut back = vec![0; length];
                namespace.read(512, &mut back).unwrap();
                assert!(
                    back == data,
                    "variant {number}, digests {digests}, {length} bytes"
                );
            }
        }
    }
}

#[test]
fn the_other_commands_work() {
    let peer = Peer::start(
        1 << 20,
        Behaviour {
            in_capsule_bytes: 4096,
            ..Behaviour::default()
        },
    );
    let namespace = connect(&peer, builder());
    let data = pattern(3, 8192);
    namespace.write_durable(0, &data).unwrap();
    namespace.flush().unwrap();
    namespace.compare(0, &data).unwrap();
    let different = namespace.compare(512, &data).unwrap_err();
    assert!(matches!(
        different,
        RequestError::Device(block::BlockError::CompareFailure)
    ));
    namespace.verify(0, 1 << 20).unwrap();
    namespace.write_zeroes(512, 512).unwrap();
    namespace.discard(4096, 4096).unwrap();
    let memory = peer.memory();
    assert_eq!(memory[..512], data[..512]);
    assert!(memory[512..1024].iter().all(|&b| b == 0));
    assert_eq!(memory[1024..4096], data[1024..4096]);
    assert!(memory[4096..8192].iter().all(|&b| b == 0));
}

#[test]
fn commands_are_as_long_as_the_controller_says() {
    let lengths = NvmIdentifyController {
        wzsl: 1,
        vsl: 2,
        dmrsl: 3,
        ..NvmIdentifyController::default()
    };
    let peer = Peer::start(
        1 << 20,
        Behaviour {
            in_capsule_bytes: 4096,
            lengths: Some(lengths),
            ..Behaviour::default()
        },
    );
    peer.fill(&pattern(5, 1 << 20));
    let namespace = connect(&peer, builder());
    namespace.verify(0, 1 << 20).unwrap();
    namespace.write_zeroes(512, 100 * 512).unwrap();
    namespace.discard(512 << 10, 50 * 512).unwrap();
    let memory = peer.memory();
    let before = pattern(5, 1 << 20);
    let zeroed = 512..101 * 512;
    let discarded = (512 << 10)..(512 << 10) + 50 * 512;
    for (at, (now, then)) in memory.iter().zip(&before).enumerate() {
        let gone = zeroed.contains(&at) || discarded.contains(&at);
        assert_eq!(*now, if gone { 0 } else { *then }, "byte {at}");
    }
}

/// Lost commands are split again for the next controller's limits. A Deallocate beyond its limit
/// must not be reported as done.
#[test]
fn commands_that_were_lost_are_as_long_as_the_next_controller_says() {
    type Call = fn(&Namespace) -> Result<(), RequestError>;
    const ALL: u64 = 64 * 512;
    let operations: [(bool, Call); 3] = [
        (true, |namespace| namespace.write_zeroes(0, ALL)),
        (true, |namespace| namespace.discard(0, ALL)),
        (false, |namespace| namespace.verify(0, ALL)),
    ];
    for (writes, operation) in operations {
        let behaviour = Behaviour {
            in_capsule_bytes: 4096,
            swallow: 1,
            ..Behaviour::default()
        };
        let peer = Peer::start(1 << 20, behaviour);
        peer.fill(&pattern(5, 1 << 20));
        let namespace = connect(&peer, builder());
        std::thread::scope(|scope| {
            let done = scope.spawn(|| operation(&namespace));
            while peer.seen.io_commands.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let lengths = NvmIdentifyController {
                wzsl: 1,
                vsl: 1,
                dmrsl: 3,
                ..NvmIdentifyController::default()
            };
            peer.change(|behaviour| behaviour.lengths = Some(lengths));
            peer.cut_all();
            done.join().unwrap().unwrap();
        });
        let mut expected = pattern(5, 1 << 20);
        if writes {
            expected[..ALL as usize].fill(0);
        }
        assert!(peer.memory() == expected);
    }
}

#[test]
fn bad_ranges_are_explained() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    let text = namespace.read(100, &mut [0; 512]).unwrap_err().to_string();
    assert!(
        text.contains("offset 100") && text.contains("512 bytes"),
        "{text}"
    );
    let text = namespace.read(0, &mut [0; 100]).unwrap_err().to_string();
    assert!(text.contains("length 100"), "{text}");
    let text = namespace.write(1 << 20, &[0; 512]).unwrap_err().to_string();
    assert!(text.contains("1048576"), "{text}");
    namespace.read(0, &mut []).unwrap();
}

#[test]
fn the_controller_and_its_namespaces_are_described() {
    let peer = Peer::start(
        1 << 20,
        Behaviour {
            ready_after: 3,
            ..Behaviour::default()
        },
    );
    let host = Host::builder().build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    let controller = subsystem.controller().unwrap();
    assert_eq!(controller.model, "Test peer");
    assert_eq!(controller.max_transfer_bytes, 1 << 20);
    assert_eq!(controller.io_queues, 4);
    let namespaces = subsystem.namespaces();
    assert_eq!(namespaces.len(), 1);
    assert_eq!(namespaces[0].geometry.bytes(), 1 << 20);
    assert_eq!(namespaces[0].uuid, Some([5; 16]));
    let error = subsystem.namespace(2).unwrap_err();
    assert!(error.to_string().contains("it has 1"), "{error}");
}

#[test]
fn a_resize_becomes_visible() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    assert_eq!(namespace.size(), 1 << 20);
    peer.resize(4096);
    while namespace.size() != 2 << 20 {
        std::thread::yield_now();
    }
    namespace.write((2 << 20) - 512, &[1; 512]).unwrap();
}

/// A length limit of 2^52 pages and more must not overflow to 0, which would give a command per
/// block.
#[test]
fn a_length_beyond_every_number_is_no_limit() {
    for shift in [51, 52, 63, 64, 255] {
        let lengths = NvmIdentifyController {
            wzsl: shift,
            vsl: shift,
            ..NvmIdentifyController::default()
        };
        let behaviour = Behaviour {
            lengths: Some(lengths),
            ..Behaviour::default()
        };
        let peer = Peer::start(1 << 20, behaviour);
        let namespace = connect(&peer, builder());
        namespace.write_zeroes(0, 1 << 18).unwrap();
        namespace.verify(0, 1 << 18).unwrap();
        let commands = peer.seen.io_commands.load(Ordering::SeqCst);
        assert_eq!(commands, 2, "2^{shift} pages");
    }
}

/// They are sent although data is received: that data may answer commands that the controller
/// received long ago.
#[test]
fn keep_alives_are_sent_also_where_traffic_keeps_an_association_alive() {
    let behaviour = Behaviour {
        traffic_based: true,
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, behaviour);
    let host = Host::builder().keep_alive(Duration::from_millis(100));
    let host = host.build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    while peer.seen.keep_alives.load(Ordering::SeqCst) < 3 {
        namespace.write(0, &[1; 512]).unwrap();
    }
}

/// A controller with many namespaces, or a slow one, would otherwise end the association during
/// Identify.
#[test]
fn keep_alives_are_sent_while_a_controller_is_identified() {
    let behaviour = Behaviour {
        slow_identify: Duration::from_millis(100),
        ..Behaviour::default()
    };
    let peer = Peer::start(1 << 20, behaviour);
    let host = Host::builder().keep_alive(Duration::from_millis(100));
    let host = host.build().unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    assert!(peer.seen.keep_alives.load(Ordering::SeqCst) >= 2);
    assert_eq!(subsystem.namespaces().len(), 1);
}

#[test]
fn keep_alives_are_sent_and_disconnecting_shuts_the_controller_down() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let host = Host::builder()
        .keep_alive(Duration::from_millis(100))
        .build()
        .unwrap();
    let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
    while peer.seen.keep_alives.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    drop(subsystem);
    while peer.seen.shutdowns.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_refused_connection_says_what_to_do() {
    let host = Host::builder().build().unwrap();
    // Bound, so no other test gets the port; there is no listener.
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(getsockname(&bound).unwrap()).unwrap();
    let error = host.connect(&address.to_string(), NQN).unwrap_err();
    assert!(matches!(error, HostError::Connection(_)));
    assert!(error.to_string().contains("start the target"), "{error}");

    let refuse = wire::nvme::Status::CONNECT_INVALID_HOST.with_dnr();
    let peer = Peer::start(
        512,
        Behaviour {
            refuse_connect: Some(refuse),
            ..Behaviour::default()
        },
    );
    let error = host.connect(&peer.address.to_string(), NQN).unwrap_err();
    assert!(error.to_string().contains("allow this host NQN"), "{error}");
}

#[test]
fn many_threads_share_a_namespace() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let namespace = namespace.clone();
            scope.spawn(move || {
                for round in 0..50_u8 {
                    let data = pattern(u64::from(round) | 1, 4096);
                    namespace.write(thread * 4096, &data).unwrap();
                    let mut back = vec![0; 4096];
                    namespace.read(thread * 4096, &mut back).unwrap();
                    assert_eq!(back, data);
                }
            });
        }
    });
}

#[test]
fn a_queue_of_ones_own_reads_and_writes() {
    let peer = Peer::start(1 << 20, Behaviour::default());
    let namespace = connect(&peer, builder());
    let mut queue = namespace.queue(16).unwrap();
    for tag in 0..16 {
        queue
            .write(tag, tag * 4096, &pattern(tag | 1, 4096))
            .unwrap();
    }
    assert!(queue.write(99, 0, &[0; 512]).is_err(), "the queue is full");
    let mut done = 0;
    while done < 16 {
        for completion in queue.wait(1).unwrap() {
            completion.result.unwrap();
            done += 1;
        }
    }
    for tag in 0..16 {
        queue.read(tag, tag * 4096, 4096).unwrap();
    }
    while queue.outstanding() > 0 {
        for completion in queue.wait(4).unwrap() {
            let data = completion.data.unwrap();
            let tag = completion.tag as u8;
            assert_eq!(data.bytes().unwrap(), pattern(u64::from(tag) | 1, 4096));
        }
    }
}
