//! `switchyard tenant`: shows and changes the tenants of a running target.

use super::tenant_events;
use crate::args::{Allow, ApiArgs, DefaultTenantPolicy, TenantArgs, TenantCommand};
use crate::exit::Outcome;
use crate::http::{self, ask, escaped};
use crate::output::Output;
use anyhow::{Context as _, Error, Result};
use control::model::Tenant;
use control::snapshot::{Latency, ServiceClass, TenantSnapshot};
use hyper::Method;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;

const PATH: &str = "/v1/tenants";

/// Carries it out.
///
/// # Errors
/// An interface that cannot be reached or refuses, or an output that cannot be written.
pub fn run(args: &TenantArgs, output: Output) -> Result<Outcome> {
    match &args.command {
        TenantCommand::List { api } => {
            let answer = ask(&api.api, Method::GET, PATH, None)?;
            let seen = List::deserialize(&answer).context(NOT_UNDERSTOOD)?;
            output.result(&answer, &seen)?;
        }
        TenantCommand::Show { name, api } => {
            tell(&ask(&api.api, Method::GET, &path(name), None)?, output)?;
        }
        TenantCommand::Add { name, change, api } => {
            let mut tenant = Tenant::new(name);
            change.apply(&mut tenant).map_err(Error::msg)?;
            let body = serde_json::to_value(&tenant)?;
            tell(&ask(&api.api, Method::POST, PATH, Some(&body))?, output)?;
        }
        TenantCommand::Set { name, change, api } => {
            let decide = |seen: &Value| {
                let One { mut tenant, .. } = One::deserialize(seen).context(NOT_UNDERSTOOD)?;
                change.apply(&mut tenant).map_err(Error::msg)?;
                Ok(serde_json::to_value(&tenant)?)
            };
            tell(&http::change(&api.api, &path(name), decide)?, output)?;
        }
        TenantCommand::Events { follow, after, api } => {
            tenant_events::run(*follow, *after, api, output)?;
        }
        TenantCommand::DefaultPolicy { policy, api } => {
            set_default_policy(*policy, api, output)?;
        }
        TenantCommand::Others { policy, api } => {
            output.note(
                "note: `tenant others` is called `tenant default-policy` now; the old name works \
                 until the next release",
            );
            set_default_policy(*policy, api, output)?;
        }
        TenantCommand::Remove { name, api } => {
            ask(&api.api, Method::DELETE, &path(name), None)?;
            let removed = serde_json::json!({ "removed": name });
            output.result(&removed, format_args!("removed tenant {name}"))?;
        }
    }
    Ok(Outcome::Done)
}

fn set_default_policy(policy: DefaultTenantPolicy, api: &ApiArgs, output: Output) -> Result<()> {
    let serve = policy == DefaultTenantPolicy::Serve;
    let body = serde_json::json!({ "default_tenant": serve });
    let answer = ask(&api.api, Method::PATCH, PATH, Some(&body))?;
    let told = if serve {
        DEFAULT_SERVED
    } else {
        DEFAULT_REFUSED
    };
    output.result(&answer, told)
}

const DEFAULT_SERVED: &str = "hosts that are no tenant are served as the tenant \"default\"";
const DEFAULT_REFUSED: &str = "hosts that are no tenant may not connect";

const NOT_UNDERSTOOD: &str = "the target's answer is not understood";

/// Returns the path of a tenant.
fn path(name: &str) -> String {
    format!("{PATH}/{}", escaped(name))
}

fn tell(answer: &Value, output: Output) -> Result<()> {
    let seen = One::deserialize(answer).context(NOT_UNDERSTOOD)?;
    output.result(answer, &seen)
}

/// All tenants of a target.
#[derive(Debug, Deserialize)]
struct List {
    default_tenant: bool,
    tenants: Vec<One>,
    devices: Vec<Device>,
}

/// A device that they share.
#[derive(Debug, Deserialize)]
struct Device {
    device: String,
    tokens_per_second: u64,
    reserved_tokens_per_second: u64,
}

/// One tenant.
#[derive(Debug, Deserialize)]
struct One {
    tenant: Tenant,
    devices: Vec<Served>,
}

/// Its service on a device.
#[derive(Debug, Deserialize)]
struct Served {
    device: String,
    served: TenantSnapshot,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for device in &self.devices {
            writeln!(
                f,
                "device {}: {} tokens/s, {} of them promised",
                device.device, device.tokens_per_second, device.reserved_tokens_per_second
            )?;
        }
        if self.devices.is_empty() {
            f.write_str("no device has a model, so nothing is scheduled")?;
        }
        for (index, one) in self.tenants.iter().enumerate() {
            if index > 0 || self.devices.is_empty() {
                f.write_str("\n")?;
            }
            write!(f, "{}: {}", one.tenant.name, Promise(&one.tenant))?;
            for Served { device, served } in &one.devices {
                write!(f, "\n  {device}: {}", Line(served))?;
            }
        }
        if !self.default_tenant {
            if !self.tenants.is_empty() || self.devices.is_empty() {
                f.write_str("\n")?;
            }
            f.write_str(DEFAULT_REFUSED)?;
        }
        Ok(())
    }
}

impl fmt::Display for One {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenant = &self.tenant;
        write!(f, "{}: {}", tenant.name, Promise(tenant))?;
        let namespaces: Vec<_> = tenant.namespaces.iter().map(u32::to_string).collect();
        let hosts: Vec<_> = tenant.hosts.iter().cloned().collect();
        let networks: Vec<_> = tenant.networks.iter().map(ToString::to_string).collect();
        let subsystems: Vec<_> = tenant.subsystems.iter().cloned().collect();
        for (what, names) in [
            ("hosts", hosts),
            ("networks", networks),
            ("subsystems", subsystems),
            ("namespaces", namespaces),
        ] {
            let names = if names.is_empty() {
                "all".to_owned()
            } else {
                names.join(", ")
            };
            write!(f, "\n{what}: {names}")?;
        }
        for allow in Allow::of(tenant.permissions.as_deref()) {
            write!(f, "\nallow: {allow}")?;
        }
        for Served { device, served } in &self.devices {
            write!(f, "\ndevice {device}: {}{}", Line(served), Details(served))?;
        }
        Ok(())
    }
}

/// The promise of a tenant, in words.
struct Promise<'a>(&'a Tenant);

impl fmt::Display for Promise<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(promise) = &self.0.latency_critical else {
            let share = self.0.best_effort.unwrap_or_default();
            return write!(f, "best effort, weight {}", share.weight);
        };
        write!(
            f,
            "{} of reads within {} us, for {} requests of {} a second, {} % of them reads",
            promise.percentile,
            promise.latency_us,
            promise.iops,
            promise.request_size,
            promise.read_percent
        )
    }
}

/// The service of a tenant, on one line.
struct Line<'a>(&'a TenantSnapshot);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.0.stats;
        write!(
            f,
            "{} reads, {} writes, {} others, {} errors, {} waiting",
            stats.reads, stats.writes, stats.others, stats.errors, stats.waiting
        )?;
        if let ServiceClass::LatencyCritical {
            percentile,
            latency_ns,
        } = &self.0.class
        {
            write!(
                f,
                "; {percentile} within {} us in {} of {} seconds",
                latency_ns / 1000,
                self.0.windows.met,
                self.0.windows.met + self.0.windows.missed
            )?;
        }
        if self.0.overruns {
            f.write_str("; asks for more than it is promised")?;
        }
        Ok(())
    }
}

/// Further details, on lines of their own.
struct Details<'a>(&'a TenantSnapshot);

impl fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = self.0;
        let stats = &served.stats;
        let whole = |milli: u64| milli / 1000;
        write!(
            f,
            "\n  tokens: {} earned, {} spent, {} given away, {} lent by others; {} reserved a \
             second; stopped in {} rounds",
            whole(stats.earned_milli),
            whole(stats.spent_milli),
            whole(stats.given_milli),
            whole(stats.taken_milli),
            served.reserved_tokens_per_second,
            stats.limited_rounds
        )?;
        let latency = &served.latency;
        for (what, histogram) in [
            ("reads", &latency.reads),
            ("reads in the device", &latency.device_reads),
            ("others", &latency.others),
            ("others in the device", &latency.device_others),
        ] {
            if histogram.commands() > 0 {
                write!(f, "\n  {what}: {}", Percentiles(histogram))?;
            }
        }
        Ok(())
    }
}

/// Percentiles of a histogram, each as the bound of its bucket.
struct Percentiles<'a>(&'a Latency);

impl fmt::Display for Percentiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentiles = [("p50", 500), ("p95", 950), ("p99", 990), ("p99.9", 999)];
        for (index, (name, permille)) in percentiles.into_iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match self.0.permille_ns(permille) {
                Some(ns) => write!(f, "{name} <= {} us", ns / 1000)?,
                None => write!(f, "{name} above all buckets")?,
            }
        }
        Ok(())
    }
}
