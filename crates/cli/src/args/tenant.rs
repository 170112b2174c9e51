//! The tenants of a running target on the command line.

use super::switch::ApiArgs;
use clap::{Args, Subcommand, ValueEnum};
use control::model::{Allow, BestEffort, LatencyCritical, Network, Percentile, Size, Tenant};
use std::collections::BTreeSet;

/// See and change the tenants of a running target
///
/// The target must have been started with --api. What is changed is in force on every core when
/// the command ends, while I/O runs; a target without --state forgets it when it ends. A promise
/// that a device cannot keep beside all others is refused, with the reason and what would be admitted.
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

Exit codes: 0 done, 2 an error; where the target answered, nothing was changed")]
#[command(mut_arg("api", |api| api.global(true)))]
pub struct TenantArgs {
    #[command(subcommand)]
    pub command: TenantCommand,
    #[command(flatten)]
    pub api: ApiArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TenantCommand {
    /// List the tenants, with what each is promised and was served
    List,
    /// Show all that is known of a tenant
    Show {
        /// Its name
        name: String,
    },
    /// Add a tenant
    Add {
        /// Its name
        name: String,
        #[command(flatten)]
        change: TenantChange,
    },
    /// Change a tenant; what is not named stays
    Set {
        /// Its name
        name: String,
        #[command(flatten)]
        change: TenantChange,
    },
    /// Show which tenants began, or ceased, to ask for more than they are promised
    Events {
        /// Wait for further ones, until interrupted or the target ends
        #[arg(long)]
        follow: bool,
        /// Only what came after the event of this number
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        after: u64,
    },
    /// Set the default-tenant policy: serve or refuse hosts that belong to no declared tenant
    DefaultPolicy {
        /// Serve them as the tenant "default", or refuse their connections
        #[arg(value_enum)]
        policy: DefaultTenantPolicy,
    },
    /// The former name of default-policy
    #[command(hide = true)]
    Others {
        #[arg(value_enum)]
        policy: DefaultTenantPolicy,
    },
    /// Remove a tenant; the default-tenant policy covers its hosts from then on
    Remove {
        /// Its name
        name: String,
    },
}

/// A criterion that a tenant stops naming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Whichever {
    /// Hosts.
    Host,
    /// Networks.
    Network,
    /// Subsystems.
    Subsystem,
    /// Namespaces.
    Namespace,
}

/// The treatment of hosts that belong to no declared tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DefaultTenantPolicy {
    /// They are served as the tenant "default".
    Serve,
    /// They may not connect.
    Refuse,
}

/// The changed part of a tenant.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct TenantChange {
    /// The NQN of one of its hosts (repeatable; replaces those before)
    #[arg(long = "host", value_name = "NQN")]
    pub hosts: Vec<String>,
    /// A network from which these connect; their names count from no other one (repeatable;
    /// replaces those before) [default: anywhere]
    ///
    /// A host chooses its NQN itself; without this, any machine that reaches the target can claim
    /// the same.
    #[arg(long = "network", value_name = "NETWORK")]
    pub networks: Vec<Network>,
    /// A subsystem in which they are this tenant (repeatable; replaces those before) [default: all]
    #[arg(long = "subsystem", value_name = "NQN")]
    pub subsystems: Vec<String>,
    /// A namespace in which they are (repeatable; replaces those before) [default: all]
    #[arg(long = "namespace", value_name = "NSID")]
    pub namespaces: Vec<u32>,
    /// Let it be whatever host, from anywhere, in every subsystem, or in every namespace
    /// (repeatable)
    #[arg(long, value_enum, value_name = "WHICH")]
    pub any: Vec<Whichever>,
    /// Its permissions, exclusively: everything, nothing, or blocks (repeatable; replaces those
    /// before) [default: everything]
    ///
    /// Blocks are said in the words of a configuration: access=read, write or read_write, of
    /// subsystem=NQN, namespace=NSID, first_block=BLOCK and blocks=NUMBER; what is omitted means
    /// all. A command that names one block that is not permitted fails with Access Denied.
    #[arg(long = "allow", value_name = "WHAT")]
    pub allow: Vec<Allow>,
    /// Best effort: its share of what is left, beside the weights of others; a tenant with a promise
    /// becomes best effort only with --no-promise
    #[arg(long, value_name = "N", conflicts_with_all = ["iops", "latency_us", "percentile",
        "read_percent", "request_size"])]
    pub weight: Option<u32>,
    /// Take back what the tenant is promised: it is best effort from then on
    #[arg(long, conflicts_with_all = ["iops", "latency_us", "percentile", "read_percent",
        "request_size"])]
    pub no_promise: bool,
    /// Latency-critical: requests a second
    #[arg(long, value_name = "N")]
    pub iops: Option<u64>,
    /// Latency-critical: the latency of reads in microseconds
    #[arg(long, value_name = "US")]
    pub latency_us: Option<u64>,
    /// Of how many reads it holds: p50, p95, p99 or p99.9 [default: p95]
    #[arg(long, value_name = "P", value_parser = percentile)]
    pub percentile: Option<Percentile>,
    /// Of 100 requests, so many read [default: 100]
    #[arg(long, value_name = "N")]
    pub read_percent: Option<u64>,
    /// The size of a request [default: 4K]
    #[arg(long, value_name = "SIZE")]
    pub request_size: Option<Size>,
}

impl TenantChange {
    /// Changes a tenant by what is named.
    ///
    /// # Errors
    /// A promise that lacks something, or words that contradict each other.
    pub fn apply(&self, tenant: &mut Tenant) -> Result<(), String> {
        self.identify(tenant)?;
        if !self.allow.is_empty() {
            tenant.permissions = Allow::permissions(&self.allow)?;
        }
        if self.no_promise {
            tenant.latency_critical = None;
        }
        if let Some(weight) = self.weight {
            if tenant.latency_critical.is_some() {
                return Err(format!(
                    "tenant {:?} has a promise, and a weight is for best effort; take the promise \
                     back with --no-promise, or omit --weight",
                    tenant.name
                ));
            }
            tenant.best_effort = Some(BestEffort { weight });
        }
        self.promise(tenant)
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

    /// Changes what it is promised, where that is named.
    fn promise(&self, tenant: &mut Tenant) -> Result<(), String> {
        let numbers = [self.iops, self.latency_us, self.read_percent];
        let names_none = numbers.iter().all(Option::is_none);
        if names_none && self.percentile.is_none() && self.request_size.is_none() {
            return Ok(());
        }
        let before = tenant.latency_critical;
        let number =
            |named: Option<u64>, was: fn(LatencyCritical) -> u64| named.or(before.map(was));
        let missing = |flag: &str| format!("a promise needs --{flag}, too");
        let percentile = self.percentile.or(before.map(|b| b.percentile));
        let request_size = self.request_size.or(before.map(|b| b.request_size));
        tenant.latency_critical = Some(LatencyCritical {
            iops: number(self.iops, |b| b.iops).ok_or_else(|| missing("iops"))?,
            latency_us: number(self.latency_us, |b| b.latency_us)
                .ok_or_else(|| missing("latency-us"))?,
            percentile: percentile.unwrap_or(Percentile::P95),
            read_percent: number(self.read_percent, |b| b.read_percent).unwrap_or(100),
            request_size: request_size.unwrap_or(control::model::DEFAULT_REQUEST_SIZE),
        });
        tenant.best_effort = None;
        Ok(())
    }
}

/// Puts what is named in the place of what was there; `any` leaves nothing.
fn replace<T: Ord + Clone>(
    before: &mut BTreeSet<T>,
    named: &[T],
    any: bool,
    flag: &str,
) -> Result<(), String> {
    if any && !named.is_empty() {
        return Err(format!(
            "--any {flag} contradicts --{flag}; keep one of them"
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
        _ => Err("write p50, p95, p99 or p99.9".to_owned()),
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
        let promise = tenant.latency_critical.expect("a promise");
        assert_eq!((promise.iops, promise.latency_us), (1000, 200));
        assert_eq!(tenant.hosts.len(), 1);
        let mut share = TenantChange {
            weight: Some(7),
            ..TenantChange::default()
        };
        // It once took the promise back without a word.
        let error = share.apply(&mut tenant).unwrap_err();
        assert!(error.contains("--no-promise"), "{error}");
        assert_eq!(tenant.latency_critical, Some(promise));
        share.no_promise = true;
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
