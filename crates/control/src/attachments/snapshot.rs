//! State and counters of attachments, as the interface tells them and commands print them.

use base::printable;
use block::IoCounts;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The answer to `GET /v1/attachments`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachmentsAnswer {
    /// Milliseconds since the start of the process.
    pub uptime_ms: u64,
    /// The attachments, in order of the file.
    pub attachments: Vec<AttachmentSnapshot>,
}

/// One attachment. Counters count from its start and never fall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachmentSnapshot {
    /// Its name, unique in the process.
    pub name: String,
    /// The front end, such as `nbd`.
    pub kind: String,
    /// Ways for clients: a URI, a socket, or files.
    pub at: Vec<String>,
    /// The device behind it.
    pub device: String,
    /// The rule that gives requests their class: a class's name or `auto`.
    pub class: String,
    /// Number of rules that go before it.
    pub class_rules: usize,
    /// Writes are refused.
    pub read_only: bool,
    /// Size of its devices.
    pub size_bytes: u64,
    /// Connections (NBD), machines (vhost-user) or open files (FUSE).
    pub clients: u64,
    /// State of the way to its device.
    pub state: AttachmentState,
    /// The reason for which it is not connected, or not started, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Requests, for each class.
    pub classes: Vec<AttachmentClass>,
}

/// State of the way from an attachment to its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachmentState {
    /// The device is of this machine.
    #[default]
    Local,
    /// Requests flow to the target.
    Connected,
    /// The connection to the target is lost: requests wait until it is back.
    NotConnected,
    /// The target does not come back, or a namespace went away: requests fail.
    Gone,
    /// It could not be started: nothing is offered, and it is tried again.
    NotStarted,
}

impl fmt::Display for AttachmentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Local => "local",
            Self::Connected => "connected",
            Self::NotConnected => "not connected",
            Self::Gone => "gone",
            Self::NotStarted => "not started",
        })
    }
}

/// Requests of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachmentClass {
    /// Name of the class.
    pub class: String,
    /// Requests that the device was given and has not finished.
    pub under_way: u64,
    /// Those that it has finished.
    #[serde(flatten)]
    pub counts: IoCounts,
}

/// The titles of the table.
const TITLES: [&str; 9] = [
    "NAME", "KIND", "STATE", "CLIENTS", "CLASS", "REQUESTS", "ERRORS", "AT", "DEVICE",
];

impl AttachmentSnapshot {
    fn cells(&self) -> [String; 9] {
        let sum = |count: fn(&IoCounts) -> u64| {
            let counts = self.classes.iter().map(|class| count(&class.counts));
            counts.fold(0, u64::saturating_add).to_string()
        };
        let rules = match self.class_rules {
            0 => String::new(),
            1 => ", 1 rule".to_owned(),
            count => format!(", {count} rules"),
        };
        let cells = [
            self.name.clone(),
            self.kind.clone(),
            self.state.to_string(),
            self.clients.to_string(),
            format!("{}{rules}", self.class),
            sum(IoCounts::requests),
            sum(|counts| counts.errors),
            self.at.join(" "),
            self.device.clone(),
        ];
        // Another program chose them: no terminal may take them for commands.
        cells.map(|cell| printable(&cell).into_owned())
    }
}

/// A table with a line for each attachment.
impl fmt::Display for AttachmentsAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.attachments.is_empty() {
            return f.write_str("no attachments");
        }
        let titles = TITLES.map(ToOwned::to_owned);
        let rows = self.attachments.iter().map(AttachmentSnapshot::cells);
        let rows: Vec<_> = std::iter::once(titles).chain(rows).collect();
        for (number, row) in rows.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let widths = rows.iter().map(|row| row[column].chars().count());
                let width = widths.max().unwrap_or(0);
                line.push_str(&format!("{cell:width$}  "));
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_attachment() {
        let mut answer = AttachmentsAnswer::default();
        assert_eq!(answer.to_string(), "no attachments");
        let class = |reads, errors| AttachmentClass {
            counts: IoCounts {
                reads,
                errors,
                ..IoCounts::default()
            },
            ..AttachmentClass::default()
        };
        answer.attachments = vec![AttachmentSnapshot {
            name: "vm1\u{1b}".to_owned(),
            kind: "vhost".to_owned(),
            at: vec!["/run/vm1.sock".to_owned()],
            device: "ram 16M".to_owned(),
            class: "auto".to_owned(),
            class_rules: 2,
            clients: 1,
            state: AttachmentState::NotConnected,
            classes: vec![class(7, 0), class(5, 1)],
            ..AttachmentSnapshot::default()
        }];
        let text = answer.to_string();
        let row = text.lines().nth(1).expect("a row");
        let words: Vec<&str> = row
            .split("  ")
            .map(str::trim)
            .filter(|w| !w.is_empty())
            .collect();
        let expected = [
            r"vm1\u{1b}",
            "vhost",
            "not connected",
            "1",
            "auto, 2 rules",
            "12",
            "1",
            "/run/vm1.sock",
            "ram 16M",
        ];
        assert_eq!(words, expected);
        answer.attachments[0].class_rules = 1;
        assert!(answer.to_string().contains("auto, 1 rule "), "{answer}");
    }
}
