//! Devices and their layers.

use super::{FromNode, Table, from_found, named, parsed, text, word};
use crate::from_table;
use crate::node::Value;
use crate::schema::{
    BlockSize, Delay, Device, DeviceKind, Fault, FaultOperation, FaultRule, FlashProfile, IoPath,
    Keyword, keyword,
};
use crate::spot::FoundNode;
use std::collections::BTreeMap;
use switch::path::PathError;

keyword! {
    /// The words for `type`.
    enum DeviceType {
        /// [`DeviceKind::Ram`].
        Ram = "ram",
        /// [`DeviceKind::File`].
        File = "file",
        /// [`DeviceKind::Null`].
        Null = "null",
        /// [`DeviceKind::Flash`].
        Flash = "flash",
    }
}

from_found! {
    DeviceType: word;
    BTreeMap<String, Device>: named;
    FlashProfile: |found| {
        parsed(found, "a profile: A, B, C, a whole part of one such as \"A/8\", or \"dram-ssd\"")
    };
    BlockSize: |found: &FoundNode<'_>| match *found.value {
        Value::Integer(bytes) if let Ok(size) = u64::try_from(bytes).unwrap_or(0).try_into() => {
            Some(size)
        }
        _ => found.wrong_type("512 or 4096"),
    };
}

impl FromNode for Device {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let table = Table::open(found)?;
        let device_type = table.required(
            "type",
            "write type = \"ram\", \"file\", \"null\" or \"flash\"",
        );
        let shared = table.or_default("shared");
        let delay = table.optional("delay");
        let fault = table.optional("fault");
        let verify = table.or_default("verify");
        let io_path = table.optional("io_path");
        let cache = table.optional("cache");
        let cache_dirty_expire_ms = table.optional("cache_dirty_expire_ms");
        let model = table.optional("model");
        // Without a type, it is unknown which of the other keys are good.
        let kind = kind(device_type?, &table);
        table.finish();
        Some(Self {
            kind: kind?,
            shared: shared?,
            delay: delay?,
            fault: fault?,
            verify: verify?,
            io_path: io_path?,
            cache: cache?,
            cache_dirty_expire_ms: cache_dirty_expire_ms?,
            model: model?,
        })
    }
}

fn kind(device_type: DeviceType, table: &Table<'_>) -> Option<DeviceKind> {
    let size_hint = "write how large it is, like size = \"1G\"";
    match device_type {
        DeviceType::Ram | DeviceType::Null => {
            let size = table.required("size", size_hint);
            let block_size = table.or("block_size", BlockSize::B4096);
            let (size, block_size) = (size?, block_size?);
            Some(if device_type == DeviceType::Ram {
                DeviceKind::Ram { size, block_size }
            } else {
                DeviceKind::Null { size, block_size }
            })
        }
        DeviceType::Flash => {
            let profile = table.required("profile", "write which one, like profile = \"A/8\"");
            let size = table.required("size", size_hint);
            let block_size = table.or("block_size", BlockSize::B4096);
            Some(DeviceKind::Flash {
                profile: profile?,
                size: size?,
                block_size: block_size?,
            })
        }
        DeviceType::File => {
            let path = table.required("path", "write where it is, like path = \"/srv/disk.img\"");
            let size = table.optional("size");
            let block_size = table.or("block_size", BlockSize::B512);
            let create = table.or_default("create");
            let read_only = table.or_default("read_only");
            Some(DeviceKind::File {
                path: path?,
                size: size?,
                block_size: block_size?,
                create: create?,
                read_only: read_only?,
            })
        }
    }
}

impl FromNode for IoPath {
    fn from_node(found: &FoundNode<'_>) -> Option<Self> {
        let expected = "an I/O path: \"interrupt\", \"poll\", \"sync\", \"stm\", \"atm\", \"htm\", \
                        \"vfs_htm\" or \"2q\", with parameters if need be: \"stm:handover_us=500\"";
        let path = text(found, expected)?.parse::<Self>();
        let report = |error: &PathError| found.place.report(error.to_string(), "correct it");
        path.inspect_err(report).ok()
    }
}

from_table! {
    Delay {
        read_us: or_default(),
        read_per_kib_ns: or_default(),
        write_us: or_default(),
        write_per_kib_ns: or_default(),
        flush_us: or_default(),
    }
    Fault {
        seed: required("write a number; the same one gives the same faults"),
        rules: required("write at least one, like rules = [{ operation = \"read\", one_in = 1000, error = \"media\" }]"),
    }
    FaultRule {
        operation: or(FaultOperation::Any),
        first_block: or_default(),
        blocks: optional(),
        one_in: or(1),
        skip: or_default(),
        times: optional(),
        error: optional(),
        delay_us: optional(),
        hang: or_default(),
        torn_blocks: optional(),
    }
}

const _: () = assert!(
    DeviceType::WORDS.len() == 4,
    "one word for each kind of device"
);
