//! The examples, each with minimal effort: they set up, measure, print, and clean up.

use crate::common::attached::have;
use crate::common::{Folder, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs an example, and returns its output; checks that it leaves nothing behind.
fn example(name: &str, settings: &[(&str, &str)]) -> String {
    let folder = Folder::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let executable = std::env::current_exe().unwrap();
    // target/PROFILE/deps/TEST
    let target = executable.ancestors().nth(3).unwrap();
    let mut command = Command::new(script.join(name));
    command.envs(settings.iter().copied());
    command.env("SECONDS_EACH", "1").env("RUNS", "1");
    command.env("SWITCHYARD_BIN", env!("CARGO_BIN_EXE_switchyard"));
    command.env("CARGO_TARGET_DIR", target);
    // Other users access files below it.
    command.env("TMPDIR", folder.path(""));
    let output = command.output().unwrap();
    let printed = stdout(&output);
    assert!(output.status.success(), "{printed}{}", stderr(&output));
    let left = std::fs::read_dir(folder.path("")).unwrap().count();
    assert_eq!(left, 0, "{}", stderr(&output));
    printed
}

/// Returns true if this is root and these programs are installed, as required for loop devices and
/// mounts.
fn as_root_with(programs: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        block::skipped("not root");
        return false;
    }
    let loops = Command::new("losetup").arg("--find").output();
    if !loops.is_ok_and(|output| output.status.success()) {
        block::skipped("no loop device");
        return false;
    }
    have(programs)
}

/// Checks that each row has a number in each of the columns.
fn has_rows(printed: &str, columns: usize, rows: &[&str]) {
    for row in rows {
        let line = printed.lines().find_map(|line| line.strip_prefix(row));
        let line = line.unwrap_or_else(|| panic!("no {row}: {printed}"));
        let is_number = |word: &&str| word.parse::<u64>().is_ok_and(|number| number > 0);
        let numbers = line.split_whitespace().filter(is_number).count();
        assert_eq!(numbers, columns, "{printed}");
    }
}

#[test]
fn databases_run_on_a_disk_of_a_target() {
    let small = [("KEYS", "20000"), ("SCALE", "1"), ("SIZE", "256M")];
    if as_root_with(&["db_bench", "fio"]) {
        let printed = example("rocksdb/run", &small);
        has_rows(
            &printed,
            2,
            &["reads per second", "synced writes per second"],
        );
        let printed = example("rocksdb/beside", &small);
        has_rows(
            &printed,
            2,
            &["reads per second, beside bulk", "MiB/s of both"],
        );
    }
    if as_root_with(&["pg_createcluster"]) {
        let [keys, scale, size] = small;
        let settings = ("SETTINGS", "fsync=off full_page_writes=off");
        let printed = example("postgres/run", &[keys, scale, size, settings]);
        has_rows(&printed, 2, &["read (select by key)"]);
    }
    if as_root_with(&["postmark"]) {
        let few = [("FILES", "200"), ("TRANSACTIONS", "400"), ("SIZE", "128M")];
        has_rows(&example("postmark/run", &few), 2, &["4 instances"]);
    }
    if as_root_with(&["postmark", "mkfs.xfs"]) {
        let few = [
            ("FILES", "200"),
            ("TRANSACTIONS", "400"),
            ("SIZE", "320M"),
            ("FS", "xfs"),
        ];
        has_rows(&example("postmark/run", &few), 2, &["4 instances"]);
    }
}

/// Returns a PATH with which the first start of QEMU ends like a guest killed by its emulation, and
/// later starts run QEMU.
fn dies_at_first(folder: &Folder) -> String {
    let path = std::env::var("PATH").unwrap();
    let program = folder.path("qemu-system-x86_64");
    let script = format!(
        "#!/bin/sh\nmkdir '{}' && echo '[ 4.7] traps: PANIC: double fault' && exit\n\
         PATH='{path}' exec qemu-system-x86_64 \"$@\"\n",
        folder.path("started")
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
    format!("{}:{path}", folder.path(""))
}

#[test]
fn a_virtual_machine_reads_beside_its_bulk_job() {
    let programs = [
        "qemu-system-x86_64",
        "busybox",
        "fio",
        "xz",
        "apt-get",
        "db_bench",
    ];
    if !have(&programs) {
        return;
    }
    let folder = Folder::new();
    let path = dies_at_first(&folder);
    let few = [
        ("PATH", path.as_str()),
        ("ACCEL", "tcg"),
        ("SIZE", "64M"),
        ("KEYS", "2000"),
    ];
    let rows = [
        "reads per second, beside bulk",
        "reads of RocksDB's per second",
    ];
    has_rows(&example("vm/run", &few), 3, &rows);
}
