//! `switchyard bench`: against a target and local devices. No number is compared with another
//! that depends on the machine's speed.

// A test program has nothing but tests.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used)]

mod common;

use common::{Folder, Serving, code, json, run, stderr, stdout};
use serde_json::Value;

const SHORT: [&str; 5] = ["--seconds", "0.3", "--warmup", "0.1", "--json"];

fn bench(args: &[&str]) -> std::process::Output {
    run(&[&["bench"], args, &SHORT[..]].concat())
}

#[track_caller]
fn check(report: &Value, apps: &[&str]) {
    let found: Vec<_> = report["apps"].as_array().unwrap().iter().collect();
    assert_eq!(found.len(), apps.len());
    for (app, name) in found.iter().zip(apps) {
        assert_eq!(app["name"], *name);
        assert_eq!(app["errors"], 0, "{app}");
        assert!(app["iops"].as_f64().unwrap() > 0.0, "{app}");
        assert!(app["bytes_per_second"].as_f64().unwrap() > 0.0);
        assert!(app["cpu_seconds"].as_f64().unwrap() > 0.0);
        let latency = |name: &str| app["latency_us"][name].as_f64().unwrap();
        let ordered = ["p50", "p95", "p99", "p999", "max"].map(latency);
        assert!(ordered.is_sorted(), "{app}");
        assert!(latency("avg") > 0.0);
    }
    for field in ["cores", "model_name", "kernel", "congestion_control"] {
        assert!(!report["machine"][field].is_null(), "{field}");
    }
}

#[test]
fn every_pattern_runs_against_a_target_and_verifies() {
    let serving = Serving::small();
    for pattern in [
        "read",
        "write",
        "randread",
        "randwrite",
        "rw",
        "randrw,mix=70",
    ] {
        let app = format!("a:rw={pattern},bs=8k,depth=16,queues=2");
        let output = bench(&["--target", serving.address(), "--app", &app, "--verify"]);
        code(&output, 0);
        check(&json(&output), &["a"]);
    }
}

#[test]
fn apps_run_together_in_open_and_closed_loops() {
    let serving = Serving::small();
    let apps = [
        "--app",
        "L:rw=randread,depth=4,rate=500",
        "--app",
        "T:rw=write,bs=128k,depth=4,count=2",
    ];
    let target = ["--target", serving.address(), "--poll", "never"];
    let output = bench(&[&target[..], &apps[..]].concat());
    code(&output, 0);
    let report = json(&output);
    check(&report, &["L", "T"]);
    assert_eq!(report["apps"][0]["intended_iops"], 500);
}

#[test]
fn local_devices_are_loaded_the_same_way() {
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 4 << 20]);
    for device in [
        "ram:16M".to_owned(),
        "null:1G".to_owned(),
        format!("file:{disk}"),
    ] {
        let output = bench(&["--device", &device, "--app", "a:rw=randread,depth=4"]);
        code(&output, 0);
        check(&json(&output), &["a"]);
    }
    let file = format!("file:{disk}");
    let args = [
        "--device",
        &file,
        "--app",
        "a:rw=randrw,depth=4",
        "--verify",
        "--prefill",
    ];
    let output = bench(&args);
    code(&output, 0);
    assert!(json(&output)["apps"][0]["verified"].as_u64().unwrap() >= 1024);
}

#[test]
fn a_device_that_forgets_is_a_negative_result() {
    let output = bench(&[
        "--device",
        "null:16M",
        "--app",
        "a:rw=randrw,depth=4",
        "--verify",
    ]);
    code(&output, 1);
    assert!(json(&output)["apps"][0]["errors"].as_u64().unwrap() > 0);
    assert!(
        stderr(&output).contains("errors; the first: read at block"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_table_is_for_people() {
    let args = ["bench", "--device", "ram:8M", "--app", "web:rw=randread"];
    let output = run(&[&args[..], &["--seconds", "0.2", "--warmup", "0"]].concat());
    code(&output, 0);
    let text = stdout(&output);
    assert!(
        text.contains("IOPS") && text.contains("web") && text.contains("p99.9"),
        "{text}"
    );
}

#[test]
fn mistakes_name_the_app_the_key_and_what_would_be_right() {
    for (args, expected) in [
        (&["--device", "ram:8M"][..], "--app"),
        (&["--app", "a:rw=read"], "--target"),
        (
            &["--device", "ram:8M", "--app", "a:rw=raed"],
            "app \"a\": rw=raed: write read",
        ),
        (
            &["--device", "ram:8M", "--app", "a:rw=read,bs=512"],
            "app \"a\": bs=512",
        ),
        (
            &["--device", "ram:8M", "--app", "a:rw=read,cpu=1023"],
            "cpu=1023",
        ),
        (&["--device", "disk", "--app", "a:rw=read"], "ram:1G"),
        (
            &["--device", "file:/nowhere", "--app", "a:rw=read"],
            "/nowhere",
        ),
        (
            &["--target", "127.0.0.1:1", "--app", "a:rw=read"],
            "nothing listens there",
        ),
    ] {
        let output = bench(args);
        code(&output, 2);
        assert!(
            stderr(&output).contains(expected),
            "{args:?}: {}",
            stderr(&output)
        );
    }
    let output = run(&["bench", "limit", "--case", "nothing"]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("read_4k_qd128"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn ctrl_c_ends_early_with_what_was_measured() {
    use std::io::Read as _;
    let mut child = common::program()
        .args(["bench", "--device", "ram:8M", "--app", "a:rw=randread"])
        .args([
            "--seconds",
            "3600",
            "--warmup",
            "0",
            "--json",
            "--log",
            "info",
        ])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    // A thread of the app's name is there once the signal handlers are.
    common::eventually("the load runs", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .flatten();
        let mut names = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
        names.any(|name| name.trim_end() == "a/0")
    });
    std::process::Command::new("kill")
        .args(["-INT", &pid.to_string()])
        .status()
        .unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["interrupted"], true);
}

#[test]
fn limit_reports_fractions() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let last = (cores - 1).to_string();
    let args = [
        "bench",
        "limit",
        "--case",
        "read_4k_qd1_one_core",
        "--runs",
        "1",
    ];
    let more = [
        "--seconds",
        "0.2",
        "--target-core",
        "0",
        "--load-core",
        &last,
        "--json",
    ];
    let output = run(&[&args[..], &more].concat());
    // How fast it is decides between the two; both are reports.
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        stderr(&output)
    );
    let report = json(&output);
    let case = &report["cases"][0];
    assert_eq!(case["case"], "read_4k_qd1_one_core");
    assert!(case["ours"].as_f64().unwrap() > 0.0 && case["limit"].as_f64().unwrap() > 0.0);
    for field in ["median", "min", "max"] {
        assert!(case["fraction"][field].as_f64().unwrap() > 0.0);
    }
    assert_eq!(report["cases"].as_array().unwrap().len(), 1);
}
