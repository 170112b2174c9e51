//! What Prometheus and Grafana read: metrics, alerts and dashboards, checked by `promtool`.

use crate::common::{self, Folder, request};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist");

/// Runs `promtool`; returns false if this machine has none.
fn promtool(args: &[&str], input: &str) -> bool {
    let mut command = Command::new("promtool");
    command.args(args).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        block::skipped("promtool is not installed; run scripts/setup");
        return false;
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

/// Returns the metrics of a target with tenants and a cache.
fn scrape() -> String {
    let folder = Folder::new();
    let disk = folder.write("disk", vec![0; 1 << 20]);
    let more = format!(
        "[[tenants]]\nname = \"db\"\nhosts = [\"nqn.2026-11.com.example:db\"]\n\
         latency_critical = {{ latency_us = 500, iops = 100 }}\n\
         [devices.cached]\ntype = \"file\"\npath = \"{disk}\"\ncache = \"1M\"\n"
    );
    let kind = "type = \"ram\"\nsize = \"1M\"";
    let (_serving, api) = common::serve_by_tokens(&folder, ("fast", kind), 100_000, &more);
    let socket = UnixStream::connect(api.strip_prefix("unix:").unwrap()).unwrap();
    let answer = request(socket, "GET /metrics", "");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

type LabelValues = BTreeMap<String, BTreeSet<String>>;

/// Returns the values of each label of each metric; a metric without samples has none.
fn metrics(text: &str) -> BTreeMap<String, LabelValues> {
    let mut found = BTreeMap::<String, LabelValues>::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let name = declared.split(' ').next().unwrap();
            found.entry(name.to_owned()).or_default();
        } else if !line.starts_with('#') {
            let (name, labels) = Selector::parse(line);
            let values = found.entry(name.to_owned()).or_default();
            for (label, _, value) in labels {
                values.entry(label).or_default().insert(value);
            }
        }
    }
    found
}

/// A metric and its labels: name, operator, value.
struct Selector;

impl Selector {
    fn parse(text: &str) -> (&str, Vec<(String, String, String)>) {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        let mut labels = Vec::new();
        let mut rest = rest.strip_prefix('{').unwrap_or_default();
        while let Some((label, after)) = rest.split_once('"') {
            let (value, after) = after.split_once('"').unwrap();
            let name = label.trim_start_matches([',', ' ']);
            let at = name.find(['=', '!']).unwrap();
            labels.push((
                name[..at].to_owned(),
                name[at..].to_owned(),
                value.to_owned(),
            ));
            if after.starts_with('}') {
                break;
            }
            rest = after;
        }
        (name, labels)
    }
}

/// Fails if the expression names a metric, label or value that the target does not have.
fn check(expression: &str, metrics: &BTreeMap<String, LabelValues>) {
    let mut of_expression = BTreeSet::from(["instance"]);
    for (at, _) in expression.match_indices("switchyard_") {
        let (name, labels) = Selector::parse(&expression[at..]);
        let base = name.strip_suffix("_bucket").unwrap_or(name);
        let known = metrics.get(name).or_else(|| metrics.get(base));
        let known = known.unwrap_or_else(|| panic!("there is no {name}: {expression}"));
        of_expression.extend(known.keys().map(String::as_str));
        for (label, operator, value) in labels {
            let values = known.get(&label);
            let is_good = label == "instance"
                || values.is_some_and(|values| operator != "=" || values.contains(&value));
            assert!(is_good, "{name} has no {label}={value}: {expression}");
        }
    }
    for (_, by) in expression
        .match_indices(" by (")
        .map(|(at, by)| (at, &expression[at + by.len()..]))
    {
        for label in by.split_once(')').unwrap().0.split(", ") {
            let is_known = of_expression.contains(label) || label == "le";
            assert!(is_known, "no label {label}: {expression}");
        }
    }
}

/// Returns every text with this key in the document.
fn texts<'a>(document: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match document {
        Value::Object(object) => {
            found.extend(object.get(key).and_then(Value::as_str));
            object.values().for_each(|value| texts(value, key, found));
        }
        Value::Array(list) => list.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

#[test]
fn metrics_follow_the_convention() {
    promtool(&["check", "metrics"], &scrape());
}

#[test]
fn alerts_are_raised_by_their_faults_alone() {
    let file = |name: &str| format!("{ROOT}/prometheus/{name}");
    if !promtool(&["check", "rules", &file("switchyard.rules.yml")], "") {
        return;
    }
    promtool(&["test", "rules", &file("switchyard.test.yml")], "");
}

#[test]
fn every_expression_is_about_real_metrics() {
    let metrics = metrics(&scrape());
    let rules = Path::new(ROOT).join("prometheus/switchyard.rules.yml");
    let rules = std::fs::read_to_string(rules).unwrap();
    let alerts: Vec<_> = rules.split("expr: ").skip(1).collect();
    for rule in &alerts {
        let end = rule.find("\n        for:").into_iter();
        let end = end.chain(rule.find("\n        labels:")).min();
        check(&rule[..end.unwrap()], &metrics);
    }
    assert!(alerts.len() > 10);

    let dashboard = Path::new(ROOT).join("grafana/switchyard.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(dashboard).unwrap()).unwrap();
    let mut expressions = Vec::new();
    texts(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() > 20);
    // Prometheus parses the expressions as rules.
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, expression) in expressions.iter().enumerate() {
        check(expression, &metrics);
        let plain = expression.replace("$__rate_interval", "5m");
        let plain = Value::from(plain.replace("$__range", "1h"));
        rules.push_str(&format!("  - record: panel:{number}\n    expr: {plain}\n"));
    }
    let folder = Folder::new();
    promtool(&["check", "rules", &folder.write("rules.yml", rules)], "");
    for variable in ["$instance", "$tenant"] {
        let name = variable.trim_start_matches('$');
        assert!(
            dashboard["templating"]["list"]
                .as_array()
                .unwrap()
                .iter()
                .any(|it| it["name"] == name)
        );
    }
}
