//! Attachments as a table.

use super::{Columns, Shown};
use block::IoCounts;
use frontend::attach::{AttachmentSnapshot, AttachmentsAnswer};
use std::fmt;

/// The titles of the table.
const TITLES: [&str; 9] = [
    "NAME", "KIND", "STATE", "CLIENTS", "CLASS", "REQUESTS", "ERRORS", "AT", "DEVICE",
];

fn cells(attachment: &AttachmentSnapshot) -> [String; 9] {
    let sum = |count: fn(&IoCounts) -> u64| {
        let counts = attachment.classes.iter().map(|class| count(&class.counts));
        counts.fold(0, u64::saturating_add).to_string()
    };
    let rules = match attachment.class_rules {
        0 => String::new(),
        1 => ", 1 rule".to_owned(),
        count => format!(", {count} rules"),
    };
    [
        attachment.name.clone(),
        attachment.kind.clone(),
        attachment.state.to_string(),
        attachment.clients.to_string(),
        format!("{}{rules}", attachment.class),
        sum(IoCounts::requests),
        sum(|counts| counts.errors),
        attachment.at.join(" "),
        attachment.device.clone(),
    ]
}

/// A table with a line for each attachment.
impl fmt::Display for Shown<'_, AttachmentsAnswer> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = &self.0.attachments;
        if all.is_empty() {
            return f.write_str("no attachments");
        }
        let rows = all.iter().map(|it| cells(it).to_vec()).collect();
        Columns::new(&TITLES, rows).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frontend::attach::{AttachmentClass, AttachmentState};

    #[test]
    fn a_table_has_a_line_for_each_attachment() {
        let mut answer = AttachmentsAnswer::default();
        assert_eq!(Shown(&answer).to_string(), "no attachments");
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
        let text = Shown(&answer).to_string();
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
        let text = Shown(&answer).to_string();
        assert!(text.contains("auto, 1 rule "), "{text}");
    }
}
