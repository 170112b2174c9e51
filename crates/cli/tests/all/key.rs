//! `switchyard key`: alone, and with keys of nvme-cli in both directions.

use crate::common::{Folder, code, json, run, run_with_input, stderr, stdout};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

const HOST: &str = "nqn.2026-11.io.example:db";
const SUBSYSTEM: &str = "nqn.2026-11.io.example:disks";

/// Runs `switchyard key` and returns its output.
fn key(args: &[&str]) -> String {
    let output = run(&[&["key"], args].concat());
    code(&output, 0);
    stdout(&output).trim_end().to_owned()
}

/// Returns the output of `check` for this text on stdin.
fn check(kind: &str, text: &str) -> Output {
    run_with_input(&["key", kind, "check"], text.as_bytes())
}

#[test]
fn new_keys_differ_and_have_the_requested_form() {
    for (args, prefix, found) in [
        (&["tls", "new"][..], "NVMeTLSkey-1:01:", "SHA-256, 32 bytes"),
        (
            &["tls", "new", "--hmac", "2"],
            "NVMeTLSkey-1:02:",
            "SHA-384, 48 bytes",
        ),
        (&["chap", "new"], "DHHC-1:00:", "no hash function, 32 bytes"),
        (
            &["chap", "new", "--hmac", "1"],
            "DHHC-1:01:",
            "SHA-256, 32 bytes",
        ),
        (
            &["chap", "new", "--hmac", "2"],
            "DHHC-1:02:",
            "SHA-384, 48 bytes",
        ),
        (
            &["chap", "new", "--hmac", "3"],
            "DHHC-1:03:",
            "SHA-512, 64 bytes",
        ),
        (
            &["chap", "new", "--length", "64"],
            "DHHC-1:00:",
            "no hash function, 64 bytes",
        ),
    ] {
        let new = key(args);
        assert!(new.starts_with(prefix) && new.ends_with(':'), "{new}");
        assert_ne!(new, key(args), "a key is random");
        let checked = check(args[0], &new);
        code(&checked, 0);
        assert_eq!(stdout(&checked), format!("valid: {found}\n"));
    }
}

#[test]
fn a_new_file_is_private_and_never_replaces_one() {
    let folder = Folder::new();
    let path = folder.path("db.key");
    for kind in ["tls", "chap"] {
        let new = ["key", kind, "new", "--output", &path];
        code(&run(&new), 0);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        code(&run(&["key", kind, "check", &path]), 0);
        let before = std::fs::read(&path).unwrap();
        let again = run(&new);
        code(&again, 2);
        assert!(
            stderr(&again).contains("name a new file"),
            "{}",
            stderr(&again)
        );
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn invalid_keys_are_explained_and_not_shown() {
    let folder = Folder::new();
    let (tls, chap) = (key(&["tls", "new"]), key(&["chap", "new"]));
    let damaged = tls.replace("NVMeTLSkey-1:01:", "NVMeTLSkey-1:02:");
    let many = "#".repeat(100_000);
    for (kind, text, expected) in [
        ("tls", &*chap, "must begin with NVMeTLSkey-1:"),
        ("chap", &tls, "must begin with DHHC-1:"),
        ("tls", &damaged, "SHA-384 needs 48"),
        ("chap", "", "switchyard key chap new"),
        ("tls", &many, "more than"),
    ] {
        let output = check(kind, text);
        code(&output, 2);
        let error = stderr(&output);
        assert!(error.contains(expected), "{error}");
        for secret in [&tls, &chap] {
            assert!(!error.contains(&secret[20..40]), "{error}");
        }
    }
    let path = folder.write("open.key", &tls);
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let open = run(&["key", "tls", "check", &path]);
    code(&open, 2);
    assert!(stderr(&open).contains("chmod 600"), "{}", stderr(&open));
    let length = run(&["key", "chap", "new", "--hmac", "1", "--length", "48"]);
    code(&length, 2);
    let error = stderr(&length);
    assert!(error.contains("SHA-256 needs 32"), "{error}");
}

#[test]
fn identities_are_those_of_both_versions() {
    let folder = Folder::new();
    let path = folder.path("db.key");
    key(&["tls", "new", "--output", &path]);
    let show = ["key", "tls", "show-identity", &path, "--hostnqn", HOST];
    let show = [&show[..], &["--subnqn", SUBSYSTEM, "--json"]].concat();
    let output = run(&show);
    code(&output, 0);
    let shown = json(&output);
    let identity = |index: usize| shown["identities"][index]["identity"].as_str().unwrap();
    let names = format!("{HOST} {SUBSYSTEM}");
    assert!(identity(0).starts_with(&format!("NVMe1R01 {names} ")));
    assert_eq!(identity(1), format!("NVMe0R01 {names}"));
    // The derivation of nvme-cli up to 2.15.
    assert!(identity(2).starts_with(&format!("NVMe1R01 {names} ")));
    assert_ne!(identity(0), identity(2));
    let wrong = ["key", "tls", "show-identity", &path, "--hostnqn", "nqn.x"];
    let wrong = run(&[&wrong[..], &["--subnqn", SUBSYSTEM]].concat());
    code(&wrong, 2);
    assert!(stderr(&wrong).contains("NVMe Qualified Name"));
}

/// Runs `nvme`, which needs neither a device nor a kernel module for its keys. `None` if it is not
/// installed.
fn nvme(args: &[&str]) -> Option<Output> {
    Command::new("nvme").args(args).output().ok()
}

#[test]
fn keys_of_nvme_cli_are_valid_here_and_ours_there() {
    if nvme(&["version"]).is_none() {
        return block::skipped("nvme-cli is not installed");
    }
    for (kind, args) in [
        ("tls", &["gen-tls-key", "--hmac", "1"][..]),
        ("tls", &["gen-tls-key", "--hmac", "2"]),
        ("chap", &["gen-dhchap-key", "--hmac", "0", "--nqn", HOST]),
        ("chap", &["gen-dhchap-key", "--hmac", "1", "--nqn", HOST]),
        ("chap", &["gen-dhchap-key", "--hmac", "2", "--nqn", HOST]),
        ("chap", &["gen-dhchap-key", "--hmac", "3", "--nqn", HOST]),
    ] {
        let made = nvme(args).expect("it is installed");
        code(&made, 0);
        code(&check(kind, &stdout(&made)), 0);
    }
    for hmac in ["0", "1", "2", "3"] {
        let secret = key(&["chap", "new", "--hmac", hmac]);
        let checked = nvme(&["check-dhchap-key", "--key", &secret]);
        code(&checked.expect("it is installed"), 0);
    }
    for hmac in ["1", "2"] {
        let made = key(&["tls", "new", "--hmac", hmac]);
        // The option's name in old and in new releases.
        let old = ["check-tls-key", "--key", &made];
        let new = ["check-tls-key", "--keydata", &made, "--hostnqn", HOST];
        let new = [&new[..], &["--subsysnqn", SUBSYSTEM]].concat();
        let [old, new] = [nvme(&old), nvme(&new)].map(|output| output.expect("it is installed"));
        assert!(
            old.status.success() || new.status.success(),
            "{}{}",
            stderr(&old),
            stderr(&new)
        );
    }
}
