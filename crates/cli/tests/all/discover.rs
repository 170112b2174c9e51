//! `switchyard discover`.

use crate::common;
use crate::common::{Folder, NQN, Serving, code, json, run, stderr, stdout};
use std::net::TcpListener;

#[test]
fn the_default_subsystem_is_listed_for_people_and_scripts() {
    let serving = Serving::small();
    let output = run(&["discover", serving.address()]);
    code(&output, 0);
    assert!(stdout(&output).contains(NQN), "{}", stdout(&output));
    assert!(stdout(&output).contains(serving.address()));

    let output = run(&["discover", serving.address(), "--json"]);
    code(&output, 0);
    let value = json(&output);
    let entries = value["entries"].as_array().unwrap();
    let entry = entries
        .iter()
        .find(|entry| entry["nqn"] == NQN)
        .expect("the default subsystem");
    assert_eq!(entry["kind"], "nvm");
    assert_eq!(entry["transport"], "tcp");
    assert_eq!(
        format!("{}:{}", "127.0.0.1", entry["service"].as_str().unwrap()),
        serving.address()
    );
}

/// Regression: an unreachable referral was silently omitted from the list.
#[test]
fn a_referral_that_fails_is_told() {
    let folder = Folder::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    let file = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n\
             [devices.d]\ntype = \"ram\"\nsize = \"1M\"\n\
             [[subsystems]]\nnqn = \"nqn.2026-11.com.example:a\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"d\" }}]\n\
             [[discovery.referrals]]\naddress = \"127.0.0.1\"\nport = {port}\n"
        ),
    );
    let serving = Serving::start(&["--config", &file]);
    // The port stays bound, so no other process gets it; each connection is closed at once.
    std::thread::spawn(move || drop(closed.accept()));
    let output = run(&["discover", serving.address(), "--json"]);
    code(&output, 0);
    let failed = &json(&output)["failed_referrals"];
    let address = format!("127.0.0.1:{port}");
    assert_eq!(failed[0]["address"], address.as_str(), "{failed}");
    assert_eq!(failed.as_array().unwrap().len(), 1, "{failed}");
    let told = format!("skipped the referral to {address}: ");
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));
}

#[test]
fn nobody_listening_is_an_error_that_says_so() {
    let output = run(&["discover", "127.0.0.1:1"]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("no process listens there"),
        "{}",
        stderr(&output)
    );
    let output = run(&["discover", "no such host"]);
    code(&output, 2);
    assert!(stderr(&output).contains("HOST:PORT"), "{}", stderr(&output));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let serving = Serving::small();
    let mut child = common::program()
        .args(["discover", serving.address()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    code(&output, 0);
    assert_eq!(stderr(&output), "");
}
