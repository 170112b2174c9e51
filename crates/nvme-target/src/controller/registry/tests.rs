//! Tests of the registry of controllers.

use super::*;
use crate::qos::access::{Tenancy, TenantOptions};
use crate::subsystem::SubsystemOptions;

/// A discovery controller of a host at the loopback address.
pub(crate) fn controller(id: u16) -> SharedController {
    controller_of(id, SocketAddr::from(([127, 0, 0, 1], 1)))
}

fn controller_of(id: u16, peer: SocketAddr) -> SharedController {
    let host = ("nqn.host".to_owned(), [1; 16]);
    let connection = SlabKey {
        index: 0,
        generation: 0,
    };
    let admin = ConnectionPlace {
        core: 0,
        connection,
    };
    SharedController::new(id, ControllerKind::Discovery, None, host, peer, admin, 0)
}

#[test]
fn identifiers_are_not_used_again_at_once_and_are_limited() {
    let mut controllers = Controllers::default();
    let two = &Limits {
        controllers: 2,
        ..Limits::default()
    };
    let first = controllers.insert(two, controller).expect("room").id;
    controllers.remove(first);
    let second = controllers.insert(two, controller).expect("room").id;
    assert_ne!(first, second);
    assert!(controllers.insert(two, controller).is_some());
    assert!(controllers.insert(two, controller).is_none());
    // FFF0h and above are reserved; identifiers in use are skipped.
    for free in [first, second + 2] {
        controllers.last_id = 0xffef;
        let again = controllers.insert(&Limits::default(), controller);
        assert_eq!(again.expect("room").id, free);
    }
}

#[test]
fn identifiers_are_of_the_range_of_the_target() {
    let limits = &Limits {
        first_controller_id: 100,
        last_controller_id: 101,
        ..Limits::default()
    };
    let mut controllers = Controllers::default();
    for id in [100, 101] {
        assert_eq!(controllers.insert(limits, controller).expect("room").id, id);
    }
    assert!(controllers.insert(limits, controller).is_none());
    controllers.remove(100);
    assert_eq!(
        controllers.insert(limits, controller).expect("room").id,
        100
    );
}

#[test]
fn who_waits_for_a_controller_is_told_after_the_last_connection_that_could_do_harm() {
    let controller = controller(1);
    let asker = |index| Ticket {
        connection: SlabKey {
            index,
            generation: 0,
        },
        slot: 0,
    };
    controller.attach();
    controller.attach();
    assert!(controller.wait_for_queues(), "another queue");
    assert_eq!(controller.disarm(), (Vec::new(), true));
    assert!(!controller.wait_for_queues(), "the admin queue alone");
    assert!(controller.wait_for_end(0, asker(1)) && controller.wait_for_end(3, asker(1)));
    assert!(controller.wait_for_end(3, asker(2)));
    // One of the connections closed in the meantime: its command no longer waits.
    controller.forget_waiting(ConnectionPlace {
        core: 3,
        connection: asker(1).connection,
    });
    assert!(!controller.detach(), "another connection is left");
    assert_eq!(
        controller.disarm(),
        (vec![(0, asker(1)), (3, asker(2))], false)
    );
    assert!(!controller.wait_for_end(0, asker(1)), "it is over");
    assert!(controller.detach(), "the identifier is free");
}

/// Regression: a queue that was connected again lost its place when the former connection ended.
#[test]
fn a_queue_leaves_its_own_place() {
    let controller = controller(1);
    let place = |index| ConnectionPlace {
        core: 0,
        connection: SlabKey {
            index,
            generation: 0,
        },
    };
    let mut queues = controller.queues();
    queues.places.insert(1, place(2));
    queues.leave(1, place(1), Time(5));
    assert_eq!((queues.places.len(), queues.left), (1, Time::ZERO));
    queues.leave(1, place(2), Time(7));
    assert_eq!((queues.places.len(), queues.left), (0, Time(7)));
}

#[test]
fn the_error_log_keeps_the_newest() {
    let controller = controller(1);
    for cid in 0..100 {
        controller.log_error(ErrorEntry {
            cid,
            ..ErrorEntry::default()
        });
    }
    let errors = controller.errors();
    assert_eq!(errors.len(), ERROR_LOG_ENTRIES);
    assert_eq!((errors[0].cid, errors[0].error_count), (99, 100));
    assert_eq!(controller.error_count(), 100);
}

/// Regression: one address could have all discovery controllers, and the hosts of a tenant all
/// controllers.
#[test]
fn neither_an_address_nor_a_tenant_has_all_controllers() {
    let limits = Limits {
        controllers: 100,
        controllers_per_tenant: 3,
        discovery_controllers: 8,
        ..Limits::default()
    };
    let from = |last: u8| SocketAddr::from(([192, 0, 2, last], 1));
    let (ours, others): (Arc<str>, Arc<str>) = ("ours".into(), "others".into());
    let mut controllers = Controllers::default();
    let mut connect = |kind, host: &str, from: SocketAddr, tenant: Option<&Arc<str>>| {
        if let Some(full) = controllers.full(&limits, kind, claimed(host), from.ip(), tenant) {
            return Some(full);
        }
        let host = (host.to_owned(), [1; 16]);
        let admin = ConnectionPlace {
            core: 0,
            connection: SlabKey {
                index: 0,
                generation: 0,
            },
        };
        let make =
            |id| {
                SharedController::new(id, kind, None, host, from, admin, 0).with(
                    Standing::connected(Authentication::default(), tenant.cloned(), false),
                )
            };
        assert!(controllers.insert(&limits, make).is_some());
        None
    };
    let discovery = ControllerKind::Discovery;
    for n in 0..6 {
        assert_eq!(connect(discovery, &format!("h{n}"), from(1), None), None);
    }
    let full = connect(discovery, "h6", from(1), None);
    assert_eq!(full, Some(ControllerLimit::Address));
    // The remainder is for other addresses, and I/O controllers do not count for discovery.
    assert_eq!(connect(discovery, "h6", from(2), None), None);
    assert_eq!(connect(ControllerKind::Io, "h6", from(1), None), None);
    for n in 0..3 {
        let host = format!("t{n}");
        assert_eq!(
            connect(ControllerKind::Io, &host, from(n), Some(&ours)),
            None
        );
    }
    let full = connect(ControllerKind::Io, "t3", from(3), Some(&ours));
    assert_eq!(full, Some(ControllerLimit::Tenant));
    assert_eq!(
        connect(ControllerKind::Io, "t3", from(3), Some(&others)),
        None
    );
    assert_eq!(connect(ControllerKind::Io, "t4", from(3), None), None);
}

/// A name without a proof.
fn claimed(host: &str) -> (&str, Authentication) {
    (host, Authentication::default())
}

/// Strangers that claim a host's name, to discover, could have all of its controllers.
#[test]
fn claimed_names_use_up_nothing_of_the_host_that_proves_it() {
    let limits = Limits {
        controllers_per_host: 2,
        ..Limits::default()
    };
    let tls = Authentication {
        tls: true,
        chap: false,
    };
    let mut controllers = Controllers::default();
    let mut connect = |last: u8, proven| {
        let peer = SocketAddr::from(([192, 0, 2, last], 1));
        let kind = ControllerKind::Discovery;
        let name = controller(1).host_nqn;
        let full = controllers.full(&limits, kind, (&name, proven), peer.ip(), None);
        if full.is_none() {
            let make = |id| controller_of(id, peer).with(Standing::connected(proven, None, false));
            assert!(controllers.insert(&limits, make).is_some());
        }
        full
    };
    for _ in 0..2 {
        assert_eq!(connect(1, Authentication::default()), None);
    }
    let of_host = Some(ControllerLimit::Host);
    assert_eq!(connect(1, Authentication::default()), of_host);
    for _ in 0..2 {
        assert_eq!(connect(2, tls), None);
    }
    assert_eq!(connect(2, tls), of_host);
}

/// Regression: hosts at two addresses held all controllers for as long as they kept them busy.
#[test]
fn the_last_controllers_are_for_those_who_have_few() {
    let limits = Limits {
        controllers: 512,
        controllers_per_address: 384,
        ..Limits::default()
    };
    let mut controllers = Controllers::default();
    let mut connect = |last: u8, tenant: Option<&Arc<str>>| {
        let peer = SocketAddr::from(([192, 0, 2, last], 1));
        let (io, host) = (ControllerKind::Io, format!("h{}", controllers.by_id.len()));
        let full = controllers.full(&limits, io, claimed(&host), peer.ip(), tenant);
        if full.is_none() {
            let make = |id| {
                controller_of(id, peer).with(Standing::connected(
                    Authentication::default(),
                    tenant.cloned(),
                    false,
                ))
            };
            assert!(controllers.insert(&limits, make).is_some());
        }
        full
    };
    for n in 0..480 {
        assert_eq!(connect(if n < 384 { 1 } else { 2 }, None), None);
    }
    let of_address = Some(ControllerLimit::Address);
    assert_eq!(
        (connect(1, None), connect(2, None)),
        (of_address, of_address)
    );
    // Its address has two, and so has its tenant, regardless of the hosts' addresses.
    let ours: Arc<str> = "ours".into();
    for _ in 0..2 {
        assert_eq!((connect(3, None), connect(2, Some(&ours))), (None, None));
    }
    assert_eq!(connect(3, None), of_address);
    assert_eq!(connect(4, Some(&ours)), Some(ControllerLimit::Tenant));
    for n in 0..28 {
        assert_eq!(connect(4 + n / 2, None), None);
    }
    assert_eq!(connect(18, None), Some(ControllerLimit::All));
}

/// Regression: two addresses could have all discovery controllers.
#[test]
fn the_last_controllers_of_discovery_are_for_those_who_have_few() {
    let limits = Limits {
        discovery_controllers: 64,
        ..Limits::default()
    };
    let mut controllers = Controllers::default();
    let mut connect = |last: u8| {
        let peer = SocketAddr::from(([192, 0, 2, last], 1));
        let (discovery, host) = (ControllerKind::Discovery, format!("h{last}"));
        let full = controllers.full(&limits, discovery, claimed(&host), peer.ip(), None);
        if full.is_none() {
            let make = |id| controller_of(id, peer);
            assert!(controllers.insert(&limits, make).is_some());
        }
        full
    };
    for n in 0..60 {
        assert_eq!(connect(if n < 48 { 1 } else { 2 }), None, "{n}");
    }
    for last in [1, 2] {
        assert_eq!(connect(last), Some(ControllerLimit::Address));
    }
    for last in 3..7 {
        assert_eq!(connect(last), None, "one of the reserve");
    }
    assert_eq!(connect(7), Some(ControllerLimit::Discovery));
}

/// A queue may come from a different address than the controller did; from a foreign network, its
/// name is not accepted.
#[test]
fn a_name_is_not_believed_of_a_queue_from_another_network() {
    let [there, elsewhere] = [1, 2].map(|net| IpAddr::from([192, 0, net, 1]));
    let tenant = TenantOptions {
        name: "tenant".to_owned(),
        hosts: vec!["nqn.host".to_owned()],
        networks: vec!["192.0.1.0/24".parse().expect("a network")],
        ..TenantOptions::default()
    };
    let tenancy = Tenancy {
        tenants: vec![tenant],
        ..Tenancy::default()
    };
    let rules = Arc::new(AccessRules::new(&tenancy).expect("a good tenancy"));
    let mut controller = controller_of(1, SocketAddr::from((there, 1)));
    // The discovery service is open to all hosts.
    let open = controller.decide_from(&rules, elsewhere);
    assert!(matches!(open, AccessDecision::Everything), "{open:?}");
    let options = SubsystemOptions::open_to_all("nqn.2026-11.io.example:a");
    controller.subsystem = Some(Arc::new(Subsystem::new(0, options, 1)));
    let known = controller.decide_from(&rules, there);
    assert!(matches!(known, AccessDecision::Everything), "{known:?}");
    let moved = controller.decide_from(&rules, elsewhere);
    assert!(matches!(moved, AccessDecision::Refused), "{moved:?}");
}

/// A machine has all addresses of its /64, and could otherwise have all controllers by using one
/// after another.
#[test]
fn addresses_of_one_network_share_controllers() {
    let limits = Limits {
        controllers_per_address: 3,
        ..Limits::default()
    };
    let peer = |net, last| SocketAddr::from(([0x2001, 0xdb8, 0, net, 0, 0, 0, last], 1));
    let mut controllers = Controllers::default();
    for last in 0..3 {
        let made = controllers.insert(&limits, |id| controller_of(id, peer(0, last)));
        assert!(made.is_some());
    }
    let full = |from: SocketAddr| {
        controllers.full(
            &limits,
            ControllerKind::Io,
            claimed("nqn.other"),
            from.ip(),
            None,
        )
    };
    assert_eq!(full(peer(0, 3)), Some(ControllerLimit::Address));
    assert_eq!(full(peer(1, 0)), None);
}
