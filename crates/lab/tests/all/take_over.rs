//! `lab take-over` with few connections: no times are judged.

use crate::common::{json, run, stderr};

#[test]
fn connections_survive_take_overs_and_each_wait_is_measured() {
    let output = run(&["take-over", "--connections", "3", "--times", "2", "--json"]);
    // 1: a busy machine does not reach the goal.
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        stderr(&output)
    );
    let report = json(&output);
    assert!(report["commands"].as_u64().unwrap() > 0, "{report}");
    for wait in ["wait_us", "undisturbed_us"] {
        assert!(report[wait]["p50"].as_f64().unwrap() > 0.0, "{report}");
    }
}
