//! The program under the limits of a process: open files and locked memory.

// A test program has nothing but tests.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used)]

mod common;

use common::{Serving, limited_program, stderr};

const SERVE: [&str; 4] = ["--listen", "127.0.0.1:0", "--ram", "16M"];

#[test]
fn serve_takes_the_hard_limit_of_open_files() {
    let limited = limited_program("ulimit -Sn 64 && ulimit -Hn 8192");
    let serving = Serving::start_by(limited, &SERVE);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["8192", "8192"]);
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!((code, said.as_str()), (Some(0), ""), "8192 is enough");
}

#[test]
fn serve_says_when_the_hard_limit_is_less_than_its_connections_need() {
    let serving = Serving::start_by(limited_program("ulimit -Sn 64 && ulimit -Hn 512"), &SERVE);
    serving.signal("-TERM");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0));
    for part in ["may have 512 files", "limits.connections", "LimitNOFILE="] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn bench_opens_more_than_the_soft_limit_allows() {
    let output = limited_program("ulimit -Sn 64 && ulimit -Hn 8192")
        .args(["bench", "limit", "--case", "idle_1000_connections"])
        .args(["--idle-connections", "100", "--seconds", "0.1"])
        .output()
        .unwrap();
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        stderr(&output)
    );
}
