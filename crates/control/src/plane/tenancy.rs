//! Tenants of a configuration, as the target takes them.

use config::schema::{Access, Permission, Tenant};
use target::{AccessGrant, Authentication, Others, Tenancy, TenantGrant, TenantOptions};

/// Returns the tenancy of a configuration. A tenant that matches everything, as `default` does,
/// covers the hosts that no other tenant covers.
pub(super) fn tenancy(tenants: &[Tenant], default_tenant: bool) -> Tenancy {
    let options = |tenant: &Tenant| TenantOptions {
        name: tenant.name.clone(),
        hosts: tenant.hosts.iter().cloned().collect(),
        networks: tenant.networks.iter().map(|network| network.0).collect(),
        subsystems: tenant.subsystems.iter().cloned().collect(),
        authentication: authentication(tenant.authentication),
        namespaces: tenant.namespaces.iter().copied().collect(),
        grants: tenant
            .permissions
            .as_ref()
            .map(|permissions| permissions.iter().map(grant).collect()),
        declaration: tenant.declaration(),
    };
    Tenancy {
        tenants: tenants.iter().map(options).collect(),
        others: if default_tenant {
            Others::Serve
        } else {
            Others::Refuse
        },
    }
}

/// Returns the proof that hosts have to give, as the target takes it.
pub(super) const fn authentication(required: config::schema::Authentication) -> Authentication {
    let (tls, chap) = match required {
        config::schema::Authentication::None => (false, false),
        config::schema::Authentication::Chap => (false, true),
        config::schema::Authentication::Tls => (true, false),
        config::schema::Authentication::ChapAndTls => (true, true),
    };
    Authentication { tls, chap }
}

fn grant(permission: &Permission) -> TenantGrant {
    let first = permission.first_block;
    let range = match permission.blocks {
        Some(blocks) => Some((first, blocks)),
        // From the first block on, so many would be 2^64.
        None if first == 0 => None,
        None => Some((first, u64::MAX - first + 1)),
    };
    TenantGrant {
        subsystem: permission.subsystem.clone(),
        grant: AccessGrant {
            namespace: permission.namespace,
            range,
            read: permission.access != Access::Write,
            write: permission.access != Access::Read,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_without_an_end_reaches_the_last_block() {
        let mut permission = Permission {
            subsystem: None,
            namespace: Some(7),
            first_block: 0,
            blocks: None,
            access: Access::Read,
        };
        let all = grant(&permission).grant;
        assert_eq!((all.range, all.read, all.write), (None, true, false));
        permission.first_block = 10;
        permission.access = Access::ReadWrite;
        let rest = grant(&permission).grant;
        let (first, blocks) = rest.range.expect("not all");
        assert_eq!(first + (blocks - 1), u64::MAX);
        assert!(rest.read && rest.write);
        permission.blocks = Some(5);
        permission.access = Access::Write;
        let some = grant(&permission).grant;
        assert_eq!(some.range, Some((10, 5)));
        assert!(!some.read && some.write);
    }
}
