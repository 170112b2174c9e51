//! `switchyard top` against a running target.

use crate::common;
use crate::common::{Folder, Serving, code, eventually, json, program, run, stderr, stdout};
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const HOST: &str = "nqn.2026-11.com.example:db";

/// A target with emulated flash with 100,000 tokens per second, and two tenants; returned with its
/// HTTP interface.
fn serving(folder: &Folder) -> (Serving, String) {
    let kind = "type = \"flash\"\nprofile = \"A/8\"\nsize = \"8M\"";
    let tenants = format!(
        "[[tenants]]\nname = \"db\"\nhosts = [\"{HOST}\"]\n\
         latency_critical = {{ latency_us = 500, iops = 600, read_percent = 100 }}\n\
         [[tenants]]\nname = \"backup\"\nhosts = [\"nqn.2026-11.com.example:backup\"]\n\
         best_effort = {{ weight = 20 }}\n"
    );
    common::serve_by_tokens(folder, ("flash", kind), 100_000, &tenants)
}

#[test]
fn one_look_tells_who_is_promised_what_and_does_what() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let once = ["top", "--api", &socket, "--interval", "0.1"];
    let output = run(&[&once[..], &["--once"]].concat());
    code(&output, 0);
    let text = stdout(&output);
    let has = |words: &[&str]| {
        let mut lines = text.lines();
        lines.any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(has(&["flash", "(all)", "100K tokens/s", "600"]), "{text}");
    assert!(has(&["flash", "db", "p95 500us", "600"]), "{text}");
    assert!(has(&["flash", "backup", "weight 20"]), "{text}");
    assert!(has(&["flash", "default", "weight 100"]), "{text}");
    assert!(has(&["flash", "8.0M", common::NQN]), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    // Without a terminal, `--once` is not required.
    let piped = run(&once);
    code(&piped, 0);
    assert!(stdout(&piped).contains("\nTENANTS\n"));
    // Reads of a tenant appear in its own rates and latencies only.
    let out = folder.path("out");
    let read = ["read", serving.address(), "--length", "1M", "--output"];
    let read = [&read[..], &[&out, "--host-nqn", HOST]].concat();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                code(&run(&read), 0);
            }
        });
        let at_end = Set(&done);
        eventually("the reads are seen", || {
            let output = run(&[&once[..], &["--json"]].concat());
            code(&output, 0);
            let board = json(&output);
            let row = |name: &str| {
                let mut rows = board["tenants"].as_array().unwrap().iter();
                rows.find(|row| row["tenant"] == name).unwrap().clone()
            };
            assert_eq!(row("backup")["iops"], 0);
            let db = row("db");
            let rises = |key: &str| db[key].as_u64().is_some_and(|rate| rate > 0);
            rises("iops")
                && rises("bytes_per_second")
                && rises("spent_tokens_per_second")
                && rises("read_p99_ns")
        });
        drop(at_end);
    });
}

/// Sets a flag when dropped, so that a failing test ends, too.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nobody_to_look_at_is_an_error() {
    let folder = Folder::new();
    let socket = format!("unix:{}", folder.path("nobody.sock"));
    let output = run(&["top", "--api", &socket]);
    code(&output, 2);
    assert!(stderr(&output).contains("--api"), "{}", stderr(&output));
    code(&run(&["top", "--interval", "0"]), 2);
}

#[test]
fn a_terminal_is_given_back_and_a_target_may_go_and_come() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    // util-linux's `script` runs it on a separate terminal; `stty` reports the terminal's settings.
    let shell = "stty rows 24 cols 100 && stty -g >\"$BEFORE\" && \
                 \"$SWITCHYARD\" top --api \"$SOCKET\" --interval 0.1; \
                 echo \"code $?\"; stty -g >\"$AFTER\"";
    let settings = ["before", "after"].map(|name| folder.path(name));
    let started = std::process::Command::new("script")
        .args(["-qec", shell, "/dev/null"])
        .env("SWITCHYARD", program().get_program())
        .env("SOCKET", &socket)
        .env("BEFORE", &settings[0])
        .env("AFTER", &settings[1])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        block::skipped("there is no program `script`");
        return;
    };
    let mut keys = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let seen = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&seen);
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]);
            told.lock().unwrap().push_str(&text);
        }
    });
    let has = |text: &str| seen.lock().unwrap().contains(text);
    eventually("the panes are there", || has("NAMESPACES"));
    drop(serving);
    eventually("it says that the target has gone", || has("retrying"));
    seen.lock().unwrap().clear();
    // On the same socket.
    let file = folder.path("target.toml");
    let _again = Serving::start(&["--config", &file]);
    eventually("it has found it again", || has("arrows"));
    keys.write_all(b"\tsq").unwrap();
    keys.flush().unwrap();
    eventually("it ends", || child.try_wait().unwrap().is_some());
    reader.join().unwrap();
    let text = seen.lock().unwrap().clone();
    let (_, after) = text
        .split_once("\u{1b}[?1049l")
        .expect("the screen is left");
    assert!(after.contains("code 0"), "{after}");
    let [before, after] = settings.map(|path| std::fs::read_to_string(path).unwrap());
    assert_eq!(before, after);
}
