//! `switchyard calibrate`: in virtual time, where the results are the same everywhere; and its
//! protection of devices.

use crate::common::{Folder, code, json, pattern, program, run, stderr};
use config::DeviceModel;
use qos::{Percentile, PricedOperation};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const VIRTUAL: [&str; 7] = [
    "calibrate",
    "flash:A:64M",
    "--virtual",
    "--quick",
    "--requests",
    "10000",
    "--json",
];

#[test]
fn a_model_comes_out_of_virtual_time() {
    let folder = Folder::new();
    let model = folder.path("model.toml");
    let first = run(&[&VIRTUAL[..], &["--output", &model]].concat());
    code(&first, 0);
    let report = json(&first);
    let write = report["write_tokens"].as_f64().unwrap();
    assert!((9.0..11.0).contains(&write), "{report}");
    assert_eq!(report, json(&run(&VIRTUAL)), "the same seed says the same");

    let text = std::fs::read_to_string(&model).unwrap();
    let model = DeviceModel::load(Path::new(&model)).unwrap();
    let unit = model.prices.costs().mixed.cost(PricedOperation::Write, 1).0 as f64 / 1e9;
    assert!((unit - write).abs() < 1e-6, "{text}");
    let capacity = model.curve.capacity().0;
    assert!((500_000..750_000).contains(&capacity), "{text}");
    let point = &report["curve"][0];
    let first = model.curve.points()[0];
    assert_eq!(point["tokens_per_second"], first.rate.0);
    let p95 = first.latency[Percentile::P95 as usize];
    assert_eq!(point["p95_us"], p95.0 as f64 / 1e3);
    let provenance = model.provenance;
    assert_eq!(provenance.device, "flash:A:64M");
    assert!(provenance.write_price_measured && provenance.measured_at.is_some());
    assert!(
        provenance
            .command
            .unwrap()
            .starts_with("switchyard calibrate flash:A:64M --virtual")
    );
}

#[test]
fn what_cannot_be_calibrated_is_explained() {
    let ram = run(&["calibrate", "ram:1M", "--virtual"]);
    code(&ram, 2);
    assert!(stderr(&ram).contains("flash:A:1G"), "{}", stderr(&ram));
    let folder = Folder::new();
    let directory = run(&[&VIRTUAL[..], &["--output", &folder.path("")]].concat());
    code(&directory, 2);
    assert!(directory.stdout.is_empty(), "it was measured before");
    let nothing = run(&["calibrate"]);
    code(&nothing, 2);
    let said = stderr(&nothing);
    assert!(said.contains("--target <ADDRESS>|--live <NAME>"), "{said}");
    let price = run(&["calibrate", "flash:A:1G", "--write-cost", "0"]);
    code(&price, 2);
    assert!(
        stderr(&price).contains("out of range"),
        "{}",
        stderr(&price)
    );
    // Prices that contradict the measurements yield no model.
    let wrong = run(&[&VIRTUAL[..], &["--write-cost", "40"]].concat());
    code(&wrong, 2);
    assert!(
        stderr(&wrong).contains("contradict each other"),
        "{}",
        stderr(&wrong)
    );
}

#[test]
fn what_holds_data_is_not_written() {
    let folder = Folder::new();
    let content = pattern(1, 1 << 20);
    let file = folder.write("disk", &content);
    let device = format!("file:{file}");
    let refused = run(&["calibrate", &device, "--quick"]);
    code(&refused, 2);
    let text = stderr(&refused);
    assert!(
        text.contains("--write-cost") && text.contains("--destructive"),
        "{text}"
    );
    // The measurements of this machine may or may not fit a model.
    let args = ["--quick", "--seconds", "0.02", "--write-cost", "10"];
    let reads = run(&[&["calibrate", &device], &args[..]].concat());
    let text = stderr(&reads);
    assert!(matches!(reads.status.code(), Some(0 | 2)), "{text}");
    assert!(text.contains("is only read"), "{text}");
    assert!(
        std::fs::read(&file).unwrap() == content,
        "the file was changed"
    );
}

#[test]
fn an_interrupt_ends_it_without_a_model() {
    let folder = Folder::new();
    let model = folder.path("model.toml");
    let mut child = program()
        .args([
            "calibrate",
            "flash:A/8:8M",
            "--seconds",
            "20",
            "--output",
            &model,
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert_eq!(first, "1 of 8: 100 % reads of 4096 bytes");
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.contains("interrupted")),
        "{rest:?}"
    );
    assert!(!Path::new(&model).exists());
}
