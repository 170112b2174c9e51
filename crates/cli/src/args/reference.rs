//! Tests that the page and the examples of the configuration are what the schema generates.
//! `UPDATE=1 cargo test -p switchyard reference` writes them.

use super::AttachCommand;
use clap::{Arg, ArgAction, Subcommand as _};
use config::reference::{self, Section};
use config::schema::{ApiFiles, ApiLimits, Row, Schema as _};
use std::path::Path;

const INTRODUCTION: &str = "# Configuration

Generated from the schema (`UPDATE=1 cargo test -p switchyard reference`). Examples with every key: \
[target](../switchyard.example.toml), [attachments](../switchyard-attach.example.toml).

`switchyard serve --config FILE` and `switchyard attach --config FILE` read TOML; the HTTP API reads \
the same keys as JSON. Errors name file, line, key and a valid value. SIGHUP applies changes of the \
file; if a key that is fixed while running differs, a target refuses them all. Sizes are bytes, or a \
number with K, M, G or T (binary).
";

const ATTACHMENTS: &str = "Keys of all kinds. One of `target`, `ram`, `null`, `flash` and `file` \
                           is required, for `nbd` also `socket` or `listen`. The other keys are \
                           the flags of the kind with `_` for `-`. SIGHUP starts new attachments, \
                           restarts changed and detaches removed ones; those in use stay. `api` \
                           and `[api_limits]`: as for a target.";

const RULES: &str = "The first rule that matches gives a request its class; otherwise the class \
                     of the attachment holds. A rule needs at least one key besides `class`.";

fn row(key: &str, values: &str, default: &str, meaning: &str) -> Row {
    Row {
        key: key.to_owned(),
        values: values.to_owned(),
        default: default.to_owned(),
        meaning: meaning.to_owned(),
    }
}

/// The key of a flag.
fn of_flag(flag: &Arg) -> Row {
    let words = flag.get_possible_values();
    let words: Vec<_> = words
        .iter()
        .map(|word| word.get_name().to_owned())
        .collect();
    let names = flag.get_value_names().unwrap_or_default();
    let values = match (flag.get_action(), words.is_empty()) {
        (ArgAction::SetTrue, _) => "true, false".to_owned(),
        (_, false) => words.join(", "),
        (_, true) => names.join(" "),
    };
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, told) = match help.split_once(" [default: ") {
        Some((help, default)) => (help.to_owned(), default.trim_end_matches(']').to_owned()),
        None => (help, String::new()),
    };
    let given = flag.get_default_values();
    let given: Vec<_> = given.iter().map(|value| value.to_string_lossy()).collect();
    let default = match (flag.get_action(), flag.is_required_set(), given.join(",")) {
        (_, true, _) => "required".to_owned(),
        (ArgAction::SetTrue, ..) => "false".to_owned(),
        (.., given) if given.is_empty() => told,
        (.., given) => given,
    };
    row(
        &flag.get_id().as_str().replace('-', "_"),
        &values,
        &default,
        &help,
    )
}

/// The tables of the file of attachments. Keys that all kinds have are in the first.
fn attachments() -> Vec<Section> {
    let all = AttachCommand::augment_subcommands(clap::Command::new("attach"));
    let kinds: Vec<(String, Vec<Row>)> = all
        .get_subcommands()
        .map(|kind| {
            let flags = kind.get_arguments().filter(|flag| flag.get_id() != "help");
            (kind.get_name().to_owned(), flags.map(of_flag).collect())
        })
        .collect();
    let is_shared = |row: &Row| kinds.iter().all(|(_, rows)| rows.contains(row));
    let names: Vec<_> = kinds.iter().map(|(name, _)| name.as_str()).collect();
    let mut common = vec![
        row(
            "name",
            "1 to 64 letters, digits and -_.@",
            "required",
            "Name, unique in the file",
        ),
        row("kind", &names.join(", "), "required", "Kind of front end"),
    ];
    common.extend(kinds[0].1.iter().filter(|row| is_shared(row)).cloned());
    let interface = row(
        "api",
        "unix:PATH, loopback ADDRESS:PORT, https://ADDRESS:PORT",
        "no interface",
        "HTTP interface and /metrics, fixed while running",
    );
    let mut sections = vec![
        Section::new("", "", [vec![interface], ApiFiles::rows()].concat()),
        Section::new("[api_limits]", "", ApiLimits::rows()),
        Section::new("[[attachments]]", ATTACHMENTS, common),
    ];
    for (name, rows) in &kinds {
        let own = rows.iter().filter(|row| !is_shared(row)).cloned().collect();
        let heading = format!("[[attachments]] kind = \"{name}\"");
        sections.push(Section::new(&heading, "", own));
    }
    let rules = vec![
        row("class", "L, T", "required", "Class of the requests"),
        row("max_bytes", "size", "any", "Largest data size of a request"),
        row(
            "max_depth",
            "integer",
            "any",
            "Most requests in flight, this one included",
        ),
        row(
            "cgroup",
            "path",
            "any",
            "Prefix of the process's cgroup v2 path (fuse)",
        ),
        row(
            "command",
            "text",
            "any",
            "Name of the process, as in /proc/PID/comm (fuse)",
        ),
        row("user", "name, number", "any", "User of the process (fuse)"),
    ];
    sections.push(Section::new("[[attachments.class_rules]]", RULES, rules));
    sections
}

fn check(path: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, expected).expect("it is written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is not what the schema generates: run UPDATE=1 cargo test -p switchyard reference",
        path.display()
    );
}

#[test]
fn the_page_is_what_the_schema_generates() {
    let target = reference::target();
    // The tables of the interface are those of a target.
    let attachments = attachments().split_off(2);
    let page = reference::page(INTRODUCTION, &[target, attachments].concat());
    check("guide/configuration.md", &page);
    let words = page.split_whitespace().filter(|word| *word != "|").count();
    assert!(words <= 3500, "{words} words");
}

#[test]
fn the_examples_are_what_the_schema_generates() {
    let example = include_str!("../../../config/src/example.toml");
    let start = "# An example with every key: switchyard serve --config FILE\n# Reference: guide/configuration.md\n\n";
    let text = reference::commented(example, &reference::target());
    check("switchyard.example.toml", &format!("{start}{text}"));
    let example = include_str!("attach/example.toml");
    let start =
        "# An example: switchyard attach --config FILE\n# Reference: guide/configuration.md\n\n";
    let text = reference::commented(example, &attachments());
    check("switchyard-attach.example.toml", &format!("{start}{text}"));
}
