//! Access by tenant: which hosts may connect as which tenant, and which blocks each may access.

use crate::common;
use crate::common::{
    BLOCK, Bed, Client, Dialect, HOST, HOST_ID, NQN, deallocate_all, io, io_on, pattern,
};
use base::units::MIB;
use std::collections::BTreeSet;
use switchyard_target::{
    AccessGrant, Authentication, Limits, Others, Tenancy, TenantGrant, TenantOptions,
};
use wire::fabrics::{ConnectData, DiscoveryLogHeader};
use wire::nvme::io::DatasetRange;
use wire::nvme::log_page::LogPageId;
use wire::nvme::{Command, DatasetManagement, GetLogPage, IoOpcode, Nqn, Status};

const STRANGER: &str = "nqn.2026-11.io.example:stranger";

/// Returns a tenant with one host and these grants; `None`: all rights.
fn tenant(host: &str, grants: Option<Vec<AccessGrant>>) -> TenantOptions {
    let grants = grants.map(|grants| {
        let everywhere = |grant| TenantGrant {
            subsystem: None,
            grant,
        };
        grants.into_iter().map(everywhere).collect()
    });
    TenantOptions {
        name: host.to_owned(),
        hosts: vec![host.to_owned()],
        grants,
        ..TenantOptions::default()
    }
}

/// Returns a grant on blocks of namespace 1.
fn grant(first: u64, blocks: u64, write: bool) -> AccessGrant {
    AccessGrant {
        namespace: Some(1),
        range: Some((first, blocks)),
        read: true,
        write,
    }
}

/// Returns a tenancy that refuses hosts without a tenant.
fn only(tenants: Vec<TenantOptions>) -> Tenancy {
    Tenancy {
        tenants,
        others: Others::Refuse,
    }
}

fn set(bed: &Bed, tenancy: &Tenancy) {
    bed.handle().set_tenants(tenancy).expect("a good tenancy");
}

/// Tries to connect a queue under a host name.
fn connect(bed: &Bed, host: &str, cntlid: u16, queue: u16) -> (Client, Status) {
    let mut client = Client::dial(bed.address(), Dialect::default());
    let names = [NQN, host].map(|name| Nqn::new(name).expect("a name"));
    let data = ConnectData::new(HOST_ID, cntlid, &names[0], &names[1]);
    let completion = client.connect(&Client::connect_command(queue, 31, 0), &data);
    (client, completion.status)
}

fn denied(status: Status) -> bool {
    status.is(Status::ACCESS_DENIED) && status.dnr()
}

fn deallocate(client: &mut Client, ranges: &[(u64, u32)]) -> Status {
    let (command, list) = deallocate_all(ranges);
    client.execute(command, &list).status
}

/// Without networks, a host name is accepted from any address. A name that resembles a tenant's
/// belongs to no tenant, and a foreign host cannot join the controller of an admitted one.
#[test]
fn a_host_that_lies_about_its_nqn_gets_nothing() {
    let bed = Bed::with(Limits::default(), 2);
    set(&bed, &only(vec![tenant(HOST, None)]));
    let (_admin, mut queue) = bed.host();
    let mut slips = vec![
        format!("{HOST}x"),
        HOST.to_uppercase(),
        HOST.replace("io.", "IO."),
    ];
    slips.push(HOST[..HOST.len() - 1].to_owned());
    for slip in slips.iter().filter(|slip| Nqn::new(slip).is_ok()) {
        let (_, status) = connect(&bed, slip, ConnectData::CNTLID_DYNAMIC, 0);
        assert!(status.is(Status::CONNECT_INVALID_HOST), "{slip}: {status}");
    }
    // A further queue, under another name, for the controller of an admitted host.
    let cntlids = bed.handle().snapshot().controllers;
    let cntlids: Vec<u16> = cntlids.iter().map(|controller| controller.id).collect();
    assert_eq!(cntlids.len(), 1);
    let (_, status) = connect(&bed, STRANGER, cntlids[0], 2);
    assert!(status.is(Status::CONNECT_INVALID_PARAMETERS), "{status}");
    assert!(
        queue.read(0, 1).0.status.is_success(),
        "and that one goes on"
    );
}

/// A host name alone proves nothing: a name that is bound to networks is accepted only from them.
#[test]
fn a_name_is_believed_from_its_networks_only() {
    let bed = Bed::with(Limits::default(), 2);
    let from = |networks: &[&str]| TenantOptions {
        networks: networks
            .iter()
            .map(|network| network.parse().expect("a network"))
            .collect(),
        ..tenant(HOST, None)
    };
    let there = from(&["192.0.2.0/24"]);
    // Even if hosts without a tenant are served: a host that claims a foreign name is refused.
    for others in [Others::Serve, Others::Refuse] {
        let tenants = vec![there.clone()];
        set(&bed, &Tenancy { tenants, others });
        let (_, status) = connect(&bed, HOST, ConnectData::CNTLID_DYNAMIC, 0);
        assert!(status.is(Status::CONNECT_INVALID_HOST), "{status}");
    }
    set(&bed, &only(vec![from(&["192.0.2.0/24", "127.0.0.1/32"])]));
    let (mut admin, mut queue) = bed.host();
    assert!(queue.read(0, 1).0.status.is_success());
    // A change applies to connected hosts, too.
    set(&bed, &only(vec![there]));
    assert!(admin.try_receive().is_none(), "its controller ends");
    assert!(queue.try_receive().is_none());
}

/// Without a proof a name is a claim, and holds nothing where a proof is required.
#[test]
fn a_claimed_name_is_refused_where_a_proof_is_required() {
    const TLS: Authentication = Authentication {
        tls: true,
        chap: false,
    };
    let bed = Bed::with(Limits::default(), 2);
    let require = |required| {
        let changed = bed.handle().set_authentication(NQN, required);
        changed.expect("the subsystem is there");
    };
    let refused = || {
        let (_, status) = connect(&bed, HOST, ConnectData::CNTLID_DYNAMIC, 0);
        assert!(status.is(Status::CONNECT_INVALID_HOST), "{status}");
        assert!(bed.handle().snapshot().controllers.is_empty());
    };
    let ends = |change: &dyn Fn()| {
        let (mut admin, mut queue) = bed.host();
        assert!(queue.read(0, 1).0.status.is_success());
        change();
        assert!(admin.try_receive().is_none(), "its controller ends");
        assert!(queue.try_receive().is_none());
        testing::eventually("it has ended", || {
            bed.handle().snapshot().controllers.is_empty()
        });
        refused();
    };
    ends(&|| require(TLS));
    require(Authentication::default());
    let proved = TenantOptions {
        authentication: TLS,
        ..tenant(HOST, None)
    };
    ends(&|| set(&bed, &only(vec![proved.clone()])));
    set(&bed, &Tenancy::default());
    ends(&|| {
        let hosts = [HOST.to_owned()].into();
        bed.handle().require_tls(hosts);
    });
    bed.handle().require_tls(BTreeSet::new());
    let (_admin, mut queue) = bed.host();
    assert!(queue.read(0, 1).0.status.is_success());
    let shown = bed.handle().snapshot().controllers;
    assert_eq!(shown[0].identity.word(), "claimed");
}

/// A refused tenant's second connection must be refused like its first.
#[test]
fn a_refused_tenants_second_connection_is_refused_too() {
    let bed = Bed::with(Limits::default(), 2);
    set(&bed, &only(vec![tenant(HOST, None)]));
    for _ in 0..4 {
        let (_, status) = connect(&bed, STRANGER, ConnectData::CNTLID_DYNAMIC, 0);
        assert!(status.is(Status::CONNECT_INVALID_HOST), "{status}");
    }
    // A host with a false name gets the access of that name, but not to a controller of another
    // host.
    let (mut admin, status) = connect(&bed, HOST, ConnectData::CNTLID_DYNAMIC, 0);
    assert!(status.is_success(), "{status}");
    admin.enable();
    let cntlid = bed.handle().snapshot().controllers[0].id;
    for _ in 0..2 {
        let (_, status) = connect(&bed, STRANGER, cntlid, 1);
        assert!(status.is(Status::CONNECT_INVALID_PARAMETERS), "{status}");
    }
    let (mut queue, status) = connect(&bed, HOST, cntlid, 1);
    assert!(status.is_success(), "{status}");
    assert!(queue.read(0, 1).0.status.is_success());
}

/// All blocks of a command are checked, not only the first.
#[test]
fn a_range_whose_last_block_is_not_granted_is_refused() {
    let bed = Bed::new();
    let data = pattern(3, 32 * BLOCK);
    let (_admin, mut client) = bed.host();
    assert!(client.write(0, &data).status.is_success());
    set(
        &bed,
        &only(vec![tenant(HOST, Some(vec![grant(8, 8, true)]))]),
    );
    for (first, blocks, granted) in [
        (8, 8, true),
        (15, 1, true),
        (15, 2, false),
        (7, 2, false),
        (8, 9, false),
        (0, 32, false),
    ] {
        let (completion, read) = client.read(first, blocks);
        assert_eq!(completion.status.is_success(), granted, "{first} {blocks}");
        assert!(granted || (denied(completion.status) && read.is_empty()));
        let new = pattern(first, blocks as usize * BLOCK);
        // In the capsule, and by R2T, which must not be sent.
        let status = client.write(first, &new).status;
        assert_eq!(denied(status), !granted, "{first} {blocks} {status}");
        let status = client.write_by_r2t(first, &new).status;
        assert_eq!(denied(status), !granted, "{first} {blocks} {status}");
    }
    // A range that wraps around to granted blocks.
    let status = client.read(u64::MAX, 10).0.status;
    assert!(!status.is_success(), "{status}");
    set(&bed, &Tenancy::default());
    let (_, now) = client.read(0, 32);
    let outside = [0..8 * BLOCK, 16 * BLOCK..32 * BLOCK];
    assert!(
        outside
            .into_iter()
            .all(|part| now[part.clone()] == data[part]),
        "a refused write has written"
    );
}

#[test]
fn unmap_write_zeroes_and_compare_cannot_bypass_the_permissions() {
    let bed = Bed::new();
    let data = pattern(4, 16 * BLOCK);
    let (_admin, mut client) = bed.host();
    assert!(client.write(0, &data).status.is_success());
    let grants = vec![grant(0, 8, false), grant(8, 4, true)];
    set(&bed, &only(vec![tenant(HOST, Some(grants))]));
    let on_blocks = |client: &mut Client, opcode, first, blocks| {
        client.execute(io(opcode, first, blocks), &[]).status
    };
    let zero = IoOpcode::WRITE_ZEROES;
    assert!(denied(on_blocks(&mut client, zero, 0, 1)));
    assert!(denied(on_blocks(&mut client, zero, 7, 2)));
    assert!(denied(on_blocks(&mut client, zero, 11, 2)));
    assert!(denied(on_blocks(&mut client, IoOpcode::VERIFY, 11, 2)));
    assert!(on_blocks(&mut client, IoOpcode::VERIFY, 0, 12).is_success());
    // A Compare reveals the content of blocks.
    let compare = |client: &mut Client, first: u64, data: &[u8]| {
        client.execute(io(IoOpcode::COMPARE, first, 1), data).status
    };
    let block = |at: usize| &data[at * BLOCK..(at + 1) * BLOCK];
    assert!(compare(&mut client, 7, block(7)).is_success());
    assert!(denied(compare(&mut client, 12, block(12))));
    assert!(denied(compare(&mut client, 12, block(0))));
    // All ranges are checked before any of them is processed.
    assert!(denied(deallocate(&mut client, &[(8, 1), (0, 1)])));
    assert!(denied(deallocate(&mut client, &[(9, 2), (11, 2)])));
    assert!(deallocate(&mut client, &[(10, 1), (0, 0)]).is_success());
    let mut flush = Command::new(IoOpcode::FLUSH.0, 0);
    for (nsid, granted) in [(1, true), (u32::MAX, true)] {
        flush.set_nsid(nsid);
        assert_eq!(client.execute(flush, &[]).status.is_success(), granted);
    }
    set(&bed, &Tenancy::default());
    let mut expected = data.clone();
    expected[10 * BLOCK..11 * BLOCK].fill(0);
    assert!(client.read(0, 16).1 == expected);
}

#[test]
fn a_namespace_without_a_grant_is_closed_to_every_command() {
    let bed = Bed::new();
    let options = common::namespace(2, common::ram(MIB));
    bed.handle().add_namespace(NQN, options).expect("a new one");
    set(
        &bed,
        &only(vec![tenant(HOST, Some(vec![grant(0, 8, true)]))]),
    );
    let (_admin, mut client) = bed.host();
    assert!(client.read(0, 1).0.status.is_success());
    for opcode in [IoOpcode::READ, IoOpcode::WRITE_ZEROES, IoOpcode::VERIFY] {
        let (completion, _) = client.fetch(io_on(2, opcode, 0, 1), BLOCK);
        assert!(denied(completion.status), "{}", completion.status);
    }
    let mut flush = Command::new(IoOpcode::FLUSH.0, 0);
    flush.set_nsid(2);
    assert!(denied(client.execute(flush, &[]).status));
    let hint = DatasetManagement {
        nsid: 2,
        ranges: 1,
        deallocate: false,
        integral_read: true,
        integral_write: false,
    };
    let range = DatasetRange {
        attributes: 0,
        blocks: 1,
        slba: 0,
    };
    let hinted = client.execute(hint.encode(0), &range.to_bytes());
    assert!(denied(hinted.status), "{}", hinted.status);
}

/// A second change of a running tenant must take effect like the first.
#[test]
fn every_live_change_counts_from_the_next_command_on() {
    let bed = Bed::with(Limits::default(), 2);
    let (mut admin, mut client) = bed.host();
    let write = |client: &mut Client, first| client.write(first, &pattern(1, BLOCK)).status;
    for turn in 0..3 {
        assert!(write(&mut client, 0).is_success(), "turn {turn}");
        let reader = tenant(HOST, Some(vec![grant(0, 8, false)]));
        set(&bed, &only(vec![reader]));
        assert!(denied(write(&mut client, 0)), "turn {turn}");
        assert!(client.read(0, 8).0.status.is_success(), "turn {turn}");
        let writer = tenant(HOST, Some(vec![grant(8, 8, true)]));
        set(&bed, &only(vec![writer]));
        assert!(write(&mut client, 8).is_success(), "turn {turn}");
        assert!(denied(client.read(0, 8).0.status), "turn {turn}");
        set(&bed, &Tenancy::default());
    }
    // An invalid change changes nothing.
    let nothing = tenant(HOST, Some(vec![grant(0, 0, true)]));
    let error = bed.handle().set_tenants(&only(vec![nothing]));
    error.expect_err("a grant of no blocks");
    assert!(write(&mut client, 0).is_success());
    // A host that no longer has a tenant is disconnected, and cannot connect again.
    set(&bed, &only(vec![tenant(STRANGER, None)]));
    assert!(admin.try_receive().is_none());
    assert!(client.try_receive().is_none());
    let (_, status) = connect(&bed, HOST, ConnectData::CNTLID_DYNAMIC, 0);
    assert!(status.is(Status::CONNECT_INVALID_HOST), "{status}");
}

#[test]
fn a_host_sees_in_discovery_what_it_may_connect_to() {
    let bed = Bed::new();
    let records = || {
        let mut discovery = Client::discovery(bed.address(), 0);
        let get = GetLogPage::new(LogPageId::DISCOVERY, 0, 0, 1024);
        let (_, page) = discovery.fetch(get.encode(0), 1024);
        let header = DiscoveryLogHeader::parse_prefix(&page);
        header.expect("a header").records
    };
    let all = records();
    set(&bed, &only(vec![tenant(STRANGER, None)]));
    assert_eq!(records(), all - 1);
    set(&bed, &only(vec![tenant(HOST, None)]));
    assert_eq!(records(), all);
}
