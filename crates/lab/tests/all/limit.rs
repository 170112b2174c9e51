//! `lab limit` without a measurement.

use crate::common::{alone, code, run, stderr};

#[test]
fn a_case_that_is_unknown_is_refused_with_those_that_are() {
    let output = run(&["limit", "--case", "nothing"]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("read_4k_qd128"),
        "{}",
        stderr(&output)
    );
}

/// The program to measure is found, or the error contains the remedy.
#[test]
fn a_program_that_is_missing_is_named_with_what_builds_it() {
    let mut lab = alone(std::process::Command::new(env!("CARGO_BIN_EXE_lab")));
    lab.env("SWITCHYARD_BIN", "/absent/switchyard");
    let args = ["limit", "--case", "idle_1000_connections"];
    let output = lab.args(args).output().unwrap();
    code(&output, 2);
    let said = stderr(&output);
    for part in ["/absent/switchyard", "cargo build --release"] {
        assert!(said.contains(part), "{said}");
    }
}
