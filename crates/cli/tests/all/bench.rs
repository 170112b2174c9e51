//! `switchyard bench`: against a target and local devices. No assertion depends on the machine's
//! speed.

use crate::common;
use crate::common::{
    Folder, Serving, bench, code, endless_bench, eventually, interrupt, json, run, stderr, stdout,
};
use serde_json::Value;
use std::time::Duration;

#[track_caller]
fn check(report: &Value, apps: &[&str]) {
    let found: Vec<_> = report["apps"].as_array().unwrap().iter().collect();
    assert_eq!(found.len(), apps.len());
    for (app, name) in found.iter().zip(apps) {
        assert_eq!(app["name"], *name);
        assert_eq!(app["errors"], 0, "{app}");
        assert!(app["iops"].as_f64().unwrap() > 0.0, "{app}");
        assert!(app["bytes_per_second"].as_f64().unwrap() > 0.0);
        assert!(app["cpu_seconds"].as_f64().unwrap() > 0.0);
        let latency = |name: &str| app["latency_us"][name].as_f64().unwrap();
        let ordered = ["p50", "p95", "p99", "p999", "max"].map(latency);
        assert!(ordered.is_sorted(), "{app}");
        assert!(latency("avg") > 0.0);
    }
    for field in ["cores", "model_name", "kernel", "congestion_control"] {
        assert!(!report["machine"][field].is_null(), "{field}");
    }
}

#[test]
fn every_pattern_runs_against_a_target_and_verifies() {
    let serving = Serving::small();
    for pattern in [
        "read",
        "write",
        "randread",
        "randwrite",
        "rw",
        "randrw,mix=70",
    ] {
        let app = format!("a:rw={pattern},bs=8k,depth=16,queues=2");
        let output = bench(&["--target", serving.address(), "--app", &app, "--verify"]);
        code(&output, 0);
        check(&json(&output), &["a"]);
    }
}

#[test]
fn apps_run_together_in_open_and_closed_loops() {
    let serving = Serving::small();
    let apps = [
        "--app",
        "L:rw=randread,depth=4,rate=500",
        "--app",
        "T:rw=write,bs=128k,depth=4,count=2",
    ];
    let target = ["--target", serving.address(), "--poll", "never"];
    let output = bench(&[&target[..], &apps[..]].concat());
    code(&output, 0);
    let report = json(&output);
    check(&report, &["L", "T"]);
    assert_eq!(report["apps"][0]["intended_iops"], 500);
}

/// Each host has its own admin queue and connections, and each of them is checked.
#[test]
fn one_load_can_be_many_hosts() {
    const HOSTS: usize = 300;
    let serving = Serving::small();
    let app = "a:rw=randread,queues=3,depth=64,rate=2000,pace=poisson";
    let hosts = HOSTS.to_string();
    let many = [
        "--hosts",
        &hosts,
        "--host-nqn",
        "nqn.2026-11.io.example:many",
    ];
    let open = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", serving.pid())).unwrap();
        files.count()
    };
    let before = open();
    // The number is read during the load, which may end before that.
    let run_and_count = || {
        std::thread::scope(|scope| {
            let target = ["--target", serving.address(), "--app", app];
            let load = scope.spawn(move || bench(&[&target[..], &many].concat()));
            let mut most = 0;
            while !load.is_finished() {
                most = most.max(open());
                std::thread::sleep(Duration::from_millis(1));
            }
            (load.join().unwrap(), most.saturating_sub(before))
        })
    };
    let runs = std::iter::repeat_with(run_and_count).take(20);
    let (report, _) = runs
        .inspect(|(report, _)| code(report, 0))
        .find(|(_, connections)| *connections >= HOSTS * 4)
        .expect("the target has all connections");
    check(&json(&report), &["a"]);
    for args in [&["--lanes", "switched"][..], &["--baseline", "switchyard"]] {
        let target = ["--target", serving.address(), "--app", app, "--hosts", "2"];
        let refused = bench(&[&target[..], args].concat());
        code(&refused, 2);
        assert!(stderr(&refused).contains("--hosts"), "{}", stderr(&refused));
    }
}

/// Regression: it hung without completing a request.
#[test]
fn more_queues_than_are_granted_are_refused_with_what_to_do() {
    let serving = Serving::small();
    let app = "a:rw=randread,bs=4k,depth=64,queues=64,count=3";
    let refused = bench(&["--target", serving.address(), "--app", app]);
    code(&refused, 2);
    let said = stderr(&refused);
    assert!(said.contains("128 I/O queues"), "{said}");
    assert!(said.contains("use fewer queues, or raise"), "{said}");
    let fewer = app.replace("queues=64", "queues=32");
    let output = bench(&["--target", serving.address(), "--app", &fewer]);
    code(&output, 0);
    check(&json(&output), &["a"]);
}

#[test]
fn local_devices_are_loaded_the_same_way() {
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![0; 4 << 20]);
    for device in [
        "ram:16M".to_owned(),
        "null:1G".to_owned(),
        format!("file:{disk}"),
    ] {
        let output = bench(&["--device", &device, "--app", "a:rw=randread,depth=4"]);
        code(&output, 0);
        check(&json(&output), &["a"]);
    }
    let file = format!("file:{disk}");
    let args = [
        "--device",
        &file,
        "--app",
        "a:rw=randrw,depth=4",
        "--verify",
        "--prefill",
    ];
    let output = bench(&args);
    code(&output, 0);
    assert!(json(&output)["apps"][0]["verified"].as_u64().unwrap() >= 1024);
}

#[test]
fn a_device_that_forgets_is_a_negative_result() {
    let output = bench(&[
        "--device",
        "null:16M",
        "--app",
        "a:rw=randrw,depth=4",
        "--verify",
    ]);
    code(&output, 1);
    assert!(json(&output)["apps"][0]["errors"].as_u64().unwrap() > 0);
    assert!(
        stderr(&output).contains("errors; first error: read at block"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_table_is_for_people() {
    let args = ["bench", "--device", "ram:8M", "--app", "web:rw=randread"];
    let output = run(&[&args[..], &["--seconds", "0.2", "--warmup", "0"]].concat());
    code(&output, 0);
    let text = stdout(&output);
    assert!(
        text.contains("IOPS") && text.contains("web") && text.contains("p99.9"),
        "{text}"
    );
}

#[test]
fn mistakes_name_the_app_the_key_and_what_would_be_right() {
    for (args, expected) in [
        (&["--device", "ram:8M"][..], "--app"),
        (
            &["--app", "a:rw=read"],
            "<--target <ADDRESS>|--device <DEVICE>>",
        ),
        (&["--device", "ram:99999999T"], "is too large"),
        (
            &["--device", "ram:8M", "--app", "a:rw=raed"],
            "app \"a\": rw=raed: use read",
        ),
        (
            &["--device", "ram:8M", "--app", "a:rw=read,bs=512"],
            "app \"a\": bs=512",
        ),
        (
            &["--device", "ram:8M", "--app", "a:rw=read,cpu=1023"],
            "cpu=1023",
        ),
        (&["--device", "disk", "--app", "a:rw=read"], "ram:1G"),
        (
            &["--device", "file:/nowhere", "--app", "a:rw=read"],
            "/nowhere",
        ),
        (
            &["--target", "127.0.0.1:1", "--app", "a:rw=read"],
            "no process listens there",
        ),
    ] {
        let output = bench(args);
        code(&output, 2);
        assert!(
            stderr(&output).contains(expected),
            "{args:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn ctrl_c_ends_early_with_what_was_measured() {
    let child = endless_bench(&[
        "--device",
        "ram:8M",
        "--app",
        "a:rw=randread",
        "--log",
        "info",
    ]);
    // A thread with the app's name exists only after the signal handlers.
    eventually("the load runs", || cpu_ticks(child.id(), "a/0").is_some());
    let output = interrupt(child);
    code(&output, 0);
    assert_eq!(json(&output)["interrupted"], true);
}

/// Regression: nothing was printed, and the process did not end.
#[test]
fn ctrl_c_ends_a_load_on_a_target_that_is_gone() {
    let ends = |lanes: &str| {
        let serving = Serving::small();
        let app = "a:rw=randread,depth=4,cpu=0";
        let child = endless_bench(&[
            "--target",
            serving.address(),
            "--app",
            app,
            "--lanes",
            lanes,
        ]);
        // More time than the start takes.
        let pid = child.id();
        eventually("the load runs", || cpu_ticks(pid, "a/0") > Some(20));
        serving.signal("-KILL");
        drop(serving);
        eventually("the last answers are taken", || {
            thread_stat(pid, "a/0").is_some_and(|stat| stat[0] == "S")
        });
        let output = interrupt(child);
        code(&output, 1);
        let app = &json(&output)["apps"][0];
        assert!(app["iops"].as_f64().unwrap() > 0.0, "{app}");
        assert_eq!(app["unanswered"], 4, "{app}");
        let said = stderr(&output);
        assert!(said.contains("a: 4 requests without response"), "{said}");
    };
    std::thread::scope(|scope| {
        for lanes in ["own", "switched"] {
            scope.spawn(move || ends(lanes));
        }
    });
}

/// Returns the `stat` fields of a process's thread of this name, from its state on; `None` if there
/// is no such thread.
fn thread_stat(process: u32, thread: &str) -> Option<Vec<String>> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let tasks = tasks.ok()?.flatten();
    let mut stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let of = |stat: String| {
        let (name, fields) = stat.rsplit_once(") ")?;
        let is_meant = name.ends_with(&format!("({thread}"));
        is_meant.then(|| fields.split(' ').map(str::to_owned).collect())
    };
    stats.find_map(of)
}

/// Processor time of the thread, in ticks.
fn cpu_ticks(process: u32, thread: &str) -> Option<u64> {
    let stat = thread_stat(process, thread)?;
    let ticks = |field: usize| stat.get(field)?.parse::<u64>().ok();
    Some(ticks(11)? + ticks(12)?)
}

#[test]
fn processes_run_together_and_report_as_one() {
    let serving = Serving::small();
    let apps = [
        "l:rw=randrw,class=L,count=2",
        "t:rw=randrw,bs=64k,depth=4,class=T",
    ];
    let apps = [
        "--app",
        apps[0],
        "--app",
        apps[1],
        "--processes",
        "--verify",
        "--prefill",
    ];
    let target = ["--target", serving.address(), "--baseline", "switchyard"];
    let output = bench(&[&target[..], &apps[..]].concat());
    code(&output, 0);
    let report = json(&output);
    check(&report, &["l", "t"]);
    assert!(report["apps"][0]["verified"].as_u64() > Some(0));
    assert!(report["apps"][0]["privilege"].is_string());
    // Each process has its own switchboard.
    let boards = report["switch"].as_array().unwrap();
    assert_eq!(boards.len(), 2);
    let requests = |board: usize, class: &str| -> u64 {
        let cores = boards[board]["cores"].as_array().unwrap().iter();
        let requests = cores.map(|core| core["classes"][class]["requests"].as_u64().unwrap());
        requests.sum()
    };
    assert!(requests(0, "latency") > 0, "{report}");
    assert!(requests(1, "throughput") > 0, "{report}");
    assert_eq!(requests(0, "throughput"), 0, "{report}");
    for core in boards
        .iter()
        .flat_map(|board| board["cores"].as_array().unwrap())
    {
        let privilege = core["privilege"].as_str().unwrap();
        let refused = core["privilege_refused"].is_string();
        assert!(["nice", "unprivileged"].contains(&privilege));
        assert!(!refused || privilege == "unprivileged", "{core}");
    }
    let text = run(&[&["bench"], &target[..], &apps[..], &["--seconds", "0.2"]].concat());
    code(&text, 0);
    assert!(
        stdout(&text).contains("\nl: priority of latency threads: "),
        "{}",
        stdout(&text)
    );
}

#[test]
fn a_process_that_fails_is_an_error_with_its_words() {
    let folder = Folder::new();
    let disk = format!("file:{}", folder.write("disk.img", vec![0; 4 << 20]));
    let apps = [
        "--app",
        "good:rw=read",
        "--app",
        "bad:rw=read,cpu=1000",
        "--processes",
    ];
    let output = bench(&[&["--device", &disk], &apps[..]].concat());
    code(&output, 2);
    let text = stderr(&output);
    assert!(
        text.starts_with("error: the process of app \"bad\" failed (exit status: 2): "),
        "{text}"
    );
    assert!(text.contains("cpu=1000"), "{text}");
    for device in ["ram:16M", "dram-ssd:16M"] {
        let output = bench(&["--device", device, "--app", "a:rw=read", "--processes"]);
        code(&output, 2);
        assert!(
            stderr(&output).contains("--processes: processes cannot share a RAM device"),
            "{device}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn processes_end_early_with_their_leader_or_without_it() {
    let folder = Folder::new();
    let disk = format!("file:{}", folder.write("disk.img", vec![0; 4 << 20]));
    for signal in ["-INT", "-KILL"] {
        let child = common::program()
            .args([
                "bench",
                "--device",
                &disk,
                "--seconds",
                "600",
                "--json",
                "--processes",
            ])
            .args(["--app", "a:rw=read", "--app", "b:rw=randread"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        let followers = || -> Vec<String> {
            let file = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(file).unwrap_or_default();
            children.split_whitespace().map(str::to_owned).collect()
        };
        // The threads of a load are named after their app, so the load is running.
        let runs = |process: &String| {
            let threads = std::fs::read_dir(format!("/proc/{process}/task"))
                .into_iter()
                .flatten();
            let mut threads = threads.flatten();
            threads.any(|thread| {
                let name = std::fs::read_to_string(thread.path().join("comm"));
                name.is_ok_and(|name| name.starts_with("a/0") || name.starts_with("b/0"))
            })
        };
        eventually("both run", || {
            followers().len() == 2 && followers().iter().all(runs)
        });
        let processes = followers();
        let kill = std::process::Command::new("kill")
            .args([signal, &pid.to_string()])
            .status();
        assert!(kill.unwrap().success());
        let output = child.wait_with_output().unwrap();
        let gone =
            |process: &String| !std::path::Path::new(&format!("/proc/{process}/fd")).exists();
        eventually("nobody is left", || {
            processes
                .iter()
                .all(|process| gone(process) || !runs(process))
        });
        if signal == "-INT" {
            code(&output, 0);
            assert_eq!(json(&output)["interrupted"], true);
        }
    }
}

#[test]
fn apps_share_a_cache_over_a_device_a_path_and_a_target() {
    let serving = Serving::small();
    let places: [&[&str]; 3] = [
        &["--device", "ram:16M"],
        &["--device", "ram:16M", "--path", "stm"],
        &["--target", serving.address()],
    ];
    for place in places {
        let app = ["--app", "a:rw=randrw,count=2", "--cache", "2M", "--verify"];
        let output = bench(&[place, &app[..], &["--dirty-expire", "100"]].concat());
        code(&output, 0);
        let report = json(&output);
        check(&report, &["a"]);
        let cache = &report["cache"][0];
        assert!(cache["dirty_peak"].as_u64().unwrap() > 0, "{cache}");
        assert_eq!(cache["lost"], 0, "{cache}");
    }
}

#[test]
fn a_cache_that_cannot_be_is_refused_with_what_to_do() {
    for (args, words) in [
        (&["--cache", "4K"][..], "use 1M to 1T"),
        (&["--cache", "x"], "is not a size"),
        (
            &["--cache", "2M", "--dirty-expire", "99"],
            "use 100ms to 3600s",
        ),
        (&["--dirty-expire", "200"], "--cache"),
        (&["--cache", "2M", "--processes"], "omit one of them"),
        (&["--cache", "2M", "--lanes", "own"], "cannot be used with"),
    ] {
        let device = ["--device", "null:16M", "--app", "a:rw=read"];
        let output = run(&[&["bench"], &device[..], args].concat());
        code(&output, 2);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

/// Regression: these options were accepted without an effect, or with a wrong one.
#[test]
fn what_would_have_no_effect_is_refused_with_what_to_do() {
    for (args, words) in [
        (
            &["--baseline", "linux"][..],
            "--baseline shares connections",
        ),
        (
            &["--lanes", "switched"],
            "--lanes switched shares connections",
        ),
        (
            &["--knob", "doorbell=immediate"],
            "--knob doorbell: applies to connections",
        ),
        (&["--app", "b:rw=read,queues=2"], "app \"b\": queues=2"),
        (&["--path", "stm", "--poll", "always"], "omit one of them"),
        (&["--path", "stm", "--processes"], "omit one of them"),
    ] {
        let device = ["--device", "null:16M", "--app", "a:rw=read"];
        let output = bench(&[&device[..], args].concat());
        code(&output, 2);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    let vhost = ["--device", "vhost:/nothing", "--app", "a:rw=read"];
    let output = bench(&[&vhost[..], &["--block-size", "512"]].concat());
    code(&output, 2);
    let told = stderr(&output);
    assert!(
        told.contains("the vhost-user back end determines"),
        "{told}"
    );
    // Options of the apps' own threads.
    let threads = [
        "--knob",
        "polling=never",
        "--knob",
        "latency_threads=default",
    ];
    let device = ["--device", "null:16M", "--app", "a:rw=read,class=L"];
    code(&bench(&[&device[..], &threads].concat()), 0);
}

#[test]
fn one_application_is_described_by_flags() {
    let flags = [
        "--rw",
        "randrw",
        "--bs",
        "8k",
        "--iodepth",
        "4",
        "--numjobs",
        "2",
        "--mix",
        "30",
    ];
    let output = bench(&[&["--device", "ram:16M"], &flags[..]].concat());
    code(&output, 0);
    check(&json(&output), &["bench"]);
    for (flags, expected) in [
        (
            &["--rw", "read", "--app", "a:rw=read"][..],
            "cannot be used with",
        ),
        (&["--bs", "4k"], "required"),
        (&["--rw", "raed"], "rw=raed: use read, write"),
    ] {
        let output = run(&[&["bench", "--device", "ram:1M"], flags].concat());
        code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
