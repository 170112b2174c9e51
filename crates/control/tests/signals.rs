//! Signals, in a program of their own: they reach every server of the process.

// The whole file is a test program, and a panic is how a test fails.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, missing_docs)]

#[path = "all/common/mod.rs"]
mod common;

use std::sync::mpsc;
use std::time::Duration;

use common::{Scratch, control};
use rustix::process::{Signal, getpid, kill_process};
use switchyard_control::server::{ServerOptions, run};

const BEFORE: &str = "[devices.a]\ntype = \"null\"\nsize = \"1M\"\n";
const AFTER: &str = "[devices.b]\ntype = \"null\"\nsize = \"1M\"\n";

fn signal(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

/// Waits for as long as it takes.
fn until(what: &str, holds: impl Fn() -> bool) {
    let mut turns = 0;
    while !holds() {
        std::thread::sleep(Duration::from_millis(5));
        turns += 1;
        assert!(turns < 12_000, "{what} never came");
    }
}

#[test]
fn hang_up_applies_the_file_and_terminate_drains_once() {
    let scratch = Scratch::new("signals");
    let path = scratch.0.join("switchyard.toml");
    std::fs::write(&path, BEFORE).unwrap();
    let (control, plane) = control(BEFORE);
    let (drain, drained) = mpsc::channel();
    let options = ServerOptions {
        config_path: Some(path.clone()),
        ..ServerOptions::default()
    };
    let server = run(control.clone(), options, move || drain.send(()).unwrap()).unwrap();
    assert_eq!(server.address(), None);
    let has = |name: &str| control.configuration().devices.contains_key(name);

    std::fs::write(&path, AFTER).unwrap();
    signal(Signal::HUP);
    until("device b", || has("b"));
    until("the end of device a", || !has("a"));

    // The end of the process does not wait for a change that takes its time.
    let (go, gate) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    plane.refuse(move |_| begin.send(()).is_err() || gate.recv().is_err());
    std::fs::write(&path, BEFORE).unwrap();
    signal(Signal::HUP);
    begun.recv().unwrap();
    signal(Signal::TERM);
    let patience = Duration::from_secs(60);
    drained.recv_timeout(patience).expect("it drains meanwhile");
    go.send(()).unwrap();
    go.send(()).unwrap();
    until("device a", || has("a"));
    until("the end of device b", || !has("b"));
    signal(Signal::TERM);
    signal(Signal::INT);
    server.stop();
    assert!(drained.recv().is_err(), "once is enough");
    assert_eq!(*plane.model.lock().unwrap(), *control.configuration());
}
