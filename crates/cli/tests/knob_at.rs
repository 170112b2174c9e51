//! `switchyard bench --knob-at`: knobs of the host's switchboard, turned under load.

// A test program has nothing but tests.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used)]

mod common;

use common::{Serving, code, json, run, stderr, stdout};
use serde_json::Value;

/// Fixed doorbells, a request of each kind, and everything compared.
const LOAD: [&str; 9] = [
    "--baseline",
    "linux",
    "--app",
    "t:rw=randrw,depth=32,class=T",
    "--verify",
    "--seconds",
    "0.5",
    "--warmup",
    "0.1",
];
const TURNED: [&str; 4] = [
    "--knob-at",
    "0.3:caravan=off",
    "--knob-at",
    "0.2:doorbell=immediate",
];

fn bench(serving: &Serving, further: &[&str]) -> std::process::Output {
    let bench = ["bench", "--target", serving.address()];
    let output = run(&[&bench[..], &LOAD, further].concat());
    code(&output, 0);
    output
}

/// How often the doorbells of a process rang for `reason`.
fn rings(switch: &Value, reason: &str) -> u64 {
    let cores = switch["cores"].as_array().unwrap().iter();
    let classes = cores.flat_map(|core| core["classes"].as_object().unwrap().values());
    let counts = classes.filter_map(|class| class["rings"][reason].as_u64());
    counts.sum()
}

/// What was turned, when, in the order in which it was.
#[track_caller]
fn check_turned(switch: &Value) {
    let turned = switch["turned"].as_array().unwrap();
    let expected = [(0.2, "doorbell", "immediate"), (0.3, "caravan", "off")];
    assert_eq!(turned.len(), expected.len(), "{switch}");
    for (turned, (at, knob, value)) in turned.iter().zip(expected) {
        assert_eq!(
            (&turned["knob"], &turned["value"]),
            (&knob.into(), &value.into())
        );
        // Not before its time; how long after, the machine decides.
        assert!(turned["at_seconds"].as_f64().unwrap() >= at, "{turned}");
    }
}

#[track_caller]
fn check_nothing_lost(report: &Value) {
    for app in report["apps"].as_array().unwrap() {
        assert_eq!(app["errors"], 0, "{app}");
        assert!(app["verified"].as_u64() > Some(0), "{app}");
    }
}

#[test]
fn a_knob_turned_under_load_counts_and_loses_nothing() {
    let serving = Serving::small();
    let before = json(&bench(&serving, &["--json"]));
    check_nothing_lost(&before);
    assert!(before["switch"][0]["turned"].is_null());
    // A fixed doorbell never rings because nothing is held.
    assert_eq!(rings(&before["switch"][0], "disabled"), 0);

    let report = json(&bench(&serving, &[&TURNED[..], &["--json"]].concat()));
    check_nothing_lost(&report);
    let switch = &report["switch"][0];
    check_turned(switch);
    let held = rings(switch, "timer") + rings(switch, "requests_full");
    assert!(held > 0, "before, requests were held: {switch}");
    assert!(rings(switch, "disabled") > 0, "then not: {switch}");
}

#[test]
fn the_text_says_what_was_turned_and_when() {
    let serving = Serving::small();
    let text = stdout(&bench(&serving, &TURNED));
    assert!(
        text.contains("switchboard: doorbell=immediate turned after "),
        "{text}"
    );
    assert!(
        text.contains("switchboard: caravan=off turned after "),
        "{text}"
    );
}

#[test]
fn every_process_turns_the_knobs_of_its_own_switchboard() {
    let serving = Serving::small();
    let further = [
        "--app",
        "u:rw=randrw,depth=32,class=T",
        "--processes",
        "--json",
    ];
    let report = json(&bench(&serving, &[&TURNED[..], &further].concat()));
    check_nothing_lost(&report);
    let boards = report["switch"].as_array().unwrap();
    assert_eq!(boards.len(), 2);
    for switch in boards {
        check_turned(switch);
        assert!(rings(switch, "disabled") > 0, "{switch}");
    }
}

#[test]
fn what_cannot_be_turned_is_refused_before_the_start() {
    for (further, expected) in [
        (
            &["--knob-at", "doorbell=immediate"][..],
            "write SECONDS:KEY=VALUE, such as",
        ),
        (
            &["--knob-at", "soon:doorbell=immediate"],
            "write SECONDS:KEY=VALUE, such as",
        ),
        (&["--knob-at", "0.1:doorbell"], "write KEY=VALUE, such as"),
        (
            &["--knob-at", "0.1:dorbell=fixed"],
            "\"dorbell\" is no knob",
        ),
        (
            &["--knob-at", "0.1:doorbell=loud"],
            "it can be immediate or fixed or adaptive",
        ),
        (&["--knob-at", "0.1:polling=never"], "set it with --knob"),
        (
            &["--knob-at", "0.1:doorbell_max_hold_us=20"],
            "--knob-at 0.1: doorbell_max_hold_us counts only with doorbell=adaptive",
        ),
        (
            &[
                "--knob-at",
                "0.1:caravan=on",
                "--knob-at",
                "0.1:caravan=off",
            ],
            "caravan is turned twice",
        ),
        (&["--knob-at", "0.5:caravan=on"], "measured for 0.5 s"),
        (
            &["--knob-at", "0.1:caravan=on", "--lanes", "own"],
            "add --lanes switched",
        ),
        (
            &["--knob-at", "0.5:caravan=on", "--processes"],
            "measured for 0.5 s",
        ),
    ] {
        // Nobody listens there: what is wrong is said before anybody connects.
        let target = ["bench", "--target", "127.0.0.1:1"];
        let output = run(&[&target[..], &LOAD, further].concat());
        code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
