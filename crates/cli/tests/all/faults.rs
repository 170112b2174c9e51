//! Devices that are made slow and faulty by the configuration file.

use crate::common::{Folder, NQN, Serving, bench_until, code, json, pattern, run, stderr};
use serde_json::Value;

const BLOCK: usize = 4096;

/// Serves one device of 16 MiB in memory, with these lines in its table.
fn serving(folder: &Folder, layers: &str) -> Serving {
    let config = folder.write(
        "switchyard.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n\
             [devices.lab]\ntype = \"ram\"\nsize = \"16M\"\n{layers}\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[subsystems.namespaces]]\nnsid = 1\ndevice = \"lab\"\n"
        ),
    );
    Serving::start(&["--config", &config])
}

#[test]
fn a_torn_write_changes_its_first_blocks_and_fails() {
    let folder = Folder::new();
    let serving = serving(
        &folder,
        "[devices.lab.fault]\nseed = 1\n\
         [[devices.lab.fault.rules]]\noperation = \"write\"\nskip = 1\ntimes = 1\ntorn_blocks = 3",
    );
    let (old, new) = (pattern(1, 8 * BLOCK), pattern(2, 8 * BLOCK));
    let (old_file, new_file) = (folder.write("old", &old), folder.write("new", &new));
    let address = serving.address();
    code(&run(&["write", address, "--input", &old_file]), 0);
    let output = run(&["write", address, "--input", &new_file]);
    assert_ne!(output.status.code(), Some(0), "the second write is torn");
    let length = (8 * BLOCK).to_string();
    let output = run(&["read", address, "--length", &length]);
    code(&output, 0);
    assert!(
        output.stdout[..3 * BLOCK] == new[..3 * BLOCK],
        "the start is new"
    );
    assert!(
        output.stdout[3 * BLOCK..] == old[3 * BLOCK..],
        "the rest is old"
    );
}

#[test]
fn delays_of_the_layer_and_of_a_rule_are_waited_for() {
    let folder = Folder::new();
    // 8 KiB at 2 ms for each KiB, and once 50 ms more.
    let serving = serving(
        &folder,
        "delay = { read_per_kib_ns = 2_000_000 }\n[devices.lab.fault]\nseed = 1\n\
         [[devices.lab.fault.rules]]\noperation = \"read\"\nskip = 4\ntimes = 1\n\
         delay_us = 50_000",
    );
    let args = [
        "--target",
        serving.address(),
        "--app",
        "a:rw=randread,bs=8k",
    ];
    let of = |report: &Value, name: &str| report["apps"][0]["latency_us"][name].as_f64().unwrap();
    // A busy machine has not read five times so soon.
    let is_met = |report: &Value| of(report, "max") >= 65_000.0;
    let output = bench_until(&args, is_met);
    code(&output, 0);
    let report = json(&output);
    // At least what was asked for; how much more depends on the machine.
    assert!(of(&report, "p50") >= 15_900.0, "{report}");
    assert!(is_met(&report), "{report}");
}

#[test]
fn a_rule_with_two_effects_is_refused_by_name() {
    let folder = Folder::new();
    let config = folder.write(
        "switchyard.toml",
        "[devices.lab]\ntype = \"ram\"\nsize = \"16M\"\n[devices.lab.fault]\nseed = 1\n\
         [[devices.lab.fault.rules]]\nhang = true\ntorn_blocks = 1\n",
    );
    let output = run(&["serve", "--config", &config]);
    code(&output, 2);
    let said = stderr(&output);
    assert!(
        said.contains("rules[0].torn_blocks: is a second effect"),
        "{said}"
    );
}
