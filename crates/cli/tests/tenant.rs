//! `switchyard tenant`, and what a running target makes of it.

// A test program has nothing but tests.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used)]

mod common;

use common::{Folder, Serving, code, eventually, json, run, stderr, stdout};
use serde_json::Value;

const HOST: &str = "nqn.2026-11.com.example:db";

/// A target with a device that is given 1000 tokens a second, and where its interface is.
fn serving(folder: &Folder) -> (Serving, String) {
    let kind = "type = \"ram\"\nsize = \"8M\"";
    common::serve_by_tokens(folder, ("slow", kind), 1_000, "")
}

fn tenant(args: &[&str], socket: &str) -> std::process::Output {
    run(&[&["tenant"], args, &["--api", socket]].concat())
}

/// What a tenant is now, and was served on the one device.
fn show(name: &str, socket: &str) -> (Value, Value) {
    let output = tenant(&["show", name, "--json"], socket);
    code(&output, 0);
    let shown = json(&output);
    assert_eq!(shown["devices"][0]["device"], "slow");
    let served = shown["devices"][0]["served"].clone();
    (shown["tenant"].clone(), served)
}

#[test]
fn tenants_come_change_and_go_while_a_target_runs() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let promise = ["--latency-us", "500", "--read-percent", "100"];
    let add = ["add", "db", "--host", HOST, "--iops", "100"];
    let output = tenant(&[&add[..], &promise].concat(), &socket);
    code(&output, 0);
    let text = stdout(&output);
    let first = "db: p95 of reads within 500 us, for 100 requests of 4K a second, 100 % of them";
    assert!(text.starts_with(first), "{text}");
    let (_, served) = show("db", &socket);
    assert_eq!(served["reserved_tokens_per_second"], 100);
    // What is not named stays; the change is in force.
    code(&tenant(&["set", "db", "--iops", "600"], &socket), 0);
    let (declared, served) = show("db", &socket);
    assert_eq!(declared["latency_critical"]["latency_us"], 500);
    assert_eq!(declared["hosts"][0], HOST);
    assert_eq!(served["reserved_tokens_per_second"], 600);
    // What is too much is refused, and everything is as before.
    let other = ["add", "other", "--host", "nqn.2026-11.com.example:other"];
    let much = ["--iops", "500"];
    let output = tenant(&[&other[..], &much, &promise].concat(), &socket);
    code(&output, 2);
    let told = stderr(&output);
    assert!(told.contains("tenant \"other\" is not admitted"), "{told}");
    assert!(told.contains("400 requests a second"), "{told}");
    code(&tenant(&["show", "other"], &socket), 2);
    let output = tenant(&[&other[..], &["--weight", "20"]].concat(), &socket);
    code(&output, 0);
    let text = stdout(&tenant(&["list"], &socket));
    for line in [
        "device slow: 1000 tokens/s, 600 of them promised",
        "other: best effort, weight 20",
        "default: best effort, weight 100",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
    }
    // Each pays for its own; who is nobody in particular is the default tenant.
    let read = ["read", serving.address(), "--length", "16k", "--output"];
    let out = folder.path("out");
    for (name, host) in [("default", &[][..]), ("db", &["--host-nqn", HOST])] {
        code(&run(&[&read[..], &[&out], host].concat()), 0);
        eventually("it is counted", || {
            let (_, served) = show(name, &socket);
            let spent = served["tokens_milli"]["spent"].as_u64();
            served["commands"]["read_bytes"] == 16 << 10 && spent == Some(4000)
        });
    }
    code(&tenant(&["remove", "db"], &socket), 0);
    let output = tenant(&["remove", "db"], &socket);
    code(&output, 2);
    assert!(stderr(&output).contains("there is no tenant \"db\""));
    let list = json(&tenant(&["list", "--json"], &socket));
    assert_eq!(list["devices"][0]["reserved_tokens_per_second"], 0);
}

#[test]
fn whoever_asks_for_more_than_was_promised_is_told_of() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let output = tenant(&["events"], &socket);
    code(&output, 0);
    assert!(stdout(&output).starts_with("no tenant has asked for more"));
    let promise = ["--latency-us", "500", "--iops", "100"];
    let add = ["add", "db", "--host", HOST];
    code(&tenant(&[&add[..], &promise].concat(), &socket), 0);
    let app = "a:rw=randread,bs=4k,depth=64";
    let load = [
        "bench",
        "--target",
        serving.address(),
        "--seconds",
        "3",
        "--host-nqn",
        HOST,
    ];
    let output = run(&[&load[..], &["--app", app]].concat());
    code(&output, 0);
    let told = stderr(&output);
    assert!(
        told.contains("tenant db asks for more than it is promised on slow"),
        "{told}"
    );
    let output = tenant(&["events", "--json"], &socket);
    code(&output, 0);
    let answer = json(&output);
    let first = &answer["events"][0];
    assert_eq!(first["kind"], "overrun_began");
    assert_eq!(
        (&first["tenant"], &first["device"]),
        (&"db".into(), &"slow".into())
    );
    assert_eq!(first["promised_tokens_per_second"], 100);
    let text = stdout(&tenant(&["events"], &socket));
    assert!(
        text.starts_with("1: db asks for more than it is promised on slow: "),
        "{text}"
    );
    // It ends with the load, which those who follow hear at once.
    eventually("its end is told", || {
        let text = stdout(&tenant(&["events", "--after", "1"], &socket));
        text == "2: db keeps to its promise on slow again\n"
    });
}

#[test]
fn a_model_that_cannot_be_read_is_named_with_its_device() {
    let folder = Folder::new();
    let model = folder.write("model.toml", "version = 1\n");
    let file = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n\
             [devices.slow]\ntype = \"ram\"\nsize = \"8M\"\nmodel = \"{model}\"\n"
        ),
    );
    let output = run(&["serve", "--config", &file]);
    code(&output, 2);
    let told = stderr(&output);
    assert!(
        told.contains("device \"slow\"") && told.contains(&model),
        "{told}"
    );
}
