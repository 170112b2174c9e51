//! What can be wrong about tenants, as the user of a file sees it.

use super::*;
use crate::schema::{
    Access, BestEffort, DEFAULT_REQUEST_SIZE, LatencyCritical, Namespace, Percentile, Tenant,
};

const SUBSYSTEM: &str =
    "[[subsystems]]\nnqn = \"nqn.2026-11.com.example:disks\"\nallow_any_host = true\n";

fn parsed(tenants: &str) -> Result<Configuration, ConfigError> {
    parse(&format!("{SUBSYSTEM}{tenants}"), Format::Toml)
}

/// The problems of these tenants, without the lines they are in.
fn problems(tenants: &str) -> Vec<String> {
    let error = parsed(tenants).expect_err(tenants);
    let text = |problem: &Problem| {
        assert!(problem.line.is_some(), "{problem:?}");
        let Problem {
            key,
            error,
            what_to_do,
            ..
        } = problem;
        format!("{key}: {error}; {what_to_do}")
    };
    error.problems().iter().map(text).collect()
}

fn tenant(name: &str, rest: &str) -> String {
    format!("[[tenants]]\nname = \"{name}\"\n{rest}\n")
}

const HOST: &str = "hosts = [\"nqn.2026-11.com.example:host\"]";

/// A change by the interface was refused because of `tenants[1]`, which its author never wrote.
#[test]
fn problems_of_what_was_built_name_tenants_and_namespaces() {
    let text = tenant("a", HOST) + &tenant("b.c", "namespaces = [1]");
    let mut configuration = parsed(&text).expect("it is good");
    let weight = 0;
    configuration.tenants[1].best_effort = Some(BestEffort { weight });
    configuration.subsystems[0].namespaces = vec![Namespace::new(7, "none")];
    let error = validate(&configuration).expect_err("it is not any more");
    let keys: Vec<_> = error.problems().iter().map(|it| &*it.key).collect();
    let expected = [
        "subsystems.\"nqn.2026-11.com.example:disks\".namespaces.7.device",
        "tenants.\"b.c\".best_effort.weight",
    ];
    assert_eq!(keys, expected);
}

#[test]
fn a_tenant_that_says_little_is_best_effort_and_may_do_everything() {
    let configuration = parsed(&tenant("web", HOST)).expect("it says enough");
    let mut expected = Tenant::new("web");
    let host = "nqn.2026-11.com.example:host".to_owned();
    expected.hosts.insert(host);
    assert_eq!(configuration.tenants, [expected]);
    assert!(configuration.default_tenant, "others are served");
}

#[test]
fn a_promise_and_permissions_have_defaults() {
    let promise = "latency_critical = { latency_us = 500, iops = 70000, read_percent = 80 }";
    let permissions = "permissions = [{ access = \"read\" }]";
    let text = tenant("db", &format!("{HOST}\n{promise}\n{permissions}"));
    let configuration = parsed(&text).expect("it says enough");
    let db = &configuration.tenants[0];
    let expected = LatencyCritical {
        percentile: Percentile::P95,
        latency_us: 500,
        iops: 70_000,
        read_percent: 80,
        request_size: DEFAULT_REQUEST_SIZE,
    };
    assert_eq!(db.latency_critical, Some(expected));
    let permission = &db.permissions.as_ref().expect("there is one")[0];
    assert_eq!((permission.first_block, permission.blocks), (0, None));
    assert_eq!(
        (permission.namespace, permission.access),
        (None, Access::Read)
    );
}

#[test]
fn tenants_are_in_order_of_their_names() {
    let text = tenant("b", HOST) + &tenant("a", "namespaces = [1]");
    let configuration = parsed(&text).expect("both are good");
    let names: Vec<_> = configuration.tenants.iter().map(|t| &t.name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn hosts_are_bound_to_their_networks() {
    let text = format!("{HOST}\nnetworks = [\"192.0.2.0/24\", \"::1\"]");
    let configuration = parsed(&tenant("a", &text)).expect("it says enough");
    let networks = configuration.tenants[0].networks.iter();
    let networks: Vec<_> = networks.map(ToString::to_string).collect();
    assert_eq!(networks, ["192.0.2.0/24", "::1"]);
    let json = serde_json::to_string(&configuration).expect("it has a form");
    assert_eq!(parse(&json, Format::Json).expect("its own"), configuration);
    for (rest, expected) in [
        (
            "namespaces = [1]\nnetworks = [\"::1\"]".to_owned(),
            "tenants[0].networks: says from where hosts connect, and no host is named",
        ),
        (
            format!("{HOST}\nnetworks = []"),
            "tenants[0].networks: is empty",
        ),
        (
            format!("{HOST}\nnetworks = [\"here\"]"),
            "tenants[0].networks[0]: the text \"here\" cannot stand here; write a network",
        ),
        (
            format!("{HOST}\nnetworks = [\"192.0.2.7/24\"]"),
            "tenants[0].networks[0]: the text \"192.0.2.7/24\" cannot stand here; the address has bits",
        ),
    ] {
        let found = problems(&tenant("a", &rest));
        assert!(found[0].starts_with(expected), "{found:?}");
    }
}

#[test]
fn who_a_tenant_is_must_be_clear() {
    let cases = [
        (
            tenant("a", ""),
            "tenants[0]: tenant \"a\" would be every host in every subsystem; name its hosts, \
             subsystems or namespaces, or call it \"default\"",
        ),
        (
            tenant("a", "hosts = []"),
            "tenants[0].hosts: is empty; name at least one, or omit the key to match all",
        ),
        (
            tenant("a", HOST) + &tenant("b", HOST),
            "tenants[1]: host \"nqn.2026-11.com.example:host\": is tenant \"a\" already; let one \
             of the two name it, or one of them say more precisely where",
        ),
        (
            tenant("a", HOST) + &tenant("a", "namespaces = [1]"),
            "tenants[1].name: \"a\" is the name of tenants[0] too; give each tenant a name of its \
             own",
        ),
        (
            tenant("a", "subsystems = [\"nqn.2026-11.com.example:disk\"]"),
            "tenants[0].subsystems: there is no subsystem \"nqn.2026-11.com.example:disk\"; did \
             you mean \"nqn.2026-11.com.example:disks\"?",
        ),
        (
            tenant("a", "hosts = [\"nqn.host\"]"),
            "tenants[0].hosts: \"nqn.host\" ",
        ),
        (
            tenant("a", "namespaces = [0]"),
            "tenants[0].namespaces: 0 is out of range; write a number from 1 to 1024",
        ),
        (
            tenant("a b", HOST),
            "tenants[0].name: \"a b\" cannot be a tenant's name; write 1 to 64 letters, digits, \
             - _ or .",
        ),
        (
            tenant("default", HOST),
            "tenants[0].name: \"default\" is who is no other tenant, ",
        ),
        (
            tenant("default", "[tenants.best_effort]\nweight = 0"),
            "tenants[0].best_effort.weight: 0 is out of range; write a number from 1 to 10000",
        ),
    ];
    for (text, expected) in cases {
        let found = problems(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{found:?}");
    }
    let text = format!("default_tenant = false\n{}", tenant("default", ""));
    let error = parse(&text, Format::Toml).expect_err("nobody could be it");
    assert!(
        error.to_string().contains("default_tenant is false"),
        "{error}"
    );
    // One of the two says more precisely where.
    let precise = format!("{HOST}\nnamespaces = [2]");
    parsed(&(tenant("a", HOST) + &tenant("b", &precise))).expect("b is more particular");
}

#[test]
fn every_number_of_a_promise_and_a_permission_is_checked() {
    let promise = "latency_critical = { latency_us = 9, iops = 0, read_percent = 101, \
                   request_size = \"2M\" }";
    let found = problems(&tenant("a", &format!("{HOST}\n{promise}")));
    let keys: Vec<_> = found.iter().filter_map(|p| p.split(':').next()).collect();
    let place = |key: &str| format!("tenants[0].latency_critical.{key}");
    let expected = ["latency_us", "iops", "read_percent", "request_size"].map(place);
    assert_eq!(keys, expected);
    assert!(
        found[0].ends_with("9 is out of range; write a number from 10 to 10000000"),
        "{found:?}"
    );
    let permission = |rest: &str| {
        let permissions = format!("permissions = [{{ {rest}, access = \"write\" }}]");
        let found = problems(&tenant("a", &format!("{HOST}\n{permissions}")));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    for (rest, expected) in [
        ("blocks = 0", "blocks: 0 blocks are nothing to permit"),
        (
            "first_block = 9223372036854775807, blocks = 9223372036854775807, namespace = 1025",
            "namespace: 1025 is out of range",
        ),
        (
            "subsystem = \"nqn.2026-11.com.example:x\"",
            "subsystem: there is no subsystem \"nqn.2026-11.com.example:x\"",
        ),
    ] {
        let found = permission(rest);
        let place = format!("tenants[0].permissions[0].{expected}");
        assert!(found.starts_with(&place), "{found}");
    }
    let both = format!(
        "{HOST}\nbest_effort = {{ weight = 1 }}\n\
         latency_critical = {{ latency_us = 500, iops = 1, read_percent = 0 }}"
    );
    assert_eq!(
        problems(&tenant("a", &both)),
        [
            "tenants[0].best_effort: cannot be used together with latency_critical; keep one of the two"
        ]
    );
}

#[test]
fn more_combinations_than_anybody_means_are_refused() {
    let many = |count: u32| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>();
    let hosts = many(100).join("\", \"nqn.2026-11.com.example:h");
    let text = format!(
        "hosts = [\"nqn.2026-11.com.example:h{hosts}\"]\nnamespaces = [{}]",
        many(1000).join(", ")
    );
    let found = problems(&tenant("a", &text));
    assert!(
        found[0].starts_with("tenants: 100000 combinations of hosts, subsystems and namespaces"),
        "{found:?}"
    );
}
