//! Where a model comes from: this program, on this machine, now.

use control::device_model::Provenance;
use load::Machine;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

/// When, by which program and on which kernel.
#[must_use]
pub fn here_and_now() -> Provenance {
    Provenance {
        measured_at: now(),
        switchyard: Some(env!("CARGO_PKG_VERSION").to_owned()),
        kernel: Some(format!("Linux {}", Machine::look().kernel)),
        ..Provenance::default()
    }
}

/// The time as the log writes it: UTC, as of RFC 3339.
fn now() -> Option<String> {
    let mut text = String::new();
    SystemTime.format_time(&mut Writer::new(&mut text)).ok()?;
    Some(text)
}
