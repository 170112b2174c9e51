//! TLS of `switchyard serve` and of every command that is a host, with our host, OpenSSL, and each
//! mismatch named at both ends.

use crate::common::{
    Folder, NQN, Serving, bench, code, json, logging_program, run, stderr, stdout,
};
use secure::psk::offers;
use secure::{Hash, Psk, TlsKey};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

const HOST: &str = "nqn.2026-11.io.switchyard:a-host";

fn a_key(byte: u8) -> TlsKey {
    TlsKey::new(Some(Hash::Sha256), &[byte; 32]).expect("32 bytes")
}

fn key_file(folder: &Folder, name: &str, key: &TlsKey) -> String {
    let path = folder.write(name, key.to_text().as_bytes());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    path
}

fn serve(folder: &Folder, listen: &str, args: &[&str]) -> (Serving, String) {
    let log = folder.path("log");
    let all = ["--listen", listen, "--ram", "16M", "--cores", "0"];
    let serving = Serving::start_by(logging_program(&log), &[&all, args].concat());
    (serving, log)
}

#[test]
fn every_command_works_over_tls_with_both_families() {
    let folder = Folder::new();
    let key = key_file(&folder, "key", &a_key(7));
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let (serving, log) = serve(&folder, listen, &["--tls-key", &key]);
        let address = serving.address();
        let tls = ["--tls-key", &*key];
        let found = run(&[&["discover", address, "--json"], &tls[..]].concat());
        code(&found, 0);
        let entry = &json(&found)["entries"][0];
        assert_eq!(entry["secure_channel"], true, "{entry}");
        code(&run(&[&["identify", address], &tls[..]].concat()), 0);
        let data = folder.write("data", crate::common::pattern(1, 1 << 20));
        let copy = folder.path("copy");
        code(
            &run(&[&["write", address, "--input", &data], &tls[..]].concat()),
            0,
        );
        let read = ["read", address, "--length", "1M", "--output", &copy];
        code(&run(&[&read[..], &tls].concat()), 0);
        assert!(std::fs::read(&data).unwrap() == std::fs::read(&copy).unwrap());
        let load = [
            "--target",
            address,
            "--app",
            "a:rw=randread,bs=128k,depth=8",
        ];
        let load = bench(&[&load[..], &tls].concat());
        code(&load, 0);
        let log = std::fs::read_to_string(log).unwrap();
        assert!(!log.contains("refused"), "{log}");
    }
}

#[test]
fn a_listener_has_its_own_use_of_tls() {
    let folder = Folder::new();
    let key = key_file(&folder, "key", &a_key(7));
    let config = format!(
        r#"
        listen = ["127.0.0.1:0", "[::1]:0 tls=required"]
        cores = [0]
        tls_key = "{key}"
        [devices.ram]
        type = "ram"
        size = "16M"
        [[subsystems]]
        nqn = "{NQN}"
        allow_any_host = true
        namespaces = [{{ nsid = 1, device = "ram" }}]
        "#
    );
    let config = folder.write("config.toml", config);
    let log = folder.path("log");
    let serving = Serving::start_by(logging_program(&log), &["--config", &config]);
    let first = serving.address();
    let identify =
        |address: &str, tls: &[&str]| run(&[&["identify", address, "--nqn", NQN], tls].concat());
    code(&identify(first, &[]), 0);
    code(&identify(first, &["--tls-key", &key]), 2);
    let found = json(&run(&["discover", first, "--json"]));
    let entries = found["entries"].as_array().expect("a list").iter();
    let secure = entries
        .clone()
        .filter(|entry| entry["secure_channel"] == true);
    let (all, secure): (Vec<_>, Vec<_>) = (entries.collect(), secure.collect());
    assert_eq!((all.len(), secure.len()), (4, 2), "{all:?}");
    let text = |name: &str| secure[0][name].as_str().expect("a text");
    let second = format!("[{}]:{}", text("address"), text("service"));
    code(&identify(&second, &[]), 2);
    code(&identify(&second, &["--tls-key", &key]), 0);
}

/// The last line of a log with this text.
fn logged(log: &str, text: &str) -> String {
    let mut found = String::new();
    crate::common::eventually("it is logged", || {
        let log = std::fs::read_to_string(log).unwrap();
        let line = log.lines().rfind(|line| line.contains(text));
        found = line.unwrap_or_default().to_owned();
        !found.is_empty()
    });
    found
}

fn with(key: &str) -> Vec<&str> {
    vec!["--tls-key", key]
}

/// The log of a target has a limited number of lines for each peer, so each mismatch has its target.
#[test]
fn each_mismatch_is_named_at_both_ends_and_no_key_is_printed() {
    let folder = Folder::new();
    let (key, other) = (a_key(7), a_key(8));
    let longer = TlsKey::new(Some(Hash::Sha384), &[7; 48]).expect("48 bytes");
    let right = key_file(&folder, "right", &key);
    let wrong = key_file(&folder, "wrong", &other);
    let longer = key_file(&folder, "longer", &longer);
    let cases = [
        (
            with(&right),
            with(&wrong),
            "another key for the identity NVMe0R01",
            "wrong key for identity NVMe1R01",
        ),
        (
            with(&right),
            with(&longer),
            "does not know the identity NVMe1R02",
            "the keys of this host are for SHA-256",
        ),
        (
            with(&right),
            vec![],
            "if it requires TLS, give a key",
            "the host does not use TLS, which this address requires",
        ),
        (
            vec![],
            with(&right),
            "the alert handshake_failure",
            "the host uses TLS, and none is configured",
        ),
    ];
    for (target, host, near, far) in cases {
        let (serving, log) = serve(&folder, "127.0.0.1:0", &target);
        let identify = ["identify", serving.address(), "--host-nqn", HOST];
        let output = run(&[&identify[..], &host].concat());
        code(&output, 2);
        let text = stderr(&output);
        assert!(text.contains(near), "{text}");
        logged(&log, far);
        let all = text + &std::fs::read_to_string(&log).unwrap();
        for secret in [&key, &other] {
            assert!(!all.contains(&**secret.to_text()), "{all}");
            for psk in offers(secret, HOST, NQN)
                .iter()
                .filter(|psk| psk.version == 1)
            {
                let digest = psk.identity.rsplit(' ').next().unwrap();
                assert!(!all.contains(digest), "{all}");
            }
        }
    }
    let allowed = ["--tls", "allowed", "--tls-key", &right];
    let (serving, _) = serve(&folder, "127.0.0.1:0", &allowed);
    code(&run(&["identify", serving.address()]), 0);
    let identify = ["identify", serving.address(), "--tls-key", &right];
    code(&run(&identify), 0);
}

#[test]
fn a_key_file_that_others_may_read_is_refused() {
    let folder = Folder::new();
    let key = key_file(&folder, "key", &a_key(7));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    for args in [
        ["serve", "--listen", "127.0.0.1:0", "--tls-key", &key],
        ["identify", "127.0.0.1:1", "--host-nqn", HOST, "--tls-key"],
    ] {
        let mut args = args.to_vec();
        if args[0] == "identify" {
            args.push(&key);
        }
        let output = run(&args);
        code(&output, 2);
        assert!(stderr(&output).contains("chmod 600"), "{}", stderr(&output));
    }
}

fn hex(psk: &Psk) -> String {
    let digits = psk.secret.iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// OpenSSL as the host: an implementation of TLS that is not ours. It sends an ICReq, and receives
/// an ICResp.
#[test]
fn openssl_as_a_host_is_served() {
    let folder = Folder::new();
    let key = a_key(7);
    let file = key_file(&folder, "key", &key);
    let (serving, log) = serve(&folder, "127.0.0.1:0", &["--tls-key", &file]);
    for psk in offers(&key, HOST, NQN) {
        let secret = hex(&psk);
        let mut client = Command::new("openssl")
            .args([
                "s_client",
                "-connect",
                serving.address(),
                "-tls1_3",
                "-quiet",
            ])
            .args(["-ciphersuites", "TLS_AES_128_GCM_SHA256", "-psk", &secret])
            .args(["-psk_identity", &psk.identity])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl is installed");
        let mut request = [0; 128];
        request[..8].copy_from_slice(&[0, 0, 128, 0, 128, 0, 0, 0]);
        let mut stdin = client.stdin.take().expect("asked for");
        stdin.write_all(&request).expect("it reads");
        let mut response = [0; 128];
        let mut output = client.stdout.take().expect("asked for");
        let received = output.read_exact(&mut response);
        let _ = client.kill();
        let result = client.wait_with_output().expect("it ends");
        let log = std::fs::read_to_string(&log).unwrap();
        received.unwrap_or_else(|error| panic!("{error}: {}{log}", stderr(&result)));
        assert_eq!(
            response[..8],
            [1, 0, 128, 0, 128, 0, 0, 0],
            "{}",
            stdout(&result)
        );
    }
}

/// OpenSSL as a server, which is no NVMe/TCP target: it sends zeroes after the handshake.
struct ForeignServer {
    child: Child,
    address: String,
}

impl ForeignServer {
    fn start(args: &[&str]) -> Self {
        let zeroes = std::fs::File::open("/dev/zero").expect("it is there");
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-tls1_3"])
            .args(args)
            .stdin(zeroes)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        let output = BufReader::new(child.stdout.take().expect("asked for"));
        let mut lines = output.lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix("ACCEPT ")?.to_owned()));
        // It writes to its output until its end.
        std::thread::spawn(move || lines.count());
        let address = address.expect("it listens");
        Self { child, address }
    }
}

impl Drop for ForeignServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn our_host_names_what_openssl_as_a_server_is() {
    let folder = Folder::new();
    let key = a_key(7);
    let file = key_file(&folder, "key", &key);
    let (private, certificate) = (folder.path("private"), folder.path("certificate"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-nodes",
            "-subj",
            "/CN=target",
        ])
        .args(["-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-keyout", &private, "-out", &certificate])
        .output()
        .expect("openssl is installed");
    code(&made, 0);
    let certified = ["-cert", &certificate, "-key", &private];
    for psk in offers(&key, HOST, NQN) {
        let secret = hex(&psk);
        let knows = ["-psk", &secret, "-psk_identity", &psk.identity];
        for (args, error) in [
            ([&certified[..], &knows].concat(), "protocol error"),
            ([&["-nocert"][..], &knows].concat(), "protocol error"),
            (certified.to_vec(), "a certificate instead"),
            (vec!["-nocert"], "refused the TLS handshake"),
        ] {
            let server = ForeignServer::start(&args);
            let identify = ["identify", &server.address, "--host-nqn", HOST];
            let output = run(&[&identify[..], &with(&file)].concat());
            code(&output, 2);
            let text = stderr(&output);
            assert!(text.contains(error), "{args:?}: {text}");
        }
    }
}
