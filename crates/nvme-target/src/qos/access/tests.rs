//! Tests of access.

use super::*;
use std::net::Ipv4Addr;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const A: &str = "nqn.2026-11.io.example:a";
const B: &str = "nqn.2026-11.io.example:b";
const HOST: &str = "nqn.2026-11.io.example:host";
const OTHER: &str = "nqn.2026-11.io.example:other";

fn tenant(name: &str, hosts: &[&str]) -> TenantOptions {
    TenantOptions {
        name: name.to_owned(),
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        ..TenantOptions::default()
    }
}

fn grant(subsystem: Option<&str>, namespace: Option<u32>, write: bool) -> TenantGrant {
    TenantGrant {
        subsystem: subsystem.map(str::to_owned),
        grant: AccessGrant {
            namespace,
            range: Some((0, 10)),
            read: true,
            write,
        },
    }
}

fn rules(tenants: Vec<TenantOptions>, others: Others) -> AccessRules {
    AccessRules::new(&Tenancy { tenants, others }).expect("a good tenancy")
}

fn limited(decision: AccessDecision) -> Arc<Rights> {
    match decision {
        AccessDecision::Limited(rights) => rights,
        other => panic!("{other:?}"),
    }
}

fn may(rights: &Rights, namespace: u32, need: Need, first: u64, blocks: u64) -> bool {
    rights.check(namespace, need, first, blocks).is_ok()
}

#[test]
fn without_rules_nothing_is_checked() {
    let rules = AccessRules::default();
    assert!(rules.admit(HOST, HERE, A));
    assert!(matches!(
        rules.decide(HOST, HERE, A),
        AccessDecision::Everything
    ));
    assert!(rules.decide(HOST, HERE, A).rights().is_none());
}

#[test]
fn who_is_no_tenant_is_served_or_refused() {
    let mut only_in_b = tenant("t", &[HOST]);
    only_in_b.subsystems.push(B.to_owned());
    let open = rules(vec![only_in_b.clone()], Others::Serve);
    assert!(matches!(
        open.decide(OTHER, HERE, A),
        AccessDecision::Everything
    ));
    let strict = rules(vec![only_in_b], Others::Refuse);
    assert!(matches!(
        strict.decide(HOST, HERE, B),
        AccessDecision::Everything
    ));
    for (host, subsystem) in [(HOST, A), (OTHER, A), (OTHER, B)] {
        assert!(!strict.admit(host, HERE, subsystem));
        let rights = strict
            .decide(host, HERE, subsystem)
            .rights()
            .expect("it is checked");
        assert!(!may(&rights, 1, Need::Read, 0, 1));
        assert!(rights.check_any(1).is_err());
    }
}

#[test]
fn grants_hold_where_they_say() {
    let mut some = tenant("t", &[HOST]);
    some.grants = Some(vec![
        grant(Some(A), Some(2), true),
        grant(None, Some(3), false),
    ]);
    let rules = rules(vec![some], Others::Serve);
    let (a, b) = (
        limited(rules.decide(HOST, HERE, A)),
        limited(rules.decide(HOST, HERE, B)),
    );
    assert!(may(&a, 2, Need::Write, 0, 10));
    assert!(!may(&a, 2, Need::Write, 0, 11));
    assert!(!may(&b, 2, Need::Read, 0, 1));
    for rights in [a, b] {
        assert!(may(&rights, 3, Need::Read, 9, 1));
        assert!(!may(&rights, 3, Need::Write, 9, 1));
        assert!(!may(&rights, 1, Need::Read, 0, 1));
        assert!(rights.check_any(3).is_ok() && rights.check_any(1).is_err());
    }
}

#[test]
fn a_host_can_be_another_tenant_in_a_namespace() {
    let mut reader = tenant("reader", &[HOST]);
    reader.namespaces.push(5);
    reader.grants = Some(vec![grant(None, None, false)]);
    let rules = rules(vec![reader], Others::Refuse);
    let rights = limited(rules.decide(HOST, HERE, A));
    assert!(may(&rights, 5, Need::Read, 0, 10));
    assert!(!may(&rights, 5, Need::Write, 0, 10));
    assert!(!may(&rights, 4, Need::Read, 0, 10));
}

#[test]
fn each_namespace_has_its_tenant_and_each_device_those_who_use_it() {
    let mut scratch = tenant("scratch", &[HOST]);
    scratch.subsystems.push(A.to_owned());
    scratch.namespaces.push(5);
    let rules = rules(vec![tenant("all", &[HOST]), scratch], Others::Serve);
    let tenants = rules.host_tenants(HOST, A);
    assert_eq!(
        (tenants.tenant(5), tenants.tenant(1)),
        (Some("scratch"), Some("all"))
    );
    assert_eq!(rules.host_tenants(HOST, B).tenant(5), Some("all"));
    assert_eq!(rules.host_tenants(OTHER, A).tenant(5), Some(DEFAULT_TENANT));
    let on = |subsystem: &str, nsid| {
        let declared = rules.declared(&[(subsystem.to_owned(), nsid)]);
        declared.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(on(A, 5), ["all", "scratch"]);
    assert_eq!(on(A, 1), ["all"]);
    assert_eq!(on(B, 5), ["all"]);
}

#[test]
fn what_means_nothing_is_refused_by_name() {
    let error = |tenants: Vec<TenantOptions>| {
        let tenancy = Tenancy {
            tenants,
            others: Others::Serve,
        };
        AccessRules::new(&tenancy).expect_err("bad").to_string()
    };
    let mut beyond = tenant("beyond", &[]);
    beyond.namespaces.push(NAMESPACES_MAX + 1);
    assert!(
        error(vec![beyond]).starts_with("tenant \"beyond\": namespace ID 1025 is out of range")
    );
    let mut empty = tenant("empty", &[]);
    let mut nothing = grant(None, None, true);
    nothing.grant.range = Some((5, 0));
    empty.grants = Some(vec![nothing]);
    assert!(error(vec![empty]).contains("grant 0 has 0 blocks"));
    let twice = error(vec![tenant("one", &[HOST]), tenant("two", &[HOST])]);
    assert!(twice.contains("are both assigned to the same"), "{twice}");
    let same = error(vec![tenant("one", &[HOST]), tenant("one", &[OTHER])]);
    assert!(same.starts_with("tenant \"one\": two tenants"), "{same}");
}

#[test]
fn a_name_is_believed_from_its_networks_only() {
    let network = |text: &str| text.parse::<IpNet>().expect("a network");
    let bound = TenantOptions {
        networks: vec![network("127.0.0.0/8"), network("2001:db8::/32")],
        ..tenant("bound", &[HOST])
    };
    // The same host in another subsystem: its networks apply everywhere.
    let elsewhere = TenantOptions {
        subsystems: vec![B.to_owned()],
        ..tenant("elsewhere", &[HOST])
    };
    let tenants = vec![bound.clone(), elsewhere, tenant("free", &[OTHER])];
    let rules = rules(tenants, Others::Serve);
    for (host, from, believed) in [
        (HOST, "127.0.0.1", true),
        (HOST, "127.255.255.255", true),
        (HOST, "::ffff:127.0.0.1", true),
        (HOST, "2001:db8:ffff::1", true),
        (HOST, "128.0.0.1", false),
        (HOST, "2001:db9::1", false),
        (HOST, "::1", false),
        (OTHER, "128.0.0.1", true),
        ("nqn.2026-11.io.example:stranger", "128.0.0.1", true),
    ] {
        let from = from.parse().expect("an address");
        for subsystem in [A, B] {
            assert_eq!(
                rules.admit(host, from, subsystem),
                believed,
                "{host} from {from}"
            );
            let refused = matches!(rules.decide(host, from, subsystem), AccessDecision::Refused);
            assert_eq!(refused, !believed, "{host} from {from}");
        }
    }
    let nobody = TenantOptions {
        hosts: Vec::new(),
        subsystems: vec![A.to_owned()],
        ..bound
    };
    let tenancy = Tenancy {
        tenants: vec![nobody],
        ..Tenancy::default()
    };
    assert!(matches!(
        AccessRules::new(&tenancy),
        Err(TargetError::Invalid(_))
    ));
}
