//! `switchyard calibrate --live`: a target calibrates a device while it serves.
//!
//! The measurements of this machine may or may not fit a model; both outcomes are tested.

use crate::common;
use crate::common::{Folder, Serving, code, eventually, json, program, run, stderr, stdout};
use config::DeviceModel;
use qos::TokenRate;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HOST: &str = "nqn.2026-11.com.example:db";

/// Starts a target with two emulated devices, one with a model and one without; returns it with its
/// HTTP interface.
fn serving(folder: &Folder) -> (Serving, String, String) {
    let model = folder.path("model.toml");
    let calibrated = ["calibrate", "flash:A/4:16M", "--virtual", "--quick"];
    let output = ["--requests", "10000", "--output", &model];
    code(&run(&[&calibrated[..], &output].concat()), 0);
    let socket = format!("unix:{}", folder.path("api.sock"));
    let file = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\napi = \"{socket}\"\ncores = [0]\n\
             [devices.ssd]\ntype = \"flash\"\nprofile = \"A/4\"\nsize = \"16M\"\n\
             model = \"{model}\"\n\
             [devices.memory]\ntype = \"ram\"\nsize = \"1M\"\n\
             [[tenants]]\nname = \"db\"\nhosts = [\"{HOST}\"]\n\
             latency_critical = {{ latency_us = 1000, iops = 1000, read_percent = 100 }}\n\
             [[subsystems]]\nnqn = \"{}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"ssd\" }}, {{ nsid = 2, device = \"memory\" }}]\n",
            common::NQN
        ),
    );
    let mut serving = Serving::start(&["--config", &file]);
    while !serving.line().starts_with("API at ") {}
    (serving, socket, model)
}

fn live(args: &[&str], socket: &str) -> Output {
    run(&[&["calibrate", "--live"], args, &["--api", socket]].concat())
}

/// Returns the calibration's progress from the HTTP interface.
fn progress(socket: &str) -> String {
    let mut stream = UnixStream::connect(socket.trim_start_matches("unix:")).unwrap();
    let request = "GET /v1/devices/ssd/calibration HTTP/1.1\r\nHost: localhost\r\n\
                   Connection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn rate(socket: &str) -> u64 {
    let list = json(&run(&["tenant", "list", "--json", "--api", socket]));
    list["devices"][0]["tokens_per_second"].as_u64().unwrap()
}

#[test]
fn a_device_is_calibrated_while_it_serves_within_a_share() {
    let folder = Folder::new();
    let (serving, socket, before) = serving(&folder);
    let before = DeviceModel::load(Path::new(&before)).unwrap();
    let rate_before = rate(&socket);
    let newer = folder.path("newer.toml");
    let args = ["ssd", "--share", "25", "--seconds", "3", "--json"];
    let output = live(&[&args[..], &["--output", &newer]].concat(), &socket);
    // Tenants are served during the calibration.
    let out = folder.path("out");
    let read = ["read", serving.address(), "--length", "64k", "--output"];
    code(&run(&[&read[..], &[&out, "--host-nqn", HOST]].concat()), 0);
    if output.status.code() == Some(2) {
        let told = stderr(&output);
        assert!(told.contains("the model is unchanged"), "{told}");
        assert!(!Path::new(&newer).exists());
        assert_eq!(rate(&socket), rate_before);
        return;
    }
    code(&output, 0);
    let seen = json(&output);
    assert_eq!(seen["state"], "done");
    // Everything that it read was charged in tokens, and never exceeded its share.
    let spent = seen["spent_milli"].as_u64().unwrap();
    let share = rate_before * 1000 * 3 / 4 + rate_before;
    assert!(spent > 0 && spent <= share, "{spent} of {share}");
    let result = &seen["result"];
    assert_eq!(result["observations"].as_array().unwrap().len(), 16);
    let [from, to] = [0, 1].map(|at: usize| result["seen_tokens_per_second"][at].as_u64().unwrap());
    assert!(0 < from && from < to && to <= rate_before, "{from} to {to}");
    let model = DeviceModel::load(Path::new(&newer)).unwrap();
    assert_eq!(model.prices, before.prices, "nothing was written");
    let capacity = before.curve.capacity();
    assert!(model.curve.capacity() >= capacity.min(TokenRate(rate_before)));
    let live = model.provenance.live.unwrap();
    assert_eq!((live.share_percent, live.from.0, live.to.0), (25, from, to));
    assert_eq!(model.provenance.device, "flash:A/4:16M");
    let command = model.provenance.command.unwrap();
    assert_eq!(
        command,
        "switchyard calibrate --live ssd --share 25 --seconds 3"
    );
    assert!(model.provenance.measured_at > before.provenance.measured_at);
    assert_eq!(rate(&socket), result["tokens_per_second"].as_u64().unwrap());
}

#[test]
fn one_runs_at_a_time_and_an_interrupt_cancels_it() {
    let folder = Folder::new();
    let (_serving, socket, _) = serving(&folder);
    let rate_before = rate(&socket);
    let mut child = program()
        .args([
            "calibrate",
            "--live",
            "ssd",
            "--seconds",
            "600",
            "--share",
            "1",
        ])
        .args(["--api", &socket])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it runs", || progress(&socket).contains("\"running\""));
    let second = live(&["ssd"], &socket);
    code(&second, 2);
    let told = stderr(&second);
    assert!(told.contains("is being calibrated already"), "{told}");
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    let mut told = String::new();
    let mut errors = child.stderr.take().unwrap();
    errors.read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{told}");
    assert!(
        told.contains("was cancelled; the model is unchanged"),
        "{told}"
    );
    assert_eq!(rate(&socket), rate_before);
}

#[test]
fn what_cannot_be_calibrated_live_is_explained() {
    let folder = Folder::new();
    let (_serving, socket, _) = serving(&folder);
    for (args, expected) in [
        (&["memory"][..], "has no model"),
        (&["nothing"], "there is no device \"nothing\""),
        (&["ssd", "--share", "0"], "0 is not in 1..=100"),
        (&["ssd", "--destructive"], "cannot be used with"),
        (&["ssd", "--seed", "2"], "cannot be used with"),
        (&["ssd", "--seconds", "1.5"], "whole number of seconds"),
    ] {
        let output = live(args, &socket);
        code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let nothing: Value = json(&run(&["tenant", "list", "--json", "--api", &socket]));
    assert_eq!(nothing["devices"][0]["device"], "ssd");
    let text = stdout(&run(&["calibrate", "--help"]));
    assert!(text.contains("--live <NAME>"), "{text}");
}
