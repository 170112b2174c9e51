//! `lab figure` and `lab goals`: short runs of the smallest figures. Whether a claim holds depends
//! on the machine; that it is judged by the measurements does not.

use crate::common::{Folder, json, run, run_until, stderr};
use serde_json::Value;

/// Error messages of a busy machine that completed nothing.
const TOO_SHORT: [&str; 3] = ["measure for longer", "was measured", "was 0, so there is"];

/// Runs a measurement for as long as `is_enough` requires. Both exit codes of a report are
/// accepted.
#[track_caller]
fn measured(args: &[&str], is_enough: impl Fn(&Value) -> bool) -> (Value, Option<i32>) {
    let output = run_until(
        |output| match output.status.code() {
            Some(0 | 1) => is_enough(&json(output)),
            _ => !TOO_SHORT.iter().any(|told| stderr(output).contains(told)),
        },
        |seconds| {
            let seconds = seconds.to_string();
            run(&[args, &["--runs", "1", "--seconds", &seconds, "--json"]].concat())
        },
    );
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{}", stderr(&output));
    (json(&output), code)
}

/// Returns true if the field `which` of each value of the first figure's points is positive.
fn has_values(reports: &Value, which: &str) -> bool {
    let mut points = reports[0]["points"].as_array().unwrap().iter();
    points.all(|point| {
        let mut values = point["values"].as_array().unwrap().iter();
        values.all(|value| value[which].as_f64() > Some(0.0))
    })
}

#[track_caller]
fn check_verdicts<'a>(verdicts: impl Iterator<Item = &'a Value>, code: Option<i32>) {
    let mut all = true;
    for verdict in verdicts {
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{verdict}"));
        let judged = if verdict["quotient"].is_null() {
            number(&verdict["number"]["median"])
        } else {
            let quotient = number(&verdict["quotient"]["median"]);
            let divided = number(&verdict["of"]["median"]) / number(&verdict["to"]["median"]);
            assert!((quotient - divided).abs() < 1e-6 * quotient, "{verdict}");
            quotient
        };
        let bound = verdict["bound"].as_str().unwrap();
        let (sign, bound) = bound.split_once(' ').unwrap();
        let bound: f64 = bound.parse().unwrap();
        let holds = match sign {
            "≥" => judged >= bound,
            "≤" => judged <= bound,
            other => panic!("{other}"),
        };
        assert_eq!(verdict["holds"], holds, "{verdict}");
        all &= holds;
    }
    assert_eq!(code, Some(if all { 0 } else { 1 }));
}

#[test]
fn a_figure_is_run_judged_and_drawn() {
    let folder = Folder::new();
    let files = folder.path("figures");
    let args = ["figure", "blk-switch-3a", "--quick", "--output", &files];
    let (reports, code) = measured(&args, |reports| has_values(reports, "median"));
    assert!(has_values(&reports, "median"), "{reports}");
    let report = &reports[0];
    assert_eq!(report["figure"], "blk-switch-3a");
    assert_eq!(
        (&report["quick"], &report["runs"]),
        (&true.into(), &1.into())
    );
    let points = report["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    for point in points {
        let values = point["values"].as_array().unwrap();
        assert_eq!(values.len(), 3, "{point}");
    }
    check_verdicts(report["claims"].as_array().unwrap().iter(), code);

    let file = |ending: &str| std::fs::read(format!("{files}/blk-switch-3a.{ending}")).unwrap();
    let written: Value = serde_json::from_slice(&file("json")).unwrap();
    assert_eq!(written, *report);
    let csv = String::from_utf8(file("csv")).unwrap();
    assert_eq!(csv.lines().count(), 7, "{csv}");
    let svg = String::from_utf8(file("svg")).unwrap();
    assert!(svg.contains("L-app latency, p99 (µs)") && svg.contains("(KiB)"));
    assert!(file("png").starts_with(b"\x89PNG"));
}

#[test]
fn processes_niceness_and_flash_can_be_measured() {
    let folder = Folder::new();
    let files = folder.path("figures");
    let args = [
        "figure",
        "blk-switch-3b",
        "blk-switch-13",
        "--quick",
        "--output",
        &files,
    ];
    let (reports, code) = measured(&args, |_| true);
    let figures = reports.as_array().unwrap();
    assert_eq!(figures.len(), 2);
    check_verdicts(
        figures
            .iter()
            .flat_map(|of| of["claims"].as_array().unwrap()),
        code,
    );
    // No read from flash is faster than the flash.
    for point in figures[1]["points"].as_array().unwrap() {
        let mut values = point["values"].as_array().unwrap().iter();
        let average = values.find(|value| value["metric"] == "l_avg_us").unwrap();
        assert!(average["median"].as_f64().unwrap() >= 80.0, "{point}");
    }
}

#[test]
fn both_ends_count_what_they_send() {
    let folder = Folder::new();
    let files = folder.path("figures");
    let args = ["figure", "i10-11", "--quick", "--output", &files];
    let (reports, code) = measured(&args, |_| true);
    check_verdicts(reports[0]["claims"].as_array().unwrap().iter(), code);
    let points = reports[0]["points"].as_array().unwrap();
    assert_eq!(points.len(), 6);
    for point in points {
        let number = |metric: &str| {
            let mut values = point["values"].as_array().unwrap().iter();
            let value = values.find(|value| value["metric"] == metric).unwrap();
            value["median"].as_f64().unwrap()
        };
        // A read is a capsule of 72 bytes, sent alone without batching.
        let bytes = number("host_send_bytes");
        assert!(bytes >= 72.0, "{point}");
        if point["series"] == "nvme-tcp" {
            assert_eq!(bytes, 72.0, "{point}");
            assert_eq!(number("host_single_sends_percent"), 100.0, "{point}");
        }
        // Nearly all responses carry a block; a few, such as that of Connect, carry no data.
        assert!(number("target_send_bytes") > 2048.0, "{point}");
    }
}

#[test]
fn every_stack_answers_one_request_at_a_time() {
    let folder = Folder::new();
    let files = folder.path("figures");
    let args = ["figure", "reflex-table2", "--quick", "--output", &files];
    let (reports, code) = measured(&args, |reports| has_values(reports, "min"));
    assert!(has_values(&reports, "min"), "{reports}");
    let report = &reports[0];
    check_verdicts(report["claims"].as_array().unwrap().iter(), code);
    let left_out: Vec<_> = report["left_out"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    for why in &left_out {
        block::skipped(why);
        assert!(why.as_str().unwrap().contains("apt-get install"), "{why}");
    }
    let points = report["points"].as_array().unwrap();
    for series in [
        "local",
        "switchyard",
        "switchyard, sleeps",
        "plain",
        "plain, client polls",
        "nbd",
        "iscsi",
    ] {
        let name = format!("{series} ");
        if left_out
            .iter()
            .any(|why| why.as_str().unwrap().starts_with(&name))
        {
            continue;
        }
        let of_it = points.iter().filter(|point| point["series"] == series);
        let of_it: Vec<_> = of_it.collect();
        // iscsi-perf only reads, and reports no percentiles.
        let (places, values) = if series == "iscsi" { (1, 1) } else { (2, 2) };
        assert_eq!(of_it.len(), places, "{series}");
        for point in of_it {
            let numbers = point["values"].as_array().unwrap();
            assert_eq!(numbers.len(), values, "{point}");
        }
    }
}

#[test]
fn goals_are_judged_by_what_was_measured() {
    let rows = [
        ["--row", "passing-16"],
        ["--row", "t-alone-depth-1"],
        ["--row", "split-linux-p99"],
    ]
    .concat();
    let (report, code) = measured(&[&["goals"][..], &rows].concat(), |_| true);
    let goals = report["goals"].as_array().unwrap();
    let names: Vec<_> = goals.iter().map(|goal| &goal["name"]).collect();
    assert_eq!(names, ["split-linux-p99", "t-alone-depth-1", "passing-16"]);
    check_verdicts(goals.iter(), code);
    // No request passes at zero cost.
    assert!(
        goals[2]["number"]["min"].as_f64() > Some(0.0),
        "{}",
        goals[2]
    );
    assert!(!report["machine"]["model_name"].is_null());
}
