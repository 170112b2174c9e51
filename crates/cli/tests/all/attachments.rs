//! `switchyard attach --config`: several front ends in one process, their HTTP interface, and
//! changes of the file.

use crate::common::attaching::{Attaching, fuse, have_fuse, nbd, nbd_client, vhost, write};
use crate::common::{Folder, Serving, bench, code, eventually, json, program, run, stderr, stdout};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// An NBD server, files and a virtual machine's disk, all over memory.
fn three_kinds(folder: &Folder) -> Attaching {
    let ram = "ram = \"16M\"";
    let vm = vhost(folder, "vm", "ram = \"8M\"");
    let file = [nbd(folder, "disk", ram), fuse(folder, ram), vm].concat();
    Attaching::start(folder, &file)
}

/// The sum of a counter over the classes.
fn sum(attachment: &Value, counter: &str) -> u64 {
    let classes = attachment["classes"].as_array().unwrap().iter();
    classes.map(|class| class[counter].as_u64().unwrap()).sum()
}

#[test]
fn one_process_serves_several_kinds() {
    if !have_fuse() {
        return;
    }
    let folder = Folder::new();
    let mut attaching = three_kinds(&folder);
    let (disk, file, vm) = (
        folder.path("disk.sock"),
        folder.path("files/1"),
        folder.path("vm.sock"),
    );
    let ready = &attaching.ready;
    assert!(
        ready[0].starts_with("ready: disk: nbd+unix:///?socket="),
        "{ready:?}"
    );
    assert_eq!(ready[1], format!("ready: files: {file}, 16.00 MiB"));
    assert_eq!(ready[2], format!("ready: vm: {vm}, 8.00 MiB"));
    attaching.signal("-TERM");
    assert_eq!(attaching.end(), Some(0));
    for path in [disk, file, vm, folder.path("api.sock")] {
        assert!(!std::path::Path::new(&path).exists(), "{path}");
    }
}

#[test]
fn the_interface_has_the_limits_of_its_file_and_counts_what_they_hold_back() {
    let folder = Folder::new();
    let limits = "[api_limits]\nrequest_timeout_ms = 100\n";
    let file = [limits, &nbd(&folder, "disk", "ram = \"16M\"")].concat();
    let attaching = Attaching::start(&folder, &file);
    let mut silent = UnixStream::connect(folder.path("api.sock")).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    // The request itself may reach the limit too. It is counted if the machine holds it back for
    // long enough.
    let mut held_back = 1;
    let metrics = loop {
        match attaching.ask("/metrics") {
            Ok(metrics) => break metrics,
            Err(_) => held_back += 1,
        }
        assert!(held_back < 100, "no question is answered");
    };
    for line in [
        &format!("switchyard_limited_total{{limit=\"api_request_timeout_ms\"}} {held_back}"),
        "switchyard_limited_total{limit=\"api_idle_timeout_ms\"} 0",
        "switchyard_limit_max{limit=\"api_connections\"} 64",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}: {metrics}");
    }
}

#[test]
fn attachments_are_described_with_their_counters() {
    if !have_fuse() {
        return;
    }
    let folder = Folder::new();
    let attaching = three_kinds(&folder);
    let path = folder.path("files/1");
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[7; 8192], 4096).unwrap();
    drop(file);
    let device = format!("vhost:{}", folder.path("vm.sock"));
    let app = "a:rw=randread,bs=4k,depth=4";
    code(&bench(&["--device", &device, "--app", app]), 0);

    assert_eq!(attaching.names(), ["disk", "files", "vm"]);
    let files = attaching.show("files");
    assert_eq!(files["kind"], "fuse", "{files}");
    assert_eq!(files["at"][0], path.as_str(), "{files}");
    assert_eq!(files["device"], "ram 16M", "{files}");
    assert_eq!(files["class"], "auto", "{files}");
    assert_eq!(files["state"], "local", "{files}");
    assert_eq!(files["size_bytes"], 16 << 20, "{files}");
    assert_eq!(sum(&files, "written_bytes"), 8192, "{files}");
    let vm = attaching.show("vm");
    assert!(sum(&vm, "reads") > 0, "{vm}");
    let table = stdout(&attaching.run(&["attachments"]));
    assert!(
        table.lines().count() == 4 && table.contains("ram 16M"),
        "{table}"
    );
    let top = json(&attaching.run(&["top", "--json", "--interval", "0.1"]));
    assert_eq!(top["attachments"][0]["attachment"], "disk", "{top}");
}

#[test]
fn the_interface_has_metrics_and_health() {
    let folder = Folder::new();
    let attaching = Attaching::start(&folder, &nbd(&folder, "disk", "ram = \"16M\""));
    let metrics = attaching.get("/metrics");
    for line in [
        "switchyard_attachment_connected{attachment=\"disk\",kind=\"nbd\"} 1",
        "switchyard_attachment_size_bytes{attachment=\"disk\",kind=\"nbd\"} 16777216",
        "switchyard_attachment_errors_total{attachment=\"disk\",kind=\"nbd\",class=\"latency\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(attaching.get("/healthz").contains("\"ok\""));
    let one = attaching.get("/v1/attachments/disk");
    assert!(
        one.starts_with("HTTP/1.1 200") && one.contains("\"nbd\""),
        "{one}"
    );
    let unknown = attaching.get("/v1/tenants");
    assert!(unknown.starts_with("HTTP/1.1 404") && unknown.contains("/v1/attachments"));
}

#[test]
fn an_attachment_in_use_is_detached_only_by_force() {
    let folder = Folder::new();
    let ram = "ram = \"1M\"";
    let file = [nbd(&folder, "a", ram), nbd(&folder, "b", ram)].concat();
    let mut attaching = Attaching::start(&folder, &file);
    let clients = [(); 2].map(|()| nbd_client(&folder, "a"));
    eventually("two clients", || attaching.show("a")["clients"] == 2);
    let refused = attaching.run(&["detach", "a"]);
    code(&refused, 2);
    let said = stderr(&refused);
    assert!(said.contains("\"a\" is in use by 2 clients"), "{said}");
    assert!(said.contains("switchyard detach a --force"), "{said}");
    assert_eq!(attaching.names(), ["a", "b"]);
    let unknown = attaching.run(&["detach", "c"]);
    code(&unknown, 2);
    assert!(stderr(&unknown).contains("no attachment \"c\""));
    code(&attaching.run(&["detach", "b"]), 0);
    code(&attaching.run(&["detach", "a", "--force"]), 0);
    assert!(attaching.names().is_empty());
    assert!(!std::path::Path::new(&folder.path("a.sock")).exists());
    drop(clients);
    attaching.signal("-TERM");
    assert_eq!(attaching.end(), Some(0));
}

#[test]
fn a_signal_makes_the_attachments_those_of_the_file() {
    let folder = Folder::new();
    let ram = "ram = \"1M\"";
    let [kept, gone, used, other] = ["kept", "gone", "used", "other"].map(|n| nbd(&folder, n, ram));
    let mut attaching = Attaching::start(&folder, &[&*kept, &*gone, &*used].concat());
    let clients = ["kept", "used"].map(|name| nbd_client(&folder, name));
    eventually("a client", || attaching.show("used")["clients"] == 1);
    // A bad file changes nothing, and is logged.
    write(
        &folder,
        "[[attachments]]\nname = \"x\"\nkind = \"nbd\"\nsokcet = \"/x\"\n",
    );
    attaching.signal("-HUP");
    let log = || std::fs::read_to_string(folder.path("log")).unwrap();
    eventually("the fault is logged", || {
        log().contains("attach.toml:5: attachments[0].sokcet")
    });
    write(&folder, &[&*kept, &*other].concat());
    attaching.signal("-HUP");
    assert!(attaching.line().starts_with("ready: other: "));
    eventually("the new one is listed", || {
        attaching.names() == ["kept", "used", "other"]
    });
    eventually("it is logged why one stays", || {
        log().contains("\"used\" is in use by 1 client")
    });
    assert_eq!(attaching.show("kept")["clients"], 1, "it was left alone");
    assert!(!std::path::Path::new(&folder.path("gone.sock")).exists());
    drop(clients);
    eventually("it is not in use", || {
        attaching.show("used")["clients"] == 0
    });
    // A different device under an existing name.
    write(
        &folder,
        &[nbd(&folder, "kept", "ram = \"2M\""), other].concat(),
    );
    attaching.signal("-HUP");
    eventually("it has the new size", || {
        attaching.show("kept")["size_bytes"] == 2 << 20 && attaching.names() == ["other", "kept"]
    });
    attaching.signal("-TERM");
    assert_eq!(attaching.end(), Some(0));
}

/// Regression: lost targets were not logged.
#[test]
fn the_state_follows_the_target_and_is_logged_once() {
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 1 << 20]);
    let (serving, address, serve) = Serving::file(disk);
    let attaching = Attaching::start(
        &folder,
        &[
            nbd(&folder, "a", &format!("target = \"{address}\"")),
            nbd(
                &folder,
                "b",
                &format!("target = \"{address}\"\nio_timeout = 1"),
            ),
        ]
        .concat(),
    );
    let logged = |level: &str, name: &str, what: &str| {
        let log = std::fs::read_to_string(folder.path("log")).unwrap();
        let has = |line: &&str| {
            let line = line.split_once(level);
            line.is_some_and(|(_, line)| line.contains(name) && line.contains(what))
        };
        log.lines().filter(has).count()
    };
    let shown = attaching.show("a");
    assert_eq!(shown["state"], "connected", "{shown}");
    assert!(
        shown["device"].as_str().unwrap().contains("namespace 1"),
        "{shown}"
    );
    serving.signal("-KILL");
    drop(serving);
    eventually("the loss is seen", || {
        attaching.show("a")["state"] == "not_connected"
    });
    let table = stdout(&attaching.run(&["attachments"]));
    assert!(table.contains("not connected"), "{table}");
    let metrics = attaching.get("/metrics");
    assert!(metrics.contains("switchyard_attachment_connected{attachment=\"a\",kind=\"nbd\"} 0"));
    eventually("the losses are logged", || {
        [" a: ", " b: "].map(|name| logged("WARN", name, "the connection is lost: ")) == [1, 1]
    });
    let serving = serve(&address);
    eventually("it is connected again", || {
        attaching.show("a")["state"] == "connected"
    });
    eventually("the recovery is logged", || {
        logged("WARN", " a: ", "connected again") == 1
    });
    assert_eq!(logged("", " a: ", ""), 2);
    drop(serving);
    let _serving = Serving::start(&["--listen", &address, "--ram", "1M"]);
    eventually("it is another volume", || {
        attaching.show("a")["state"] == "gone"
    });
    eventually("it is logged that it is gone", || {
        logged("ERROR", " a: ", "it is gone: namespace 1 ") == 1
    });
    let shown = attaching.show("a");
    assert!(
        shown["error"].as_str().unwrap().contains("namespace 1"),
        "{shown}"
    );
}

/// Checks the class of the program that a rule names, and that of other programs.
#[test]
fn a_rule_gives_the_requests_of_a_command_their_class() {
    if !have_fuse() {
        return;
    }
    let folder = Folder::new();
    let rule = "class = \"T\"\nclass_rules = [{ command = \"dd\", class = \"L\" }]\nram = \"1M\"";
    let attaching = Attaching::start(&folder, &fuse(&folder, rule));
    let path = folder.path("files/1");
    let check = |expected: [u64; 2]| {
        let classes = attaching.show("files")["classes"].clone();
        let written = [0, 1].map(|class: usize| classes[class]["writes"].as_u64().unwrap());
        assert_eq!(written, expected, "{classes}");
    };
    // The kernel may split a write whose memory is not page-aligned.
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&Page([1; 4096]).0, 0)
        .unwrap();
    check([0, 1]);
    let dd = Command::new("dd")
        .args(["if=/dev/zero", "bs=4k", "count=3", "conv=notrunc"])
        .arg(format!("of={path}"))
        .output()
        .unwrap();
    code(&dd, 0);
    check([3, 1]);
    assert_eq!(attaching.show("files")["class_rules"], 1);
}

/// Open files prevent the first signal from ending it; the second signal does not wait.
#[test]
fn open_files_end_with_a_second_signal() {
    if !have_fuse() {
        return;
    }
    let folder = Folder::new();
    let mut attaching = Attaching::start(&folder, &fuse(&folder, "ram = \"1M\""));
    let open = File::open(folder.path("files/1")).unwrap();
    let refused = attaching.run(&["detach", "files"]);
    code(&refused, 2);
    assert!(
        stderr(&refused).contains("in use by 1 open file"),
        "{}",
        stderr(&refused)
    );
    attaching.signal("-TERM");
    let log = || std::fs::read_to_string(folder.path("log")).unwrap();
    eventually("it says so", || log().contains("signal again"));
    open.read_exact_at(&mut [0; 4096], 0).unwrap();
    assert!(attaching.get("/healthz").starts_with("HTTP/1.1 503"));
    attaching.signal("-TERM");
    assert_eq!(attaching.end(), Some(1), "files were open");
    assert_eq!(std::fs::read_dir(folder.path("files")).unwrap().count(), 0);
}

#[test]
fn an_attachment_of_the_command_line_ends_its_process() {
    let folder = Folder::new();
    let (socket, api) = (
        folder.path("a.sock"),
        format!("unix:{}", folder.path("api")),
    );
    let mut child = program()
        .args([
            "attach", "nbd", "--socket", &socket, "--ram", "1M", "--api", &api,
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines
            .next()
            .unwrap()
            .unwrap()
            .starts_with("ready: nbd+unix")
    );
    assert_eq!(lines.next().unwrap().unwrap(), format!("API at {api}"));
    code(&run(&["detach", "nbd", "--api", &api]), 0);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn files_and_command_lines_that_are_wrong_are_refused() {
    let folder = Folder::new();
    let api = format!("unix:{}", folder.path("target.sock"));
    let target = ["--listen", "127.0.0.1:0", "--ram", "1M", "--api", &api];
    let mut target = Serving::start(&target);
    while !target.line().starts_with("API at ") {}
    let ram = "ram = \"1M\"";
    for (text, expected) in [
        (
            nbd(&folder, "a", "ram = \"1M\"\ncoers = 1"),
            "attach.toml:7: attachments[0].coers: is not",
        ),
        (
            nbd(&folder, "a", "ram = \"much\""),
            "attach.toml:6: attachments[0].ram:",
        ),
        (
            nbd(&folder, "a", ""),
            "attachments[0]: names no device; write one of target",
        ),
        (
            [nbd(&folder, "a", ram), nbd(&folder, "a", ram)].concat(),
            "attachments[1].name",
        ),
        (String::new(), "attachments: is missing"),
    ] {
        let file = write(&folder, &text);
        let output = run(&["attach", "--config", &file]);
        code(&output, 2);
        assert!(
            stderr(&output).contains(expected),
            "{expected}\n{}",
            stderr(&output)
        );
        assert!(!std::path::Path::new(&folder.path("a.sock")).exists());
    }
    for (args, expected) in [
        (&["attach"][..], "--config"),
        (&["attach", "--config", "/no/such/file"], "/no/such/file"),
        (
            &["attach", "--config", "x", "--api", "unix:/x"],
            "cannot be used with",
        ),
        (
            &["attachments", "--api", "unix:/no/such/socket"],
            "/no/such/socket",
        ),
        (
            &["attachments", "--api", &api],
            "nothing at /v1/attachments: this is a target",
        ),
    ] {
        let output = run(args);
        code(&output, 2);
        assert!(
            stderr(&output).contains(expected),
            "{args:?}: {}",
            stderr(&output)
        );
    }
}
