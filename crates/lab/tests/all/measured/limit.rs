//! `lab limit`: no assertion depends on the machine's speed.

use crate::common::{alone, json, run, run_until, stderr};
use serde_json::Value;

/// `lab limit` with short runs on the first and the last core of this machine.
fn limit(args: &[&str]) -> std::process::Output {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let last = (cores - 1).to_string();
    let cores = ["--target-core", "0", "--load-core", &last];
    let output = run_until(
        // A busy machine completed nothing, and gets more time.
        |output| !stderr(output).contains("was the measured time too short?"),
        |seconds| {
            let seconds = seconds.to_string();
            let short = ["--runs", "1", "--seconds", &seconds, "--json"];
            run(&[&["limit"], args, &short[..], &cores[..]].concat())
        },
    );
    // The machine's speed decides between the two; both are reports.
    let is_report = matches!(output.status.code(), Some(0 | 1));
    assert!(is_report, "{}", stderr(&output));
    output
}

#[test]
fn limit_reports_every_case_as_a_fraction() {
    let names = [
        "read_4k_qd128",
        "write_4k_qd128",
        "read_128k_qd8",
        "read_4k_qd1_polling",
        "read_4k_qd1_one_core",
    ];
    let chosen: Vec<_> = names.iter().flat_map(|name| ["--case", name]).collect();
    let output = limit(&chosen);
    for (name, end) in names
        .iter()
        .flat_map(|name| [(name, "our"), (name, "the limit's")])
    {
        let run = format!("{name}: {end} run 1 of 1\n");
        assert!(stderr(&output).contains(&run), "{}", stderr(&output));
    }
    let report = json(&output);
    let cases = report["cases"].as_array().unwrap();
    let found: Vec<_> = cases.iter().map(|case| &case["case"]).collect();
    assert_eq!(found, names);
    for case in cases {
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{case}"));
        let (ours, limit) = (number(&case["ours"]), number(&case["limit"]));
        assert!(ours > 0.0 && limit > 0.0, "{case}");
        let fraction = |name: &str| number(&case["fraction"][name]);
        let spread = ["min", "median", "max"].map(fraction);
        assert!(spread[0] > 0.0 && spread.is_sorted(), "{case}");
        // Of a single pair, all statistics are equal, and follow from the numbers printed next to
        // them.
        assert!(
            (spread[1] - ours / limit).abs() < 1e-6 * spread[1],
            "{case}"
        );
        let throughput = !case["case"].as_str().unwrap().contains("qd1_");
        assert_eq!(case["better"], if throughput { "higher" } else { "lower" });
        let bound = number(&case["bound"]);
        let within = if throughput {
            spread[1] >= bound
        } else {
            spread[1] <= bound
        };
        assert_eq!(case["within"], within, "{case}");
    }
    let all = cases.iter().all(|case| case["within"] == true);
    assert_eq!(output.status.code(), Some(if all { 0 } else { 1 }));
    assert!(!report["machine"]["model_name"].is_null());
}

#[test]
fn the_case_of_many_connections_reports_rates_and_evenness() {
    let output = limit(&["--case", "read_4k_2500_connections"]);
    let report = json(&output);
    let case = &report["cases"][0];
    assert_eq!(case["case"], "read_4k_2500_connections");
    assert!(case["fraction"]["median"].as_f64().unwrap() > 0.0, "{case}");
    let p99_over_mean = case["p99_over_mean"]["median"].as_f64().unwrap();
    assert!(p99_over_mean > 0.0, "{case}");
    let within = case["within"] == true;
    assert_eq!(output.status.code(), Some(if within { 0 } else { 1 }));
}

#[test]
fn the_idle_case_watches_connections_that_live() {
    // Enough connections for two controllers: the second one's admin queue is connection 126.
    let idle = ["--case", "idle_1000_connections", "--idle-connections"];
    for count in ["20", "128"] {
        let output = limit(&[&idle[..], &[count]].concat());
        let report = json(&output);
        let case = &report["cases"][0];
        assert_eq!(case["case"], "idle_1000_connections");
        assert_eq!(case["connections"].to_string(), count);
        assert!(case["cpu_percent"].as_f64().unwrap() >= 0.0);
        assert!(case["bytes_per_connection"].as_f64().unwrap() >= 0.0);
        assert!(!stderr(&output).contains("WARN"), "{}", stderr(&output));
    }
}

#[test]
fn more_is_opened_than_the_soft_limit_allows() {
    let mut limited = std::process::Command::new("sh");
    let script = "ulimit -Sn 64 && ulimit -Hn 8192 && exec \"$0\" \"$@\"";
    limited.args(["-c", script, env!("CARGO_BIN_EXE_lab")]);
    let output = alone(limited)
        .args(["limit", "--case", "idle_1000_connections"])
        .args(["--idle-connections", "100", "--seconds", "0.1"])
        .output()
        .unwrap();
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        stderr(&output)
    );
}
