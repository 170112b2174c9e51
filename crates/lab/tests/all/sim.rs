//! `lab sim`: its output is the same on every machine, so it can be compared.

use crate::common::{Folder, code, json, run, stderr};

const SMALL: [&str; 9] = [
    "sim",
    "run",
    "--cores",
    "2",
    "--seconds",
    "0.02",
    "--warmup",
    "0.01",
    "--json",
];

#[test]
fn the_same_seed_says_the_same_and_a_knob_changes_it() {
    let first = run(&SMALL);
    code(&first, 0);
    assert_eq!(json(&first), json(&run(&SMALL)));
    let linux = json(&run(&[&SMALL[..], &["--baseline", "linux"]].concat()));
    let first = json(&first);
    assert_eq!(linux["baseline"], "linux");
    assert_ne!(linux["counters"], first["counters"]);
    for class in ["latency", "throughput"] {
        assert!(first[class]["requests"].as_u64().unwrap() > 0, "{class}");
    }
    assert_eq!(first["counters"]["issued"], first["counters"]["completed"]);
    let knob = run(&[&SMALL[..], &["--knob", "doorbell=immediate"]].concat());
    assert_ne!(json(&knob)["counters"], first["counters"]);
}

#[test]
fn what_can_not_be_simulated_is_explained() {
    let nobody = run(&["sim", "run", "--l-apps", "0", "--t-apps", "0"]);
    code(&nobody, 2);
    assert!(stderr(&nobody).contains("number of applications is 0"));
    // Regression: these options were accepted and printed, and had no effect.
    for (layout, flag, said) in [
        ("split", "--cores", "one core per side"),
        ("split", "--gbps", "only --layout network"),
        ("shared", "--gbps", "only --layout network"),
    ] {
        let refused = run(&["sim", "run", "--layout", layout, flag, "2"]);
        code(&refused, 2);
        assert!(stderr(&refused).contains(said), "{}", stderr(&refused));
    }
    let folder = Folder::new();
    // Regression: the error was reported only after all measurements.
    let output = ["--output", &folder.path("")];
    let refused = run(&[&["sim", "calibrate", "--cores", "0"], &output[..]].concat());
    code(&refused, 2);
    assert!(
        stderr(&refused).contains("cannot write"),
        "{}",
        stderr(&refused)
    );
    let absent = folder.path("absent.toml");
    let unknown = folder.write("costs.toml", "[core]\nslice_ns = 1\n");
    for file in [absent, unknown] {
        let costs = run(&["sim", "run", "--costs", &file]);
        code(&costs, 2);
        assert!(
            stderr(&costs).contains("sim calibrate"),
            "{}",
            stderr(&costs)
        );
    }
}

/// Regression: runs without requests reported success.
#[test]
fn runs_of_nothing_are_refused() {
    for args in [
        &["check", "--seeds", "0"][..],
        &["check", "--jobs", "0"],
        &["run", "--seconds", "0"],
    ] {
        code(&run(&[&["sim"][..], args].concat()), 2);
    }
}

/// Regression: each fault of a simulated network was a line of the log.
#[test]
fn a_check_says_what_it_checked_and_nothing_else() {
    let check = run(&["sim", "check", "--seed", "42"]);
    code(&check, 0);
    assert_eq!(stderr(&check), "");
    let check = run(&["--log=warn", "sim", "check", "--seed", "42"]);
    assert!(stderr(&check).contains("WARN"), "{}", stderr(&check));
}

#[test]
fn a_program_without_mutations_says_how_to_build_one_that_has() {
    for args in [
        &["sim", "mutations"][..],
        &["sim", "check", "--seed", "1", "--mutation", "fua-ignored"],
    ] {
        let refused = run(args);
        code(&refused, 2);
        let said = stderr(&refused);
        assert!(said.contains("--features mutations"), "{said}");
    }
    let unknown = run(&["sim", "mutations", "--only", "fua"]);
    code(&unknown, 2);
    let said = stderr(&unknown);
    assert!(said.contains("fua-ignored"), "{said}");
}
