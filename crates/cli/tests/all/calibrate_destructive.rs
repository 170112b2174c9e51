//! `switchyard calibrate --destructive`: data is only overwritten on request. Then a file and
//! another target's namespace are calibrated.
//!
//! The measurements of this machine may or may not fit a model; both outcomes are tested.

use crate::common;
use crate::common::{Folder, Serving, code, json, pattern, run, stderr};
use config::DeviceModel;
use qos::PricedOperation;
use std::path::Path;
use std::process::Output;

const BYTES: usize = 4 << 20;

/// Short, and each load only once: the test checks the behaviour, not the speed.
const SOON: [&str; 5] = ["--quick", "--seconds", "0.05", "--precondition", "0.1"];

/// Seed of the initial data. The loads' writes come from the same generator, with small seeds; with
/// a different seed, no block of the two is equal.
const SEED: u64 = 0x0bad_5eed_0000_0000;

const READER: &str = "nqn.2026-11.com.example:reader";

/// A target whose namespace is memory with initial data and has 8000 tokens per second. A write
/// costs two tokens, and one host is read-only.
fn serving(folder: &Folder, data: &[u8]) -> Serving {
    let model = common::device_model(8_000);
    let model = model.replace("write_millitokens = 10000", "write_millitokens = 2000");
    let model = folder.write("peer.toml", model);
    let file = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\ncores = [0]\n\
             [devices.memory]\ntype = \"ram\"\nsize = \"{BYTES}\"\nmodel = \"{model}\"\n\
             [[tenants]]\nname = \"reader\"\nhosts = [\"{READER}\"]\n\
             permissions = [{{ access = \"read\" }}]\n\
             [[subsystems]]\nnqn = \"{}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"memory\" }}]\n",
            common::NQN
        ),
    );
    let serving = Serving::start(&["--config", &file]);
    let input = folder.write("data", data);
    code(&run(&["write", serving.address(), "--input", &input]), 0);
    serving
}

/// Returns the content of a target's namespace.
fn content(serving: &Serving, folder: &Folder) -> Vec<u8> {
    let out = folder.path("content");
    code(&run(&["read", serving.address(), "--output", &out]), 0);
    std::fs::read(out).unwrap()
}

/// Checks that every 4 KiB of the old content is overwritten, and the size is unchanged. Except the
/// first request's 64 KiB: the load begins by reading them, and may write them back unchanged.
fn overwritten(before: &[u8], after: &[u8]) {
    const FIRST: usize = 64 << 10;
    assert_eq!(before.len(), after.len());
    let mut pairs = before[FIRST..]
        .chunks(4096)
        .zip(after[FIRST..].chunks(4096));
    let kept = pairs.position(|(before, after)| before == after);
    assert_eq!(kept, None, "a block was not written");
}

/// Checks that the device was loaded. Either that yielded a model, which a target accepts; or the
/// measurements fit no model, and there is no model file.
fn judged(output: &Output, model: &str, folder: &Folder) {
    if output.status.code() == Some(2) {
        let told = stderr(output);
        let none = [
            "error: no model",
            "no read completed in the measured time",
            "the device does not sustain",
        ];
        assert!(none.iter().any(|none| told.contains(none)), "{told}");
        assert!(!Path::new(model).exists());
        return;
    }
    code(output, 0);
    let report = json(output);
    let written = DeviceModel::load(Path::new(model)).unwrap();
    assert!(written.provenance.write_price_measured);
    let write = report["write_tokens"].as_f64().unwrap();
    let cost = written.prices.costs().mixed.cost(PricedOperation::Write, 1);
    assert!((cost.0 as f64 / 1e9 - write).abs() < 1e-3, "{report}");
    let socket = format!("unix:{}", folder.path("accepts.sock"));
    let file = folder.write(
        "accepts.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\napi = \"{socket}\"\ncores = [0]\n\
             [devices.calibrated]\ntype = \"ram\"\nsize = \"1M\"\nmodel = \"{model}\"\n\
             [[subsystems]]\nnqn = \"{}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"calibrated\" }}]\n",
            common::NQN
        ),
    );
    let mut accepts = Serving::start(&["--config", &file]);
    while !accepts.line().starts_with("API at ") {}
    let list = json(&run(&["tenant", "list", "--json", "--api", &socket]));
    let rate = list["devices"][0]["tokens_per_second"].as_u64().unwrap();
    assert_eq!(rate, written.curve.capacity().0);
}

#[test]
fn a_file_is_overwritten_when_that_is_asked_for() {
    let folder = Folder::new();
    let before = pattern(SEED + 4, BYTES);
    let file = folder.write("disk", &before);
    let (device, model) = (format!("file:{file}"), folder.path("model.toml"));
    let more = ["--output", &model, "--json"];
    let args = [&["calibrate", &device], &SOON[..], &more].concat();
    let refused = run(&args);
    code(&refused, 2);
    assert!(stderr(&refused).contains("--destructive, which OVERWRITES ALL DATA"));
    assert!(std::fs::read(&file).unwrap() == before, "it was changed");
    assert!(!Path::new(&model).exists());
    let output = run(&[&args[..], &["--destructive"]].concat());
    judged(&output, &model, &folder);
    overwritten(&before, &std::fs::read(&file).unwrap());
}

#[test]
fn a_peers_namespace_is_overwritten_when_that_is_asked_for() {
    let folder = Folder::new();
    let before = pattern(SEED + 2, BYTES);
    let serving = serving(&folder, &before);
    let model = folder.path("model.toml");
    let more = ["--output", &model, "--json"];
    let args = ["calibrate", "--target", serving.address()];
    let args = [&args[..], &SOON, &more].concat();
    let refused = run(&args);
    code(&refused, 2);
    assert!(stderr(&refused).contains("--destructive, which OVERWRITES ALL DATA"));
    // For a read-only host, the flag has no effect.
    let reader = ["--destructive", "--host-nqn", READER];
    let denied = run(&[&args[..], &reader].concat());
    code(&denied, 2);
    let told = stderr(&denied).to_lowercase();
    assert!(told.contains("access denied"), "{told}");
    assert!(content(&serving, &folder) == before, "it was changed");
    assert!(!Path::new(&model).exists());
    let output = run(&[&args[..], &["--destructive"]].concat());
    judged(&output, &model, &folder);
    overwritten(&before, &content(&serving, &folder));
}

#[test]
fn a_peers_namespace_is_only_read_where_prices_are_said() {
    let folder = Folder::new();
    let before = pattern(SEED + 3, BYTES);
    let serving = serving(&folder, &before);
    let prices = ["--write-cost", "2", "--read-only-cost", "1"];
    let args = ["calibrate", "--target", serving.address()];
    let output = run(&[&args[..], &SOON, &prices].concat());
    let told = stderr(&output);
    assert!(matches!(output.status.code(), Some(0 | 2)), "{told}");
    assert!(told.contains("is only read"), "{told}");
    assert!(content(&serving, &folder) == before, "it was changed");
}
