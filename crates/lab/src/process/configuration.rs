//! Configurations of targets with storage that the command line cannot describe.

use super::load::HOST_NQN;
use crate::figure::{FLASH_READ_US, FLASH_WRITE_US, System};
use base::Nanos;
use config::DeviceModel;
use config::device_model::{PriceList, Provenance};
use qos::cost::Price;
use qos::curve::Point;
use qos::{Curve, Percentile, TokenRate};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

/// Profile of the emulated flash of a target with token costs: the paper's device.
pub(super) const FLASH_PROFILE: &str = "A";

/// Its size in bytes. Latencies do not depend on it, and a smaller device is filled sooner.
const FLASH_BYTES: u64 = 64 << 20;

/// More tokens per second than any core uses.
const PLENTY: TokenRate = TokenRate(100_000_000);

/// The listener and the switch.
fn head(system: &System, cores: &[u32]) -> String {
    format!(
        r#"listen = ["127.0.0.1:0"]
api = "{interface}"
cores = {cores:?}

[switch]
baseline = "{preset}"
"#,
        interface = super::target::interface(),
        preset = system.preset,
    )
}

/// The subsystem, with a namespace for each of these devices.
fn subsystem(devices: &[&str]) -> String {
    let nqn = config::schema::DEFAULT_NQN;
    let mut text = format!("\n[[subsystems]]\nnqn = \"{nqn}\"\nallow_any_host = true\n");
    for (device, nsid) in devices.iter().zip(1..) {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n[[subsystems.namespaces]]\nnsid = {nsid}\ndevice = \"{device}\"\n"
        );
    }
    text
}

/// A target with memory as namespace 1 and flash as namespace 2.
pub(super) fn with_flash(system: &System, cores: &[u32], ram_bytes: u64) -> String {
    let device = |name: &str| {
        format!("\n[devices.{name}]\ntype = \"ram\"\nsize = {ram_bytes}\nblock_size = 4096\n")
    };
    let delay = format!(
        "\n[devices.flash.delay]\nread_us = {FLASH_READ_US}\nwrite_us = {FLASH_WRITE_US}\n"
    );
    let head = head(system, cores);
    let subsystem = subsystem(&["memory", "flash"]);
    [head, device("memory"), device("flash"), delay, subsystem].concat()
}

/// A target with memory as namespace 1, and the request costs of `model`.
pub(super) fn with_priced_memory(
    system: &System,
    cores: &[u32],
    ram_bytes: u64,
    model: &Path,
) -> String {
    let device = format!(
        "\n[devices.memory]\ntype = \"ram\"\nsize = {ram_bytes}\nblock_size = 512\nmodel = {}\n",
        quoted(model)
    );
    [head(system, cores), device, subsystem(&["memory"])].concat()
}

/// A model in which every request costs one token, with more tokens than any core can use.
pub(super) fn plenty() -> DeviceModel {
    let point = Point {
        rate: PLENTY,
        latency: [Nanos::from_micros(1); Percentile::COUNT],
    };
    DeviceModel {
        provenance: Provenance {
            device: "memory".into(),
            ..Provenance::default()
        },
        prices: PriceList::new(Price::READ, Price::READ),
        curve: Curve::new(vec![point]).expect("one point is a curve"),
    }
}

/// A path as a TOML string; a JSON string is one.
fn quoted(path: &Path) -> Value {
    Value::from(path.to_string_lossy())
}

/// A target with emulated flash as namespace 1, the request costs of `model`, and `tenants` tenants
/// with one host each.
pub(super) fn with_tokens(system: &System, cores: &[u32], model: &Path, tenants: u32) -> String {
    let model = quoted(model);
    let device = format!(
        "\n[devices.emulated]\ntype = \"flash\"\nprofile = \"{FLASH_PROFILE}\"\n\
         size = {FLASH_BYTES}\nblock_size = 512\nmodel = {model}\n"
    );
    let mut text = [head(system, cores), device, subsystem(&["emulated"])].concat();
    for number in 0..tenants {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n[[tenants]]\nname = \"t{number}\"\nhosts = [\"{HOST_NQN}-{number}\"]\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Format;

    #[test]
    fn configurations_can_be_read_and_have_their_tenants() {
        let system = &System::SWITCHYARD;
        let read = |text: &str| config::parse(text, Format::Toml).expect("a configuration");
        let flash = read(&with_flash(system, &[0, 1], 1 << 20));
        assert_eq!(flash.subsystems[0].namespaces.len(), 2);
        let model = std::env::temp_dir().join("a \"model\".toml");
        let priced = read(&with_priced_memory(system, &[0], 1 << 20, &model));
        assert_eq!(priced.devices.len(), 1);
        let plenty = plenty();
        assert_eq!(DeviceModel::parse(&plenty.to_toml()), Ok(plenty));
        let text = with_tokens(system, &[0], &model, 10_000);
        assert!(text.len() < config::limits::CONFIGURATION_BYTES_MAX);
        let tokens = read(&text);
        assert_eq!(tokens.tenants.len(), 10_000);
        assert_eq!(tokens.devices.len(), 1);
    }
}
