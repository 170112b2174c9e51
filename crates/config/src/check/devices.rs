//! Devices and their layers.

use std::collections::BTreeMap;
use std::path::Path;

use crate::limits;
use crate::schema::{
    Crypt, Device, DeviceKind, Fault, FaultError, FaultRule, IoPath, Schema as _, Size,
};
use crate::spot::Spot;
use block::layer::fault::FaultOperation;
use block::limits::{CACHE_BYTES_MAX, CACHE_BYTES_MIN};

pub(super) fn check(devices: &BTreeMap<String, Device>, place: &Spot<'_>) {
    place.at_most(devices.len(), limits::DEVICES_MAX, "devices");
    let mut files: BTreeMap<&Path, &str> = BTreeMap::new();
    for (name, device) in devices {
        let place = place.key(name);
        let good_name = (1..=limits::DEVICE_NAME_BYTES_MAX).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !good_name {
            place.report(
                "is no name for a device",
                format!(
                    "use 1 to {} letters, digits, '-', '_' and '.'",
                    limits::DEVICE_NAME_BYTES_MAX
                ),
            );
        }
        kind(&device.kind, &place);
        if let DeviceKind::File { path, .. } = &device.kind
            && let Some(first) = files.insert(path, name)
        {
            place.key("path").report(
                format!("is the file of device {first:?} too, and each would overwrite the other"),
                "use one device, with shared = true if it needs more than one namespace",
            );
        }
        device.check_ranges(&place);
        layers(device, &place);
        io_path(device, &place);
        cache(device, &place);
    }
}

fn kind(kind: &DeviceKind, place: &Spot<'_>) {
    if let Some(size) = kind.size() {
        block_multiple(size, kind.block_size().bytes(), &place.key("size"));
    }
    if let DeviceKind::File {
        path,
        size,
        create,
        read_only,
        ..
    } = kind
    {
        if path.as_os_str().is_empty() {
            place.key("path").report(
                "is empty",
                "write where the file is, like path = \"/srv/disk.img\"",
            );
        }
        if *create && size.is_none() {
            place.key("size").report(
                "is missing, and a file that is created needs one",
                "write how large it becomes, like size = \"10G\", or omit create",
            );
        }
        if *create && *read_only {
            place
                .key("create")
                .report("contradicts read_only = true", "omit one of the two");
        }
    }
}

/// A size that blocks of `block_bytes` fill exactly.
pub(super) fn block_multiple(size: Size, block_bytes: u64, place: &Spot<'_>) {
    let largest = limits::DEVICE_BYTES_MAX / block_bytes * block_bytes;
    if size.bytes.is_multiple_of(block_bytes) && (1..=largest).contains(&size.bytes) {
        return;
    }
    if size.bytes > largest {
        let what_to_do = format!("write at most {largest}");
        place.report(format!("{size} is larger than a device can be"), what_to_do);
        return;
    }
    let near = Size::from_bytes((size.bytes / block_bytes).max(1) * block_bytes);
    place.report(
        format!("{size} is not a whole number of blocks of {block_bytes} bytes"),
        format!("write \"{near}\", or another multiple of {block_bytes} bytes"),
    );
}

fn layers(device: &Device, place: &Spot<'_>) {
    if let Some(crypt) = &device.crypt {
        key(crypt, &place.key("crypt"));
    }
    if let Some(delay) = &device.delay {
        delay.check_ranges(&place.key("delay"));
    }
    if let Some(fault) = &device.fault {
        faults(fault, &place.key("fault").key("rules"));
    }
}

/// An encrypted device has one place of its key.
fn key(crypt: &Crypt, place: &Spot<'_>) {
    let what_to_do = "write key_file = \"/etc/switchyard/disk.key\", or \
                      key_command = [\"PROGRAM\", \"ARGUMENT\"]";
    let is_empty = |path: &Path| path.as_os_str().is_empty();
    match (&crypt.key_file, crypt.key_command.as_slice()) {
        (None, []) => place.key("key_file").report("is missing", what_to_do),
        (Some(_), [_, ..]) => place
            .key("key_command")
            .report("is a second key beside key_file", "keep one of them"),
        (Some(path), []) if is_empty(path) => place.key("key_file").report("is empty", what_to_do),
        (None, [program, ..]) if program.is_empty() => {
            place
                .key("key_command")
                .report("names no program", what_to_do);
        }
        _ => {}
    }
}

fn io_path(device: &Device, place: &Spot<'_>) {
    if device.cache.is_none()
        && let Some(IoPath(spec)) = device.io_path
        && let Err(error) = spec.for_awaited()
    {
        let what_to_do = "omit the parameters, or write cache = \"256M\"";
        place.key("io_path").report(error.to_string(), what_to_do);
    }
}

fn cache(device: &Device, place: &Spot<'_>) {
    if device.cache_dirty_expire_ms.is_some() {
        let place = place.key("cache_dirty_expire_ms");
        if device.cache.is_none() {
            place.report(
                "is the age of a cache's pages, and the device has no cache",
                "write cache = \"256M\", or omit the key",
            );
        }
    }
    let Some(size) = device.cache else { return };
    let place = place.key("cache");
    if !(CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&size.bytes) {
        place.report(
            format!("{size} is no size of a cache"),
            "write a size from \"1M\" to \"1T\", and no more than the machine has memory for",
        );
    }
    if device.model.is_some() {
        place.report(
            "contradicts model: tenants would pay for requests that never reach the device, and \
             nobody for what is written back",
            "omit one of the two",
        );
    }
}

fn faults(fault: &Fault, place: &Spot<'_>) {
    place.at_most(fault.rules.len(), limits::FAULT_RULES_MAX, "rules");
    if fault.rules.is_empty() {
        place.report(
            "is empty, so nothing would ever fail",
            "write at least one rule, or omit fault",
        );
    }
    for (index, rule) in fault.rules.iter().enumerate() {
        let place = place.index(index);
        for (key, value) in [
            ("one_in", Some(rule.one_in)),
            ("blocks", rule.blocks),
            ("times", rule.times),
        ] {
            if value == Some(0) {
                place.key(key).report(
                    "0 means that the rule never strikes",
                    "write at least 1, or omit the rule",
                );
            }
        }
        effect(rule, &place);
        if rule
            .first_block
            .checked_add(rule.blocks.unwrap_or(0))
            .is_none()
        {
            place.key("blocks").report(
                "reaches beyond the last block there can be",
                "omit it to reach the device's end",
            );
        }
    }
}

/// One thing happens to a request that is struck, and it can happen.
fn effect(rule: &FaultRule, place: &Spot<'_>) {
    let given = [
        ("error", rule.error.is_some()),
        ("delay_us", rule.delay_us.is_some()),
        ("hang", rule.hang),
        ("torn_blocks", rule.torn_blocks.is_some()),
    ];
    let given: Vec<_> = given.iter().filter(|(_, is)| *is).map(|g| g.0).collect();
    match given[..] {
        [_] => {}
        [] => place.key("error").report(
            "is missing, and so is every other effect",
            "write error = \"media\", \"internal\", \"no_space\" or \"corrupt\", \
             or delay_us = 1000, hang = true or torn_blocks = 1",
        ),
        [first, second, ..] => place.key(second).report(
            format!("is a second effect beside {first}"),
            "keep one of them; a second rule can have the other",
        ),
    }
    rule.check_ranges(place);
    let changes = [
        FaultOperation::Any,
        FaultOperation::Write,
        FaultOperation::WriteZeroes,
        FaultOperation::Deallocate,
    ];
    if rule.torn_blocks.is_some() && !changes.contains(&rule.operation) {
        place.key("torn_blocks").report(
            "tears requests that change something, and this rule looks at none",
            "write operation = \"write\", \"write_zeroes\" or \"deallocate\"",
        );
    }
    let reads = [FaultOperation::Any, FaultOperation::Read];
    if rule.error == Some(FaultError::Corrupt) && !reads.contains(&rule.operation) {
        place.key("error").report(
            "\"corrupt\" changes what is read, and this rule looks at no reads",
            "write operation = \"read\"",
        );
    }
}
