//! File systems and a file of a remote namespace under other projects' exercisers: `fsx`, which
//! verifies every byte that it reads, and `stress-ng`, with stressors that create, fill, rename,
//! link and remove files. SWITCHYARD_EXERCISE_SECONDS is the time of each exerciser,
//! SWITCHYARD_EXERCISE_KILLS the number of kills of the target meanwhile.

use crate::common;
use crate::common::attached::{Attached, have, succeeds};
use crate::common::{Folder, Serving};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Operations of one run of `fsx`; the next run uses the next seed.
const FSX_OPERATIONS: &str = "1000";

/// Every operation of `fsx` that both file systems support.
const FSX_ON_FILE_SYSTEM: &str = "
flen = 1048576
[weights]
close_open = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 1
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 2
sendfile = 2
posix_fadvise = 5
copy_file_range = 2
";

/// Every operation of `fsx` that keeps the size of a file. Zeroed ranges are whole blocks.
const FSX_ON_FILE: &str = "
flen = 8388608
blockmode = true
nosizechecks = true
[opsize]
max = 262144
align = 512
[weights]
close_open = 0
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 1
truncate = 0
fsync = 1
fdatasync = 1
punch_hole = 2
sendfile = 2
posix_fadvise = 5
copy_file_range = 2
";

/// One process of each stressor, with files that fit on the device together.
const STRESSORS: &str = "--hdd 1 --hdd-bytes 4m --iomix 1 --iomix-bytes 4m --fallocate 1 \
    --fallocate-bytes 4m --fpunch 1 --dir 1 --dentry 1 --dentries 512 --rename 1 --link 1 \
    --symlink 1 --xattr 1 --sync-file 1 --sync-file-bytes 4m --fsize 1 --utime 1 --chmod 1 \
    --seek 1 --seek-size 4m --mmap 1 --mmap-file --mmap-bytes 4m --aio 1";

/// Returns a number from the environment, or the default.
fn number(name: &str, usual: u64) -> u64 {
    let given = std::env::var(format!("SWITCHYARD_EXERCISE_{name}")).ok();
    given.map_or(usual, |text| text.parse().expect("a whole number"))
}

/// Seconds of each exerciser.
fn seconds() -> u64 {
    number("SECONDS", 4)
}

/// Runs `fsx` with successive seeds until the time is over, at least once.
fn run_fsx(folder: &Folder, config: &str, file: &str) {
    let config = folder.write("fsx.toml", config);
    let artifacts = folder.path("");
    let until = Instant::now() + Duration::from_secs(seconds());
    let mut seed = 1;
    while seed == 1 || Instant::now() < until {
        let seed_text = seed.to_string();
        let arguments = ["-q", "-f", &config, "-N", FSX_OPERATIONS, "-P", &artifacts];
        succeeds("fsx", &[&arguments[..], &["-S", &seed_text, file]].concat());
        seed += 1;
    }
    println!("fsx: {} runs of {FSX_OPERATIONS} operations", seed - 1);
}

/// Runs all stressors concurrently; they verify the data that they read.
fn run_stressors(place: &str) {
    let folder = format!("{place}/stressors");
    std::fs::create_dir(&folder).unwrap();
    let timeout = format!("{}s", seconds());
    let arguments = ["--temp-path", &folder, "--verify", "--timeout", &timeout];
    let stressors: Vec<_> = STRESSORS.split_whitespace().collect();
    succeeds("stress-ng", &[&arguments[..], &stressors].concat());
}

/// A file system on a loop device over a file; unmounted and detached when dropped.
struct FileSystem {
    device: String,
    place: String,
}

impl FileSystem {
    /// Makes a file system; prints a message and returns `None` if no loop device is available.
    fn make(kind: &str, file: &str, place: String) -> Option<Self> {
        let arguments = [
            "--find",
            "--show",
            "--direct-io=on",
            "--sector-size",
            "4096",
        ];
        let found = Command::new("losetup").args(arguments).arg(file).output();
        let found = found.unwrap();
        if !found.status.success() {
            block::skipped(format_args!("no loop device: {}", common::stderr(&found)));
            return None;
        }
        let device = common::stdout(&found).trim().to_owned();
        let file_system = Self { device, place };
        std::fs::create_dir(&file_system.place).unwrap();
        succeeds(&format!("mkfs.{kind}"), &["-q", &file_system.device]);
        let arguments = ["-t", kind, &file_system.device, &file_system.place];
        succeeds("mount", &arguments);
        Some(file_system)
    }

    /// Unmounts it, and runs `checker` on it.
    fn check(&self, checker: &[&str]) {
        succeeds("umount", &[&self.place]);
        succeeds(checker[0], &[&checker[1..], &[&self.device]].concat());
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        for (program, argument) in [
            ("umount", ["-l", &self.place]),
            ("losetup", ["-d", &self.device]),
        ] {
            // It may already be unmounted.
            let mut command = Command::new(program);
            let _ = command.args(argument).stderr(Stdio::null()).status();
        }
    }
}

/// Kills and restarts the target while the exercisers run.
fn exercise(kind: &str, checker: &[&str]) {
    let programs = [
        "fsx",
        "stress-ng",
        "losetup",
        &format!("mkfs.{kind}"),
        checker[0],
    ];
    if !have(&programs) {
        return;
    }
    let folder = Folder::new();
    let disk = folder.path("disk.img");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(320 << 20)
        .unwrap();
    let (first, address, serve) = Serving::file(disk);
    let mut serving = Some(first);
    let mountpoint = folder.path("files");
    std::fs::create_dir(&mountpoint).unwrap();
    // If the target does not restart, the exercisers must end.
    let target = ["--target", &address, "--io-timeout", "60"];
    let attached = Attached::start(&[&["fuse", &mountpoint], &target[..]].concat());
    let made = FileSystem::make(kind, &attached.uri, folder.path("mounted"));
    let Some(file_system) = made else { return };
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let file = format!("{}/exercised", file_system.place);
            run_fsx(&folder, FSX_ON_FILE_SYSTEM, &file);
            run_stressors(&file_system.place);
        });
        let (mut kills, most) = (0, number("KILLS", 5));
        while kills < most && !load.is_finished() {
            sleep(Duration::from_millis(400));
            // By SIGKILL; it must have ended before the next one takes its address.
            drop(serving.take());
            serving = Some(serve(&address));
            kills += 1;
        }
        load.join().unwrap();
        assert!(kills > 0, "it was killed under load");
        println!("{kind}: the target was killed {kills} times");
    });
    file_system.check(checker);
    drop(file_system);
    assert_eq!(attached.detach(), Some(0));
}

#[test]
fn exercisers_find_nothing_wrong_with_ext4_on_a_killed_target() {
    exercise("ext4", &["e2fsck", "-f", "-n"]);
}

#[test]
fn exercisers_find_nothing_wrong_with_xfs_on_a_killed_target() {
    exercise("xfs", &["xfs_repair", "-n"]);
}

/// Without a file system or privileges: the requests are those of `fsx` itself.
#[test]
fn an_exerciser_finds_nothing_wrong_with_the_file_of_a_namespace() {
    if !have(&["fsx"]) {
        return;
    }
    let folder = Folder::new();
    let small = [
        "--listen",
        "127.0.0.1:0",
        "--ram",
        "16M",
        "--block-size",
        "512",
    ];
    let serving = Serving::start(&small);
    let mountpoint = folder.path("files");
    std::fs::create_dir(&mountpoint).unwrap();
    let attached = Attached::start(&["fuse", &mountpoint, "--target", serving.address()]);
    run_fsx(&folder, FSX_ON_FILE, &attached.uri);
    assert_eq!(attached.detach(), Some(0));
}
