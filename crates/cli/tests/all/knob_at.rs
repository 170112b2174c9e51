//! `switchyard bench --knob-at`: changes knobs of the host's switchboard under load.

use crate::common::{Serving, bench_until, code, json, run, run_until, stderr, stdout};
use serde_json::Value;
use std::cell::Cell;
use std::process::Output;

/// Fixed doorbells, reads and writes, and verification.
const LOAD: [&str; 5] = [
    "--baseline",
    "linux",
    "--app",
    "t:rw=randrw,depth=32,class=T",
    "--verify",
];

/// The times, knobs and values to set in a load of `seconds`, in order.
fn turns(seconds: f64) -> [(f64, &'static str, &'static str); 2] {
    let [first, second] = [0.4, 0.6].map(|part| part * seconds);
    [(first, "doorbell", "immediate"), (second, "caravan", "off")]
}

/// Changes knobs under load, for as long as `is_enough` requires. Returns the output, and the
/// seconds.
fn turned(
    serving: &Serving,
    further: &[&str],
    is_enough: impl Fn(&Output) -> bool,
) -> (Output, f64) {
    let measured = Cell::new(0.0);
    let output = run_until(is_enough, |seconds| {
        measured.set(seconds);
        let [first, second] =
            turns(seconds).map(|(at, knob, value)| format!("{at}:{knob}={value}"));
        let seconds = seconds.to_string();
        // The later change is given first.
        let knobs = ["--knob-at", &second, "--knob-at", &first, "--warmup", "0.1"];
        let bench = ["bench", "--target", serving.address()];
        run(&[&bench[..], &LOAD, &knobs, &["--seconds", &seconds], further].concat())
    });
    code(&output, 0);
    (output, measured.get())
}

/// Returns the report of a load with knob changes and requests before and after them.
fn turned_report(serving: &Serving, further: &[&str]) -> (Value, f64) {
    let (output, seconds) = turned(serving, &[&["--json"], further].concat(), |output| {
        output.status.code() != Some(0) || {
            let report = json(output);
            let boards = report["switch"].as_array().unwrap().iter();
            let mut counts = boards.flat_map(|switch| [held(switch), rings(switch, "disabled")]);
            counts.all(|count| count > 0) && is_verified(&report)
        }
    });
    (json(&output), seconds)
}

/// Number of times that the doorbells of a process rang for `reason`.
fn rings(switch: &Value, reason: &str) -> u64 {
    let cores = switch["cores"].as_array().unwrap().iter();
    let classes = cores.flat_map(|core| core["classes"].as_object().unwrap().values());
    let counts = classes.filter_map(|class| class["rings"][reason].as_u64());
    counts.sum()
}

/// The same for all reasons that hold requests.
fn held(switch: &Value) -> u64 {
    rings(switch, "timer") + rings(switch, "requests_full")
}

/// Checks that all changes were made, in order, not before their times, and counted.
#[track_caller]
fn check_turned(switch: &Value, seconds: f64) {
    let turned = switch["turned"].as_array().unwrap();
    let expected = turns(seconds);
    assert_eq!(turned.len(), expected.len(), "{switch}");
    for (turned, (at, knob, value)) in turned.iter().zip(expected) {
        assert_eq!(
            (&turned["knob"], &turned["value"]),
            (&knob.into(), &value.into())
        );
        // Not before its time; the delay depends on the machine.
        assert!(turned["at_seconds"].as_f64().unwrap() >= at, "{turned}");
    }
    assert!(held(switch) > 0, "before, requests were held: {switch}");
    assert!(rings(switch, "disabled") > 0, "then not: {switch}");
}

fn is_verified(report: &Value) -> bool {
    let mut apps = report["apps"].as_array().unwrap().iter();
    apps.all(|app| app["verified"].as_u64() > Some(0))
}

#[track_caller]
fn check_nothing_lost(report: &Value) {
    for app in report["apps"].as_array().unwrap() {
        assert_eq!(app["errors"], 0, "{app}");
    }
    assert!(is_verified(report), "{report}");
}

#[test]
fn a_knob_turned_under_load_counts_and_loses_nothing() {
    let serving = Serving::small();
    let target = ["--target", serving.address()];
    let before = bench_until(&[&target[..], &LOAD].concat(), is_verified);
    code(&before, 0);
    let before = json(&before);
    check_nothing_lost(&before);
    assert!(before["switch"][0]["turned"].is_null());
    // A fixed doorbell never rings because holding is disabled.
    assert_eq!(rings(&before["switch"][0], "disabled"), 0);

    let (report, seconds) = turned_report(&serving, &[]);
    check_nothing_lost(&report);
    check_turned(&report["switch"][0], seconds);
}

#[test]
fn the_text_says_what_was_turned_and_when() {
    let serving = Serving::small();
    let says = |output: &Output, knob: &str| {
        stdout(output).contains(&format!("switchboard: {knob} set after "))
    };
    let knobs = ["doorbell=immediate", "caravan=off"];
    let all = |output: &Output| knobs.iter().all(|knob| says(output, knob));
    let (output, _) = turned(&serving, &[], all);
    assert!(all(&output), "{}", stdout(&output));
}

#[test]
fn every_process_turns_the_knobs_of_its_own_switchboard() {
    let serving = Serving::small();
    let further = ["--app", "u:rw=randrw,depth=32,class=T", "--processes"];
    let (report, seconds) = turned_report(&serving, &further);
    check_nothing_lost(&report);
    let boards = report["switch"].as_array().unwrap();
    assert_eq!(boards.len(), 2);
    for switch in boards {
        check_turned(switch, seconds);
    }
}

#[test]
fn what_cannot_be_turned_is_refused_before_the_start() {
    for (further, expected) in [
        (
            &["--knob-at", "doorbell=immediate"][..],
            "use SECONDS:KEY=VALUE, such as",
        ),
        (
            &["--knob-at", "soon:doorbell=immediate"],
            "use SECONDS:KEY=VALUE, such as",
        ),
        (&["--knob-at", "0.1:doorbell"], "use KEY=VALUE, such as"),
        (
            &["--knob-at", "0.1:dorbell=fixed"],
            "unknown switch parameter \"dorbell\"",
        ),
        (
            &["--knob-at", "0.1:doorbell=loud"],
            "use immediate or fixed or adaptive",
        ),
        (&["--knob-at", "0.1:polling=never"], "set it with --knob"),
        (
            &["--knob-at", "0.1:doorbell_max_hold_us=20"],
            "--knob-at 0.1: doorbell_max_hold_us has an effect only with doorbell=adaptive",
        ),
        (
            &[
                "--knob-at",
                "0.1:caravan=on",
                "--knob-at",
                "0.1:caravan=off",
            ],
            "caravan is set twice",
        ),
        (
            &["--knob-at", "0.5:caravan=on"],
            "the measured time of 0.5 s",
        ),
        (
            &["--knob-at", "0.1:caravan=on", "--lanes", "own"],
            "add --lanes switched",
        ),
        (
            &["--knob-at", "0.5:caravan=on", "--processes"],
            "the measured time of 0.5 s",
        ),
    ] {
        // Nothing listens there: the error is reported before a connection attempt.
        let target = ["bench", "--target", "127.0.0.1:1"];
        let measured = ["--seconds", "0.5"];
        let output = run(&[&target[..], &LOAD, &measured, further].concat());
        code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
