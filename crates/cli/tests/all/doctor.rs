//! `switchyard doctor` with and without a running target.

use crate::common::{Folder, NQN, Serving, code, json, own_address, run, stdout};
use serde_json::Value;
use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

/// Returns an address that no other test uses, with a port that a configuration can name.
fn address() -> String {
    own_address().replace(":0", ":4420")
}

/// A configuration with an API, a file and a key for this address.
fn configuration(folder: &Folder, address: &str, more: &str) -> String {
    folder.write(
        "target.toml",
        format!(
            "listen = [\"{address}\"]\napi = \"unix:{}\"\n{more}\n\
             [devices.disk]\ntype = \"file\"\npath = \"{}\"\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"disk\" }}]\n",
            folder.path("api.sock"),
            folder.path("disk"),
        ),
    )
}

/// Returns the findings of a check.
fn of_check<'a>(found: &'a Value, check: &str) -> Vec<&'a Value> {
    let all = found.as_array().expect("a list").iter();
    all.filter(|it| it["check"] == check).collect()
}

#[test]
fn a_running_target_is_fine() {
    let folder = Folder::new();
    folder.write("disk", vec![0; 1 << 20]);
    let file = configuration(&folder, &address(), "");
    let mut serving = Serving::start(&["--config", &file]);
    while !serving.line().starts_with("API at ") {}
    let output = run(&["doctor", "--config", &file, "--json"]);
    let found = json(&output);
    for (check, part) in [
        ("configuration", "target.toml is valid"),
        ("API", &format!("answers, process {}", serving.pid())),
        (
            "device",
            &format!("served by the target, process {}", serving.pid()),
        ),
        ("address", "answers, with 1 subsystems"),
        ("io_uring", "available"),
        ("network card", "loopback"),
    ] {
        let found = of_check(&found, check);
        assert_eq!(found.len(), 1, "{check}: {found:?}");
        assert_eq!(found[0]["status"], "ok", "{found:?}");
        assert!(
            found[0]["text"].as_str().expect("text").contains(part),
            "{found:?}"
        );
    }
    let open_files = of_check(&found, "open files");
    assert!(
        open_files[0]["text"]
            .as_str()
            .expect("text")
            .contains("of the target")
    );
    for finding in found.as_array().expect("a list") {
        let mends = matches!(finding["status"].as_str(), Some("warn" | "fail"));
        assert_eq!(finding["remedy"].is_string(), mends, "{finding}");
    }
    // The machine of the test may have failures of its own.
    let fails = found
        .as_array()
        .expect("a list")
        .iter()
        .any(|it| it["status"] == "fail");
    code(&output, i32::from(fails));
}

#[test]
fn faults_are_told_with_their_remedy() {
    let folder = Folder::new();
    let key = folder.path("hosts.key");
    code(&run(&["key", "tls", "new", "--output", &key]), 0);
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("ours");
    let address = address();
    let more = format!("cores = [1023]\ntls = \"allowed\"\ntls_key = \"{key}\"");
    let file = configuration(&folder, &address, &more);
    let output = run(&["doctor", "--config", &file]);
    code(&output, 1);
    let text = stdout(&output);
    for (words, remedy) in [
        ("FAIL    key file", format!("remedy: chmod 600 {key}")),
        ("FAIL    device", "remedy: correct path".to_owned()),
        (
            "FAIL    processors: cores has CPUs that the process may not use: 1023",
            "remedy: choose of".to_owned(),
        ),
        (
            "FAIL    API",
            "remedy: systemctl start switchyard".to_owned(),
        ),
        (
            &format!("FAIL    address: {address} accepts no connection"),
            "remedy: systemctl".to_owned(),
        ),
    ] {
        let mut lines = text.lines();
        let is_there = lines.any(|line| line.starts_with(words) && line.contains(&remedy));
        assert!(is_there, "{words} {remedy}: {text}");
    }

    let file = folder.write("bad.toml", "listen = [\"nowhere\"]\n");
    let output = run(&["doctor", "--config", &file]);
    code(&output, 1);
    let text = stdout(&output);
    assert!(text.contains("bad.toml:1: listen"), "{text}");
}

#[test]
fn a_port_of_another_program_is_no_target() {
    let folder = Folder::new();
    folder.write("disk", vec![0; 1 << 20]);
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("bound").to_string();
    let close = std::thread::spawn(move || {
        // The first connection tests the port, the second one speaks NVMe/TCP.
        for _ in 0..2 {
            drop(other.accept());
        }
    });
    let file = configuration(&folder, &address, "");
    let output = run(&["doctor", "--config", &file, "--json"]);
    code(&output, 1);
    let found = json(&output);
    let found = of_check(&found, "address");
    assert_eq!(found[0]["status"], "fail", "{found:?}");
    let text = found[0]["text"].as_str().expect("text");
    assert!(
        text.contains("does not answer as a discovery controller"),
        "{text}"
    );
    close.join().expect("two connections");
}
