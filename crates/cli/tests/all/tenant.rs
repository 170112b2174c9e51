//! `switchyard tenant`, and its effect on a running target.

use crate::common;
use crate::common::{Folder, Serving, code, eventually, json, run, stderr, stdout};
use serde_json::Value;
use std::process::Output;

const HOST: &str = "nqn.2026-11.com.example:db";
const STRANGER: &str = "nqn.2026-11.com.example:stranger";

/// A target with a device of 1000 tokens per second; returned with its HTTP interface.
fn serving(folder: &Folder) -> (Serving, String) {
    let kind = "type = \"ram\"\nsize = \"8M\"";
    common::serve_by_tokens(folder, ("slow", kind), 1_000, "")
}

fn tenant(args: &[&str], socket: &str) -> Output {
    run(&[&["tenant"], args, &["--api", socket]].concat())
}

/// Returns a tenant's current settings, and its counters on the only device.
fn show(name: &str, socket: &str) -> (Value, Value) {
    let output = tenant(&["show", name, "--json"], socket);
    code(&output, 0);
    let shown = json(&output);
    assert_eq!(shown["devices"][0]["device"], "slow");
    let served = shown["devices"][0]["served"].clone();
    (shown["tenant"].clone(), served)
}

/// Several users change different settings at once; each reads before it writes.
#[test]
fn changes_at_the_same_time_are_all_kept() {
    let folder = Folder::new();
    let (_serving, socket) = serving(&folder);
    let job = "nqn.2026-11.com.example:job";
    code(&tenant(&["add", "job", "--host", job], &socket), 0);
    let changes: [&[&str]; 4] = [
        &["--weight", "7"],
        &["--host", HOST],
        &["--network", "127.0.0.0/8"],
        &["--namespace", "1"],
    ];
    std::thread::scope(|scope| {
        for change in changes {
            let set = [&["set", "job"], change].concat();
            let socket = &socket;
            scope.spawn(move || code(&tenant(&set, socket), 0));
        }
    });
    let (declared, _) = show("job", &socket);
    assert_eq!(declared["best_effort"]["weight"], 7);
    assert_eq!(declared["hosts"], serde_json::json!([HOST]));
    assert_eq!(declared["networks"], serde_json::json!(["127.0.0.0/8"]));
    assert_eq!(declared["namespaces"], serde_json::json!([1]));
}

#[test]
fn tenants_come_change_and_go_while_a_target_runs() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let promise = ["--latency-us", "500", "--read-percent", "100"];
    let add = ["add", "db", "--host", HOST, "--iops", "100"];
    let output = tenant(&[&add[..], &promise].concat(), &socket);
    code(&output, 0);
    let text = stdout(&output);
    let first = "db: SLO: p95 of reads within 500 us at 100 requests/s of 4K, 100 % reads";
    assert!(text.starts_with(first), "{text}");
    let (_, served) = show("db", &socket);
    assert_eq!(served["reserved_tokens_per_second"], 100);
    // Regression: the response claimed a change.
    let output = tenant(&["set", "db"], &socket);
    code(&output, 2);
    let told = stderr(&output);
    assert!(told.contains("nothing to change"), "{told}");
    // Settings that are not named stay; the change takes effect.
    code(&tenant(&["set", "db", "--iops", "600"], &socket), 0);
    let (declared, served) = show("db", &socket);
    assert_eq!(declared["latency_critical"]["latency_us"], 500);
    assert_eq!(declared["hosts"][0], HOST);
    assert_eq!(served["reserved_tokens_per_second"], 600);
    // An inadmissible SLO is refused, and everything stays as before.
    let other = ["add", "other", "--host", "nqn.2026-11.com.example:other"];
    let much = ["--iops", "500"];
    let output = tenant(&[&other[..], &much, &promise].concat(), &socket);
    code(&output, 2);
    let told = stderr(&output);
    assert!(
        told.contains("cannot meet the SLO of tenant \"other\""),
        "{told}"
    );
    assert!(told.contains("400 requests/s"), "{told}");
    code(&tenant(&["show", "other"], &socket), 2);
    let output = tenant(&[&other[..], &["--weight", "20"]].concat(), &socket);
    code(&output, 0);
    let text = stdout(&tenant(&["list"], &socket));
    for line in [
        "device slow: 1000 tokens/s, 600 reserved for SLOs",
        "other: best effort, weight 20",
        "default: best effort, weight 100",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
    }
    // Each host is charged to its own tenant; a host without a tenant to the default tenant.
    let read = ["read", serving.address(), "--length", "16k", "--output"];
    let out = folder.path("out");
    for (name, host) in [("default", &[][..]), ("db", &["--host-nqn", HOST])] {
        code(&run(&[&read[..], &[&out], host].concat()), 0);
        eventually("it is counted", || {
            let (_, served) = show(name, &socket);
            served["read_bytes"] == 16 << 10 && served["spent_milli"] == 4000
        });
    }
    code(&tenant(&["remove", "db"], &socket), 0);
    let output = tenant(&["remove", "db"], &socket);
    code(&output, 2);
    assert!(stderr(&output).contains("there is no tenant \"db\""));
    let list = json(&tenant(&["list", "--json"], &socket));
    assert_eq!(list["devices"][0]["reserved_tokens_per_second"], 0);
}

#[test]
fn a_tenant_that_asks_for_more_than_was_promised_is_an_event() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let output = tenant(&["events"], &socket);
    code(&output, 0);
    assert!(stdout(&output).starts_with("no events"));
    let promise = ["--latency-us", "500", "--iops", "100"];
    let add = ["add", "db", "--host", HOST];
    code(&tenant(&[&add[..], &promise].concat(), &socket), 0);
    let app = "a:rw=randread,bs=4k,depth=64";
    let load = [
        "bench",
        "--target",
        serving.address(),
        "--seconds",
        "3",
        "--host-nqn",
        HOST,
    ];
    let output = run(&[&load[..], &["--app", app]].concat());
    code(&output, 0);
    let output = tenant(&["events", "--json"], &socket);
    code(&output, 0);
    let answer = json(&output);
    let first = &answer["events"][0];
    assert_eq!(first["kind"], "overrun_began");
    assert_eq!(
        (&first["tenant"], &first["device"]),
        (&"db".into(), &"slow".into())
    );
    assert_eq!(first["reserved_tokens_per_second"], 100);
    let text = stdout(&tenant(&["events"], &socket));
    assert!(
        text.starts_with("1: db exceeds the rate of its SLO on slow: "),
        "{text}"
    );
    // It ends with the load, which followers are notified of at once.
    eventually("its end is told", || {
        let text = stdout(&tenant(&["events", "--after", "1"], &socket));
        text.lines().next() == Some("2: db is within the rate of its SLO on slow again")
    });
}

#[test]
fn a_model_that_cannot_be_read_is_named_with_its_device() {
    let folder = Folder::new();
    let model = folder.write("model.toml", "version = 1\n");
    let file = folder.write(
        "target.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n\
             [devices.slow]\ntype = \"ram\"\nsize = \"8M\"\nmodel = \"{model}\"\n"
        ),
    );
    let output = run(&["serve", "--config", &file]);
    code(&output, 2);
    let told = stderr(&output);
    assert!(
        told.contains("device \"slow\"") && told.contains(&model),
        "{told}"
    );
}

/// Returns whether a host may read and write this number of blocks from the first one on.
#[track_caller]
fn may(
    (serving, folder): (&Serving, &Folder),
    host: &str,
    (first, blocks): (u64, usize),
) -> (bool, bool) {
    const BLOCK: usize = 4096;
    let (offset, length) = (
        (first * BLOCK as u64).to_string(),
        (blocks * BLOCK).to_string(),
    );
    let at = ["--host-nqn", host, "--offset", &offset, "--length", &length];
    let out = folder.path("out");
    let read = ["read", serving.address(), "--output", &out];
    let read = run(&[&read[..], &at].concat());
    let input = folder.write("input", vec![7; blocks * BLOCK]);
    let write = ["write", serving.address(), "--input", &input];
    let write = run(&[&write[..], &at].concat());
    for output in [&read, &write] {
        if !output.status.success() {
            let told = stderr(output).to_lowercase();
            assert!(told.contains("access denied"), "{told}");
        }
    }
    (read.status.success(), write.status.success())
}

#[test]
fn permissions_are_set_shown_and_in_force_while_a_target_runs() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let bed = (&serving, &folder);
    let some = "namespace=1,first_block=0,blocks=8,access=read";
    let added = tenant(&["add", "db", "--host", HOST, "--allow", some], &socket);
    code(&added, 0);
    let text = stdout(&added);
    let line = format!("allow: {some}");
    assert!(text.lines().any(|l| l == line), "{text}");
    assert_eq!(may(bed, HOST, (0, 8)), (true, false));
    assert_eq!(
        may(bed, HOST, (7, 2)),
        (false, false),
        "the last block is another's"
    );
    assert_eq!(may(bed, HOST, (8, 1)), (false, false));
    assert_eq!(
        may(bed, STRANGER, (8, 1)),
        (true, true),
        "it is the default tenant"
    );
    // New grants replace the old ones; settings that are not named stay.
    let rest = format!("subsystem={},first_block=8,access=read_write", common::NQN);
    let set = ["set", "db", "--allow", some, "--allow", &rest];
    code(&tenant(&set, &socket), 0);
    code(&tenant(&["set", "db", "--weight", "7"], &socket), 0);
    assert_eq!(may(bed, HOST, (7, 1)), (true, false));
    assert_eq!(may(bed, HOST, (8, 1)), (true, true));
    assert_eq!(
        may(bed, HOST, (7, 2)),
        (true, false),
        "one range beside the other"
    );
    let (declared, _) = show("db", &socket);
    assert_eq!(declared["permissions"][0]["blocks"], 8);
    assert_eq!(declared["permissions"][1]["first_block"], 8);
    let text = stdout(&tenant(&["show", "db"], &socket));
    for line in [line, format!("allow: {rest}")] {
        assert!(text.lines().any(|l| l == line), "{text}");
    }
    // A third effective change, and a fourth.
    code(&tenant(&["set", "db", "--allow", "nothing"], &socket), 0);
    // A namespace that a tenant may not access at all is also not listed for it.
    let hidden = read_as(&serving, &folder, HOST);
    code(&hidden, 2);
    let told = stderr(&hidden);
    assert!(told.contains("namespace 1 does not exist"), "{told}");
    let text = stdout(&tenant(&["show", "db"], &socket));
    assert!(text.lines().any(|l| l == "allow: nothing"), "{text}");
    code(&tenant(&["set", "db", "--allow", "everything"], &socket), 0);
    assert_eq!(may(bed, HOST, (7, 1)), (true, true));
}

#[test]
fn permissions_that_mean_nothing_change_nothing() {
    let folder = Folder::new();
    let (_serving, socket) = serving(&folder);
    let add = ["add", "db", "--host", HOST, "--allow", "access=read"];
    code(&tenant(&add, &socket), 0);
    for (allow, expected) in [
        ("access=read,blocks=0", "0 blocks are nothing to permit"),
        (
            "access=read,subsystem=nqn.2026-11.com.example:slip",
            "there is no subsystem",
        ),
        ("access=read,range=1", "\"range\" is none of"),
        ("namespace=1", "access is missing"),
    ] {
        let output = tenant(&["set", "db", "--allow", allow], &socket);
        code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let both = ["set", "db", "--allow", "nothing", "--allow", "everything"];
    code(&tenant(&both, &socket), 2);
    let (declared, _) = show("db", &socket);
    let before = serde_json::json!([{ "first_block": 0, "access": "read" }]);
    assert_eq!(declared["permissions"], before);
}

/// Result of a read of one block by the host of this name.
fn read_as(serving: &Serving, folder: &Folder, host: &str) -> Output {
    let out = folder.path("out");
    let read = ["read", serving.address(), "--length", "4k"];
    run(&[&read[..], &["--output", &out, "--host-nqn", host]].concat())
}

#[test]
fn hosts_that_are_no_tenant_are_refused_and_served_again() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    code(&tenant(&["add", "db", "--host", HOST], &socket), 0);
    let read = |host| read_as(&serving, &folder, host).status.success();
    assert!(read(STRANGER) && read(HOST));
    let told = stdout(&tenant(&["default-policy", "refuse"], &socket));
    assert!(told.contains("may not connect"), "{told}");
    assert!(!read(STRANGER) && read(HOST));
    let list = json(&tenant(&["list", "--json"], &socket));
    assert_eq!(list["default_tenant"], false);
    let text = stdout(&tenant(&["list"], &socket));
    let line = "hosts without a tenant may not connect";
    assert!(text.lines().any(|l| l == line), "{text}");
    // A tenant of one namespace is a host without a tenant in the remaining ones.
    let set = ["set", "db", "--any", "host", "--namespace", "2"];
    code(&tenant(&set, &socket), 0);
    assert!(!read(HOST), "this is namespace 1");
    // The former name works, and the output names the current one.
    let former = tenant(&["others", "serve"], &socket);
    code(&former, 0);
    let hint = String::from_utf8_lossy(&former.stderr);
    assert!(hint.contains("tenant default-policy"), "{hint}");
    assert!(read(STRANGER) && read(HOST));
}

#[test]
fn a_name_is_of_no_use_from_elsewhere() {
    let folder = Folder::new();
    let (serving, socket) = serving(&folder);
    let read = || read_as(&serving, &folder, HOST);
    let add = ["add", "db", "--host", HOST, "--network", "192.0.2.0/24"];
    code(&tenant(&add, &socket), 0);
    let refused = read();
    code(&refused, 2);
    let told = stderr(&refused).to_lowercase();
    assert!(told.contains("connect invalid host"), "{told}");
    let more = ["--network", "192.0.2.0/24", "--network", "127.0.0.1"];
    code(&tenant(&[&["set", "db"], &more[..]].concat(), &socket), 0);
    code(&read(), 0);
    let text = stdout(&tenant(&["show", "db"], &socket));
    let line = "networks: 127.0.0.1, 192.0.2.0/24";
    assert!(text.lines().any(|l| l == line), "{text}");
    code(
        &tenant(&["set", "db", "--network", "192.0.2.0/24"], &socket),
        0,
    );
    code(&read(), 2);
    code(&tenant(&["set", "db", "--any", "network"], &socket), 0);
    code(&read(), 0);
}
