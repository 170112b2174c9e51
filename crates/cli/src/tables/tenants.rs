//! Tenants in words: declarations and service.

use super::Shown;
use base::printable;
use config::schema::{Allow, Tenant};
use control::api::{ServedTenant, TenantAnswer, TenantList};
use control::snapshot::{Latency, ServiceClass, TenantSnapshot};
use std::fmt;

/// Text that says that hosts of no tenant are served.
pub const DEFAULT_SERVED: &str = "hosts without a tenant are served as the tenant \"default\"";
/// Text that says that they are refused.
pub const DEFAULT_REFUSED: &str = "hosts without a tenant may not connect";

impl fmt::Display for Shown<'_, TenantList> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.0;
        for device in &list.devices {
            writeln!(
                f,
                "device {}: {} tokens/s, {} reserved for SLOs",
                printable(&device.device),
                device.tokens_per_second,
                device.reserved_tokens_per_second
            )?;
        }
        if list.devices.is_empty() {
            f.write_str("no device has a cost model (see `switchyard calibrate`)")?;
        }
        for (index, one) in list.tenants.iter().enumerate() {
            if index > 0 || list.devices.is_empty() {
                f.write_str("\n")?;
            }
            let name = printable(&one.tenant.name);
            write!(f, "{name}: {}", Contract(&one.tenant))?;
            for ServedTenant { device, served } in &one.devices {
                write!(f, "\n  {}: {}", printable(device), ServiceLine(served))?;
            }
        }
        if !list.default_tenant {
            if !list.tenants.is_empty() || list.devices.is_empty() {
                f.write_str("\n")?;
            }
            f.write_str(DEFAULT_REFUSED)?;
        }
        Ok(())
    }
}

impl fmt::Display for Shown<'_, TenantAnswer> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TenantAnswer { tenant, devices } = self.0;
        write!(f, "{}: {}", printable(&tenant.name), Contract(tenant))?;
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
            write!(f, "\n{what}: {}", printable(&names))?;
        }
        for allow in Allow::of(tenant.permissions.as_deref()) {
            write!(f, "\nallow: {allow}")?;
        }
        for ServedTenant { device, served } in devices {
            write!(
                f,
                "\ndevice {}: {}{}",
                printable(device),
                ServiceLine(served),
                Details(served)
            )?;
        }
        Ok(())
    }
}

/// The SLO or weight of a tenant, as text.
struct Contract<'a>(&'a Tenant);

impl fmt::Display for Contract<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(slo) = &self.0.latency_critical else {
            let share = self.0.best_effort.unwrap_or_default();
            return write!(f, "best effort, weight {}", share.weight);
        };
        write!(
            f,
            "SLO: {} of reads within {} us at {} requests/s of {}, {} % reads",
            slo.percentile, slo.latency_us, slo.iops, slo.request_size, slo.read_percent
        )
    }
}

/// The service of a tenant, on one line.
struct ServiceLine<'a>(&'a TenantSnapshot);

impl fmt::Display for ServiceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.0.stats;
        write!(
            f,
            "{} reads, {} writes, {} other commands, {} errors, {} waiting",
            stats.reads, stats.writes, stats.others, stats.errors, stats.waiting
        )?;
        if let ServiceClass::LatencyCritical {
            percentile,
            latency_ns,
        } = &self.0.class
        {
            write!(
                f,
                "; {percentile} within {} us in {} of {} one-second windows",
                latency_ns / 1000,
                self.0.windows.met,
                self.0.windows.met + self.0.windows.missed
            )?;
        }
        if self.0.overruns {
            f.write_str("; exceeds the rate of its SLO")?;
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
            "\n  tokens: {} earned, {} spent, {} donated, {} taken from other tenants; {} reserved \
             per second; limited in {} rounds",
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
            ("device time of reads", &latency.device_reads),
            ("other commands", &latency.others),
            ("device time of other commands", &latency.device_others),
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
        let parts = percentiles.map(|(name, permille)| match self.0.permille_ns(permille) {
            Some(ns) => format!("{name} <= {} us", ns / 1000),
            None => format!("{name} above the largest bucket"),
        });
        f.write_str(&parts.join(", "))
    }
}
