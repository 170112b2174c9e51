//! Peers before Connect, and discovery clients, hold few resources and keep no host from
//! connecting.

use crate::common;
use crate::common::{BLOCK, Bed, Client, Dialect, few, io, namespace, pattern};
use base::units::{KIB, MIB};
use std::io::{ErrorKind, Write as _};
use std::sync::Arc;
use std::time::Duration;
use switch::Knobs;
use switch::knobs::Polling;
use switchyard_target::{Limits, Tenancy, TenantOptions};
use wire::fabrics::ConnectData;
use wire::limits::NSID_BROADCAST;
use wire::nvme::feature::FeatureId;
use wire::nvme::identify::Cns;
use wire::nvme::log_page::LogPageId;
use wire::nvme::{
    AdminCommand, Command, DISCOVERY_NQN, GetLogPage, Identify, IoOpcode, SetFeatures,
    SglDescriptor,
};

fn short_of_buffers() -> Bed {
    let ram = common::ram(16 * MIB);
    let options = namespace(1, Arc::clone(&ram) as _);
    let target = common::target_with(Limits::default(), 1, [options]);
    let target = common::with_buffers(target, few());
    Bed { target, ram }
}

/// Returns a request for a part of the discovery log page.
fn page(bytes: usize) -> Command {
    let get = GetLogPage::new(LogPageId::DISCOVERY, NSID_BROADCAST, 0, bytes as u32);
    let mut command = AdminCommand::GetLogPage(get).encode(0);
    command.set_sgl(SglDescriptor::transport(bytes as u32));
    command
}

fn identify() -> Command {
    let mut command = AdminCommand::Identify(Identify::new(Cns::CONTROLLER, 0)).encode(0);
    command.set_sgl(SglDescriptor::transport(4096));
    command
}

/// Returns a discovery controller with the maximum number of entries.
fn discovery(bed: &Bed) -> Client {
    let mut client = Client::dial(bed.address(), Dialect::default());
    let data = Client::connect_data(DISCOVERY_NQN, ConnectData::CNTLID_DYNAMIC);
    let completion = client.connect(&Client::connect_command(0, 1023, 0), &data);
    assert!(completion.status.is_success(), "{}", completion.status);
    client
}

/// Sends commands without reading answers, until the target accepts no more.
fn pipeline(client: &mut Client, commands: impl IntoIterator<Item = Command>) {
    let mut bytes = Vec::new();
    for (cid, mut command) in (1000..).zip(commands) {
        command.set_cid(cid);
        bytes.extend(client.session.capsule(&command, &[]));
    }
    let timeout = |client: &Client, time| client.stream.set_write_timeout(time).expect("a socket");
    timeout(client, Some(Duration::from_millis(100)));
    if let Err(error) = client.stream.write_all(&bytes) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    }
    timeout(client, None);
}

/// Waits until a number stops changing.
fn settled(mut number: impl FnMut() -> u64) {
    let mut last = (u64::MAX, 0);
    common::eventually("it settles", || {
        let now = number();
        last = (now, if now == last.0 { last.1 + 1 } else { 0 });
        last.1 == 20
    });
}

/// Checks that a host can connect both kinds of queues and is served.
fn comes_in(bed: &Bed) {
    let (_admin, mut queue) = bed.host();
    let data = pattern(9, BLOCK);
    assert!(queue.write(3, &data).status.is_success());
    assert!(queue.read(3, 1).1 == data);
}

/// Regression: one connection that any peer can have took the eighth of the buffers that served
/// discovery and all Connects.
#[test]
fn a_deaf_discovery_client_keeps_nobody_from_connecting() {
    for withholds in [false, true] {
        let bed = short_of_buffers();
        let mut deaf = discovery(&bed);
        if withholds {
            // Input does not wait while a command's data is outstanding.
            let set = SetFeatures::new(FeatureId::HOST_BEHAVIOR, 0);
            let mut set = AdminCommand::SetFeatures(set).encode(0);
            set.set_sgl(SglDescriptor::transport(512));
            deaf.capsule(&set, &[]);
            deaf.r2t();
        }
        let large = (0..64).map(|_| page(MIB));
        let middle = (0..64).map(|_| page(128 * KIB));
        let small = (0..800).map(|_| identify());
        pipeline(&mut deaf, large.chain(middle).chain(small));
        let core = || bed.handle().snapshot().cores[0];
        common::eventually("answers hold buffers", || core().buffer_bytes_used > 0);
        settled(|| core().admin_commands + core().buffer_bytes_used);
        assert!(core().buffer_bytes_used > 0, "answers hold buffers");
        assert!(
            core().buffer_bytes_used <= 2 * MIB as u64,
            "an eighth, and one"
        );
        comes_in(&bed);
    }
}

/// Regression: each client held the maximum number of send lists of a connection, so further
/// connections were closed at their ICReq.
#[test]
fn many_deaf_discovery_clients_keep_nobody_from_connecting() {
    let limits = Limits {
        send_lists: 128,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let core = || bed.handle().snapshot().cores[0];
    let deaf: Vec<_> = (0..24)
        .map(|_| {
            let mut client = discovery(&bed);
            pipeline(&mut client, (0..1000).map(|_| page(16 * KIB)));
            client
        })
        .collect();
    common::eventually("answers hold lists", || core().send_lists_used > 32);
    settled(|| core().send_lists_used);
    assert!(core().send_lists_used > 32, "{}", core().send_lists_used);
    for _ in 0..10 {
        comes_in(&bed);
    }
    drop(deaf);
    common::eventually("lists come back", || core().send_lists_used == 0);
}

/// Regression: half-received Connects used the same eighth of the buffers.
#[test]
fn half_connects_keep_nobody_from_connecting() {
    let bed = short_of_buffers();
    let core = || bed.handle().snapshot().cores[0];
    let half: Vec<_> = (0..100)
        .map(|_| {
            let mut client = Client::dial(bed.address(), Dialect::default());
            let mut connect = Client::connect_command(0, 31, 0).encode(1);
            connect.set_sgl(SglDescriptor::in_capsule(0, 1024));
            let capsule = client.session.capsule(&connect, &[0; 1024]);
            client.send(&capsule[..500]);
            client
        })
        .collect();
    common::eventually("they are taken", || core().admin_commands == 100);
    comes_in(&bed);
    assert_eq!(core().buffer_bytes_used, 0);
    drop(half);
}

/// The answers before Connect fit into a socket's buffer, whether they are read or not.
#[test]
fn a_connection_that_never_connects_gets_a_few_answers() {
    let bed = Bed::new();
    let mut client = Client::dial(bed.address(), Dialect::default());
    for _ in 0..16 {
        let status = client.execute(identify(), &[]).status;
        assert!(!status.is_success(), "{status}");
    }
    client.capsule(&identify(), &[]);
    client.terminated();
}

/// Sends `commands` reads of `blocks` blocks.
fn ask(client: &mut Client, commands: u16, blocks: u32) {
    for cid in 0..commands {
        let mut read = io(IoOpcode::READ, 0, blocks);
        read.set_cid(cid);
        read.set_sgl(SglDescriptor::transport(blocks * BLOCK as u32));
        client.capsule(&read, &[]);
    }
}

/// Regression: after a list was returned, the core slept when the first 64 waiting connections
/// could not use it, although the next one could.
#[test]
fn each_that_waits_for_a_list_is_asked_before_a_core_sleeps() {
    let limits = Limits {
        send_lists: 64,
        ..Limits::default()
    };
    let bed = Bed::with(limits, 1);
    let knobs = Knobs {
        polling: Polling::Never,
        ..Knobs::default()
    };
    bed.handle().set_knobs(knobs).expect("legal knobs");
    let name = |host: usize| format!("nqn.2026-11.io.example:host{host}");
    // Each host is a tenant, with a tenant's share.
    let tenants = (0..20).map(|host| TenantOptions {
        name: name(host),
        hosts: vec![name(host)],
        ..TenantOptions::default()
    });
    let tenancy = Tenancy {
        tenants: tenants.collect(),
        ..Tenancy::default()
    };
    bed.handle().set_tenants(&tenancy).expect("a good tenancy");
    let core = || bed.handle().snapshot().cores[0];
    let (_admin, mut greedy) = bed.host_named(&name(0), 90);
    let mut others: Vec<_> = (1..20).map(|host| bed.host_named(&name(host), 1)).collect();
    let mut good = others.pop().expect("nineteen");
    let mut asked = 0;
    let mut all_taken = |more| {
        asked += more;
        common::eventually("all is taken", || core().io_commands == asked);
        settled(|| core().send_lists_used);
    };
    // 16 MiB each, which exceeds the socket buffers.
    for queue in &mut greedy[..15] {
        ask(queue, 16, 256);
    }
    all_taken(15 * 16);
    let waits = core().list_waits;
    for queue in &mut greedy[15..] {
        ask(queue, 1, 256);
    }
    all_taken(75);
    assert_eq!(core().list_waits - waits, 75, "its share is used up");
    // The remaining hosts take all other lists except those that I/O queues leave.
    let mut last = None;
    for mut other in others {
        ask(&mut other.1[0], 16, 256);
        all_taken(16);
        last = Some(other);
        if core().send_lists_used == 56 {
            break;
        }
        std::mem::forget(last.take());
    }
    assert_eq!(core().send_lists_used, 56);
    let waits = core().list_waits;
    ask(&mut good.1[0], 1, 1);
    all_taken(1);
    assert_eq!(core().list_waits, waits + 1, "there is none for it");
    drop(last);
    let (completion, _) = good.1[0].fetched(0);
    assert!(completion.status.is_success());
}
