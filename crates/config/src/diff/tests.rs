//! Applying the difference between two configurations to the first gives the second.

use std::collections::{BTreeMap, BTreeSet};

use crate::merge::merge;
use proptest::prelude::*;

use super::*;
use crate::validate;
use switch::Knobs;

use crate::schema::{
    Access, BestEffort, BlockSize, Device, DeviceKind, Eui64, Permission, Referral, Size, Switch,
    Tenant, TlsMode,
};

fn device(shared: bool) -> Device {
    Device {
        shared,
        ..Device::new(DeviceKind::Ram {
            size: Size::from_bytes(64 * 4096),
            block_size: BlockSize::B4096,
        })
    }
}

fn file(path: &str) -> Device {
    Device::new(DeviceKind::File {
        path: path.into(),
        size: Some(Size::from_bytes(64 * 4096)),
        block_size: BlockSize::B4096,
        create: false,
        read_only: false,
    })
}

fn nqn(number: u8) -> String {
    format!("nqn.2026-11.com.example:s{number}")
}

prop_compose! {
    fn namespace()(nsid in 1_u32..5, device in 0_u8..7, size in proptest::option::of(1_u64..4),
                   eui64 in proptest::option::of(1_u8..4), read_only: bool) -> Namespace {
        Namespace {
            size: size.map(|blocks| Size::from_bytes(blocks * 4096)),
            eui64: eui64.map(|last| Eui64 { bytes: [0, 0, 0, 0, 0, 0, 0, last] }),
            read_only,
            ..Namespace::new(nsid, &format!("d{device}"))
        }
    }
}

prop_compose! {
    fn subsystem()(number in 0_u8..4, any: bool, hosts in proptest::collection::btree_set(0_u8..4, 0..3),
                   namespaces in proptest::collection::vec(namespace(), 0..4)) -> Subsystem {
        let allowed_hosts: BTreeSet<String> = hosts.into_iter().map(nqn).collect();
        Subsystem { allow_any_host: any, allowed_hosts, namespaces, ..Subsystem::new(&nqn(number)) }
    }
}

prop_compose! {
    fn tenant()(number in 0_u8..4, host in 0_u8..4, weight in proptest::option::of(1_u32..9),
                blocks in proptest::option::of(1_u64..9)) -> Tenant {
        let permission = |blocks| Permission {
            subsystem: None, namespace: Some(1), first_block: 1, blocks: Some(blocks),
            access: Access::ReadWrite,
        };
        Tenant {
            hosts: [nqn(host)].into(),
            best_effort: weight.map(|weight| BestEffort { weight }),
            permissions: blocks.map(|blocks| vec![permission(blocks)]),
            ..Tenant::new(&format!("t{number}"))
        }
    }
}

prop_compose! {
    /// A good configuration: of what contradicts what came before, nothing is kept. Devices d3
    /// and d4 are shared, d5 and d6 are files with other names where they are renamed.
    fn configuration()(subsystems in proptest::collection::vec(subsystem(), 0..4),
                       spare in proptest::collection::btree_set(0_u8..7, 0..7),
                       renamed in proptest::array::uniform2(proptest::bool::ANY),
                       tenants in proptest::collection::vec(tenant(), 0..3), default_tenant: bool,
                       referrals in proptest::collection::btree_set(1_u8..4, 0..3)) -> Configuration {
        let mut result = Configuration { default_tenant, ..Configuration::default() };
        for tenant in tenants {
            let mut tried = result.clone();
            tried.tenants.push(tenant);
            if validate(&tried).is_ok() {
                result = tried;
            }
        }
        let ram = (0..5).map(|n| (format!("d{n}"), device(n >= 3)));
        let files = (5..7).zip(renamed).map(|(n, renamed)| {
            let name = if renamed { format!("a{n}") } else { format!("d{n}") };
            (name, file(&format!("/f{n}")))
        });
        let all: Vec<(String, Device)> = ram.chain(files).collect();
        let all: BTreeMap<String, _> = (0..).map(|n| format!("d{n}")).zip(all).collect();
        result.devices.extend(spare.into_iter().map(|n| all[&format!("d{n}")].clone()));
        for mut subsystem in subsystems {
            let namespaces = std::mem::take(&mut subsystem.namespaces);
            if result.subsystem(&subsystem.nqn).is_some() {
                continue;
            }
            result.subsystems.push(subsystem);
            for mut namespace in namespaces {
                let mut tried = result.clone();
                let (name, device) = all[&namespace.device].clone();
                namespace.device.clone_from(&name);
                tried.devices.insert(name, device);
                let last = tried.subsystems.last_mut().expect("one was pushed");
                last.namespaces.push(namespace);
                if validate(&tried).is_ok() {
                    result = tried;
                }
            }
        }
        result.discovery.referrals = referrals.into_iter().map(|last| Referral {
            address: [192, 0, 2, last].into(),
            port: 8009,
            nqn: crate::schema::DISCOVERY_NQN.to_owned(),
        }).collect();
        result.sort();
        result
    }
}

/// The namespaces that a host reaches, each of any size, and their subsystems.
fn reached(model: &Configuration, host: &str) -> Vec<(String, Namespace)> {
    let tenant = model
        .tenants
        .iter()
        .find(|tenant| tenant.hosts.contains(host));
    let permitted = |nsid| match tenant {
        Some(tenant) => tenant.permissions.as_ref().is_none_or(|permissions| {
            let mut namespaces = permissions.iter().map(|permission| permission.namespace);
            namespaces.any(|namespace| namespace == Some(nsid))
        }),
        None => model.default_tenant,
    };
    let allowing = model
        .subsystems
        .iter()
        .filter(|subsystem| subsystem.allows(host));
    let all = allowing.flat_map(|subsystem| {
        let namespaces = subsystem.namespaces.iter().cloned();
        namespaces.map(|namespace| {
            (
                subsystem.nqn.clone(),
                Namespace {
                    size: None,
                    ..namespace
                },
            )
        })
    });
    all.filter(|(_, namespace)| permitted(namespace.nsid))
        .collect()
}

fn apply_all(actions: &[Action], to: &Configuration) -> Configuration {
    let mut model = to.clone();
    for action in actions {
        if let Err(error) = action.apply_to_model(&mut model) {
            panic!("{action:?}: {error}");
        }
    }
    model
}

proptest! {
    #[test]
    fn the_difference_leads_from_old_to_new(old in configuration(), new in configuration()) {
        prop_assert!(validate(&old).is_ok());
        let actions = diff(&old, &new).expect("nothing fixed differs");
        prop_assert_eq!(&apply_all(&actions, &old), &new);
        prop_assert_eq!(diff(&new, &new).expect("nothing differs"), vec![]);
        prop_assert_eq!(apply_all(&build(&new), &new.emptied()), new);
    }

    #[test]
    fn every_step_on_the_way_is_a_good_configuration(old in configuration(), new in configuration()) {
        let mut model = old.clone();
        for action in diff(&old, &new).expect("nothing fixed differs") {
            action.apply_to_model(&mut model).expect("shown above");
            if let Err(error) = validate(&model) {
                panic!("after {action:?}: {error}");
            }
        }
    }

    #[test]
    fn what_is_undone_leaves_nothing_behind(old in configuration(), new in configuration()) {
        let mut model = old.clone();
        for action in diff(&old, &new).expect("nothing fixed differs") {
            let before = model.clone();
            action.apply_to_model(&mut model).expect("shown above");
            if let Some(inverse) = action.inverse(&before) {
                prop_assert_eq!(&apply_all(&[inverse], &model), &before);
            }
        }
    }

    #[test]
    fn a_merge_has_the_changes_of_both_sides(
        base in configuration(), one in configuration(), other in configuration(),
    ) {
        prop_assert_eq!(&merge(&base, &one, &base), &Ok(one.clone()));
        prop_assert_eq!(&merge(&base, &base, &one), &Ok(one.clone()));
        prop_assert_eq!(&merge(&base, &one, &one), &Ok(one.clone()));
        // The assertions of merging look at what comes of it.
        let mut changed = base.clone();
        changed.tenants.clone_from(&one.tenants);
        let mut of_file = base.clone();
        of_file.subsystems.clone_from(&other.subsystems);
        of_file.devices.clone_from(&other.devices);
        let merged = merge(&base, &changed, &of_file).expect("they changed different things");
        prop_assert_eq!((&merged.tenants, &merged.devices), (&one.tenants, &other.devices));
        drop(merge(&base, &one, &other));
    }

    /// Hosts that were denied used what was added by the same change, and while tenants replaced
    /// the list of allowed hosts every host connected.
    #[test]
    fn a_host_reaches_on_the_way_what_it_does_before_or_after(old in configuration(), new in configuration()) {
        let hosts = (0..4).map(nqn);
        let ends: Vec<_> = hosts.map(|host| (reached(&old, &host), reached(&new, &host), host)).collect();
        let mut model = old.clone();
        for action in diff(&old, &new).expect("nothing fixed differs") {
            action.apply_to_model(&mut model).expect("shown above");
            for (before, after, host) in &ends {
                let now = reached(&model, host);
                prop_assert!(now.iter().all(|it| before.contains(it) || after.contains(it)), "{action:?}");
                prop_assert!(before.iter().all(|it| now.contains(it) || !after.contains(it)), "{action:?}");
            }
        }
    }

    #[test]
    fn an_inverse_brings_back_what_was(old in configuration(), new in configuration()) {
        let mut model = old.clone();
        for action in diff(&old, &new).expect("nothing fixed differs") {
            let before = model.clone();
            action.apply_to_model(&mut model).expect("shown above");
            match action.inverse(&before) {
                Some(inverse) => prop_assert_eq!(apply_all(&[inverse], &model), before),
                None => prop_assert!(matches!(action, Action::RemoveDevice { .. }), "RAM alone is lost"),
            }
        }
    }

    #[test]
    fn an_action_survives_its_text(old in configuration(), new in configuration()) {
        for action in diff(&old, &new).expect("nothing fixed differs") {
            let text = serde_json::to_string(&action).expect("it has a form in JSON");
            prop_assert_eq!(serde_json::from_str::<Action>(&text).expect("its own form"), action);
        }
    }
}

/// A device that could not be opened cost the hosts of a namespace that was to have it their disk.
#[test]
fn devices_are_opened_before_anything_goes_and_files_change_their_device_one_by_one() {
    let disks = |names: [&str; 2]| {
        let devices = names.map(|name| (name.to_owned(), file(&format!("/{}", &name[1..]))));
        let mut all = Configuration::default_with([]);
        all.devices = devices.into();
        let namespaces = (1..).zip(names);
        all.subsystems[0].namespaces = namespaces.map(|(n, d)| Namespace::new(n, d)).collect();
        all
    };
    let steps = |old, new| -> Vec<String> {
        let text = |action| match action {
            Action::AddDevice { name, .. } => format!("open {name}"),
            Action::RemoveDevice { name } => format!("close {name}"),
            Action::AddNamespace { namespace, .. } => format!("add {}", namespace.nsid),
            Action::RemoveNamespace { nsid, .. } => format!("remove {nsid}"),
            other => panic!("{other:?}"),
        };
        let actions = diff(&disks(old), &disks(new)).expect("nothing of it is fixed");
        actions.into_iter().map(text).collect()
    };
    assert_eq!(
        steps(["a1", "a2"], ["a1", "a3"]),
        ["open a3", "remove 2", "add 2", "close a2"]
    );
    assert_eq!(
        steps(["a1", "a2"], ["b2", "a3"]),
        [
            "open a3", "remove 2", "close a2", "open b2", "remove 1", "add 1", "add 2", "close a1"
        ]
    );
}

#[test]
fn what_needs_a_restart_is_named_key_by_key() {
    let old = Configuration::default_with([device(false).kind.into_device()]);
    let mut new = old.clone();
    new.tls = TlsMode::Allowed;
    new.cores = Some(vec![1]);
    new.limits.set("max_r2t", 1);
    new.digests.data = false;
    new.api = Some("127.0.0.1:0".parse().expect("an address"));
    new.api_socket_group = Some(1);
    new.api_files.api_tokens = Some("tokens".into());
    new.api_limits.connections = 2;
    new.devices.insert("ram1".to_owned(), device(true));
    new.subsystems[0].serial = "X".to_owned();
    new.subsystems[0].model = "Y".to_owned();
    let error = diff(&old, &new).expect_err("all of it is fixed");
    let keys: Vec<&str> = error.keys.iter().map(|f| f.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "tls",
            "api",
            "api_socket_group",
            "api_tokens",
            "api_limits",
            "cores",
            "limits",
            "digests",
            "devices.ram1",
            "serial of subsystem \"nqn.2026-11.io.switchyard:default\"",
            "model of subsystem \"nqn.2026-11.io.switchyard:default\"",
        ]
    );
    let text = error.to_string();
    assert!(
        text.starts_with("tls: cannot be changed while running; restart"),
        "{text}"
    );
    assert!(
        text.contains("give the changed device another name, or restart"),
        "{text}"
    );
}

#[test]
fn nobody_who_may_connect_before_and_after_is_shut_out_between() {
    let mut old = Configuration::default_with([]);
    old.subsystems[0].allowed_hosts.insert(nqn(1));
    let mut new = old.clone();
    new.subsystems[0].allow_any_host = false;
    new.subsystems[0].allowed_hosts = [nqn(2)].into();
    for (from, to) in [(&old, &new), (&new, &old)] {
        let mut model = from.clone();
        for action in diff(from, to).expect("hosts only") {
            action.apply_to_model(&mut model).expect("a good action");
            assert!(model.subsystems[0].allows(&nqn(2)), "after {action:?}");
        }
    }
}

impl DeviceKind {
    fn into_device(self) -> Device {
        Device::new(self)
    }
}

#[test]
fn tenants_are_set_after_what_goes_and_before_what_comes() {
    let old = Configuration::default_with([device(false).kind.into_device()]);
    let mut new = old.clone();
    new.subsystems[0].nqn = nqn(1);
    let mut tenant = Tenant::new("t");
    tenant.subsystems.insert(nqn(1));
    new.tenants.push(tenant);
    new.default_tenant = false;
    let actions = diff(&old, &new).expect("nothing of it is fixed");
    let [
        Action::RemoveSubsystem { .. },
        Action::SetTenants {
            tenants,
            default_tenant: false,
        },
        Action::AddSubsystem { .. },
    ] = &actions[..]
    else {
        panic!("{actions:?}");
    };
    assert_eq!(*tenants, new.tenants);
    let back = actions[1].inverse(&old).expect("tenants can be set back");
    let expected = Action::SetTenants {
        tenants: Vec::new(),
        default_tenant: true,
    };
    assert_eq!(back, expected);
}

#[test]
fn knobs_are_turned_by_one_action_and_turned_back_by_its_inverse() {
    let old = Configuration::default_with([device(false).kind.into_device()]);
    let mut new = old.clone();
    new.switch = Switch(Knobs::linux());
    let actions = diff(&old, &new).expect("nothing of it is fixed");
    let turn = Action::TurnKnobs { switch: new.switch };
    assert_eq!(actions, std::slice::from_ref(&turn));
    let back = turn.inverse(&old).expect("knobs can be turned back");
    assert_eq!(diff(&new, &old), Ok(vec![back]));
    assert_eq!(
        build(&new)[0],
        turn,
        "knobs are where they belong before anybody connects"
    );
}

/// The device stayed grown, and the namespace named a size where it had none.
#[test]
fn a_device_that_grew_with_its_namespace_is_as_it_was_after_the_inverse() {
    let blocks = |blocks: u64| Size::from_bytes(blocks * 4096);
    let old = Configuration::default_with([device(false).kind.into_device()]);
    let (nqn, nsid) = {
        let subsystem = &old.subsystems[0];
        (subsystem.nqn.clone(), subsystem.namespaces[0].nsid)
    };
    let grow = Action::resize_namespace(&old, &nqn, nsid, Some(blocks(100)));
    let grown = apply_all(std::slice::from_ref(&grow), &old);
    let size = |model: &Configuration| model.device_of(&nqn, nsid).expect("it has one").kind.size();
    assert_eq!(
        (size(&old), size(&grown)),
        (Some(blocks(64)), Some(blocks(100)))
    );
    validate(&grown).expect("the device is as large as its namespace");
    let back = grow.inverse(&old).expect("a resize has an inverse");
    assert_eq!(apply_all(&[back], &grown), old);
    let shrink = Action::resize_namespace(&grown, &nqn, nsid, Some(blocks(10)));
    let shrunk = apply_all(&[shrink], &grown);
    assert_eq!(size(&shrunk), Some(blocks(100)), "a device never shrinks");
}

/// A change that failed later left zeroes where the namespace had been larger. The removal of a
/// device fails where its cache cannot be written back.
#[test]
fn a_namespace_becomes_smaller_after_all_that_can_fail() {
    let blocks = |blocks: u64| Some(Size::from_bytes(blocks * 4096));
    let mut old = Configuration::default_with([device(false), device(false), device(false)]);
    let mut new = old.clone();
    let last = old.subsystems[0].namespaces.pop();
    old.subsystems[0].namespaces[1].size = blocks(5);
    new.subsystems[0].namespaces[0].size = blocks(10);
    new.subsystems[0].namespaces[1].size = blocks(6);
    let mut cached = device(false);
    cached.cache = blocks(16);
    old.devices.insert("a".to_owned(), device(false));
    old.devices.insert("b".to_owned(), cached);
    old.devices.insert("c".to_owned(), file("/file"));
    for model in [&mut old, &mut new] {
        model.subsystems[0].allow_any_host = false;
    }
    new.subsystems[0].allowed_hosts.insert(nqn(1));
    let referral = Referral {
        address: [192, 0, 2, 1].into(),
        port: 8009,
        nqn: crate::schema::DISCOVERY_NQN.to_owned(),
    };
    new.discovery.referrals.push(referral.clone());
    let subsystem = &new.subsystems[0];
    let name = subsystem.nqn.clone();
    let namespace = last.expect("there were three");
    let close = |name: &str| Action::RemoveDevice {
        name: name.to_owned(),
    };
    let expected = [
        Action::resize_namespace(&new, &name, 2, blocks(6)),
        Action::AddNamespace {
            nqn: name.clone(),
            namespace,
        },
        Action::AllowHost {
            nqn: name.clone(),
            host: nqn(1),
        },
        Action::AddReferral { referral },
        close("b"),
        close("c"),
        Action::resize_namespace(&new, &name, 1, blocks(10)),
        close("a"),
    ];
    assert_eq!(diff(&old, &new).expect("nothing of it is fixed"), expected);
    for (before, after, keeps) in [
        (None, blocks(64), false),
        (blocks(64), None, true),
        (blocks(64), blocks(63), false),
        (blocks(63), blocks(64), true),
    ] {
        assert_eq!(keeps_all(before, after), keeps, "{before:?} {after:?}");
    }
}

#[test]
fn a_shared_device_does_not_grow_with_a_namespace() {
    let mut old = Configuration::default_with([device(true).kind.into_device()]);
    old.devices
        .values_mut()
        .for_each(|device| device.shared = true);
    let subsystem = &old.subsystems[0];
    let (nqn, nsid) = (&subsystem.nqn, subsystem.namespaces[0].nsid);
    let size = Some(Size::from_bytes(100 * 4096));
    let grow = Action::resize_namespace(&old, nqn, nsid, size);
    let grown = apply_all(&[grow], &old);
    assert!(validate(&grown).is_err(), "it is larger than its device");
}
