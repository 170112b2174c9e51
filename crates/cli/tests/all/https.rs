//! The HTTP API over TLS: certificates, tokens with roles, and clients that are none.

use crate::common::{
    Folder, NQN, Serving, code, eventually, logging_program, program, stderr, stdout,
};
use crate::page::{Browser, KNOBS, log_in};
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use testing::Authority;

/// The token of the environment.
const CHANGE: &str = "0123456789abcdef";

/// A token of the file that may read, and its hash.
const READ: &str = "abcdefghijklmnop";
const READ_HASH: &str = "f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf";

/// A target with an API over TLS.
struct Secured {
    folder: Folder,
    authority: Authority,
    serving: Serving,
    api: String,
}

impl Secured {
    /// Starts it with further lines of its configuration.
    fn start(more: &str) -> Self {
        let folder = Folder::new();
        let authority = Authority::new(Path::new(&folder.path("first")));
        authority.issue("server", "server");
        for (from, to) in [
            ("server-cert.pem", "cert.pem"),
            ("server-key.pem", "key.pem"),
        ] {
            let from = authority.path("server").join(from);
            std::fs::copy(from, folder.path(to)).unwrap();
        }
        folder.write("tokens", format!("read {READ_HASH} # prometheus\n"));
        private(&folder.path("tokens"));
        let file = |name: &str| folder.path(name);
        let config = folder.write(
            "target.toml",
            format!(
                "listen = [\"127.0.0.1:0\"]\napi = \"https://127.0.0.1:0\"\ncores = [0]\n\
                 api_certificate = \"{}\"\napi_key = \"{}\"\napi_tokens = \"{}\"\n{more}\n\
                 [devices.disk]\ntype = \"ram\"\nsize = \"1M\"\n\
                 [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
                 namespaces = [{{ nsid = 1, device = \"disk\" }}]\n",
                file("cert.pem"),
                file("key.pem"),
                file("tokens"),
            ),
        );
        let mut command = logging_program(&folder.path("log"));
        command
            .env("SWITCHYARD_API_TOKEN", CHANGE)
            .env("SWITCHYARD_LOG", "info");
        let mut serving = Serving::start_by(command, &["--config", &config]);
        let api = loop {
            if let Some(api) = serving.line().strip_prefix("API at ") {
                break api.to_owned();
            }
        };
        Self {
            folder,
            authority,
            serving,
            api,
        }
    }

    fn port(&self) -> &str {
        self.api.rsplit_once(':').unwrap().1
    }

    fn dial(&self) -> TcpStream {
        TcpStream::connect(self.api.strip_prefix("https://").unwrap()).unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path("log")).unwrap()
    }

    /// Runs a command with a token and the certificate of an authority.
    fn run_by(&self, args: &[&str], token: &str, authority: &Authority) -> Output {
        let ca = authority.path("authority").join("ca-cert.pem");
        let mut command = program();
        command.env("SWITCHYARD_API_TOKEN", token);
        command.args(args).args(["--api", &self.api, "--api-ca"]);
        command.arg(ca).output().unwrap()
    }

    fn run(&self, args: &[&str], token: &str) -> Output {
        self.run_by(args, token, &self.authority)
    }
}

/// Leaves the file to its owner.
fn private(path: &str) {
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn tokens_have_roles_and_certificates_are_checked() {
    let secured = Secured::start("");
    let show = ["switch", "show"];
    let set = ["switch", "set", "prioritisation=off"];
    code(&secured.run(&show, CHANGE), 0);
    code(&secured.run(&set, CHANGE), 0);
    code(&secured.run(&show, READ), 0);
    let refused = |output: &Output, why: &str| {
        code(output, 2);
        assert!(stderr(output).contains(why), "{}", stderr(output));
    };
    let may_read = "this token may read, and PATCH is a change; use a token with the role";
    refused(&secured.run(&set, READ), may_read);
    let unknown = "answers only those who know a token";
    refused(&secured.run(&show, "a-wrong-token-here"), unknown);

    let other = Authority::new(Path::new(&secured.folder.path("other")));
    let output = secured.run_by(&show, CHANGE, &other);
    refused(
        &output,
        "must name 127.0.0.1 and be signed by one of --api-ca",
    );
    let mut without = program();
    without.args(show).args(["--api", &secured.api]);
    refused(&without.output().unwrap(), "name a PEM file with --api-ca");

    // By a name of the certificate, and by one that it does not have.
    for (host, expected) in [("localhost", 0), ("127.0.0.2", 2)] {
        let ca = secured.authority.path("authority").join("ca-cert.pem");
        let api = format!("https://{host}:{}", secured.port());
        let mut command = program();
        command.env("SWITCHYARD_API_TOKEN", READ).args(show);
        let output = command.args(["--api", &api, "--api-ca"]).arg(ca).output();
        code(&output.unwrap(), expected);
    }
    // Only clients with a certificate's name, a token and a role have been served: nothing is shown.
    let log = secured.log();
    for secret in [CHANGE, READ, READ_HASH] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn a_browser_uses_the_page_over_tls() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let secured = Secured::start("");
    browser.open(&format!("{}/", secured.api));
    log_in(&browser, READ, KNOBS);
    let secure = browser.run(
        "return location.protocol === 'https:' && isSecureContext",
        serde_json::json!([]),
    );
    assert_eq!(secure, true);
    assert_eq!(browser.console(), Vec::<String>::new());
}

#[test]
fn another_implementation_of_tls_scrapes_metrics() {
    let secured = Secured::start("");
    let address = format!("127.0.0.1:{}", secured.port());
    let ca = secured.authority.path("authority").join("ca-cert.pem");
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-verify_return_error", "-no_ign_eof"]);
    client.args([
        "-verify_hostname",
        "localhost",
        "-connect",
        &address,
        "-CAfile",
    ]);
    client.arg(ca).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = client.stdin.take().unwrap();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: storage.example\r\nConnection: close\r\n\
         Authorization: Bearer {READ}\r\n\r\n"
    );
    stdin.write_all(request.as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    drop(stdin);
    let metrics = stdout(&output);
    assert!(metrics.starts_with("HTTP/1.1 200 OK"), "{output:?}");
    let expiry = "\nswitchyard_api_certificate_expiry_seconds ";
    let (_, expiry) = metrics.split_once(expiry).expect(&metrics);
    let expiry: f64 = expiry.split_whitespace().next().unwrap().parse().unwrap();
    assert!((1.7e9..4e9).contains(&expiry), "{expiry}");
}

#[test]
fn sighup_reads_certificate_and_tokens_again() {
    let secured = Secured::start("");
    let show = ["switch", "show"];
    let next = Authority::new(Path::new(&secured.folder.path("next")));
    let issued = next.issue("server", "server");
    let replace = |name: &str| {
        let from = issued.join(format!("server-{name}"));
        std::fs::copy(from, secured.folder.path(name)).unwrap();
    };
    let reload = |expected: &str| {
        let before = secured.log().matches(expected).count();
        secured.serving.signal("-HUP");
        eventually(expected, || {
            secured.log().matches(expected).count() > before
        });
    };
    // The key of another certificate: what was in force stays.
    replace("cert.pem");
    reload("stay as they were: api_key: cannot use");
    code(&secured.run(&show, READ), 0);
    replace("key.pem");
    std::fs::set_permissions(
        secured.folder.path("key.pem"),
        Permissions::from_mode(0o640),
    )
    .unwrap();
    reload("lets other users access it; run: chmod 600");
    code(&secured.run(&show, READ), 0);
    private(&secured.folder.path("key.pem"));
    let in_force = "certificate and tokens of the HTTP API are in force";
    reload(in_force);
    code(&secured.run(&show, READ), 2);
    code(&secured.run_by(&show, READ, &next), 0);

    // A trace changes nothing.
    let trace = ["trace", "--seconds", "0.1"];
    code(&secured.run_by(&trace, READ, &next), 1);
    let refused = secured.run_by(&trace, "another-token-0123", &next);
    code(&refused, 2);
    assert!(stderr(&refused).contains("only those who know a token"));

    secured.folder.write("tokens", "read me\n");
    reload("line 1 is no token");
    code(&secured.run_by(&show, READ, &next), 0);
    secured.folder.write("tokens", "# none\n");
    reload(in_force);
    code(&secured.run_by(&show, READ, &next), 2);
    code(&secured.run_by(&show, CHANGE, &next), 0);
}

/// Strangers without a word, with half a handshake, and without TLS.
#[test]
fn clients_that_do_not_finish_the_handshake_hold_no_place() {
    let secured = Secured::start("[api_limits]\nconnections = 4\nrequest_timeout_ms = 3600000\n");
    let begins = [&b""[..], &[22, 3, 1, 2, 0, 1, 0]];
    let mut strangers = Vec::new();
    for begin in begins.iter().cycle().take(16) {
        let mut stranger = secured.dial();
        stranger.write_all(begin).unwrap();
        strangers.push(stranger);
    }
    code(&secured.run(&["switch", "show"], READ), 0);
    let mut plain = secured.dial();
    plain
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    // Whether it hears of the end by an end or by a reset.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let failed = "the HTTP interface: TLS handshake with 127.0.0.1:";
    eventually("the log says it", || secured.log().contains(failed));
}

#[test]
fn a_slow_handshake_ends_after_the_time_for_a_first_request() {
    let secured = Secured::start("[api_limits]\nrequest_timeout_ms = 100\n");
    for begin in [&b""[..], &[22, 3, 1, 2, 0, 1, 0]] {
        let mut slow = secured.dial();
        slow.write_all(begin).unwrap();
        assert!(matches!(slow.read(&mut [0]), Ok(0) | Err(_)));
    }
}

#[test]
fn files_that_cannot_be_used_are_named_at_the_start() {
    let folder = Folder::new();
    let authority = Authority::new(Path::new(&folder.path("authority")));
    let server = authority.issue("server", "server");
    let other = authority.issue("other", "server");
    let file = |folder: &Path, name: &str| folder.join(name).to_str().unwrap().to_owned();
    let certificate = file(&server, "server-cert.pem");
    let key = file(&server, "server-key.pem");
    let open = folder.path("open.pem");
    std::fs::copy(&key, &open).unwrap();
    std::fs::set_permissions(&open, Permissions::from_mode(0o604)).unwrap();
    let tokens = folder.write("tokens", "change secret-secret-secret\n");
    private(&tokens);
    let missing = folder.path("missing.pem");
    let other = file(&other, "server-key.pem");
    for (certificate, key, more, expected) in [
        (&missing, &key, None, "api_certificate: cannot use"),
        (&key, &key, None, "it has no certificate in PEM form"),
        (&certificate, &certificate, None, "run: chmod 600"),
        (&certificate, &other, None, "api_key: cannot use"),
        (&certificate, &open, None, "run: chmod 600"),
        (&certificate, &key, Some(&tokens), "api_tokens: cannot use"),
    ] {
        let mut command = program();
        command.args(["serve", "--listen", "127.0.0.1:0", "--ram", "1M"]);
        command.args(["--api", "https://127.0.0.1:0", "--api-certificate"]);
        command.arg(certificate).arg("--api-key").arg(key);
        command.args(
            more.iter()
                .flat_map(|tokens| ["--api-tokens", tokens.as_str()]),
        );
        let output = command
            .env("SWITCHYARD_API_TOKEN", CHANGE)
            .output()
            .unwrap();
        code(&output, 2);
        let said = stderr(&output);
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("secret-secret"), "{said}");
    }
    // Nobody could use it.
    let mut command = program();
    command.args(["serve", "--listen", "127.0.0.1:0", "--ram", "1M"]);
    command.args([
        "--api",
        "https://127.0.0.1:0",
        "--api-certificate",
        &certificate,
    ]);
    let output = command.args(["--api-key", &key]).output().unwrap();
    code(&output, 2);
    assert!(stderr(&output).contains("there is no token"), "{output:?}");
}
