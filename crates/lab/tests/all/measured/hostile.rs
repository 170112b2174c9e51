//! `lab hostile` with small loads: no times are judged.

use crate::common::{Serving, code, json, run, run_until};

/// Far more than the memory of a target of 64 MiB under these loads, and less than that of one with
/// a leak.
const MEMORY_MAX: u64 = 1 << 30;

#[test]
fn a_neighbour_of_hostile_hosts_loses_no_command() {
    let output = run_until(
        |output| {
            output.status.code() != Some(0) || {
                let report = json(output);
                let mut loads = report["loads"].as_array().unwrap().iter();
                // A busy machine may not have reached each of them yet.
                loads.all(|load| load["commands"] != 0 && load["done"] != 0)
            }
        },
        |seconds| {
            let seconds = seconds.to_string();
            let short = ["--smoke", "--runs", "1", "--seconds", &seconds, "--json"];
            run(&[&["hostile"], &short[..]].concat())
        },
    );
    code(&output, 0);
    let report = json(&output);
    let loads = report["loads"].as_array().unwrap();
    assert_eq!(loads.len(), 12, "{report}");
    for load in loads {
        assert_eq!(load["failed"], 0, "{load}");
        assert!(load["commands"].as_u64().unwrap() > 0, "{load}");
        assert!(load["done"].as_u64().unwrap() > 0, "{load}");
        assert!(load["ratio"]["median"].as_f64().unwrap() > 0.0, "{load}");
        assert!(
            load["disturbed_p99_us"]["min"].as_f64().unwrap() > 1.0,
            "{load}"
        );
        assert!(
            load["memory_bytes"].as_u64().unwrap() < MEMORY_MAX,
            "{load}"
        );
    }
}

#[test]
fn a_target_that_runs_already_is_measured_as_well() {
    let serving = Serving::small();
    let pid = serving.pid().to_string();
    let target = ["hostile", "--target", &serving.address, "--pid", &pid];
    let how = ["--smoke", "--runs", "1", "--seconds", "0.2", "--json"];
    let which = ["--load", "keep_alives", "--load", "no_files"];
    let output = run(&[&target[..], &how, &which].concat());
    code(&output, 0);
    let report = json(&output);
    let loads = report["loads"].as_array().unwrap();
    let names: Vec<_> = loads.iter().map(|load| &load["load"]).collect();
    assert_eq!(
        names,
        ["keep_alives"],
        "no_files confines a target of its own"
    );
}
