//! Checks of a configuration with values that are all well-formed by themselves.

mod devices;
mod hosts;
mod subsystems;
mod tenants;

use super::decode::report_knob;
use super::spot::Spot;
use crate::limits;
use crate::schema::{ApiAddress, Configuration, Limits, Schema as _, TlsMode};
use target::limits::LegalValues;

/// Reports every problem of `configuration`, by key.
pub(crate) fn check(configuration: &Configuration, root: &Spot<'_>) {
    target(configuration, root);
    if let Err(error) = configuration.switch.0.validate() {
        report_knob(&error, &root.key("switch"));
    }
    promises(&configuration.limits, &root.key("limits"));
    configuration
        .api_limits
        .check_ranges(&root.key("api_limits"));
    devices::check(&configuration.devices, &root.key("devices"));
    subsystems::check(configuration, &root.key("subsystems"));
    tenants::check(configuration, root);
    hosts::check(&configuration.hosts, &root.key("hosts"));
    let place = root.key("discovery").key("referrals");
    subsystems::check_referrals(&configuration.discovery.referrals, &place);
}

fn target(configuration: &Configuration, root: &Spot<'_>) {
    let place = root.key("listen");
    if configuration.listen.is_empty() {
        place.report(
            "is empty, so no host could connect",
            "write an address, like listen = [\"127.0.0.1:4420\"]",
        );
    }
    let addresses = &configuration.listen;
    place.at_most(addresses.len(), limits::LISTEN_ADDRESSES_MAX, "addresses");
    let all: Vec<_> = addresses.iter().map(|it| it.address).collect();
    place.distinct(&all);
    let mut modes = configuration.listeners().map(|(_, tls)| tls);
    if modes.all(|tls| tls == TlsMode::Off) && configuration.tls_key.is_some() {
        let remedy = "write tls = \"allowed\" or tls = \"required\", or omit the key";
        root.key("tls_key")
            .report("has no effect while tls is off", remedy);
    }
    if configuration.chap_controller_secret.is_some() && configuration.chap_secret.is_none() {
        root.key("chap_controller_secret").report(
            "proves the controller to hosts that prove nothing themselves",
            "write chap_secret too, or omit the key",
        );
    }
    if !matches!(configuration.api, Some(ApiAddress::Unix(_))) {
        for (key, is_there) in [
            ("api_socket_mode", configuration.api_socket_mode.is_some()),
            ("api_socket_group", configuration.api_socket_group.is_some()),
        ] {
            if is_there {
                let remedy = "write api = \"unix:/run/switchyard/api.sock\", or omit the key";
                root.key(key).report("has no Unix socket", remedy);
            }
        }
    }
    let files = &configuration.api_files;
    files.check(configuration.api.as_ref(), root);
    let place = root.key("device_folders");
    let folders = &configuration.device_folders;
    place.at_most(folders.len(), limits::DEVICE_FOLDERS_MAX, "folders");
    for (index, folder) in folders.iter().enumerate() {
        if !folder.is_absolute() {
            place.index(index).report(
                format!("{} is not absolute", folder.display()),
                "write the whole path, like \"/srv/switchyard\"",
            );
        }
    }
    let place = root.key("cores");
    if let Some(cores) = &configuration.cores {
        if cores.is_empty() {
            place.report(
                "is empty, so no core could serve",
                "write a core, like cores = [0], or omit the key",
            );
        }
        for (index, &core) in cores.iter().enumerate() {
            let range = 0..=u64::from(limits::CORE_NUMBER_MAX);
            place.index(index).range(core.into(), &range);
        }
        place.distinct(cores);
    }
}

fn promises(given: &Limits, place: &Spot<'_>) {
    for (limit, value) in given.iter() {
        let key = place.key(limit.key);
        if value == 0 && limit.default() == 0 {
            continue;
        }
        key.range(value, &limit.range);
        if !limit.range.contains(&value) {
            continue;
        }
        match limit.legal {
            LegalValues::MultipleOf(unit) if !value.is_multiple_of(unit) => key.report(
                format!("{value} is not a multiple of {unit}"),
                format!("write {}", value / unit * unit),
            ),
            LegalValues::PowerOfTwo if !value.is_power_of_two() => key.report(
                format!("{value} is not a power of two"),
                format!("write {}", value.next_power_of_two() / 2),
            ),
            LegalValues::MultipleOf(_) | LegalValues::PowerOfTwo => {}
        }
    }
    let [first, last] = ["first_controller_id", "last_controller_id"].map(|key| given.get(key));
    if first > last {
        place.key("last_controller_id").report(
            format!("{last} is below first_controller_id, {first}"),
            "write a number that is not",
        );
    }
    keep_alive(given, place);
    let [patience, change] = ["pause_patience_ms", "change_timeout_ms"].map(|key| given.get(key));
    if change <= patience {
        place.key("change_timeout_ms").report(
            format!("{change} is not longer than pause_patience_ms, {patience}"),
            "write a larger number, or a smaller one for pause_patience_ms",
        );
    }
}

fn keep_alive(given: &Limits, place: &Spot<'_>) {
    let [default, least] = ["keep_alive_default_ms", "keep_alive_min_ms"].map(|key| given.get(key));
    if default != 0 && default < least {
        place.key("keep_alive_default_ms").report(
            format!("{default} is shorter than keep_alive_min_ms, {least}"),
            "write 0 for none, or a number not below keep_alive_min_ms",
        );
    }
}
