//! The switch's knobs: on the command lines of `serve` and `bench`, and in a running target.

use crate::common::{
    Folder, Serving, bench, code, endless_bench, eventually, interrupt, json, run, stderr, stdout,
};

#[test]
fn every_knob_is_listed_with_its_range_and_default() {
    let output = run(&["switch", "knobs", "--json"]);
    code(&output, 0);
    let list = json(&output);
    let knobs = list["knobs"].as_array().unwrap();
    let doorbell = knobs.iter().find(|knob| knob["key"] == "doorbell").unwrap();
    assert_eq!(doorbell["default"], "adaptive");
    let delay = knobs.iter().find(|knob| knob["key"] == "doorbell_delay_us");
    assert_eq!(delay.unwrap()["with"], "doorbell=fixed");
    let text = stdout(&run(&["switch", "knobs"]));
    assert!(
        text.starts_with("presets: switchyard, linux, nvme-tcp, poll, "),
        "{text}"
    );
    assert!(
        text.contains("\nquantum_bytes: 4096 to 8388608 [65536]\n"),
        "{text}"
    );
}

#[test]
fn loads_run_with_every_baseline_on_both_sides() {
    for baseline in [
        "linux",
        "nvme-tcp",
        "poll",
        "poll-priority",
        "blk-switch-rs-as",
    ] {
        let serving = Serving::start(&[
            "--listen",
            "127.0.0.1:0",
            "--ram",
            "8M",
            "--baseline",
            baseline,
            "--poll",
            "auto",
        ]);
        let output = bench(&[
            "--target",
            serving.address(),
            "--baseline",
            baseline,
            "--poll",
            "auto",
            "--knob",
            "quantum_bytes=8192",
            "--app",
            "l:rw=randread,class=L",
            "--app",
            "t:rw=randread,bs=64k,depth=8,class=T",
        ]);
        code(&output, 0);
        let report = json(&output);
        for app in report["apps"].as_array().unwrap() {
            assert_eq!(app["errors"], 0, "{baseline}: {app}");
            assert!(app["iops"].as_f64().unwrap() > 0.0, "{baseline}: {app}");
        }
        let privilege = report["apps"][0]["privilege"].as_str().unwrap();
        assert!(["nice", "unprivileged"].contains(&privilege), "{privilege}");
        if ["linux", "nvme-tcp", "poll"].contains(&baseline) {
            assert_eq!(privilege, "unprivileged", "{baseline}");
        }
        assert!(report["apps"][1]["privilege"].is_null());
    }
}

#[test]
fn knobs_that_make_no_sense_are_refused_with_what_would() {
    for (args, expected) in [
        (
            &["--baseline", "windows"][..],
            "unknown preset \"windows\": use one of switchyard, linux",
        ),
        (
            &["--knob", "doorbell"],
            "use KEY=VALUE, such as doorbell=immediate",
        ),
        (
            &["--knob", "dorbell=fixed"],
            "unknown switch parameter \"dorbell\"; `switchyard switch knobs`",
        ),
        (
            &["--knob", "doorbell=loud"],
            "use immediate or fixed or adaptive",
        ),
        (
            &["--knob", "doorbell_delay_us=50"],
            "has an effect only with doorbell=fixed",
        ),
        (
            &["--knob", "caravan=on", "--knob", "caravan=off"],
            "caravan is set twice",
        ),
        (
            &["--knob", "polling=never", "--poll", "never"],
            "use one of them",
        ),
    ] {
        let serve = ["serve", "--listen", "127.0.0.1:0"];
        let bench = [
            "bench",
            "--device",
            "null:1M",
            "--app",
            "a:rw=read",
            "--seconds",
            "0.1",
        ];
        for command in [&serve[..], &bench[..]] {
            let output = run(&[command, args].concat());
            code(&output, 2);
            assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        }
    }
    let output = run(&["serve", "--config", "x.toml", "--baseline", "linux"]);
    code(&output, 2);
    assert!(
        stderr(&output).contains("cannot be used with"),
        "{}",
        stderr(&output)
    );
}

/// A target whose HTTP interface is a Unix socket in the folder; returned with the socket's
/// address.
fn serving_with_api(folder: &Folder) -> (Serving, String) {
    let socket = format!("unix:{}", folder.path("api.sock"));
    let listen = ["--listen", "127.0.0.1:0", "--ram", "8M", "--cores", "0"];
    let mut serving = Serving::start(&[&listen[..], &["--api", &socket]].concat());
    while !serving.line().starts_with("API at ") {}
    (serving, socket)
}

fn switch(args: &[&str], socket: &str) -> std::process::Output {
    run(&[&["switch"], args, &["--api", socket]].concat())
}

#[test]
fn knobs_of_a_running_target_are_turned_while_it_works() {
    let folder = Folder::new();
    let (serving, socket) = serving_with_api(&folder);
    let apps = ["l:rw=randrw,class=L", "t:rw=randrw,bs=64k,depth=8,class=T"];
    let apps = ["--verify", "--app", apps[0], "--app", apps[1]];
    let load = endless_bench(&[&["--target", serving.address()], &apps[..]].concat());
    // A lane keeps its structure from the time of its connection: wait until all are connected.
    eventually("both classes have lanes", || {
        let seen = json(&switch(&["show", "--json"], &socket));
        let queues = |class: &str| seen["cores"][0]["classes"][class]["queues"].as_u64() > Some(0);
        queues("latency") && queues("throughput")
    });
    for preset in [
        "linux",
        "nvme-tcp",
        "poll",
        "blk-switch-rs-as",
        "switchyard",
    ] {
        let output = switch(&["preset", preset, "--json"], &socket);
        code(&output, 0);
        assert_eq!(json(&output)["setting"]["baseline"], preset);
        let output = switch(
            &["set", "caravan=off", "quantum_bytes=8192", "--json"],
            &socket,
        );
        code(&output, 0);
        assert_eq!(json(&output)["knobs"]["quantum_bytes"], 8192);
    }
    let output = interrupt(load);
    code(&output, 0);
    for app in json(&output)["apps"].as_array().unwrap() {
        assert_eq!(app["errors"], 0, "{app}");
    }
    // The load ends before the target has detected the end of its connections.
    eventually("the load's queues are gone", || {
        let seen = json(&switch(&["show", "--json"], &socket));
        seen["cores"][0]["classes"]["latency"]["queues"] == 0
    });
    let output = switch(&["show"], &socket);
    code(&output, 0);
    let text = stdout(&output);
    let first = "preset switchyard, with 2 changed parameters (*)\n  lanes=per-class\n";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("\n* caravan=off\n"), "{text}");
    let seen = json(&switch(&["show", "--json"], &socket));
    let core = &seen["cores"][0];
    let privilege = core["privilege"].as_str().unwrap();
    assert!(["nice", "unprivileged"].contains(&privilege), "{core}");
    // The target requested the priority, so if it does not have it, it was refused.
    assert_eq!(privilege == "nice", core["privilege_refused"].is_null());
    let line = format!("\ncore 0: thread priority {privilege}");
    assert!(text.contains(&line), "{text}");
    assert!(text.contains("\ncore 0 latency: 0 queues, "), "{text}");
    let seen = json(&switch(&["show", "--json"], &socket));
    let answers = |class: &str| seen["cores"][0]["classes"][class]["caravans"]["requests"].as_u64();
    assert!(answers("latency") > Some(0), "{seen}");
    assert!(answers("throughput") > Some(0), "{seen}");
}

/// Without named cores, the number of threads follows the load, or is set by a knob.
#[test]
fn an_unloaded_target_uses_one_thread_and_others_when_it_is_told() {
    let folder = Folder::new();
    let socket = format!("unix:{}", folder.path("api.sock"));
    let listen = ["--listen", "127.0.0.1:0", "--ram", "8M"];
    let mut serving = Serving::start(&[&listen[..], &["--api", &socket]].concat());
    while !serving.line().starts_with("API at ") {}
    let seen = || json(&switch(&["show", "--json"], &socket));
    let first = seen();
    let cores = first["cores"].as_array().unwrap().len();
    let threads = |active: usize, min: usize, grown: usize| {
        let shrunk = grown + 1 - active;
        let threads = serde_json::json!({
            "active": active, "min": min, "max": cores,
            "grown": grown, "shrunk": shrunk, "balanced": 0,
        });
        eventually("so many threads are in use", || {
            seen()["threads"] == threads
        });
        let in_use = seen()["cores"]
            .as_array()
            .unwrap()
            .iter()
            .fold(0, |count, core| {
                count + usize::from(core["in_use"].as_bool().unwrap())
            });
        assert_eq!(in_use, active);
    };
    threads(1, 1, 0);
    let set = |change: &str| code(&switch(&["set", change], &socket), 0);
    set("target_threads_min=64");
    threads(cores, cores, cores - 1);
    set("target_threads_min=0");
    threads(1, 1, cores - 1);
    let text = stdout(&switch(&["show"], &socket));
    let line = format!("\nthreads: 1 in use (min 1, max {cores}); ");
    assert!(text.contains(&line), "{text}");
    let output = switch(
        &["set", "target_threads_min=3", "target_threads_max=2"],
        &socket,
    );
    code(&output, 2);
    let expected =
        "target_threads_min is 3, but target_threads_max is 2: use 0 to 2 for target_threads_min";
    let told = stderr(&output).replace("; ", ": ");
    assert!(told.contains(expected), "{told}");
}

#[test]
fn what_a_target_refuses_or_does_not_hear_is_an_error() {
    let folder = Folder::new();
    let (serving, socket) = serving_with_api(&folder);
    for (changes, expected) in [
        (
            &["doorbell_delay_us=50"][..],
            "has an effect only with doorbell=fixed",
        ),
        (&["caravan=on", "caravan=off"], "caravan is given twice"),
    ] {
        let output = switch(&[&["set"], changes].concat(), &socket);
        code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    drop(serving);
    let output = switch(&["show"], &socket);
    code(&output, 2);
    assert!(
        stderr(&output).contains("with --api"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_load_follows_the_io_priority_of_its_threads_also_when_it_changes() {
    let folder = Folder::new();
    let (serving, socket) = serving_with_api(&folder);
    let answers = |class: &str| {
        let seen = json(&switch(&["show", "--json"], &socket));
        let caravans = &seen["cores"][0]["classes"][class]["caravans"];
        caravans["requests"].as_u64().unwrap()
    };
    let app = "a:rw=randread,class=ioprio";
    let load = endless_bench(&["--target", serving.address(), "--app", app]);
    eventually("it runs", || answers("throughput") > 1000);
    // Each lane has been probed; any further responses would be requests.
    let before = answers("latency");
    let raised = set_io_priority(load.id(), "1");
    if raised {
        eventually("its requests are of the other class", || {
            answers("latency") > before + 1000
        });
        let stayed = answers("throughput");
        assert!(set_io_priority(load.id(), "2"));
        eventually("and again", || answers("throughput") > stayed + 1000);
    } else {
        // Without the privilege nothing changes.
        let stayed = answers("throughput");
        eventually("it goes on", || answers("throughput") > stayed + 1000);
        assert_eq!(answers("latency"), before);
    }
    let output = interrupt(load);
    code(&output, 0);
    assert_eq!(json(&output)["apps"][0]["errors"], 0);
}

/// Gives all threads of a process this I/O priority class; returns true if that was permitted.
fn set_io_priority(pid: u32, class: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let threads: Vec<_> = threads.map(|thread| thread.unwrap().file_name()).collect();
    let mut ionice = std::process::Command::new("ionice");
    let ionice = ionice.args(["-c", class, "-p"]).args(threads);
    ionice
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .success()
}
