//! Signals to processes that use a file of `switchyard attach fuse`.

use crate::common::attached::Attached;
use crate::common::{Folder, Serving, eventually};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that waits for an unreachable target can be killed; a process that only handles a
/// signal continues to wait.
#[test]
fn a_signal_ends_a_process_that_waits_for_a_lost_target() {
    let folder = Folder::new();
    let disk = folder.write("disk.img", vec![7; 1 << 20]);
    let (serving, address, serve) = Serving::file(disk);
    let (attached, _) = Attached::fuse(&folder, &address);
    serving.signal("-KILL");
    drop(serving);
    let file = &attached.uri;
    let start = |args: &[&str]| {
        let child = Command::new("dd").args(args).stderr(Stdio::null()).spawn();
        let child = child.unwrap();
        wait_until_it_waits(child.id(), file);
        child
    };
    let (input, output) = (format!("if={file}"), format!("of={file}"));
    let read = ["iflag=direct", "of=/dev/null", "bs=4k", "count=1"];
    let write = [
        "if=/dev/zero",
        "oflag=direct",
        "conv=notrunc",
        "bs=4k",
        "count=1",
    ];
    let mut patient = start(&[&[&*input], &read[..]].concat());
    let signal = |child: &Child, name: &str| {
        let id = child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status();
        assert!(sent.unwrap().success());
    };
    // Its handler prints its progress.
    signal(&patient, "-USR1");
    for args in [
        [&[&*input], &read[..]].concat(),
        [&[&*output], &write[..]].concat(),
    ] {
        let mut child = start(&args);
        signal(&child, "-TERM");
        eventually("it ends", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().signal(), Some(15), "{args:?}");
    }
    assert_eq!(patient.try_wait().unwrap(), None, "it waits for the target");
    let _serving = serve(&address);
    assert!(patient.wait().unwrap().success());
    let mut block = [0; 4096];
    std::fs::File::open(file)
        .unwrap()
        .read_exact_at(&mut block, 8192)
        .unwrap();
    assert_eq!(block, [7; 4096]);
    assert_eq!(attached.detach(), Some(0));
}

/// Waits until a process that has opened `file` waits in the kernel.
fn wait_until_it_waits(process: u32, file: &str) {
    let waits = || {
        let opened = ["0", "1"].map(|fd| std::fs::read_link(format!("/proc/{process}/fd/{fd}")));
        let opened = opened.iter().flatten().any(|path| path == Path::new(file));
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let state = stat[stat.rfind(')').unwrap() + 2..].chars().next();
        opened && matches!(state, Some('S' | 'D'))
    };
    // Any other wait before that is short.
    for _ in 0..5 {
        eventually("it opens the file and waits", waits);
        std::thread::sleep(Duration::from_millis(10));
    }
}
