//! From two configurations to the actions that lead from one to the other.

#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;

use crate::action::Action;
use crate::schema::{Authentication, Configuration, DeviceKind, Namespace, Size, Subsystem};

/// A key that differs and that a running target cannot change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fixed {
    /// The key.
    pub key: String,
    /// The remedy.
    pub what_to_do: String,
}

/// Everything that differs and that a running target cannot change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FixedWhileRunning {
    /// The keys, at least one.
    pub keys: Vec<Fixed>,
}

impl std::fmt::Display for FixedWhileRunning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = self.keys.iter().map(|Fixed { key, what_to_do }| {
            format!("{key}: cannot be changed while running; {what_to_do}")
        });
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// The actions that lead from `old` to `new`, both of which are checked configurations.
///
/// Devices are opened first, because that fails most often, and hosts notice nothing of it. Then
/// what goes is removed before what comes is added, so that a device or an identifier can move, and
/// so that no host ever reaches a namespace that it reaches neither before nor after.
/// Namespaces become smaller and devices are closed last, because what a device gives up, or held in
/// RAM, cannot be brought back if a later action fails. Devices with a cache or a file are closed
/// before a namespace becomes smaller: that fails where the cache cannot be written back, or the file
/// is in use. A device gives its file to another under a new name before that is opened.
///
/// # Errors
/// Every key that differs and is fixed while running.
pub fn diff(old: &Configuration, new: &Configuration) -> Result<Vec<Action>, FixedWhileRunning> {
    let keys = fixed(old, new);
    if !keys.is_empty() {
        return Err(FixedWhileRunning { keys });
    }
    let mut actions = Vec::new();
    if old.switch != new.switch {
        let switch = new.switch;
        actions.push(Action::TurnKnobs { switch });
    }
    devices_and_removals(old, new, &mut actions);
    let both = new.subsystems.iter();
    let both = both.filter_map(|after| Some((old.subsystem(&after.nqn)?, after)));
    let (taken, given): (Vec<_>, Vec<_>) = both.map(|(before, after)| hosts(before, after)).unzip();
    actions.extend(taken.into_iter().flatten());
    // Between what is taken and what is given: no host reaches what it neither could nor will.
    if (&old.tenants, old.default_tenant) != (&new.tenants, new.default_tenant) {
        actions.push(Action::SetTenants {
            tenants: new.tenants.clone(),
            default_tenant: new.default_tenant,
        });
    }
    if old.hosts != new.hosts {
        let hosts = new.hosts.clone();
        actions.push(Action::SetHosts { hosts });
    }
    let smaller = additions(old, new, &mut actions);
    actions.extend(given.into_iter().flatten());
    referrals(old, new, &mut actions);
    listeners(old, new, &mut actions);
    let closed = removed_devices(old, new).map(|name| Action::RemoveDevice { name: name.clone() });
    let closed = closed.filter(|close| !actions.contains(close));
    let can_fail =
        |name: &String| old.devices[name].cache.is_some() || file_of(old, name).is_some();
    let (first, others): (Vec<_>, Vec<_>) =
        closed.partition(|close| matches!(close, Action::RemoveDevice { name } if can_fail(name)));
    actions.extend(first.into_iter().chain(smaller).chain(others));
    Ok(actions)
}

/// The actions that build `configuration` in a dataplane that shares nothing yet.
#[must_use]
pub fn build(configuration: &Configuration) -> Vec<Action> {
    diff(&configuration.emptied(), configuration)
        .expect("a configuration differs from its empty self in nothing that is fixed")
}

fn fixed(old: &Configuration, new: &Configuration) -> Vec<Fixed> {
    let restart = "restart to change it, or set it back";
    let mut keys: Vec<Fixed> = [
        ("tls", old.tls != new.tls),
        ("tls_key", old.tls_key != new.tls_key),
        ("chap_secret", old.chap_secret != new.chap_secret),
        (
            "chap_controller_secret",
            old.chap_controller_secret != new.chap_controller_secret,
        ),
        ("api", old.api != new.api),
        (
            "api_socket_mode",
            old.api_socket_mode != new.api_socket_mode,
        ),
        (
            "api_socket_group",
            old.api_socket_group != new.api_socket_group,
        ),
        (
            "api_certificate",
            old.api_files.api_certificate != new.api_files.api_certificate,
        ),
        ("api_key", old.api_files.api_key != new.api_files.api_key),
        (
            "api_tokens",
            old.api_files.api_tokens != new.api_files.api_tokens,
        ),
        ("api_limits", old.api_limits != new.api_limits),
        ("keys", old.keys != new.keys),
        ("device_folders", old.device_folders != new.device_folders),
        ("cores", old.cores != new.cores),
        ("limits", old.limits != new.limits),
        ("digests", old.digests != new.digests),
    ]
    .into_iter()
    .filter(|(_, differs)| *differs)
    .map(|(key, _)| Fixed {
        key: key.to_owned(),
        what_to_do: restart.to_owned(),
    })
    .collect();
    for (name, device) in &new.devices {
        if old.devices.get(name).is_some_and(|before| before != device) {
            keys.push(Fixed {
                key: format!("devices.{name}"),
                what_to_do: "give the changed device another name, or restart".to_owned(),
            });
        }
    }
    for subsystem in &new.subsystems {
        let Some(before) = old.subsystem(&subsystem.nqn) else {
            continue;
        };
        for (key, differs) in [
            ("serial", before.serial != subsystem.serial),
            ("model", before.model != subsystem.model),
            ("ana_state", before.ana_state != subsystem.ana_state),
        ] {
            if differs {
                keys.push(Fixed {
                    key: format!("{key} of subsystem {:?}", subsystem.nqn),
                    what_to_do: "remove the subsystem and add it again, or restart".to_owned(),
                });
            }
        }
    }
    keys
}

/// The same namespace, but perhaps of another size.
fn same_but_for_size(old: &Namespace, new: &Namespace) -> bool {
    Namespace {
        size: new.size,
        ..old.clone()
    } == *new
}

fn removed_devices<'a>(
    old: &'a Configuration,
    new: &'a Configuration,
) -> impl Iterator<Item = &'a String> {
    let names = old.devices.keys();
    names.filter(|name| !new.devices.contains_key(*name))
}

/// Returns the file that only one device at a time can have open.
fn file_of<'a>(configuration: &'a Configuration, name: &str) -> Option<&'a Path> {
    match &configuration.devices.get(name)?.kind {
        DeviceKind::File { path, .. } => Some(path),
        _ => None,
    }
}

/// Devices that come, and then all that goes but devices. Where a device takes the file of one that
/// goes, that one and what is over it go first.
fn devices_and_removals(old: &Configuration, new: &Configuration, actions: &mut Vec<Action>) {
    let mut removals = removals(old, new);
    let mut renamed = Vec::new();
    for (name, device) in &new.devices {
        if old.devices.contains_key(name) {
            continue;
        }
        let file = file_of(new, name);
        let before = file.and_then(|_| {
            let mut removed = removed_devices(old, new);
            removed.find(|removed| file_of(old, removed) == file)
        });
        let (name, device) = (name.clone(), device.clone());
        let open = Action::AddDevice { name, device };
        let Some(before) = before else {
            actions.push(open);
            continue;
        };
        let (over_it, others) = removals
            .into_iter()
            .partition(|removal| removes_user(old, removal, before));
        removals = others;
        renamed.extend::<Vec<_>>(over_it);
        let name = before.clone();
        renamed.extend([Action::RemoveDevice { name }, open]);
    }
    actions.extend(renamed);
    actions.extend(removals);
}

/// Returns true if `removal` removes a namespace over `device`.
fn removes_user(old: &Configuration, removal: &Action, device: &str) -> bool {
    let mut users = old.users_of(device);
    match removal {
        Action::RemoveSubsystem { nqn } => users.any(|(user, _)| user == nqn),
        Action::RemoveNamespace { nqn, nsid } => {
            users.any(|(user, namespace)| user == nqn && namespace.nsid == *nsid)
        }
        _ => false,
    }
}

/// Returns true if a namespace of the size `after` is no smaller than one of `before`.
fn keeps_all(before: Option<Size>, after: Option<Size>) -> bool {
    after.is_none_or(|after| before.is_some_and(|before| before <= after))
}

fn removals(old: &Configuration, new: &Configuration) -> Vec<Action> {
    let mut actions = Vec::new();
    for subsystem in &old.subsystems {
        let nqn = &subsystem.nqn;
        let Some(after) = new.subsystem(nqn) else {
            actions.push(Action::RemoveSubsystem { nqn: nqn.clone() });
            continue;
        };
        for namespace in &subsystem.namespaces {
            let stays = after
                .namespace(namespace.nsid)
                .is_some_and(|after| same_but_for_size(namespace, after));
            if !stays {
                actions.push(Action::RemoveNamespace {
                    nqn: nqn.clone(),
                    nsid: namespace.nsid,
                });
            }
        }
    }
    actions
}

/// Adds what comes to `actions`. Returns the changes that make namespaces smaller.
fn additions(old: &Configuration, new: &Configuration, actions: &mut Vec<Action>) -> Vec<Action> {
    let mut smaller = Vec::new();
    for subsystem in &new.subsystems {
        let nqn = &subsystem.nqn;
        let Some(before) = old.subsystem(nqn) else {
            let subsystem = subsystem.clone();
            actions.push(Action::AddSubsystem { subsystem });
            continue;
        };
        for namespace in &subsystem.namespaces {
            match before.namespace(namespace.nsid) {
                Some(before) if before == namespace => {}
                Some(before) if same_but_for_size(before, namespace) => {
                    let Namespace { nsid, size, .. } = *namespace;
                    let keeps_all = keeps_all(before.size, size);
                    let list = if keeps_all {
                        &mut *actions
                    } else {
                        &mut smaller
                    };
                    list.push(Action::resize_namespace(new, nqn, nsid, size));
                }
                _ => actions.push(Action::AddNamespace {
                    nqn: nqn.clone(),
                    namespace: namespace.clone(),
                }),
            }
        }
    }
    smaller
}

/// Returns the changes of hosts that take access away, and those that give it. A host that may
/// connect before and after may do so at every moment between. While any host may, names change
/// nothing. A proof that hosts have to give is required first, and given up last.
fn hosts(before: &Subsystem, after: &Subsystem) -> (Vec<Action>, Vec<Action>) {
    let nqn = || after.nqn.clone();
    let set = |allow| Action::SetAllowAnyHost { nqn: nqn(), allow };
    let gone = before.allowed_hosts.difference(&after.allowed_hosts);
    let gone = gone
        .cloned()
        .map(|host| Action::DenyHost { nqn: nqn(), host });
    let new = after.allowed_hosts.difference(&before.allowed_hosts);
    let new = new
        .cloned()
        .map(|host| Action::AllowHost { nqn: nqn(), host });
    let authentication = after.authentication;
    let prove = Action::SetAuthentication {
        nqn: nqn(),
        authentication,
    };
    let prove = (before.authentication != authentication).then_some(prove);
    let (stricter, milder) = match authentication {
        Authentication::None => (None, prove),
        _ => (prove, None),
    };
    let (taken, given): (Vec<_>, Vec<_>) = match (before.allow_any_host, after.allow_any_host) {
        (true, any) => {
            let close = (!any).then(|| set(false));
            (gone.chain(new).chain(close).collect(), Vec::new())
        }
        (false, true) => {
            let open = [set(true)].into_iter();
            (Vec::new(), open.chain(gone).chain(new).collect())
        }
        (false, false) => (gone.collect(), new.collect()),
    };
    let taken = stricter.into_iter().chain(taken).collect();
    (taken, given.into_iter().chain(milder).collect())
}

/// Those that go first: another listener may use the same port.
fn listeners(old: &Configuration, new: &Configuration, actions: &mut Vec<Action>) {
    for &listener in old.listen.iter().filter(|it| !new.listen.contains(it)) {
        actions.push(Action::RemoveListener { listener });
    }
    for &listener in new.listen.iter().filter(|it| !old.listen.contains(it)) {
        actions.push(Action::AddListener { listener });
    }
}

fn referrals(old: &Configuration, new: &Configuration, actions: &mut Vec<Action>) {
    let (before, after) = (&old.discovery.referrals, &new.discovery.referrals);
    for referral in before.iter().filter(|r| !after.contains(r)) {
        let referral = referral.clone();
        actions.push(Action::RemoveReferral { referral });
    }
    for referral in after.iter().filter(|r| !before.contains(r)) {
        let referral = referral.clone();
        actions.push(Action::AddReferral { referral });
    }
}
