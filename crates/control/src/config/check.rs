//! Checks of a configuration with values that are all well-formed by themselves.

mod devices;
mod findings;
mod subsystems;
mod tenants;

use super::problem::{Place, Problem};
use crate::limits;
use crate::model::{ApiLimits, Configuration, Limits};
use findings::Findings;
use target::limits::LegalValues;

/// Every problem of `configuration`, by key.
pub(crate) fn check(configuration: &Configuration) -> Vec<Problem> {
    let mut findings = Findings::default();
    let root = Place::root();
    target(configuration, &root, &mut findings);
    if let Err(error) = configuration.switch.0.validate() {
        let place = root.key("switch");
        let place = error.knob().map_or(place.clone(), |knob| place.key(knob));
        findings.report(&place, error.problem(), error.remedy());
    }
    promises(&configuration.limits, &root.key("limits"), &mut findings);
    findings
        .problems
        .extend(check_api_limits(configuration.api_limits, &root));
    devices::check(&configuration.devices, &root.key("devices"), &mut findings);
    subsystems::check(configuration, &root.key("subsystems"), &mut findings);
    tenants::check(configuration, &root, &mut findings);
    let place = root.key("discovery").key("referrals");
    subsystems::check_referrals(&configuration.discovery.referrals, &place, &mut findings);
    findings.problems
}

/// Every problem of the limits of a file's interface.
pub(crate) fn check_api_limits(mut limits: ApiLimits, root: &Place) -> Vec<Problem> {
    let mut findings = Findings::default();
    let place = root.key("api_limits");
    for (key, value, range) in limits.each() {
        findings.range(&place.key(key), *value, &range);
    }
    findings.problems
}

fn target(configuration: &Configuration, root: &Place, findings: &mut Findings) {
    let place = root.key("listen");
    if configuration.listen.is_empty() {
        findings.report(
            &place,
            "is empty, so no host could connect",
            "write an address, like listen = [\"127.0.0.1:4420\"]",
        );
    }
    let addresses = &configuration.listen;
    findings.at_most(
        &place,
        addresses.len(),
        limits::LISTEN_ADDRESSES_MAX,
        "addresses",
    );
    // Port 0 takes any free port, another one each time.
    let fixed: Vec<_> = addresses.iter().filter(|a| a.port() != 0).collect();
    if fixed.len() == addresses.len() {
        findings.distinct(&place, &fixed);
    }
    let place = root.key("device_folders");
    let folders = &configuration.device_folders;
    findings.at_most(&place, folders.len(), limits::DEVICE_FOLDERS_MAX, "folders");
    for (index, folder) in folders.iter().enumerate() {
        if !folder.is_absolute() {
            findings.report(
                &place.index(index),
                format!("{} is not absolute", folder.display()),
                "write the whole path, like \"/srv/switchyard\"",
            );
        }
    }
    let place = root.key("cores");
    if let Some(cores) = &configuration.cores {
        if cores.is_empty() {
            findings.report(
                &place,
                "is empty, so no core could serve",
                "write a core, like cores = [0], or omit the key",
            );
        }
        for (index, &core) in cores.iter().enumerate() {
            let range = 0..=u64::from(limits::CORE_NUMBER_MAX);
            findings.range(&place.index(index), core.into(), &range);
        }
        findings.distinct(&place, cores);
    }
}

fn promises(given: &Limits, place: &Place, findings: &mut Findings) {
    for (limit, value) in given.iter() {
        let key = place.key(limit.key);
        if value == 0 && limit.default() == 0 {
            continue;
        }
        findings.range(&key, value, &limit.range);
        if !limit.range.contains(&value) {
            continue;
        }
        match limit.legal {
            LegalValues::MultipleOf(unit) if !value.is_multiple_of(unit) => findings.report(
                &key,
                format!("{value} is not a multiple of {unit}"),
                format!("write {}", value / unit * unit),
            ),
            LegalValues::PowerOfTwo if !value.is_power_of_two() => findings.report(
                &key,
                format!("{value} is not a power of two"),
                format!("write {}", value.next_power_of_two() / 2),
            ),
            LegalValues::MultipleOf(_) | LegalValues::PowerOfTwo => {}
        }
    }
    keep_alive(given, place, findings);
    let [patience, change] = ["pause_patience_ms", "change_timeout_ms"].map(|key| given.get(key));
    if change <= patience {
        findings.report(
            &place.key("change_timeout_ms"),
            format!("{change} is not longer than pause_patience_ms, {patience}"),
            "write a larger number, or a smaller one for pause_patience_ms",
        );
    }
}

fn keep_alive(given: &Limits, place: &Place, findings: &mut Findings) {
    let [default, least] = ["keep_alive_default_ms", "keep_alive_min_ms"].map(|key| given.get(key));
    if default != 0 && default < least {
        findings.report(
            &place.key("keep_alive_default_ms"),
            format!("{default} is shorter than keep_alive_min_ms, {least}"),
            "write 0 for none, or a number not below keep_alive_min_ms",
        );
    }
}
