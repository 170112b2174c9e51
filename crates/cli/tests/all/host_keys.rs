//! Keys of hosts by file and by the HTTP API: they are kept, and nothing shows them.

use crate::common::{
    Folder, NQN, Serving, code, eventually, logging_program, request, run, stderr, stdout,
};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

const HOST: &str = "nqn.2026-11.io.example:db";

/// A key of a file, one of the API, and a secret: each with the part that nothing may show.
const FILE_KEY: (&str, &str) = (
    "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
    "VRLbtnN9AQb2WXW3",
);
const SECRET: (&str, &str) = (
    "DHHC-1:00:KioqKioqKioqKioqKioqKioqKioqKioqKioqKioqKiqM5sHn:",
    "KioqKioqKioqKioq",
);

fn mode(path: &str, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

struct Keyed {
    folder: Folder,
    serving: Serving,
}

impl Keyed {
    fn write(folder: &Folder) {
        folder.write("db.key", format!("# of the database\n{}\n", FILE_KEY.0));
        mode(&folder.path("db.key"), 0o600);
        folder.write(
            "target.toml",
            format!(
                "listen = [\"127.0.0.1:0\"]\napi = \"unix:{}\"\ncores = [0]\n\
                 [devices.disk]\ntype = \"ram\"\nsize = \"1M\"\n\
                 [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
                 namespaces = [{{ nsid = 1, device = \"disk\" }}]\n\
                 [[hosts]]\nnqn = \"{HOST}\"\ntls_keys = [\"db.key\"]\n",
                folder.path("api.sock")
            ),
        );
    }

    fn start(folder: Folder) -> Self {
        let (config, state) = (folder.path("target.toml"), folder.path("state.json"));
        let mut program = logging_program(&folder.path("log"));
        program.env("SWITCHYARD_LOG", "trace");
        let args = ["--config", &config, "--state", &state];
        let mut serving = Serving::start_by(program, &args);
        while !serving.line().starts_with("API at ") {}
        Self { folder, serving }
    }

    fn ask(&self, head: &str, body: &str) -> (u16, String) {
        let stream = UnixStream::connect(self.folder.path("api.sock")).unwrap();
        let answer = request(stream, head, body);
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, body.to_owned())
    }

    fn host(&self) -> Value {
        let (status, body) = self.ask(&format!("GET /v1/hosts/{HOST}"), "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Returns all that the target has shown: its log, its command line, and what its API answers.
    fn shown(&self) -> String {
        let api = format!("unix:{}", self.folder.path("api.sock"));
        let command = std::fs::read(format!("/proc/{}/cmdline", self.serving.pid())).unwrap();
        let mut all = String::from_utf8_lossy(&command).into_owned();
        all += &std::fs::read_to_string(self.folder.path("log")).unwrap();
        for args in [
            &["config", "show"][..],
            &["config", "diff"],
            &["top", "--once", "--json"],
        ] {
            let output = run(&[args, &["--api", &api]].concat());
            all += &(stdout(&output) + &stderr(&output));
        }
        for path in [
            "config",
            "config/changes",
            "hosts",
            "stats",
            "controllers",
            "events",
        ] {
            all += &self.ask(&format!("GET /v1/{path}"), "").1;
        }
        all + &self.ask("GET /metrics", "").1
    }
}

#[test]
fn keys_of_files_and_of_the_api_are_kept_and_never_shown() {
    let folder = Folder::new();
    Keyed::write(&folder);
    let keyed = Keyed::start(folder);
    let body = format!(r#"{{"chap_secrets": ["{}"]}}"#, SECRET.0);
    let put = format!("PUT /v1/hosts/{HOST}");
    let (status, answer) = keyed.ask(&put, &body);
    assert_eq!(status, 200, "{answer}");
    let host = keyed.host();
    assert_eq!(host["tls_keys"][0]["origin"], "file");
    assert_eq!(host["tls_keys"][0]["hash"], "SHA-256");
    assert_eq!(host["chap_secrets"][0]["origin"], "api");
    let bad = body.replace("KioqKioq", "KioqKior");
    let (status, refused) = keyed.ask(&put, &bad);
    assert_eq!(status, 422, "{refused}");
    let (status, wrong_type) = keyed.ask(&put, &format!("\"{}\"", SECRET.0));
    assert_eq!(status, 422, "{wrong_type}");
    let all = keyed.shown() + &answer + &refused + &wrong_type;
    for (_, secret) in [FILE_KEY, SECRET] {
        assert!(!all.contains(secret), "{secret} is shown");
    }
    assert!(!all.contains("KioqKior"), "{refused}");

    // The state file alone has it, for its owner alone.
    let state = keyed.folder.path("state.json");
    assert!(std::fs::read_to_string(&state).unwrap().contains(SECRET.1));
    keyed.serving.signal("-KILL");
    let folder = keyed.folder;
    drop(keyed.serving);
    let keyed = Keyed::start(folder);
    let mut again = keyed.host();
    // The key of the file is in force since this process read it.
    again["tls_keys"][0]["since_unix_ms"] = host["tls_keys"][0]["since_unix_ms"].clone();
    assert_eq!(again, host);
    keyed.serving.signal("-KILL");
    let folder = keyed.folder;
    drop(keyed.serving);
    mode(&state, 0o644);
    let refused = run(&[
        "serve",
        "--config",
        &folder.path("target.toml"),
        "--state",
        &state,
    ]);
    code(&refused, 2);
    let said = stderr(&refused);
    assert!(
        said.contains("lets other users use it; run chmod 600 /"),
        "{said}"
    );

    mode(&state, 0o600);
    let keyed = Keyed::start(folder);
    let (status, _) = keyed.ask(&format!("DELETE /v1/hosts/{HOST}"), "");
    assert_eq!(status, 204);
    assert_eq!(keyed.host()["chap_secrets"].as_array().unwrap().len(), 0);
    let (status, _) = keyed.ask(&format!("DELETE /v1/hosts/{HOST}"), "");
    assert_eq!(status, 404);
}

#[test]
fn serve_requires_the_secret_of_its_file() {
    let folder = Folder::new();
    let file = folder.write("hosts.chap", SECRET.0);
    let args = ["--listen", "127.0.0.1:0", "--ram", "1M", "--cores", "0"];
    let secret = ["--chap-secret", &file, "--chap-controller-secret", &file];
    mode(&file, 0o644);
    let refused = run(&[&["serve"], &args[..], &secret].concat());
    code(&refused, 2);
    assert!(
        stderr(&refused).contains("chmod 600"),
        "{}",
        stderr(&refused)
    );
    mode(&file, 0o600);
    let serving = Serving::start(&[&args[..], &secret].concat());
    let address = serving.address().parse().unwrap();
    let refused = testing::Client::admin(address, NQN, HOST).unwrap_err();
    let status = "Authentication Required";
    assert!(refused.to_string().contains(status), "{refused}");
}

#[test]
fn sighup_reads_key_files_again_and_names_those_that_it_cannot_use() {
    let folder = Folder::new();
    Keyed::write(&folder);
    let keyed = Keyed::start(folder);
    let log = || std::fs::read_to_string(keyed.folder.path("log")).unwrap();
    let key = keyed.folder.path("db.key");
    mode(&key, 0o640);
    keyed.serving.signal("-HUP");
    eventually("the file is named", || log().contains("db.key"));
    assert!(log().contains("chmod 600"), "{}", log());
    assert_eq!(keyed.host()["tls_keys"].as_array().unwrap().len(), 1);
    mode(&key, 0o600);
    keyed
        .folder
        .write("db.key", format!("{0}\n{0}\n", FILE_KEY.0));
    keyed.serving.signal("-HUP");
    eventually("the other key", || {
        keyed.host()["tls_keys"].as_array().unwrap().len() == 2
    });
    assert!(!log().contains(FILE_KEY.1), "{}", log());
}
