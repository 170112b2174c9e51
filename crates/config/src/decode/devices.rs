//! Values of devices that are texts of other crates.

use crate::node::Value;
use crate::schema::{BlockSize, FlashProfile, IoPath};
use crate::spot::FoundNode;
use crate::table::{from_found, parsed, text};
use switch::path::PathError;

from_found! {
    FlashProfile: "profile", |found| {
        parsed(found, "a profile: A, B, C, a whole part of one such as \"A/8\", or \"dram-ssd\"")
    };
    BlockSize: "512, 4096", |found: &FoundNode<'_>| match *found.value {
        Value::Integer(bytes) if let Ok(size) = u64::try_from(bytes).unwrap_or(0).try_into() => {
            Some(size)
        }
        _ => found.wrong_type("512 or 4096"),
    };
    IoPath: "interrupt, poll, sync, stm, atm, htm, vfs_htm, 2q; with parameters: stm:handover_us=500",
    |found: &FoundNode<'_>| {
        let expected = "an I/O path: \"interrupt\", \"poll\", \"sync\", \"stm\", \"atm\", \"htm\", \
                        \"vfs_htm\" or \"2q\", with parameters if need be: \"stm:handover_us=500\"";
        let path = text(found, expected)?.parse::<IoPath>();
        let report = |error: &PathError| found.place.report(error.to_string(), "correct it");
        path.inspect_err(report).ok()
    };
}
