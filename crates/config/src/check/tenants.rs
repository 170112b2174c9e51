//! Tenants: whether they can be told apart, and whether what they say has a meaning.

use std::collections::BTreeMap;

use super::subsystems::name;
use crate::limits;
use crate::schema::{Configuration, DEFAULT_TENANT, Permission, Schema as _, Tenant};
use crate::spot::Spot;
use crate::suggest::nearest;
use qos::limits as tenancy;

/// The match of a tenant: a host, a subsystem, a namespace; `None` matches every one.
type Pattern<'a> = (Option<&'a str>, Option<&'a str>, Option<u32>);

pub(super) fn check(configuration: &Configuration, root: &Spot<'_>) {
    let tenants = &configuration.tenants;
    let place = root.key("tenants");
    place.at_most(tenants.len(), tenancy::TENANTS_MAX, "tenants");
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, tenant) in tenants.iter().enumerate() {
        let place = place.index(index);
        if let Some(first) = names.insert(&tenant.name, index) {
            place.key("name").report(
                format!("{:?} is the name of tenants[{first}] too", tenant.name),
                "give each tenant a name of its own",
            );
        }
        identity(tenant, configuration, &place);
        tenant.check_ranges(&place);
        if let Some(slo) = &tenant.latency_critical {
            slo.check_ranges(&place.key("latency_critical"));
        }
        if let Some(share) = &tenant.best_effort {
            share.check_ranges(&place.key("best_effort"));
        }
        permissions(tenant, configuration, &place.key("permissions"));
    }
    ambiguities(tenants, &place);
}

fn identity(tenant: &Tenant, configuration: &Configuration, place: &Spot<'_>) {
    let text = &tenant.name;
    let printable = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if text.is_empty() || text.len() > limits::TENANT_NAME_BYTES_MAX || !printable {
        let shown: String = text.chars().take(limits::TENANT_NAME_BYTES_MAX).collect();
        place.key("name").report(
            format!("{shown:?} cannot be a tenant's name"),
            format!(
                "write 1 to {} letters, digits, - _ or .",
                limits::TENANT_NAME_BYTES_MAX
            ),
        );
    }
    let default = text == DEFAULT_TENANT;
    if default && !tenant.matches_everybody() {
        place.key("name").report("\"default\" is who is no other tenant, and cannot name hosts, subsystems or namespaces", "omit those, or choose another name");
    }
    if default && !configuration.default_tenant {
        place.key("name").report(
            "\"default\" would be nobody, because default_tenant is false",
            "write default_tenant = true, or remove the tenant",
        );
    }
    if !default && tenant.matches_everybody() {
        place.report(
            format!("tenant {text:?} would be every host in every subsystem"),
            "name its hosts, subsystems or namespaces, or call it \"default\"",
        );
    }
    let networks = place.key("networks");
    if !tenant.networks.is_empty() && tenant.hosts.is_empty() {
        networks.report(
            "says from where hosts connect, and no host is named",
            "name the hosts, or omit the networks",
        );
    }
    let most = limits::TENANT_NETWORKS_MAX;
    networks.at_most(tenant.networks.len(), most, "networks");
    for host in &tenant.hosts {
        name(host, &place.key("hosts"));
    }
    for nqn in &tenant.subsystems {
        subsystem(nqn, configuration, &place.key("subsystems"));
    }
}

/// A slip in a subsystem's name would leave its hosts with what the default tenant may do.
fn subsystem(nqn: &str, configuration: &Configuration, place: &Spot<'_>) {
    if configuration.subsystem(nqn).is_some() {
        return;
    }
    let known = configuration.subsystems.iter().map(|s| s.nqn.as_str());
    let what_to_do = match nearest(nqn, known) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "name one of the subsystems, or add it".to_owned(),
    };
    let shown: String = nqn.chars().take(limits::NQN_BYTES_MAX).collect();
    place.report(format!("there is no subsystem {shown:?}"), what_to_do);
}

fn permissions(tenant: &Tenant, configuration: &Configuration, place: &Spot<'_>) {
    let permissions = tenant.permissions.as_deref().unwrap_or_default();
    place.at_most(permissions.len(), tenancy::GRANTS_MAX, "permissions");
    for (index, permission) in permissions.iter().enumerate() {
        let place = place.index(index);
        let Permission {
            first_block,
            blocks,
            ..
        } = *permission;
        if let Some(nqn) = &permission.subsystem {
            subsystem(nqn, configuration, &place.key("subsystem"));
        }
        permission.check_ranges(&place);
        match blocks {
            Some(0) => place.key("blocks").report(
                "0 blocks are nothing to permit",
                "write at least 1, or omit it for all that follow",
            ),
            Some(blocks) if first_block.checked_add(blocks - 1).is_none() => {
                place.key("blocks").report(
                    format!("block {first_block} and {blocks} more end beyond every device"),
                    "write fewer, or omit it for all that follow",
                )
            }
            _ => {}
        }
    }
}

/// Reports pairs of tenants that match the same host with equal precision.
fn ambiguities(tenants: &[Tenant], place: &Spot<'_>) {
    let patterns = |tenant: &Tenant| {
        let counts = [
            tenant.hosts.len(),
            tenant.subsystems.len(),
            tenant.namespaces.len(),
        ];
        let factors = counts.into_iter().map(|count| count.max(1));
        factors.fold(1_usize, usize::saturating_mul)
    };
    let total = tenants.iter().map(patterns).fold(0, usize::saturating_add);
    if total > tenancy::ASSIGNMENTS_MAX {
        place.at_most(
            total,
            tenancy::ASSIGNMENTS_MAX,
            "combinations of hosts, subsystems and namespaces",
        );
        return;
    }
    let mut seen: BTreeMap<Pattern<'_>, usize> = BTreeMap::new();
    for (index, tenant) in tenants.iter().enumerate() {
        let clash = matched(tenant)
            .into_iter()
            .find_map(|pattern| Some((seen.insert(pattern, index)?, pattern)));
        if let Some((first, (host, subsystem, namespace))) = clash {
            let what = [
                host.map(|host| format!("host {host:?}")),
                subsystem.map(|nqn| format!("subsystem {nqn:?}")),
                namespace.map(|nsid| format!("namespace {nsid}")),
            ];
            let what: Vec<_> = what.into_iter().flatten().collect();
            let what = match what.len() {
                0 => "every host".to_owned(),
                _ => what.join(", "),
            };
            place.index(index).report(
                format!("{what}: is tenant {:?} already", tenants[first].name),
                "let one of the two name it, or one of them say more precisely where",
            );
        }
    }
}

fn matched(tenant: &Tenant) -> Vec<Pattern<'_>> {
    fn each<T>(all: impl Iterator<Item = T>) -> Vec<Option<T>> {
        let all: Vec<_> = all.map(Some).collect();
        if all.is_empty() { vec![None] } else { all }
    }
    let hosts = each(tenant.hosts.iter().map(String::as_str));
    let subsystems = each(tenant.subsystems.iter().map(String::as_str));
    let namespaces = each(tenant.namespaces.iter().copied());
    let mut patterns = Vec::new();
    for &host in &hosts {
        for &subsystem in &subsystems {
            patterns.extend(namespaces.iter().map(|&nsid| (host, subsystem, nsid)));
        }
    }
    patterns
}
