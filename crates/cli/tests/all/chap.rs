//! DH-HMAC-CHAP of `switchyard serve` and of every command that is a host; each mismatch is named at
//! both ends.

use crate::common::{Folder, Serving, bench, code, json, logging_program, pattern, run, stderr};

const HOST: &str = "nqn.2026-11.io.switchyard:a-host";

/// Makes a secret, and returns its file.
fn secret(folder: &Folder, name: &str, hmac: &str) -> String {
    let path = folder.path(name);
    let new = ["key", "chap", "new", "--hmac", hmac, "--output", &path];
    code(&run(&new), 0);
    path
}

fn serve(folder: &Folder, listen: &str, args: &[&str]) -> (Serving, String) {
    let log = folder.path("log");
    let all = ["--listen", listen, "--ram", "16M", "--cores", "0"];
    let serving = Serving::start_by(logging_program(&log), &[&all, args].concat());
    (serving, log)
}

#[test]
fn every_command_authenticates_with_both_families_and_with_a_proof_of_the_target() {
    let folder = Folder::new();
    let own = secret(&folder, "own", "1");
    let controller = secret(&folder, "controller", "0");
    let secrets = [
        "--chap-secret",
        &*own,
        "--chap-controller-secret",
        &controller,
    ];
    for (listen, chap) in [("127.0.0.1:0", &secrets[..2]), ("[::1]:0", &secrets)] {
        let (serving, log) = serve(&folder, listen, &secrets);
        let address = serving.address();
        code(&run(&[&["discover", address], chap].concat()), 0);
        code(&run(&[&["identify", address], chap].concat()), 0);
        let data = folder.write("data", pattern(1, 1 << 20));
        let copy = folder.path("copy");
        let write = ["write", address, "--input", &data];
        code(&run(&[&write[..], chap].concat()), 0);
        let read = ["read", address, "--length", "1M", "--output", &copy];
        code(&run(&[&read[..], chap].concat()), 0);
        assert!(std::fs::read(&data).unwrap() == std::fs::read(&copy).unwrap());
        let app = "a:rw=randread,bs=4k,depth=8";
        let load = ["--target", address, "--app", app];
        let load = bench(&[&load[..], chap].concat());
        code(&load, 0);
        assert!(json(&load)["apps"][0]["iops"] != 0.0);
        let log = std::fs::read_to_string(log).unwrap();
        assert!(!log.contains("refused"), "{log}");
    }
}

#[test]
fn each_mismatch_is_named_and_no_secret_is_printed() {
    let folder = Folder::new();
    let own = secret(&folder, "own", "1");
    let other = secret(&folder, "other", "1");
    let chap = ["--chap-secret", &*own];
    let wrong_controller = ["--chap-secret", &own, "--chap-controller-secret", &other];
    let cases: [(&[&str], &[&str], &str); 4] = [
        (
            &chap,
            &[],
            "give the secret of this host (--chap-secret FILE)",
        ),
        (&chap, &["--chap-secret", &other], "refused at Reply"),
        (&chap, &wrong_controller, "refused at Reply"),
        (&[], &wrong_controller, "refused at Reply"),
    ];
    for (target, host, expected) in cases {
        let (serving, log) = serve(&folder, "127.0.0.1:0", target);
        let identify = ["identify", serving.address(), "--host-nqn", HOST];
        let output = run(&[&identify[..], host].concat());
        code(&output, 2);
        let error = stderr(&output);
        assert!(error.contains(expected), "{error}");
        let all = error + &std::fs::read_to_string(&log).unwrap();
        for path in [&own, &other] {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(!all.contains(&text[10..40]), "{all}");
        }
    }
    let alone = ["identify", "127.0.0.1:1", "--chap-controller-secret", &own];
    code(&run(&alone), 2);
}
