//! The documentation of the configuration: tables of keys, and examples with a comment for each key.

use crate::schema::{
    ApiLimits, BestEffort, Configuration, Crypt, Delay, Device, DeviceKind, Digests, Fault,
    FaultRule, Host, LatencyCritical, Namespace, Permission, Referral, Row, Schema, Subsystem,
    Tenant, range_text,
};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use switch::Knobs;
use switch::knobs::Knob;
use target::limits::{LIMITS, LegalValues};

/// A table of a configuration file.
#[derive(Clone, Debug)]
pub struct Section {
    /// The heading of the table in a file: `[limits]`; empty for keys of no table.
    pub heading: String,
    /// The meaning.
    pub meaning: String,
    /// The keys.
    pub rows: Vec<Row>,
}

impl Section {
    /// The section of a table.
    #[must_use]
    pub fn new(heading: &str, meaning: &str, rows: Vec<Row>) -> Self {
        Self {
            heading: heading.to_owned(),
            meaning: meaning.to_owned(),
            rows,
        }
    }

    fn of<T: Schema>(heading: &str, meaning: &str) -> Self {
        Self::new(heading, meaning, T::rows())
    }

    /// The section in Markdown.
    fn markdown(&self) -> String {
        let title = match self.heading.as_str() {
            "" => "Top-level keys of a target".to_owned(),
            heading => format!("`{heading}`"),
        };
        let mut text = format!("\n## {title}\n");
        if !self.meaning.is_empty() {
            text += &format!("\n{}\n", self.meaning);
        }
        if self.heading == SWITCH_HEADING {
            return text;
        }
        text += "\n| key | values | default | meaning |\n|---|---|---|---|\n";
        let cell = |text: &str| text.replace('|', "\\|");
        // Tables have sections of their own.
        let is_value = |row: &&Row| !row.values.contains("table");
        for row in self.rows.iter().filter(is_value) {
            let default = match row.default.as_str() {
                plain if is_toml(plain) => format!("`{plain}`"),
                words => words.to_owned(),
            };
            let [values, default, meaning] =
                [&row.values, &default, &row.meaning].map(|it| cell(it));
            // A string takes all of it.
            let _ = writeln!(text, "| `{}` | {values} | {default} | {meaning} |", row.key);
        }
        text
    }
}

/// Returns true if a default is a value rather than words.
fn is_toml(default: &str) -> bool {
    let is_value = |c: char| c.is_ascii_digit() || c == '"' || c == '[';
    let starts = default.starts_with(is_value) && !default.contains("; ");
    starts || ["true", "false"].contains(&default)
}

/// The tables of a target's configuration.
#[must_use]
pub fn target() -> Vec<Section> {
    let mut devices = vec![Section::of::<Device>(
        "[devices.NAME]",
        "A device. Layers apply from the outside in: `cache`, `io_path`, `verify`, `delay`, `fault`, `crypt`.",
    )];
    devices.extend(DeviceKind::ALL.iter().map(|kind| {
        let heading = format!("[devices.NAME] type = \"{}\"", kind.name);
        Section::new(&heading, kind.meaning, (kind.rows)())
    }));
    let mut all = vec![
        Section::new("", "", [Configuration::rows(), vec![poll()]].concat()),
        Section::new(SWITCH_HEADING, SWITCH, knobs()),
        Section::new("[limits]", LIMITS_TEXT, limits()),
        Section::of::<ApiLimits>("[api_limits]", "Fixed while running."),
        Section::of::<Digests>("[digests]", "Fixed while running."),
    ];
    all.extend(devices);
    all.extend([
        Section::of::<Crypt>("[devices.NAME.crypt]", CRYPT),
        Section::of::<Delay>("[devices.NAME.delay]", "Added latency, for tests."),
        Section::of::<Fault>("[devices.NAME.fault]", "Failing requests, for tests."),
        Section::of::<FaultRule>(
            "[[devices.NAME.fault.rules]]",
            "Each rule has exactly one of `error`, `delay_us`, `hang` and `torn_blocks`.",
        ),
        Section::of::<Subsystem>("[[subsystems]]", ""),
        Section::of::<Namespace>("[[subsystems.namespaces]]", NAMESPACES),
        Section::of::<Tenant>("[[tenants]]", TENANTS),
        Section::of::<LatencyCritical>(
            "[tenants.latency_critical]",
            "SLO on each device with a `model`; not together with `best_effort`.",
        ),
        Section::of::<BestEffort>("[tenants.best_effort]", "The default."),
        Section::of::<Permission>(
            "[[tenants.permissions]]",
            "Only these blocks are permitted.",
        ),
        Section::of::<Host>("[[hosts]]", HOSTS),
        Section::of::<Referral>("[[discovery.referrals]]", "Other discovery controllers."),
    ]);
    all
}

/// The table whose keys a command lists, with their values: the page does not repeat them.
const SWITCH_HEADING: &str = "[switch]";

const SWITCH: &str = "`baseline` names a *preset*: values of all switch parameters (*knobs*), \
                      default `switchyard`. The other keys override single knobs. `switchyard \
                      switch knobs` lists both. Changes apply at once, except `lanes` (new \
                      connections) and `latency_threads` (next start).";

const LIMITS_TEXT: &str = "Fixed while running. When 15/16 of `connections`, `all_queue_entries`, \
                           `controllers` or `discovery_controllers` are in use, only addresses \
                           and tenants with less than 1/256 get more.";

const CRYPT: &str = "One of `key_file` and `key_command` is required. The first MiB of the file or disk holds \
                     the data key, encrypted with this key; `size` does not include it. \
                     [Operation](operate.md#encryption-at-rest).";

const NAMESPACES: &str = "The derived UUID identifies the backing store: a file under any path, a \
                          block device by its number. RAM and flash are another volume after each \
                          restart.";

const TENANTS: &str = "A host belongs to the tenant that matches it most precisely: by host NQN \
                       before subsystem before namespace.";

const HOSTS: &str = "Keys of hosts ([secure a target](secure.md)). The API adds further ones.";

fn poll() -> Row {
    Row {
        key: "poll".to_owned(),
        values: "auto, always, never".to_owned(),
        default: "that of `switch`".to_owned(),
        meaning:
            "Idle policy of a core. `auto`: poll adaptively; `always`: poll (lowest latency); \
                  `never`: sleep at once. Short for `switch.polling`."
                .to_owned(),
    }
}

fn knobs() -> Vec<Row> {
    let defaults = Knobs::default();
    let row = |knob: &Knob| {
        let mut entries = defaults.entries();
        let default = entries.find(|entry| entry.knob.key == knob.key);
        Row {
            key: knob.key.to_owned(),
            values: knob.range.to_string(),
            default: default.map_or_else(|| "–".to_owned(), |entry| entry.text()),
            meaning: match knob.with {
                Some(with) => format!("{}; with {with}", knob.meaning),
                None => knob.meaning.to_owned(),
            },
        }
    };
    Knob::ALL.iter().map(row).collect()
}

fn limits() -> Vec<Row> {
    let rows = LIMITS.iter().map(|limit| {
        let legal = match limit.legal {
            LegalValues::MultipleOf(1) => String::new(),
            legal => format!(", {}", legal.to_string().trim_end()),
        };
        let zero = match limit.range.contains(&limit.default()) {
            true => "",
            false => "0, or ",
        };
        Row {
            key: limit.key.to_owned(),
            values: format!("{zero}{}{legal}", range_text(&limit.range)),
            default: limit.default().to_string(),
            meaning: limit.meaning.to_owned(),
        }
    });
    rows.collect()
}

/// Returns a page of these tables, after an introduction.
#[must_use]
pub fn page(introduction: &str, sections: &[Section]) -> String {
    let sections: String = sections.iter().map(Section::markdown).collect();
    format!("{introduction}{sections}")
}

/// Columns of a line of an example.
const WIDTH: usize = 100;

/// Returns an example with a comment for the first occurrence of each key.
#[must_use]
pub fn commented(example: &str, sections: &[Section]) -> String {
    let mut text = String::new();
    let mut heading = String::new();
    let mut seen = BTreeSet::new();
    for line in example.lines() {
        if line.starts_with('[') {
            heading = generic(line);
        }
        let key = line.split_once(" = ").map(|(key, _)| key);
        let key = key.filter(|key| key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        let row = key.and_then(|key| find(sections, &heading, key));
        let row = row.filter(|_| seen.insert((heading.clone(), key)));
        match row.map(comment) {
            None => text += &format!("{line}\n"),
            Some(comment) if !line.ends_with('[') && line.len() + comment.len() + 4 <= WIDTH => {
                text += &format!("{line}  # {comment}\n");
            }
            Some(comment) => {
                for part in wrapped(&comment) {
                    text += &format!("# {part}\n");
                }
                text += &format!("{line}\n");
            }
        }
    }
    text
}

/// Returns a heading with NAME for the name of a device.
fn generic(heading: &str) -> String {
    let mut parts: Vec<&str> = heading.split('.').collect();
    if parts[0].ends_with("[devices") && parts.len() > 1 {
        let end = &parts[1][parts[1].trim_end_matches(']').len()..];
        let name = format!("NAME{end}");
        parts[1] = &name;
        return parts.join(".");
    }
    heading.to_owned()
}

fn find<'a>(sections: &'a [Section], heading: &str, key: &str) -> Option<&'a Row> {
    let here = sections.iter().filter(|section| {
        let rest = section.heading.strip_prefix(heading);
        rest.is_some_and(|rest| rest.is_empty() || (!heading.is_empty() && rest.starts_with(' ')))
    });
    here.flat_map(|section| &section.rows)
        .find(|row| row.key == key)
}

fn comment(row: &Row) -> String {
    let meaning = row.meaning.trim_end_matches('.');
    match row.default.as_str() {
        "required" | "" => format!("{meaning} ({})", row.values),
        default => format!("{meaning} ({}); default: {default}", row.values),
    }
}

/// Breaks a text into lines of a comment.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && line.len() + word.len() + 3 > WIDTH {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}
