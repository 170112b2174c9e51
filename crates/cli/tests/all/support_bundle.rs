//! `switchyard support-bundle`: it has what support needs, and none of the target's secrets.

use crate::common::{Folder, NQN, Serving, code, own_address, program, request, run, stderr};
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

const HOST: &str = "nqn.2026-11.io.example:db";
const TOKEN: &str = "a-token-of-the-test-0123456789abcdef";
const PASSWORD: &str = "an-argument-with-a-password-42";
const CHAP: &str = "DHHC-1:00:KioqKioqKioqKioqKioqKioqKioqKioqKioqKioqKiqM5sHn:";

/// Writes a file that only its owner may read.
fn private(folder: &Folder, name: &str, text: &str) -> String {
    let path = folder.write(name, text);
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    path
}

/// Returns the files of an archive by name.
fn unpacked(path: &str) -> BTreeMap<String, String> {
    let file = File::open(path).expect("it was written");
    let mode = file.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let entries = archive.entries().expect("an archive");
    let read = entries.map(|entry| {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a path").display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        let name = name
            .strip_prefix("switchyard-support/")
            .expect("one folder");
        (name.to_owned(), text)
    });
    read.collect()
}

#[track_caller]
fn has_none(files: &BTreeMap<String, String>, secrets: &[String]) {
    for (name, text) in files {
        for secret in secrets {
            // The base64 in a key is secret by itself.
            let parts = secret
                .split([':', '\n', ' '])
                .filter(|part| part.len() >= 16);
            for part in parts {
                assert!(!text.contains(part), "{name} contains {part}");
            }
        }
    }
}

/// Writes a configuration with each kind of secret; returns its path and the secrets.
fn with_secrets(folder: &Folder) -> (String, Vec<String>) {
    let key = |name: &str| {
        let path = folder.path(name);
        code(&run(&["key", "tls", "new", "--output", &path]), 0);
        std::fs::read_to_string(&path).expect("a key")
    };
    let secrets = vec![
        key("hosts.key"),
        key("db.key"),
        "YSBzZWNyZXQga2V5IG9mIHRoaXJ0eS10d28gYnl0ZXM=".to_owned(),
        CHAP.to_owned(),
        PASSWORD.to_owned(),
    ];
    private(folder, "disk.key", &secrets[2]);
    private(folder, "chap", CHAP);
    private(
        folder,
        "command.key",
        "YW5vdGhlciBrZXkgb2YgdGhpcnR5LXR3byBieXRlcyE=",
    );
    let [api, tls, chap, disk, disk_key, second, second_key] = [
        "api.sock",
        "hosts.key",
        "chap",
        "disk",
        "disk.key",
        "second",
        "command.key",
    ]
    .map(|name| folder.path(name));
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\napi = \"unix:{api}\"\ncores = [0]\ntls = \"allowed\"\n\
         tls_key = \"{tls}\"\nchap_secret = \"{chap}\" # {CHAP}\n\
         [devices.disk]\ntype = \"file\"\npath = \"{disk}\"\nsize = \"4M\"\ncreate = true\n\
         crypt = {{ key_file = \"{disk_key}\", create = true }}\n\
         [devices.second]\ntype = \"file\"\npath = \"{second}\"\nsize = \"4M\"\ncreate = true\n\
         [devices.second.crypt]\ncreate = true\n\
         key_command = [\"sh\", \"-c\", \"cat {second_key}\", \"{PASSWORD}\"]\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, device = \"disk\" }}, {{ nsid = 2, device = \"second\" }}]\n\
         [[hosts]]\nnqn = \"{HOST}\"\ntls_keys = [\"db.key\"]\n",
    );
    (folder.write("target.toml", text), secrets)
}

#[test]
fn a_bundle_has_everything_but_secrets() {
    let folder = Folder::new();
    let (config, mut secrets) = with_secrets(&folder);
    let state = folder.path("state.json");
    let mut serving = Serving::start(&["--config", &config, "--state", &state]);
    while !serving.line().starts_with("API at ") {}
    let added = run(&["key", "tls", "new"]);
    secrets.push(String::from_utf8(added.stdout).expect("text"));
    let added = secrets[5].trim();
    let body = format!("{{\"tls_keys\": [\"{added}\"]}}");
    let stream = UnixStream::connect(folder.path("api.sock")).expect("the API");
    let answer = request(stream, "PUT /v1/hosts/nqn.2026-11.io.example:added", &body);
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    let in_state = std::fs::read_to_string(&state).expect("a state");
    assert!(in_state.contains(added), "the state has the key");

    let bundle = folder.path("bundle.tar.gz");
    let arguments = ["--config", &config, "--state", &state, "--profile", "1"];
    let collect = || run(&[&["support-bundle", &bundle], &arguments[..]].concat());
    code(&collect(), 0);
    let files = unpacked(&bundle);
    has_none(&files, &secrets);
    for (name, part) in [
        ("versions.txt", env!("CARGO_PKG_VERSION")),
        ("doctor.txt", "API: unix:"),
        ("configuration.toml", NQN),
        ("state.json", "nqn.2026-11.io.example:added"),
        ("api/stats.json", "uptime_ms"),
        ("api/hosts.json", HOST),
        ("metrics.txt", "switchyard_"),
        ("profile/threads.txt", "target-0"),
        ("profile/stats-1.json", "uptime_ms"),
    ] {
        let text = files.get(name);
        let text = text.unwrap_or_else(|| panic!("{name}: {:?}", files.keys()));
        assert!(text.contains(part), "{name}: {text}");
    }
    // An archive is never replaced.
    let again = collect();
    code(&again, 2);
    assert!(
        stderr(&again).contains("name a new file"),
        "{}",
        stderr(&again)
    );
}

#[test]
fn the_token_of_a_port_is_removed_and_missing_parts_are_named() {
    let folder = Folder::new();
    let api = own_address().replace(":0", ":4421");
    let tokens = private(&folder, "tokens", &format!("read {}\n", "ab".repeat(32)));
    let config = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\napi = \"{api}\"\napi_tokens = \"{tokens}\"\n\
             [devices.disk]\ntype = \"ram\"\nsize = \"1M\"\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nmodel = \"{TOKEN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"disk\" }}]\n"
        ),
    );
    let mut with_token = program();
    with_token.env("SWITCHYARD_API_TOKEN", TOKEN);
    let mut serving = Serving::start_by(with_token, &["--config", &config]);
    while !serving.line().starts_with("API at ") {}
    let bundle = folder.path("bundle.tar.gz");
    let missing = folder.path("no-state.json");
    let arguments = [
        "support-bundle",
        &bundle,
        "--config",
        &config,
        "--state",
        &missing,
    ];
    let output = program()
        .env("SWITCHYARD_API_TOKEN", TOKEN)
        .args(arguments)
        .output()
        .expect("it runs");
    code(&output, 0);
    let files = unpacked(&bundle);
    has_none(&files, &[TOKEN.to_owned(), "ab".repeat(32)]);
    assert!(
        files["api/subsystems.json"].contains("[removed]"),
        "{}",
        files["api/subsystems.json"]
    );
    for part in ["state.json: ", "profile/: no process"] {
        assert!(
            files["missing.txt"].contains(part),
            "{}",
            files["missing.txt"]
        );
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}
