//! `switchyard serve`: its output, its errors, its changes, and its end.

use crate::common;
use crate::common::{
    Folder, NQN, Serving, code, eventually, json, logging_program, request, run, run_with_input,
    stderr, stdout,
};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

#[test]
fn says_what_it_serves_and_drains_on_sigterm_and_sigint() {
    for signal in ["-TERM", "-INT"] {
        let mut serving = Serving::start(&[
            "--listen",
            "127.0.0.1:0",
            "--null",
            "1G",
            "--ram",
            "8M",
            "--flash",
            "A/8:8M",
            "--block-size",
            "512",
        ]);
        assert_eq!(serving.line(), format!("subsystem {NQN} for any host"));
        // In the order of the command line.
        assert!(
            serving
                .line()
                .contains("namespace 1: null1, 1.00 GiB in 512-byte blocks")
        );
        assert!(serving.line().contains("namespace 2: ram2"));
        assert!(serving.line().contains("namespace 3: flash3, 8.00 MiB"));
        serving.signal(signal);
        let (code, errors) = serving.end();
        assert_eq!(code, Some(0), "{errors}");
    }
}

#[test]
fn a_json_line_says_the_same() {
    let mut child = common::program()
        .args(["serve", "--listen", "127.0.0.1:0", "--ram", "8M", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(
        value["listening"][0]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    assert_eq!(value["subsystems"][0]["nqn"], NQN);
    assert_eq!(value["subsystems"][0]["namespaces"][0]["bytes"], 8 << 20);
}

#[test]
fn ends_with_its_standard_input_where_that_is_asked_for() {
    let mut child = common::program()
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--ram",
            "8M",
            "--until-stdin-ends",
        ])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut String::new()).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_busy_port_a_missing_file_and_a_foreign_address_say_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["serve", "--listen", &address, "--ram", "8M"]);
    code(&output, 2);
    assert!(stderr(&output).contains(&address), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("use another port"),
        "{}",
        stderr(&output)
    );

    let output = run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--file",
        "/nowhere/disk.img",
    ]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("/nowhere/disk.img"),
        "{}",
        stderr(&output)
    );

    let output = run(&["serve", "--listen", "0.0.0.0:0"]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("allowed_hosts"),
        "{}",
        stderr(&output)
    );

    let output = run(&["serve", "--listen", "127.0.0.1"]);
    code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("use, for example, 127.0.0.1:4420"), "{said}");

    let output = run(&["serve", "--listen", "127.0.0.1:0", "--cores", "1000"]);
    code(&output, 2);
    assert!(stderr(&output).contains("CPU 1000"), "{}", stderr(&output));
}

#[test]
fn a_bad_configuration_is_named_by_file_line_and_key() {
    let folder = Folder::new();
    let path = folder.write("bad.toml", "listen = [\"127.0.0.1:0\"]\npol = \"auto\"\n");
    let output = run(&["serve", "--config", &path]);
    code(&output, 2);
    let text = stderr(&output);
    assert!(
        text.contains(&path) && text.contains('2') && text.contains("pol"),
        "{text}"
    );
    assert!(text.contains("poll"), "it says what would be right: {text}");

    let output = run(&["serve", "--config", &folder.path("missing.toml")]);
    code(&output, 2);
    assert!(stderr(&output).contains("missing.toml"));

    let output = run(&["serve", "--config", &path, "--ram", "1G"]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("cannot be used with"),
        "{}",
        stderr(&output)
    );
}

/// A configuration with these namespaces, each on its own memory.
fn configuration(sizes: &[&str], extra: &str) -> String {
    let mut text = format!("listen = [\"127.0.0.1:0\"]\n{extra}\n");
    for (index, size) in sizes.iter().enumerate() {
        text += &format!("[devices.d{index}]\ntype = \"ram\"\nsize = \"{size}\"\n");
    }
    text += "[[subsystems]]\nnqn = \"nqn.2026-11.io.example:disks\"\nallow_any_host = true\n";
    for index in 0..sizes.len() {
        let nsid = index + 1;
        text += &format!("[[subsystems.namespaces]]\nnsid = {nsid}\ndevice = \"d{index}\"\n");
    }
    text
}

fn namespaces(address: &str) -> Vec<(u64, u64)> {
    let nqn = "nqn.2026-11.io.example:disks";
    let output = run(&["identify", address, "--nqn", nqn, "--json"]);
    code(&output, 0);
    let value = json(&output);
    let all = value["namespaces"].as_array().unwrap();
    all.iter()
        .map(|n| (n["nsid"].as_u64().unwrap(), n["bytes"].as_u64().unwrap()))
        .collect()
}

#[test]
fn sighup_applies_the_changed_file() {
    let folder = Folder::new();
    let path = folder.write("s.toml", configuration(&["8M"], ""));
    let serving = Serving::start(&["--config", &path]);
    assert_eq!(namespaces(serving.address()), [(1, 8 << 20)]);
    folder.write("s.toml", configuration(&["8M", "4M"], ""));
    serving.signal("-HUP");
    eventually("the second namespace appears", || {
        namespaces(serving.address()) == [(1, 8 << 20), (2, 4 << 20)]
    });
    // A bad file changes nothing, and does not end the process.
    folder.write("s.toml", "nonsense");
    serving.signal("-HUP");
    folder.write("s.toml", configuration(&["8M", "4M", "2M"], ""));
    serving.signal("-HUP");
    eventually("the third namespace appears", || {
        namespaces(serving.address()).len() == 3
    });
    serving.signal("-TERM");
    let (code, errors) = serving.end();
    assert_eq!(code, Some(0), "{errors}");
}

/// Regression: the old device still held the file's lock. Hosts lost their namespace for a while,
/// and the new name did not take effect, although a new name is the documented way to change a
/// device.
#[test]
fn a_file_goes_from_a_device_to_one_of_another_name() {
    let folder = Folder::new();
    let disk = folder.write("disk", vec![0; 1 << 20]);
    let api = format!("unix:{}", folder.path("api.sock"));
    let extra = format!(
        "api = \"{api}\"\ndevice_folders = [\"{}\"]",
        folder.path("")
    );
    let named = |name: &str, more: &str| {
        let device =
            format!("[devices.{name}]\ntype = \"file\"\npath = \"{disk}\"\n{more}\n[[subsystems]]");
        let over = format!("[[subsystems.namespaces]]\nnsid = 1\ndevice = \"{name}\"\n");
        configuration(&[], &extra).replace("[[subsystems]]", &device) + &over
    };
    let path = folder.write("s.toml", named("a", ""));
    let mut serving = Serving::start(&["--config", &path]);
    while !serving.line().starts_with("API at ") {}
    let address = serving.address();
    let disks = [address, "--nqn", "nqn.2026-11.io.example:disks"];
    let cached = "io_path = \"poll\"\ncache = \"1M\"";
    let write = |byte: u8| {
        code(
            &run_with_input(&[&["write"], &disks[..]].concat(), &[byte; 4096]),
            0,
        )
    };
    let read = || run(&[&["read"], &disks[..], &["--length", "4K"]].concat()).stdout;
    write(9);
    folder.write("s.toml", named("d", ""));
    serving.signal("-HUP");
    eventually("the file's device is in force", || {
        let shown = run(&["config", "show", "--api", &api, "--json"]);
        json(&shown)["subsystems"][0]["namespaces"][0]["device"] == "d"
    });
    assert_eq!(read(), [9; 4096]);
    for (byte, (name, more)) in (1..).zip([("b", cached), ("c", "verify = true"), ("b", cached)]) {
        write(byte);
        let path = folder.write("t.toml", named(name, more));
        code(&run(&["config", "apply", &path, "--api", &api]), 0);
        assert_eq!(read(), [byte; 4096], "over {name}");
    }
}

#[test]
fn only_allowed_hosts_see_and_use_a_subsystem() {
    let folder = Folder::new();
    let friend = "nqn.2026-11.io.example:friend";
    let text = configuration(&["8M"], "").replace(
        "allow_any_host = true",
        &format!("allowed_hosts = [\"{friend}\"]"),
    );
    let serving = Serving::start(&["--config", &folder.write("s.toml", text)]);
    let address = serving.address();
    code(&run(&["discover", address, "--host-nqn", friend]), 0);
    let stranger = run(&["discover", address]);
    code(&stranger, 1);
    assert!(
        stderr(&stranger).contains("no subsystem for host"),
        "{}",
        stderr(&stranger)
    );
    let nqn = "nqn.2026-11.io.example:disks";
    code(
        &run(&["identify", address, "--nqn", nqn, "--host-nqn", friend]),
        0,
    );
    let stranger = run(&["identify", address, "--nqn", nqn]);
    code(&stranger, 2);
    assert!(
        stderr(&stranger).contains("allow this host NQN"),
        "{}",
        stderr(&stranger)
    );
}

/// Regression: the host received the error of a host that is not allowed, although it was allowed,
/// and nothing was logged.
#[test]
fn a_host_outside_of_its_tenants_networks_is_told_of_them_and_logged() {
    let folder = Folder::new();
    let host = "nqn.2026-11.io.example:tenant";
    let tenant =
        format!("[[tenants]]\nname = \"t\"\nhosts = [\"{host}\"]\nnetworks = [\"192.0.2.0/24\"]\n");
    let path = folder.write("s.toml", configuration(&["8M"], "") + &tenant);
    let serving = Serving::start(&["--config", &path]);
    let nqn = "nqn.2026-11.io.example:disks";
    let address = serving.address().to_owned();
    let refused = run(&["identify", &address, "--nqn", nqn, "--host-nqn", host]);
    code(&refused, 2);
    let said = stderr(&refused);
    assert!(said.contains("the networks of its tenant"), "{said}");
    serving.signal("-TERM");
    let (code, errors) = serving.end();
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("outside the networks"), "{errors}");
    assert!(errors.contains(host), "{errors}");
}

/// Regression: the second problem was logged as a line without a time and a level.
#[test]
fn each_problem_of_a_file_is_a_line_of_the_log() {
    let folder = Folder::new();
    let path = folder.write("s.toml", configuration(&["8M"], ""));
    let log = folder.path("log");
    let serving = Serving::start_by(logging_program(&log), &["--config", &path]);
    folder.write("s.toml", configuration(&["8M"], "one = 1\ntwo = 2"));
    serving.signal("-HUP");
    for key in ["one", "two"] {
        let key = format!(" {key}: is not a known key");
        let mut found = String::new();
        eventually("it is logged", || {
            let text = std::fs::read_to_string(&log).unwrap();
            let mut lines = text.lines();
            found = lines
                .find(|line| line.contains(&key))
                .unwrap_or_default()
                .to_owned();
            !found.is_empty()
        });
        assert!(found.contains(" ERROR "), "{found}");
    }
}

#[test]
fn the_interface_on_a_unix_socket_shows_metrics_and_changes_a_running_target() {
    let folder = Folder::new();
    let socket = folder.path("api.sock");
    let mut serving = Serving::start(&[
        "--listen",
        "127.0.0.1:0",
        "--ram",
        "16M",
        "--api",
        &format!("unix:{socket}"),
    ]);
    let address = serving.address().to_owned();
    code(
        &run(&[
            "read",
            &address,
            "--length",
            "1M",
            "--output",
            &folder.path("out"),
        ]),
        0,
    );
    let ask = |head: &str, body: &str| {
        request(
            UnixStream::connect(&socket).expect("the socket is there"),
            head,
            body,
        )
    };
    eventually("the reads are counted", || {
        let metrics = ask("GET /metrics", "");
        assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
        let counted = |line: &str| {
            line.starts_with("switchyard_namespace_")
                && line.contains("read")
                && !line.ends_with(" 0")
        };
        metrics.lines().any(counted)
    });
    let stopped = ask("GET /nothing", "");
    assert!(stopped.starts_with("HTTP/1.1 404"), "{stopped}");
    let device = r#"{"name":"extra","device":{"type":"ram","size":"4M"}}"#;
    let added = ask("POST /v1/devices", device);
    assert!(added.starts_with("HTTP/1.1 20"), "{added}");
    let path = format!("POST /v1/subsystems/{NQN}/namespaces");
    let added = ask(&path, r#"{"nsid":2,"device":"extra"}"#);
    assert!(added.starts_with("HTTP/1.1 20"), "{added}");
    let output = run(&["identify", &address, "--nsid", "2", "--json"]);
    code(&output, 0);
    assert_eq!(json(&output)["namespaces"][0]["bytes"], 4 << 20);
    let path = format!("PATCH /v1/subsystems/{NQN}/namespaces/2");
    let resized = ask(&path, r#"{"size":"1M"}"#);
    assert!(resized.starts_with("HTTP/1.1 20"), "{resized}");
    let output = run(&["identify", &address, "--nsid", "2", "--json"]);
    assert_eq!(json(&output)["namespaces"][0]["bytes"], 1 << 20);
    let resized = ask(&path, r#"{"size":"8M"}"#);
    assert!(
        resized.starts_with("HTTP/1.1 20"),
        "its device grows: {resized}"
    );
    let output = run(&["identify", &address, "--nsid", "2", "--json"]);
    assert_eq!(json(&output)["namespaces"][0]["bytes"], 8 << 20);
    let removed = ask(&format!("DELETE /v1/subsystems/{NQN}/namespaces/2"), "");
    assert!(removed.starts_with("HTTP/1.1 20"), "{removed}");
    code(&run(&["identify", &address, "--nsid", "2"]), 1);
    assert!((0..3).any(|_| serving.line().contains("API at unix:")));
}

#[test]
fn the_interface_on_a_port_of_this_machine_answers() {
    let args = ["--listen", "127.0.0.1:0", "--ram", "8M"];
    let args = [&args[..], &["--api", "127.0.0.1:0"]].concat();
    let open = run(&[&["serve"], &args[..]].concat());
    code(&open, 2);
    let said = stderr(&open);
    assert!(said.contains("SWITCHYARD_API_TOKEN"), "{said}");
    let folder = Folder::new();
    let mut without = common::program();
    without.args(["serve"]).args(&args);
    without.env("SWITCHYARD_API_TOKEN_FILE", folder.path("absent"));
    let without = without.output().expect("the program runs");
    code(&without, 2);
    let said = stderr(&without);
    assert!(said.contains("name a file with the token"), "{said}");
    let token = "a-token-of-a-test";
    let file = folder.write("token", format!("{token}\n"));
    let mut program = common::program();
    program.env("SWITCHYARD_API_TOKEN_FILE", file);
    let mut serving = Serving::start_by(program, &args);
    let line = (0..3)
        .map(|_| serving.line())
        .find(|line| line.starts_with("API at "));
    let line = line.expect("it says where the API is");
    let address = line.strip_prefix("API at ").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let switch = |token: &str| {
        let mut command = common::program();
        command.env("SWITCHYARD_API_TOKEN", token);
        let args = ["switch", "show", "--api", address];
        command.args(args).output().unwrap()
    };
    code(&switch(token), 0);
    let refused = switch("another-token-of-it");
    code(&refused, 2);
    assert!(stderr(&refused).contains("token"), "{}", stderr(&refused));

    let output = run(&["serve", "--listen", "127.0.0.1:0", "--api", "0.0.0.0:1"]);
    code(&output, 2);
    assert!(stderr(&output).contains("loopback"), "{}", stderr(&output));
}

#[test]
fn arguments_that_make_no_sense_exit_with_2_and_help_with_0() {
    for args in [
        &["serve", "--ram", "much"][..],
        &["serve", "--block-size", "1000"],
        &["serve", "--cores", "3-1"],
        &["serve", "--poll", "sometimes"],
        &["serve", "--log", "=[", "--ram", "8M"],
        &["nonsense"],
        &[],
    ] {
        code(&run(args), 2);
    }
    let help = run(&["serve", "--help"]);
    code(&help, 0);
    for told in [
        "Examples:",
        "Exit codes:",
        "its cache could not be written back",
    ] {
        let help = stdout(&help)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(help.contains(told), "{told}: {help}");
    }
    code(&run(&["--version"]), 0);
}

#[test]
fn a_limit_of_the_file_holds_hosts_back_and_is_counted() {
    let folder = Folder::new();
    let socket = folder.path("api.sock");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\napi = \"unix:{socket}\"\n\
         [limits]\nsend_lists = 64\nextent_tables = 128\ndiscovery_controllers = 1\ncontrollers = 2\n\
         connect_timeout_ms = 100\n"
    );
    let file = folder.write("target.toml", text);
    let serving = Serving::start(&["--config", &file]);
    let metrics = || {
        let stream = UnixStream::connect(&socket).expect("the socket is there");
        request(stream, "GET /metrics", "")
    };
    let shows = |line: &str| {
        eventually(line, || metrics().lines().any(|other| other == line));
    };
    shows("switchyard_limit_max{limit=\"controllers\"} 2");
    // A host that sends nothing.
    let silent = TcpStream::connect(serving.address()).expect("it listens");
    shows("switchyard_limited_total{limit=\"connect_timeout_ms\"} 1");
    drop(silent);
    let first = metrics();
    for (limit, most) in [("send_lists", " 64"), ("extent_tables", " 128")] {
        let start = format!("switchyard_limit_max{{limit=\"{limit}\",core=");
        let line = first.lines().find(|line| line.starts_with(&start));
        assert!(line.is_some_and(|line| line.ends_with(most)), "{first}");
    }
}
