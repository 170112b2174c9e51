//! Files and block devices of this machine, with the io_uring driver.

use super::{BufferedReason, FileDevice, FileOptions, IoMode, open as opening};
use crate::testing::conformance::{Bench, Suite, run};
use crate::testing::driver;
use crate::{BlockError, Device, DeviceError, Folder, LockedFile, Operation};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SIZE: u64 = 8 << 20;

/// Environment variable with the directory of a full file system, for the test that runs in it.
const FULL_DIRECTORY: &str = "SWITCHYARD_TEST_FULL_DIRECTORY";

/// A directory that is removed with its content.
#[derive(Debug)]
struct Directory(Folder);

impl Directory {
    fn new(parent: &Path) -> Self {
        Self(Folder::within(parent))
    }

    fn temporary() -> Self {
        Self(Folder::new())
    }

    fn options(&self, block_bytes: u32) -> FileOptions {
        FileOptions {
            path: self.0.path().join("device"),
            block_bytes,
            size: Some(SIZE),
            create: true,
            read_only: false,
            direct: true,
        }
    }
}

fn open(options: &FileOptions) -> FileDevice {
    FileDevice::open(options.clone()).unwrap_or_else(|error| panic!("{options:?}: {error}"))
}

fn refused(options: &FileOptions) -> String {
    FileDevice::open(options.clone())
        .expect_err("options that cannot be")
        .to_string()
}

#[test]
fn regular_files_pass_with_direct_io_where_there_is_any() {
    for (seed, block_bytes) in [(1, 512), (2, 4096)] {
        let directory = Directory::temporary();
        let device = open(&directory.options(block_bytes));
        println!(
            "{block_bytes}-byte blocks in {:?}: {}",
            directory.0,
            device.mode()
        );
        run(
            driver,
            &device,
            Suite {
                seed,
                atomic: matches!(device.mode(), IoMode::Direct { .. }),
                ..Suite::default()
            },
        );
    }
}

#[test]
fn regular_files_pass_through_the_page_cache() {
    let shm = Path::new("/dev/shm");
    let parents = [std::env::temp_dir(), shm.to_path_buf()];
    for parent in parents.iter().filter(|parent| parent.is_dir()) {
        let directory = Directory::new(parent);
        let device = open(&FileOptions {
            direct: false,
            ..directory.options(512)
        });
        assert_eq!(device.mode(), IoMode::Buffered(BufferedReason::Asked));
        run(
            driver,
            &device,
            Suite {
                seed: 3,
                ..Suite::default()
            },
        );
    }
}

#[test]
fn a_file_in_memory_passes_whatever_its_file_system_offers() {
    if !Path::new("/dev/shm").is_dir() {
        crate::skipped("no /dev/shm");
        return;
    }
    let directory = Directory::new(Path::new("/dev/shm"));
    let device = open(&directory.options(512));
    println!("in /dev/shm: {}", device.mode());
    run(
        driver,
        &device,
        Suite {
            seed: 4,
            ..Suite::default()
        },
    );
}

#[test]
fn a_read_only_file_can_be_read_by_many_and_written_by_none() {
    let directory = Directory::temporary();
    let options = directory.options(512);
    let mut bench = Bench::open(driver(), &open(&options)).expect("it opens");
    bench.write(3, &[7; 512]).expect("a write");
    bench.close();
    let reading = FileOptions {
        read_only: true,
        create: false,
        ..options
    };
    let (one, two) = (open(&reading), open(&reading));
    run(driver, &one, Suite::default());
    let mut bench = Bench::open(driver(), &two).expect("it opens");
    assert_eq!(bench.read(3, 1), Ok(vec![7; 512]));
    assert_eq!(bench.write(3, &[8; 512]), Err(BlockError::ReadOnly));
    two.resize(9).expect_err("a read-only file keeps its size");
}

#[test]
fn a_file_has_one_writer() {
    let directory = Directory::temporary();
    let options = directory.options(512);
    let first = open(&options);
    let message = refused(&options);
    assert!(
        message.contains("another device or process uses it"),
        "{message}"
    );
    let reading = FileOptions {
        read_only: true,
        create: false,
        ..options.clone()
    };
    assert!(refused(&reading).contains("another device or process uses it"));
    // A core's channel neither holds nor needs the lock.
    let bench = Bench::open(driver(), &first).expect("it opens");
    bench.close();
    drop(first);
    open(&options);
}

#[test]
fn what_cannot_be_opened_says_why_and_what_to_do() {
    let directory = Directory::temporary();
    let good = directory.options(512);
    let cases = [
        (
            FileOptions {
                create: false,
                ..good.clone()
            },
            "check the path",
        ),
        (
            FileOptions {
                size: None,
                ..good.clone()
            },
            "give a size",
        ),
        (
            FileOptions {
                size: Some(700),
                ..good.clone()
            },
            "multiple of 512",
        ),
        (
            FileOptions {
                size: Some(0),
                ..good.clone()
            },
            "multiple of 512",
        ),
        (
            FileOptions {
                block_bytes: 1024,
                ..good.clone()
            },
            "use 512 or 4096",
        ),
        (
            FileOptions {
                path: directory.0.path().to_path_buf(),
                ..good.clone()
            },
            "neither a regular file",
        ),
        (
            FileOptions {
                path: "/dev/null".into(),
                ..good.clone()
            },
            "neither a regular file",
        ),
        (
            FileOptions {
                path: directory.0.path().join("no/file"),
                ..good.clone()
            },
            "check the path",
        ),
    ];
    for (options, expected) in cases {
        let message = refused(&options);
        assert!(message.contains(expected), "{message}");
    }
    assert!(!good.path.exists(), "nothing was left behind");
}

#[test]
fn a_file_that_is_too_short_is_refused_or_extended() {
    let directory = Directory::temporary();
    let good = directory.options(512);
    fs::write(&good.path, [0; 100]).expect("a short file");
    let whole = FileOptions {
        size: None,
        ..good.clone()
    };
    assert!(refused(&whole).contains("less than one block of 512 bytes"));
    let fixed = FileOptions {
        create: false,
        ..good.clone()
    };
    assert!(refused(&fixed).contains("use a smaller size, or extend the file"));
    assert_eq!(
        open(&good).geometry().bytes(),
        SIZE,
        "a short file is extended"
    );
    assert_eq!(open(&whole).geometry().bytes(), SIZE);
}

/// A process started by another thread has every open file until it executes its program.
#[test]
fn a_closed_device_is_free_though_a_forked_process_has_its_file() {
    let directory = Directory::temporary();
    let options = directory.options(512);
    let device = open(&options);
    assert!(refused(&options).contains("another device or process uses it"));
    let forked = device.file.try_clone().expect("a descriptor");
    drop(device);
    open(&options);
    drop(forked);
}

#[test]
fn a_new_file_is_sparse_and_deallocated_space_is_given_back() {
    let directory = Directory::temporary();
    let options = directory.options(4096);
    let device = open(&options);
    if !device.capabilities().thin {
        crate::skipped(format_args!("{:?} cannot punch holes", directory.0));
        return;
    }
    let taken = || fs::metadata(&options.path).expect("it exists").blocks() * 512;
    assert!(taken() < SIZE / 2, "a new file takes {} bytes", taken());
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    for lba in 0..64 {
        bench.write(lba, &[1; 4096]).expect("a write");
    }
    bench.operate(Operation::Flush, 0, 0).expect("a flush");
    let full = taken();
    assert!(full >= 64 * 4096);
    bench
        .operate(Operation::Deallocate, 0, 64)
        .expect("a deallocation");
    bench.operate(Operation::Flush, 0, 0).expect("a flush");
    assert!(taken() < full, "nothing was given back");
}

#[test]
fn a_file_that_is_cut_behind_our_back_fails_to_read_and_never_reads_as_zeroes() {
    for direct in [true, false] {
        let directory = Directory::temporary();
        let options = FileOptions {
            direct,
            ..directory.options(512)
        };
        let device = open(&options);
        let mut bench = Bench::open(driver(), &device).expect("it opens");
        bench.write(0, &[1; 16 * 512]).expect("a write");
        let file = File::options()
            .write(true)
            .open(&options.path)
            .expect("it exists");
        file.set_len(5 * 512 + 100).expect("it can be cut");
        assert_eq!(bench.read(0, 5), Ok(vec![1; 5 * 512]), "what is left");
        for (lba, blocks) in [(0, 16), (5, 1), (8, 8), (100, 1)] {
            let result = bench.read(lba, blocks);
            assert_eq!(
                result,
                Err(BlockError::ReadFailure),
                "{blocks} at {lba}, {direct}"
            );
            let result = bench.operate(Operation::Verify, lba, blocks);
            assert_eq!(
                result,
                Err(BlockError::ReadFailure),
                "{blocks} at {lba}, {direct}"
            );
        }
        let result = bench.send(Operation::Compare, 8, &[0; 8 * 512]);
        assert_eq!(result, Err(BlockError::ReadFailure), "{direct}");
        bench.write(40, &[2; 512]).expect("a write makes it longer");
        assert_eq!(bench.read(40, 1), Ok(vec![2; 512]));
        bench.close();
    }
}

#[test]
fn what_is_erased_reads_as_zeroes_and_nothing_else_does() {
    let directory = Directory::temporary();
    for direct in [true, false] {
        let options = FileOptions {
            direct,
            ..directory.options(512)
        };
        let device = open(&options);
        let mut bench = Bench::open(driver(), &device).expect("it opens");
        bench.write(0, &[3; 100 * 512]).expect("a write");
        let driver = bench.close();
        device.erase(10 * 512, 80 * 512).expect("within the device");
        let mut bench = Bench::open(driver, &device).expect("it opens");
        assert_eq!(bench.read(0, 10), Ok(vec![3; 10 * 512]));
        assert_eq!(bench.read(10, 80), Ok(vec![0; 80 * 512]));
        assert_eq!(bench.read(90, 10), Ok(vec![3; 10 * 512]));
        // As if the file system did not support it.
        let file = opening::reopen(&device.file, &options, device.mode).expect("it is open");
        let written = opening::write_zeroes(&file, 90 * 512, 512).expect("aligned for the mode");
        assert_eq!(written, 512);
        assert_eq!(bench.read(90, 1), Ok(vec![0; 512]));
        assert_eq!(bench.read(91, 9), Ok(vec![3; 9 * 512]));
        bench.close();
        let end = device.geometry().bytes();
        device.erase(end, 1).expect_err("beyond the end");
        device.erase(1, u64::MAX).expect_err("beyond the end");
    }
    let read_only = FileOptions {
        read_only: true,
        create: false,
        ..directory.options(512)
    };
    open(&read_only).erase(0, 512).expect_err("it is read-only");
}

#[test]
fn a_regular_file_is_resized_and_what_was_cut_off_does_not_come_back() {
    let directory = Directory::temporary();
    let options = directory.options(512);
    let device = open(&options);
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    bench.write(10, &[3; 2 * 512]).expect("a write");
    let first_driver = bench.close();
    device.resize(11).expect("smaller");
    device.resize(100).expect("larger");
    assert_eq!(
        fs::metadata(&options.path).expect("it exists").len(),
        100 * 512
    );
    let mut bench = Bench::open(first_driver, &device).expect("it opens");
    assert_eq!(bench.read(10, 1), Ok(vec![3; 512]));
    assert_eq!(bench.read(11, 89), Ok(vec![0; 89 * 512]));
    assert_eq!(bench.read(100, 1), Err(BlockError::OutOfRange));
    bench.close();
    device.resize(0).expect_err("no blocks");
    device.resize(u64::MAX).expect_err("too many blocks");
    drop(device);
    // If a file is used in part, the rest is neither exposed nor lost.
    File::options()
        .write(true)
        .open(&options.path)
        .and_then(|file| file.write_all_at(&[9; 512], 50 * 512))
        .expect("it can be written");
    let part = open(&FileOptions {
        size: Some(20 * 512),
        ..options.clone()
    });
    part.resize(10).expect("smaller");
    part.resize(60).expect_err("the rest would be shown");
    drop(part);
    let whole = open(&FileOptions {
        size: None,
        ..options
    });
    let mut bench = Bench::open(driver(), &whole).expect("it opens");
    assert_eq!(bench.read(50, 1), Ok(vec![9; 512]));
}

#[test]
fn a_file_that_refuses_writes_answers_read_only() {
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let Ok(memory) = rustix::fs::memfd_create("switchyard", flags) else {
        crate::skipped("no memfd here");
        return;
    };
    let file = File::from(memory);
    file.set_len(SIZE).expect("a sparse file");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    let options = FileOptions {
        path,
        ..Directory::temporary().options(512)
    };
    let device = open(&options);
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    bench.write(1, &[1; 512]).expect("a write");
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::WRITE).expect("a seal");
    assert_eq!(bench.write(1, &[2; 512]), Err(BlockError::ReadOnly));
    assert_eq!(
        bench.operate(Operation::Deallocate, 1, 1),
        Err(BlockError::ReadOnly)
    );
    assert_eq!(bench.read(1, 1), Ok(vec![1; 512]));
    bench.close();
}

fn output(command: &mut Command) -> Result<String, String> {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
    } else {
        Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&stderr).trim()
        ))
    }
}

/// A loop device over a file, removed when dropped.
struct Loop(String);

impl Loop {
    fn new(file: &Path, sector_bytes: u32) -> Result<Self, String> {
        let sector = sector_bytes.to_string();
        let arguments = ["--find", "--show", "--sector-size", &sector];
        output(Command::new("losetup").args(arguments).arg(file)).map(Self)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = output(Command::new("losetup").args(["--detach", &self.0]));
    }
}

#[test]
fn block_devices_pass() {
    let directory = Directory::temporary();
    for (sector_bytes, block_bytes) in [(512, 512), (512, 4096), (4096, 4096), (4096, 512)] {
        let options = directory.options(block_bytes);
        File::create(&options.path)
            .and_then(|file| file.set_len(SIZE))
            .expect("a sparse file");
        let device = match Loop::new(&options.path, sector_bytes) {
            Ok(device) => device,
            Err(why) => {
                crate::skipped(why);
                return;
            }
        };
        let path = PathBuf::from(&device.0);
        let options = FileOptions {
            path,
            size: None,
            create: false,
            ..options
        };
        let file = open(&options);
        println!(
            "sectors of {sector_bytes}, blocks of {block_bytes}: {}",
            file.mode()
        );
        assert_eq!(file.geometry().bytes(), SIZE);
        if sector_bytes > block_bytes {
            let reason = BufferedReason::Alignment {
                align_bytes: sector_bytes,
            };
            assert_eq!(file.mode(), IoMode::Buffered(reason));
        } else {
            assert!(
                matches!(file.mode(), IoMode::Direct { .. }),
                "{}",
                file.mode()
            );
        }
        file.resize(100)
            .expect_err("a block device has its own size");
        let larger = FileOptions {
            size: Some(2 * SIZE),
            create: true,
            ..options
        };
        assert!(matches!(
            FileDevice::open(larger),
            Err(DeviceError::Io { .. } | DeviceError::Invalid(_))
        ));
        run(
            driver,
            &file,
            Suite {
                requests: 500,
                ..Suite::default()
            },
        );
    }
}

/// Direct I/O writes whole sectors; ranges of 512-byte blocks within them must still be erased.
#[test]
fn parts_of_the_sectors_of_a_block_device_are_erased() {
    let directory = Directory::temporary();
    let options = directory.options(4096);
    fs::write(&options.path, [7; 16 * 4096]).expect("a file");
    let device = match Loop::new(&options.path, 4096) {
        Ok(device) => device,
        Err(why) => {
            crate::skipped(why);
            return;
        }
    };
    let options = FileOptions {
        path: PathBuf::from(&device.0),
        size: None,
        create: false,
        ..options
    };
    let file = open(&options);
    let direct = IoMode::Direct { align_bytes: 4096 };
    assert_eq!(file.mode(), direct);
    let mut expected = vec![7; 16 * 4096];
    // Within one sector, across sectors with whole ones between, and to and from the end of a
    // sector.
    for range in [512..1024, 5120..20992, 24576..25088, 32256..36864] {
        let len = range.end - range.start;
        file.erase(range.start as u64, len as u64)
            .expect("within the device");
        expected[range].fill(0);
    }
    let mut bench = Bench::open(driver(), &file).expect("it opens");
    assert!(bench.read(0, 16) == Ok(expected));
    bench.close();
}

/// Runs a test of this file again, in a process in which a directory is a file system of 2 MiB. If
/// that is not possible here, it reports so and tests nothing.
fn in_a_small_file_system(test: &str) {
    let directory = Directory::temporary();
    let script = "mount -t tmpfs -o size=2m tmpfs \"$1\" && exec \"$2\" --exact \"$3\" --nocapture";
    let binary = std::env::current_exe().expect("a test has a program");
    let name = format!(
        "{}::{test}",
        module_path!().split_once("::").expect("in a crate").1
    );
    let probe = ["--mount", "sh", "-c", "mount -t tmpfs tmpfs \"$1\"", "sh"];
    let attempts: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
    let mut why = String::new();
    for namespaces in attempts {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(namespaces);
            command
        };
        if let Err(error) = output(unshare().args(probe).arg(directory.0.path())) {
            why = error;
            continue;
        }
        let mut command = unshare();
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command.args([
            directory.0.path().as_os_str(),
            binary.as_os_str(),
            name.as_ref(),
        ]);
        let result = output(command.env(FULL_DIRECTORY, directory.0.path()));
        let text = result.unwrap_or_else(|error| panic!("{error}"));
        println!("{text}");
        assert!(text.contains("1 passed"), "the test ran: {text}");
        return;
    }
    crate::skipped(format_args!("no mount namespace: {why}"));
}

#[test]
fn a_full_file_system_is_no_space_and_space_that_is_given_back_is_used_again() {
    let Some(directory) = std::env::var_os(FULL_DIRECTORY) else {
        let name = "a_full_file_system_is_no_space_and_space_that_is_given_back_is_used_again";
        return in_a_small_file_system(name);
    };
    let directory = Directory::new(Path::new(&directory));
    let device = open(&directory.options(512));
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    let piece = vec![1; 64 * 512];
    let results: Vec<_> = (0..80).map(|i| bench.write(i * 64, &piece)).collect();
    assert_eq!(results[0], Ok(()));
    assert_eq!(results[79], Err(BlockError::NoSpace));
    assert!(
        results
            .iter()
            .all(|result| matches!(result, Ok(()) | Err(BlockError::NoSpace)))
    );
    let durable = Operation::Write { durable: true };
    assert_eq!(
        bench.send(durable, 79 * 64, &piece),
        Err(BlockError::NoSpace)
    );
    assert_eq!(
        bench.operate(Operation::Flush, 0, 0),
        Ok(()),
        "nothing that was done is lost"
    );
    assert_eq!(bench.read(0, 64), Ok(piece.clone()));
    bench
        .operate(Operation::Deallocate, 0, 1024)
        .expect("a deallocation");
    assert_eq!(bench.write(79 * 64, &piece), Ok(()));
    assert_eq!(bench.read(79 * 64, 64), Ok(piece));
    bench.close();
}

/// The kernel reports lost data once; a later Flush must fail too.
#[test]
fn after_a_failed_flush_none_succeeds_until_the_device_is_opened_anew() {
    let Some(directory) = std::env::var_os(FULL_DIRECTORY) else {
        let name = "after_a_failed_flush_none_succeeds_until_the_device_is_opened_anew";
        return in_a_small_file_system(name);
    };
    let directory = Directory::new(Path::new(&directory));
    let options = directory.options(512);
    File::create(&options.path)
        .and_then(|file| file.set_len(SIZE))
        .expect("a sparse file");
    let block_device = match Loop::new(&options.path, 512) {
        Ok(device) => device,
        Err(why) => {
            crate::skipped(why);
            return;
        }
    };
    let path = PathBuf::from(&block_device.0);
    // Through the page cache, so that a write succeeds long before its data is lost.
    let options = FileOptions {
        path,
        size: None,
        create: false,
        direct: false,
        ..options
    };
    let device = open(&options);
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    let mut other = Bench::open(driver(), &device).expect("it opens on another core");
    let piece = vec![1; 64 * 512];
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
    for i in 0..200 {
        assert_eq!(bench.write(i * 64, &piece), Ok(()), "into the page cache");
    }
    let failure = Err(BlockError::WriteFailure);
    assert_eq!(bench.operate(Operation::Flush, 0, 0), failure);
    assert_eq!(
        bench.operate(Operation::Flush, 0, 0),
        failure,
        "asked again"
    );
    assert_eq!(
        other.operate(Operation::Flush, 0, 0),
        failure,
        "asked by another core"
    );
    let durable = Operation::Write { durable: true };
    assert_eq!(other.send(durable, 0, &piece), failure);
    assert_eq!(other.write(0, &piece), Ok(()), "no promise, no failure");
    bench.close();
    other.close();
    drop(device);
    let device = open(&options);
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()), "opened anew");
    bench.close();
}

#[test]
fn a_file_keeps_its_identity_and_another_in_its_place_has_its_own() {
    let directory = Directory::temporary();
    let options = directory.options(512);
    let identity = |options| open(options).identity().expect("a file that is there");
    let first = identity(&options);
    let moved = directory.0.path().join("moved");
    fs::rename(&options.path, &moved).expect("a file that is there");
    // While the first file exists, no other file has its inode.
    assert_ne!(identity(&options), first);
    fs::rename(&moved, &options.path).expect("a file that is there");
    assert_eq!(identity(&options), first);
    let device = open(&options);
    device.resize(SIZE / 1024).expect("a regular file");
    assert_eq!(device.identity().expect("a file"), first);
}

/// The system reports a loss once; a channel opened after that report must not flush successfully.
#[test]
fn no_flush_succeeds_after_an_erase_that_could_not_be_synced() {
    let directory = Directory::temporary();
    let mut device = open(&directory.options(4096));
    let mut bench = Bench::open(driver(), &device).expect("it opens");
    assert_eq!(bench.operate(Operation::Flush, 0, 0), Ok(()));
    // It accepts zeroes, and cannot be synced.
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = LockedFile::shared(null.expect("it is there")).expect("nothing has it");
    let file = std::mem::replace(&mut device.file, null);
    device.mode = IoMode::Buffered(BufferedReason::Asked);
    device.erase(0, 4096).expect_err("it cannot be synced");
    let failed = Err(BlockError::WriteFailure);
    assert_eq!(bench.operate(Operation::Flush, 0, 0), failed);
    device.file = file;
    let mut later = Bench::open(driver(), &device).expect("it opens");
    assert_eq!(later.operate(Operation::Flush, 0, 0), failed);
    later.close();
    bench.close();
}
