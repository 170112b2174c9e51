//! `switchyard tenant`.

use super::{ApiArgs, names};
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCandidates;
use config::schema::{Allow, BestEffort, LatencyCritical, Network, Percentile, Size, Tenant};
use std::collections::BTreeSet;

/// Show and change the tenants of a running target
///
/// A tenant is a group of hosts with common access rights. It is either latency-critical, with an
/// SLO (--iops and --latency-us), or best-effort, with a weight (--weight) in the spare capacity.
/// The target refuses an SLO that a device cannot meet in addition to the SLOs of all other
/// tenants, with the reason and an SLO that it would admit.
///
/// The target must run with --api. Changes are in effect on all cores when the command returns,
/// without interrupting I/O. They are lost when the target exits, unless it runs with --state FILE.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  switchyard tenant list
  switchyard tenant add database --host nqn.2026-11.com.example:db --iops 70000 \\
      --latency-us 500 --percentile p95 --read-percent 80 --network 192.0.2.0/24
  switchyard tenant add backup --host nqn.2026-11.com.example:backup --weight 50
  switchyard tenant set backup --weight 20
  switchyard tenant set backup --allow namespace=1,first_block=0,blocks=1048576,access=read
  switchyard tenant default-policy refuse
  switchyard tenant show database --json
  switchyard tenant remove backup
  switchyard tenant events --follow

Exit codes: 0 success, 2 error; after an error response of the target nothing has changed")]
#[command(mut_arg("api", |api| api.global(true)), mut_arg("api_ca", |ca| ca.global(true)))]
pub struct TenantArgs {
    #[command(subcommand)]
    pub command: TenantCommand,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TenantCommand {
    /// List the tenants with their SLOs or weights, and their served rates
    List,
    /// Show settings and statistics of a tenant
    Show {
        /// Name of the tenant
        #[arg(add = ArgValueCandidates::new(names::tenants))]
        name: String,
    },
    /// Add a tenant
    Add {
        /// Name of the tenant
        name: String,
        #[command(flatten)]
        change: TenantChange,
    },
    /// Change a tenant; settings without an option stay as they are
    Set {
        /// Name of the tenant
        #[arg(add = ArgValueCandidates::new(names::tenants))]
        name: String,
        #[command(flatten)]
        change: TenantChange,
    },
    /// List events: tenants that exceed the rate of their SLO, and hosts that could not prove their names
    Events {
        /// Wait for new events, until interrupted or the target exits
        #[arg(long)]
        follow: bool,
        /// Only events after the event of this number
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        after: u64,
    },
    /// Set the policy for hosts that belong to no tenant
    DefaultPolicy {
        /// Policy for hosts that belong to no tenant
        #[arg(value_enum)]
        policy: DefaultTenantPolicy,
    },
    /// The former name of default-policy
    #[command(hide = true)]
    Others {
        #[arg(value_enum)]
        policy: DefaultTenantPolicy,
    },
    /// Remove a tenant; the default policy then applies to its hosts
    Remove {
        /// Name of the tenant
        #[arg(add = ArgValueCandidates::new(names::tenants))]
        name: String,
    },
}

/// A match criterion that is removed from a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Whichever {
    /// Any host NQN
    Host,
    /// Any network
    Network,
    /// Every subsystem
    Subsystem,
    /// Every namespace
    Namespace,
}

/// The policy for hosts that belong to no tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DefaultTenantPolicy {
    /// Serve them as the best-effort tenant "default"
    Serve,
    /// Refuse their connections
    Refuse,
}

/// The settings of a tenant that change.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct TenantChange {
    /// Host NQN (repeatable; replaces the list)
    #[arg(long = "host", value_name = "NQN")]
    pub hosts: Vec<String>,
    /// Accept these host NQNs only from this network, such as 192.0.2.0/24 (repeatable; replaces the
    /// list) [default: any]
    ///
    /// A host chooses its NQN itself: without this option, any machine that reaches the target can
    /// claim it.
    #[arg(long = "network", value_name = "NETWORK")]
    pub networks: Vec<Network>,
    /// Subsystem in which the hosts belong to the tenant (repeatable; replaces the list) [default:
    /// all]
    #[arg(long = "subsystem", value_name = "NQN")]
    pub subsystems: Vec<String>,
    /// Namespace in which the hosts belong to the tenant (repeatable; replaces the list) [default:
    /// all]
    #[arg(long = "namespace", value_name = "NSID")]
    pub namespaces: Vec<u32>,
    /// Remove this match criterion (repeatable)
    #[arg(long, value_enum, value_name = "WHICH")]
    pub any: Vec<Whichever>,
    /// Access rights: everything, nothing, or a block range (repeatable; replaces the list) [default:
    /// everything]
    ///
    /// A block range is a comma-separated list of access=read, write or read_write, subsystem=NQN,
    /// namespace=NSID, first_block=BLOCK and blocks=NUMBER. An omitted key means all. A command that
    /// touches a block outside these ranges fails with Access Denied.
    #[arg(long = "allow", value_name = "WHAT")]
    pub allow: Vec<Allow>,
    /// Best-effort: weight in the spare capacity, relative to other tenants; a tenant with an SLO
    /// also needs --no-slo
    #[arg(long, value_name = "N", conflicts_with_all = ["iops", "latency_us", "percentile",
        "read_percent", "request_size"])]
    pub weight: Option<u32>,
    /// Remove the SLO: the tenant becomes best-effort
    #[arg(long, conflicts_with_all = ["iops", "latency_us", "percentile", "read_percent",
        "request_size"])]
    pub no_slo: bool,
    /// SLO: requests per second
    #[arg(long, value_name = "N")]
    pub iops: Option<u64>,
    /// SLO: read latency in microseconds
    #[arg(long, value_name = "US")]
    pub latency_us: Option<u64>,
    /// SLO: percentile of reads that must meet --latency-us: p50, p95, p99 or p99.9 [default: p95]
    #[arg(long, value_name = "P", value_parser = percentile)]
    pub percentile: Option<Percentile>,
    /// SLO: percentage of reads in the requests [default: 100]
    #[arg(long, value_name = "N")]
    pub read_percent: Option<u64>,
    /// SLO: request size [default: 4K]
    #[arg(long, value_name = "SIZE")]
    pub request_size: Option<Size>,
}

impl TenantChange {
    /// Applies the change to `tenant`.
    ///
    /// # Errors
    /// An incomplete SLO, or options that contradict each other.
    pub fn apply(&self, tenant: &mut Tenant) -> Result<(), String> {
        self.identify(tenant)?;
        if !self.allow.is_empty() {
            tenant.permissions = Allow::permissions(&self.allow)?;
        }
        if self.no_slo {
            tenant.latency_critical = None;
        }
        if let Some(weight) = self.weight {
            if tenant.latency_critical.is_some() {
                return Err(format!(
                    "tenant {:?} has an SLO, and --weight is for best-effort tenants; add \
                     --no-slo to remove the SLO, or omit --weight",
                    tenant.name
                ));
            }
            tenant.best_effort = Some(BestEffort { weight });
        }
        self.change_slo(tenant)
    }

    /// Changes the criteria by which hosts belong to the tenant.
    fn identify(&self, tenant: &mut Tenant) -> Result<(), String> {
        use Whichever::{Host, Namespace, Network, Subsystem};
        let any = |which| self.any.contains(&which);
        replace(&mut tenant.hosts, &self.hosts, any(Host), "host")?;
        replace(
            &mut tenant.networks,
            &self.networks,
            any(Network),
            "network",
        )?;
        replace(
            &mut tenant.subsystems,
            &self.subsystems,
            any(Subsystem),
            "subsystem",
        )?;
        replace(
            &mut tenant.namespaces,
            &self.namespaces,
            any(Namespace),
            "namespace",
        )
    }

    /// Changes the SLO.
    fn change_slo(&self, tenant: &mut Tenant) -> Result<(), String> {
        let numbers = [self.iops, self.latency_us, self.read_percent];
        let names_none = numbers.iter().all(Option::is_none);
        if names_none && self.percentile.is_none() && self.request_size.is_none() {
            return Ok(());
        }
        let before = tenant.latency_critical;
        let number =
            |named: Option<u64>, was: fn(LatencyCritical) -> u64| named.or(before.map(was));
        let missing = |flag: &str| format!("an SLO also needs --{flag}");
        let percentile = self.percentile.or(before.map(|b| b.percentile));
        let request_size = self.request_size.or(before.map(|b| b.request_size));
        tenant.latency_critical = Some(LatencyCritical {
            iops: number(self.iops, |b| b.iops).ok_or_else(|| missing("iops"))?,
            latency_us: number(self.latency_us, |b| b.latency_us)
                .ok_or_else(|| missing("latency-us"))?,
            percentile: percentile.unwrap_or(Percentile::P95),
            read_percent: number(self.read_percent, |b| b.read_percent).unwrap_or(100),
            request_size: request_size.unwrap_or(config::schema::DEFAULT_REQUEST_SIZE),
        });
        tenant.best_effort = None;
        Ok(())
    }
}

/// Replaces the list `before` by `named`; `any` empties it.
fn replace<T: Ord + Clone>(
    before: &mut BTreeSet<T>,
    named: &[T],
    any: bool,
    flag: &str,
) -> Result<(), String> {
    if any && !named.is_empty() {
        return Err(format!(
            "--any {flag} contradicts --{flag}; use one of them"
        ));
    }
    if any || !named.is_empty() {
        *before = named.iter().cloned().collect();
    }
    Ok(())
}

fn percentile(text: &str) -> Result<Percentile, String> {
    match text {
        "p50" => Ok(Percentile::P50),
        "p95" => Ok(Percentile::P95),
        "p99" => Ok(Percentile::P99),
        "p99.9" => Ok(Percentile::P999),
        _ => Err("use p50, p95, p99 or p99.9".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let mut tenant = Tenant::new("t");
        let mut change = TenantChange {
            hosts: vec!["nqn.2026-11.com.example:h".to_owned()],
            iops: Some(1000),
            ..TenantChange::default()
        };
        let error = change.apply(&mut tenant).unwrap_err();
        assert!(error.contains("--latency-us"), "{error}");
        change.latency_us = Some(500);
        change.apply(&mut tenant).unwrap();
        let faster = TenantChange {
            latency_us: Some(200),
            ..TenantChange::default()
        };
        faster.apply(&mut tenant).unwrap();
        let slo = tenant.latency_critical.expect("an SLO");
        assert_eq!((slo.iops, slo.latency_us), (1000, 200));
        assert_eq!(tenant.hosts.len(), 1);
        let mut share = TenantChange {
            weight: Some(7),
            ..TenantChange::default()
        };
        let error = share.apply(&mut tenant).unwrap_err();
        assert!(error.contains("--no-slo"), "{error}");
        assert_eq!(tenant.latency_critical, Some(slo));
        share.no_slo = true;
        share.apply(&mut tenant).unwrap();
        assert_eq!(tenant.latency_critical, None);
        assert_eq!(tenant.best_effort, Some(BestEffort { weight: 7 }));
    }

    #[test]
    fn who_is_named_is_forgotten_when_asked() {
        let mut tenant = Tenant::new("t");
        tenant.hosts.insert("nqn.2026-11.com.example:h".to_owned());
        tenant.namespaces.insert(2);
        let mut change = TenantChange {
            any: vec![Whichever::Namespace],
            ..TenantChange::default()
        };
        change.apply(&mut tenant).unwrap();
        assert!(tenant.namespaces.is_empty());
        assert_eq!(tenant.hosts.len(), 1);
        change.namespaces = vec![3];
        let error = change.apply(&mut tenant).unwrap_err();
        assert!(error.contains("--any namespace contradicts"), "{error}");
    }
}
