//! `lab figure` and `lab goals` without a measurement.

use crate::common::{Folder, code, json, run, stderr, stdout};

#[test]
fn the_list_has_every_figure_and_what_it_runs() {
    let output = run(&["figure", "list", "--json"]);
    code(&output, 0);
    let list = json(&output);
    let names: Vec<_> = list.as_array().unwrap().iter().collect();
    for name in ["blk-switch-7", "blk-switch-15", "i10-6"] {
        let entry = names.iter().find(|entry| entry["name"] == name).unwrap();
        assert!(!entry["workload"].as_str().unwrap().is_empty());
        assert_eq!(entry["by"], "machine");
    }
    let text = stdout(&run(&["figure", "list"]));
    assert!(
        text.contains("blk-switch-3a") && text.contains("Fig. 3(a)"),
        "{text}"
    );
}

#[test]
fn what_is_no_figure_is_said() {
    for (args, says) in [
        (&["figure", "blk-switch-99"][..], "figure list"),
        (&["figure", "list", "i10-6"][..], "cannot be combined"),
        (&["figure", "i10-6", "--seconds", "0"][..], "at least 0.1"),
        (&["figure", "list", "--seconds", "0"][..], "at least 0.1"),
        // Regression: these options had no effect.
        (
            &["figure", "sim-i10-9", "--seconds", "2"][..],
            "have a fixed measured time",
        ),
        (
            &["figure", "i10-6", "--costs", "costs.toml"][..],
            "only simulated figures",
        ),
        (&["goals", "--row", "no-such"][..], "split-linux-p99"),
    ] {
        let output = run(args);
        code(&output, 2);
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

/// Regression: it was refused for lack of the second processor, which only measured figures need.
#[test]
fn one_processor_is_enough_for_a_simulated_figure() {
    let folder = Folder::new();
    let files = folder.path("figures");
    let args = ["figure", "sim-i10-9", "--quick", "--runs", "1", "--output"];
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let one = (0..1024).find(|&core| allowed.is_set(core)).unwrap();
    let on_one = || {
        let mut command = std::process::Command::new("taskset");
        command.args(["-c", &one.to_string(), env!("CARGO_BIN_EXE_lab")]);
        command
    };
    let output = on_one().args(args).arg(&files).output().unwrap();
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        stderr(&output)
    );
    assert!(std::path::Path::new(&format!("{files}/sim-i10-9.svg")).exists());
    let args = ["figure", "i10-6", "--quick", "--runs", "1", "--output"];
    let output = on_one().args(args).arg(&files).output().unwrap();
    code(&output, 2);
    let told = stderr(&output);
    assert!(told.contains("may not use processor"), "{told}");
}
