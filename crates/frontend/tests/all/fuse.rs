//! The FUSE front end on the kernel's own interface: every test mounts, and accesses files like any
//! process.

use crate::forgetful::Forgetful;
use crate::growing::Growing;
use crate::mounts;
use crate::mounts::{Aligned, DIRECT, DSYNC, attach, counting, fill, ram, same};
use block::device::Null;
use block::layer::fault::{Fault, FaultEffect, FaultOperation, FaultOptions, FaultRule};
use block::{BlockError, Device, PathDevice};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use switch::{Class, Path, PathRules};
use switchyard_frontend::fuse::{ClassChoice, Options};

const MIB: usize = 1 << 20;

fn forgetful() -> Arc<Forgetful> {
    Forgetful::new(
        Null::new(1 << 20, 512).unwrap(),
        &Arc::new(AtomicU64::new(1)),
    )
}

/// The kernel's error number of a result.
fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

#[test]
fn what_is_written_directly_is_read_back_directly_and_through_the_page_cache() {
    for block_bytes in [512, 4096] {
        let device = ram(16 << 20, block_bytes);
        let Some(mounted) = attach(vec![(7, same(device))], |_| {}) else {
            return;
        };
        let metadata = mounted.file(7).metadata().unwrap();
        assert!(metadata.is_file());
        assert_eq!((metadata.len(), metadata.mode() & 0o777), (16 << 20, 0o600));
        let (direct, cached) = (mounted.open(7, DIRECT), mounted.open(7, 0));
        for (round, len) in [4096, 65536, MIB, 3 * MIB].into_iter().enumerate() {
            // Cached first, so that a stale page is detected.
            let at = 2 * MIB as u64;
            let mut back = Aligned::new(len);
            cached.read_exact_at(&mut back, at).unwrap();
            let data = Aligned::filled(len, round as u64 + u64::from(block_bytes));
            direct.write_all_at(&data, at).unwrap();
            cached.read_exact_at(&mut back, at).unwrap();
            assert!(*back == *data, "cached, {len} bytes");
            back.fill(0);
            direct.read_exact_at(&mut back, at).unwrap();
            assert!(*back == *data, "direct, {len} bytes");
            // And in the other direction.
            let data = Aligned::filled(len, round as u64 + 100);
            cached.write_all_at(&data, at).unwrap();
            direct.read_exact_at(&mut back, at).unwrap();
            assert!(*back == *data, "written through the cache, {len} bytes");
        }
    }
}

#[test]
fn writes_of_parts_of_blocks_change_nothing_beside_them() {
    let Some(mounted) = attach(vec![(1, same(ram(4 << 20, 4096)))], |_| {}) else {
        return;
    };
    let (file, len) = (mounted.open(1, 0), 256 * 1024);
    let mut expected = vec![0; len];
    fill(&mut expected, 1);
    file.write_all_at(&expected, 0).unwrap();
    for (round, (at, part)) in [(1, 1), (4095, 2), (100, 5000), (8191, 70_001), (513, 511)]
        .into_iter()
        .enumerate()
    {
        let mut data = vec![0; part];
        fill(&mut data, round as u64 + 50);
        file.write_all_at(&data, at as u64).unwrap();
        expected[at..at + part].copy_from_slice(&data);
    }
    let mut back = Aligned::new(len);
    mounted.open(1, DIRECT).read_exact_at(&mut back, 0).unwrap();
    assert!(*back == *expected);
}

#[test]
fn threads_that_share_blocks_lose_no_write() {
    let Some(mounted) = attach(vec![(1, same(ram(4 << 20, 4096)))], |_| {}) else {
        return;
    };
    // Each thread owns 64 bytes of every block, and bypasses the cache: the kernel then does not
    // serialise the writes.
    const THREADS: usize = 8;
    const BLOCKS: usize = 16;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let file = mounted.open(1, DIRECT);
            scope.spawn(move || {
                for round in 0..50u64 {
                    for block in 0..BLOCKS {
                        let mut data = [0; 64];
                        fill(&mut data, round + thread as u64);
                        let at = block * 4096 + thread * 64;
                        file.write_all_at(&data, at as u64).unwrap();
                    }
                }
            });
        }
    });
    let mut back = Aligned::new(BLOCKS * 4096);
    mounted.open(1, DIRECT).read_exact_at(&mut back, 0).unwrap();
    for block in back.chunks(4096) {
        for (thread, part) in block.chunks(64).take(THREADS).enumerate() {
            let mut data = [0; 64];
            fill(&mut data, 49 + thread as u64);
            assert_eq!(part, data, "thread {thread}");
        }
    }
}

/// The kernel fills a request with pages of the program's memory. A request of more than 1 MiB must
/// not be split within a block, which fails with `EINVAL`, if the memory is not page-aligned.
#[test]
fn direct_requests_of_memory_within_pages_are_carried_out_as_a_whole() {
    for block_bytes in [512, 4096] {
        let device = ram(8 << 20, block_bytes);
        let Some(mounted) = attach(vec![(1, same(device))], |_| {}) else {
            return;
        };
        let file = mounted.open(1, DIRECT);
        let (len, at) = (2 * MIB, 4096);
        for skew in [16, 512] {
            let within = skew..skew + len;
            let data = Aligned::filled(len + 4096, skew as u64);
            let data = &data[within.clone()];
            file.write_all_at(data, at).unwrap();
            let mut back = Aligned::new(len);
            file.read_exact_at(&mut back, at).unwrap();
            assert!(*back == *data, "written, {skew} bytes within a page");
            let mut back = Aligned::new(len + 4096);
            file.read_exact_at(&mut back[within.clone()], at).unwrap();
            assert!(back[within] == *data, "read, {skew} bytes within a page");

            // Each vector takes a page or two, whatever its length.
            let (ours, length) = (Aligned::filled(MIB, 77), 2040);
            let pieces: Vec<_> = ours.chunks(length).map(io::IoSlice::new).collect();
            assert_eq!(rustix::io::pwritev(&file, &pieces, at).unwrap(), MIB);
            let mut back = Aligned::new(MIB);
            let mut pieces: Vec<_> = back.chunks_mut(length).map(io::IoSliceMut::new).collect();
            assert_eq!(rustix::io::preadv(&file, &mut pieces, at).unwrap(), MIB);
            assert!(*back == *ours, "in pieces");
        }
    }
}

#[test]
fn many_threads_read_what_they_wrote() {
    // The second device allocates its own memory: little, in small pieces.
    let path = PathDevice::start(ram(32 << 20, 4096), Path::Stm, PathRules::default()).unwrap();
    let path = path.with_requests(8, 16 * 1024);
    let namespaces = vec![
        (1, same(ram(32 << 20, 512))),
        (2, same(Arc::new(path) as Arc<dyn Device>)),
    ];
    let Some(mounted) = attach(namespaces, |_| {}) else {
        return;
    };
    // Each thread has a stripe of 1 MiB per file, and writes random runs of 4 KiB blocks.
    std::thread::scope(|scope| {
        for thread in 0..16u64 {
            let file = mounted.open(
                1 + u32::from(thread % 2 == 1),
                if thread % 3 == 0 { 0 } else { DIRECT },
            );
            scope.spawn(move || {
                let base = thread * MIB as u64;
                let mut seeds = [0; 256];
                let mut random = base::Prng::from_seed(thread + 1);
                for round in 1..200 {
                    let first = usize::try_from(random.next_u64() % 256).unwrap();
                    let count =
                        (1 + usize::try_from(random.next_u64() % 32).unwrap()).min(256 - first);
                    let mut data = Aligned::new(count * 4096);
                    for (index, block) in data.chunks_mut(4096).enumerate() {
                        seeds[first + index] = round * 1000 + thread;
                        fill(block, seeds[first + index] + (first + index) as u64);
                    }
                    file.write_all_at(&data, base + first as u64 * 4096)
                        .unwrap();
                }
                let mut back = Aligned::new(MIB);
                file.read_exact_at(&mut back, base).unwrap();
                for (index, block) in back.chunks(4096).enumerate() {
                    let mut expected = [0; 4096];
                    if seeds[index] != 0 {
                        fill(&mut expected, seeds[index] + index as u64);
                    }
                    assert!(block == expected, "thread {thread}, block {index}");
                }
            });
        }
    });
}

#[test]
fn fsync_and_durable_writes_reach_the_device_and_holes_read_as_zeroes() {
    let (devices, counts) = counting(&ram(8 << 20, 512));
    let Some(mounted) = attach(vec![(1, devices)], |_| {}) else {
        return;
    };
    let file = mounted.open(1, 0);
    let flushes = || counts.flushes.load(Ordering::Relaxed);
    file.write_all_at(&[0xaa; 2 * MIB], 0).unwrap();
    assert_eq!(flushes(), 0);
    file.sync_all().unwrap();
    assert_eq!(flushes(), 1);
    file.sync_data().unwrap();
    assert_eq!(flushes(), 2);

    assert_eq!(counts.durable.load(Ordering::Relaxed), 0);
    mounted
        .open(1, DSYNC)
        .write_all_at(&[0xbb; 4096], 4096)
        .unwrap();
    let direct = mounted.open(1, DSYNC | DIRECT);
    direct
        .write_all_at(&Aligned::filled(4096, 3), 8192)
        .unwrap();
    let durable = counts.durable.load(Ordering::Relaxed);
    let flushed = flushes() - 2;
    assert!(
        durable >= 2 || flushed >= 2,
        "{durable} durable, {flushed} flushes"
    );

    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, hole, 512, 1024).unwrap();
    assert_eq!(counts.deallocations.load(Ordering::Relaxed), 1);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 64 * 1024, MIB as u64).unwrap();
    assert_eq!(counts.zeroes.load(Ordering::Relaxed), 1);
    let mut back = vec![0; 2 * MIB];
    file.read_exact_at(&mut back, 0).unwrap();
    let is = |range: std::ops::Range<usize>, byte| back[range].iter().all(|&found| found == byte);
    assert!(is(0..512, 0xaa) && is(512..1536, 0) && is(1536..4096, 0xaa));
    assert!(is(4096..8192, 0xbb) && back[8192..12288] == *Aligned::filled(4096, 3));
    let zeroes = 64 * 1024..64 * 1024 + MIB;
    assert!(is(zeroes.clone(), 0) && is(zeroes.end..2 * MIB, 0xaa));

    // A range beyond the end, and an unknown mode.
    let fails = |mode, at, len| fallocate(&file, mode, at, len).unwrap_err();
    assert_eq!(
        fails(FallocateFlags::ZERO_RANGE, 8 << 20, 512),
        Errno::NOSPC
    );
    assert_eq!(
        fails(FallocateFlags::COLLAPSE_RANGE, 0, 4096),
        Errno::OPNOTSUPP
    );
    fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).unwrap();
    assert_eq!(
        fails(FallocateFlags::empty(), 0, (8 << 20) + 1),
        Errno::NOSPC
    );
}

/// Every file system accepts them.
#[test]
fn holes_and_zeroes_of_parts_of_blocks_leave_the_other_parts() {
    let (devices, counts) = counting(&ram(1 << 20, 4096));
    let Some(mounted) = attach(vec![(1, devices)], |_| {}) else {
        return;
    };
    let file = mounted.open(1, 0);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let zero = FallocateFlags::ZERO_RANGE;
    // Within a block; both edges, without and with whole blocks between; one edge each.
    for (mode, offset, len, whole) in [
        (zero, 100, 512, 0),
        (hole, 4000, 200, 0),
        (zero, 4095, 3 * 4096, 2),
        (hole, 8192, 5000, 1),
        (zero, 5000, 8192 + 4096 - 5000, 1),
        (hole, 100, 0x10000, 15),
    ] {
        let before =
            counts.zeroes.load(Ordering::Relaxed) + counts.deallocations.load(Ordering::Relaxed);
        file.write_all_at(&[0xaa; 1 << 17], 0).unwrap();
        fallocate(&file, mode, offset, len).unwrap();
        let mut expected = vec![0xaa; 1 << 17];
        let start = usize::try_from(offset).unwrap();
        expected[start..start + usize::try_from(len).unwrap()].fill(0);
        let mut back = vec![0; 1 << 17];
        file.read_exact_at(&mut back, 0).unwrap();
        assert!(back == expected, "{offset}, {len}, through the cache");
        let direct = mounted.open(1, DIRECT);
        let mut back = Aligned::new(1 << 17);
        direct.read_exact_at(&mut back, 0).unwrap();
        assert!(back[..] == expected[..], "{offset}, {len}");
        let after =
            counts.zeroes.load(Ordering::Relaxed) + counts.deallocations.load(Ordering::Relaxed);
        assert_eq!(
            after - before,
            usize::from(whole > 0),
            "one for {whole} blocks"
        );
    }
}

/// Programs that copy changed files rely on both times.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "times of files are those of the calendar"
)]
fn times_begin_at_the_attach_and_follow_writes() {
    let began = SystemTime::now();
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000, 123);
    let namespaces = vec![(1, same(ram(1 << 20, 512))), (2, same(ram(1 << 20, 512)))];
    let Some(mut mounted) = attach(namespaces, |options| {
        options.modified.insert(2, old);
    }) else {
        return;
    };
    let times = |nsid| {
        let found = mounted.file(nsid).metadata().unwrap();
        let changed = Duration::new(found.ctime().cast_unsigned(), 0);
        (found.modified().unwrap(), SystemTime::UNIX_EPOCH + changed)
    };
    // File times have a granularity of some milliseconds in the kernel, and `ctime` here one of 1
    // s.
    let second = Duration::from_secs(1);
    assert!(times(1).0 >= began && times(1).1 + second >= began);
    assert_eq!(times(2).0, old);
    let file = mounted.open(2, 0);
    let zero = FallocateFlags::ZERO_RANGE;
    let changes: [&dyn Fn(); 3] = [
        &|| file.write_all_at(&[1; 100], 7).unwrap(),
        &|| {
            let direct = mounted.open(2, DIRECT);
            direct.write_all_at(&Aligned::filled(512, 3), 0).unwrap();
        },
        &|| fallocate(&file, zero, 0, 1024).unwrap(),
    ];
    for change in changes {
        file.set_modified(old).unwrap();
        assert_eq!(times(2).0, old, "it is what a program sets");
        let before = SystemTime::now();
        change();
        let written = times(2);
        assert!(written.0 >= before && written.1 + second >= before);
        file.read_exact_at(&mut [0; 100], 0).unwrap();
        assert_eq!(times(2), written, "a read changes none");
    }
    let written = times(2).0;
    drop(file);
    mounted.detach();
    let left = mounted.attachment().modified();
    assert_eq!(left[1], written);
    assert!(left[0] >= began);
}

#[test]
fn what_a_device_cannot_do_is_refused_with_the_right_error() {
    let Some(mounted) = attach(vec![(1, same(ram(1 << 20, 4096)))], |_| {}) else {
        return;
    };
    let (path, end) = (mounted.file(1), MIB as u64);
    for flags in [0, DIRECT] {
        let file = mounted.open(1, flags);
        let mut block = Aligned::filled(8192, 9);
        assert_eq!(file.read_at(&mut block, end).unwrap(), 0);
        assert_eq!(file.read_at(&mut block, end - 4096).unwrap(), 4096);
        assert_eq!(errno(file.write_at(&block, end)), Errno::NOSPC);
        assert_eq!(errno(file.write_at(&block, 1 << 40)), Errno::NOSPC);
        let across = file.write_at(&block, end - 4096);
        if flags == DIRECT {
            assert_eq!(errno(across), Errno::NOSPC);
        } else {
            assert_eq!(across.unwrap(), 4096);
        }
        assert_eq!(file.metadata().unwrap().len(), end);
    }
    let direct = mounted.open(1, DIRECT);
    assert_eq!(
        errno(File::create(mounted.directory.join("new"))),
        Errno::PERM
    );
    assert_eq!(
        errno(File::create(&path)),
        Errno::PERM,
        "it would be truncated"
    );
    assert_eq!(
        errno(std::fs::create_dir(mounted.directory.join("new"))),
        Errno::PERM
    );
    assert_eq!(errno(std::fs::remove_file(&path)), Errno::PERM);
    assert_eq!(
        errno(std::fs::rename(&path, mounted.directory.join("2"))),
        Errno::PERM
    );
    assert_eq!(errno(direct.set_len(0)), Errno::PERM);
    assert_eq!(errno(direct.set_len(2 * end)), Errno::PERM);
    direct.set_len(end).unwrap();
    assert_eq!(errno(File::open(mounted.directory.join("2"))), Errno::NOENT);
    let names = std::fs::read_dir(&mounted.directory).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["1"]);
}

#[test]
fn a_read_only_attachment_and_a_failing_device_say_so() {
    let read_only = attach(vec![(1, same(ram(1 << 20, 512)))], |options| {
        options.read_only = true;
    });
    let Some(mounted) = read_only else { return };
    assert_eq!(mounted.file(1).metadata().unwrap().mode() & 0o777, 0o444);
    let writable = OpenOptions::new().write(true).open(mounted.file(1));
    assert_eq!(errno(writable), Errno::ROFS);
    File::open(mounted.file(1))
        .unwrap()
        .read_exact_at(&mut [1; 512], 0)
        .unwrap();
    drop(mounted);

    let rule = |operation, error| FaultRule {
        operation,
        ..FaultRule::new(FaultEffect::Error(error))
    };
    let options = FaultOptions {
        rules: vec![
            rule(FaultOperation::Write, BlockError::NoSpace),
            rule(FaultOperation::Read, BlockError::ReadFailure),
            rule(FaultOperation::Flush, BlockError::TimedOut),
            rule(FaultOperation::WriteZeroes, BlockError::Denied),
        ],
        ..FaultOptions::default()
    };
    let device: Arc<dyn Device> = Arc::new(Fault::new(ram(1 << 20, 512), &options).unwrap());
    let mounted = attach(vec![(1, same(device))], |_| {}).unwrap();
    for flags in [0, DIRECT] {
        let file = mounted.open(1, flags);
        let mut block = Aligned::new(4096);
        assert_eq!(errno(file.write_at(&block, 0)), Errno::NOSPC);
        assert_eq!(errno(file.read_at(&mut block, 0)), Errno::IO);
        assert_eq!(errno(file.sync_all()), Errno::TIMEDOUT);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(&file, hole, 0, 512), Err(Errno::ACCESS));
        let zero = FallocateFlags::ZERO_RANGE;
        assert_eq!(fallocate(&file, zero, 0, 512), Err(Errno::ACCESS));
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    let Some(mounted) = attach(vec![(1, same(ram(32 << 20, 512)))], |_| {}) else {
        return;
    };
    let filename = format!("--filename={}", mounted.file(1).display());
    for (engine, direct) in [("libaio", 1), ("io_uring", 1), ("psync", 0)] {
        let (engine, direct) = (format!("--ioengine={engine}"), format!("--direct={direct}"));
        let arguments = [
            "--name=verify",
            &filename,
            &engine,
            &direct,
            "--rw=randwrite",
            "--bsrange=4k-128k",
            "--size=32m",
            "--iodepth=16",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--allow_file_create=0",
        ];
        match mounts::run("fio", &arguments) {
            None => block::skipped("fio is not installed"),
            Some((_, text)) if text.contains("not loadable") || text.contains("not permitted") => {
                block::skipped(format_args!("{engine}: {text}"));
            }
            Some((succeeded, text)) => assert!(succeeded, "{engine}: {text}"),
        }
    }
}

/// Sets the I/O priority class of the calling thread through `ionice`; returns false if that is
/// refused.
fn set_io_priority(class: &str) -> bool {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let done = mounts::run("ionice", &["-c", class, "-p", &thread]);
    done.is_some_and(|(succeeded, _)| succeeded)
}

#[test]
fn the_class_follows_the_options_or_the_io_priority_of_the_thread() {
    let (devices, counts) = counting(&ram(1 << 20, 4096));
    let by_priority = |options: &mut Options| options.class = ClassChoice::ByIoPriority;
    let Some(mounted) = attach(vec![(1, devices)], by_priority) else {
        return;
    };
    let path = mounted.file(1);
    let write_as = |class: &'static str| {
        let file = mounts::open(&path, DIRECT);
        let thread = std::thread::spawn(move || {
            let set = set_io_priority(class);
            file.write_all_at(&Aligned::new(4096), 0).unwrap();
            set
        });
        thread.join().unwrap()
    };
    if write_as("3") {
        assert_eq!(
            (
                counts.writes(Class::Latency),
                counts.writes(Class::Throughput)
            ),
            (0, 1)
        );
    }
    let before = counts.writes(Class::Latency);
    if write_as("1") {
        assert_eq!(counts.writes(Class::Latency), before + 1);
    } else {
        block::skipped("the real-time I/O priority is refused");
    }
    drop(mounted);

    let (devices, counts) = counting(&ram(1 << 20, 4096));
    let fixed = |options: &mut Options| options.class = ClassChoice::Fixed(Class::Latency);
    let mounted = attach(vec![(1, devices)], fixed).unwrap();
    let file = mounted.open(1, DIRECT);
    file.read_exact_at(&mut Aligned::new(4096), 0).unwrap();
    assert_eq!(
        (
            counts.reads(Class::Latency),
            counts.reads(Class::Throughput)
        ),
        (1, 0)
    );
}

/// Each thread of the other tests sends a single request, so they never see a class that is looked
/// up again.
#[test]
fn a_change_of_the_io_priority_counts_when_what_is_remembered_is_old() {
    let (devices, counts) = counting(&ram(1 << 20, 4096));
    let by_priority = |options: &mut Options| options.class = ClassChoice::ByIoPriority;
    let Some(mounted) = attach(vec![(1, devices)], by_priority) else {
        return;
    };
    let file = mounted.open(1, DIRECT);
    let write = || file.write_all_at(&Aligned::new(4096), 0).unwrap();
    let written = || Class::ALL.map(|class| counts.writes(class));
    // A thread whose priority no other test has set.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write();
            assert_eq!(written(), [0, 1]);
            if !set_io_priority("1") {
                block::skipped("the real-time I/O priority is refused");
                return;
            }
            std::thread::sleep(switchyard_frontend::fuse::limits::CLASS_AGE.into());
            write();
            assert_eq!(written(), [1, 1]);
        });
    });
}

/// A loop device with a mount of it; both are removed when dropped.
struct Loop {
    device: String,
    mounted: Option<std::path::PathBuf>,
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(place) = &self.mounted {
            let _ = mounts::run("umount", &[place.to_str().unwrap()]);
            let _ = std::fs::remove_dir(place);
        }
        let _ = mounts::run("losetup", &["-d", &self.device]);
    }
}

#[test]
fn a_file_system_lives_on_a_loop_device_over_the_file() {
    let Some(mounted) = attach(vec![(1, same(ram(64 << 20, 512)))], |_| {}) else {
        return;
    };
    let path = mounted.file(1);
    let found = mounts::run("losetup", &["-f", "--show", path.to_str().unwrap()]);
    let device = match found {
        Some((true, device)) => device.trim().to_owned(),
        other => {
            block::skipped(format_args!("no loop device: {other:?}"));
            return;
        }
    };
    let mut guard = Loop {
        device: device.clone(),
        mounted: None,
    };
    let Some((made, text)) = mounts::run("mkfs.ext4", &["-q", &device]) else {
        block::skipped("mkfs.ext4 is not installed");
        return;
    };
    assert!(made, "{text}");
    let place = mounted.directory.with_extension("ext4");
    std::fs::create_dir(&place).unwrap();
    guard.mounted = Some(place.clone());
    let done = mounts::run("mount", &[&device, place.to_str().unwrap()]).unwrap();
    if !done.0 {
        block::skipped(format_args!("cannot mount ext4: {}", done.1));
        return;
    }
    let mut data = vec![0; 5 * MIB + 123];
    fill(&mut data, 42);
    std::fs::write(place.join("data"), &data).unwrap();
    std::fs::remove_file(place.join("data")).unwrap();
    std::fs::write(place.join("kept"), &data).unwrap();
    // A process started by another test holds the written file until it executes its program.
    let done = loop {
        let done = mounts::run("umount", &[place.to_str().unwrap()]).unwrap();
        if !done.1.contains("busy") {
            break done;
        }
    };
    assert!(done.0, "{}", done.1);
    let (clean, text) = mounts::run("fsck.ext4", &["-fn", &device]).unwrap();
    assert!(clean, "{text}");
    let done = mounts::run("mount", &["-o", "ro", &device, place.to_str().unwrap()]).unwrap();
    assert!(done.0, "{}", done.1);
    assert!(std::fs::read(place.join("kept")).unwrap() == data);
}

/// Each open file must receive its own report of a loss: with a shared one, the second `fsync`
/// would succeed although its writes were lost.
#[test]
fn each_open_file_hears_of_a_lost_cache_once() {
    let device = forgetful();
    let Some(mounted) = attach(vec![(1, same(Arc::clone(&device) as _))], |_| {}) else {
        return;
    };
    let files = [mounted.open(1, 0), mounted.open(1, 0)];
    device.lose();
    for file in &files {
        assert_eq!(errno(file.sync_all()), Errno::IO);
        file.sync_all().unwrap();
    }
    mounted.open(1, 0).sync_all().unwrap();
    device.lose();
    assert_eq!(errno(files[1].sync_all()), Errno::IO);
    assert_eq!(errno(files[0].sync_all()), Errno::IO);
    drop(files);
    device.lose();
    let file = mounted.open(1, 0);
    assert_eq!(errno(file.sync_all()), Errno::IO, "no file was told before");
    file.sync_all().unwrap();
}

#[test]
fn a_new_size_is_seen_when_attributes_are_old() {
    let growing = Growing::new(ram(2 << 20, 4096));
    let Some(mounted) = attach(vec![(1, same(Arc::clone(&growing) as _))], |_| {}) else {
        return;
    };
    let (file, path) = (mounted.open(1, 0), mounted.file(1));
    let mut back = [0; 4096];
    assert_eq!(file.read_at(&mut back, MIB as u64).unwrap(), 0);
    assert_eq!(errno(file.write_at(&back, MIB as u64)), Errno::NOSPC);
    assert_eq!(path.metadata().unwrap().len(), 1 << 20);
    growing.grow();
    let by = std::time::Instant::now() + Duration::from_secs(20);
    while path.metadata().unwrap().len() != 2 << 20 {
        assert!(std::time::Instant::now() < by, "it was not seen");
        std::thread::yield_now();
    }
    file.write_all_at(&[5; 4096], MIB as u64).unwrap();
    file.read_exact_at(&mut back, MIB as u64).unwrap();
    assert_eq!(back, [5; 4096]);
}

/// With an empty file, a program that reads to the end would get a short copy without an error.
#[test]
fn a_device_that_went_away_is_no_empty_one() {
    let device = forgetful();
    let Some(mounted) = attach(vec![(1, same(Arc::clone(&device) as _))], |_| {}) else {
        return;
    };
    let (direct, cached) = (mounted.open(1, DIRECT), mounted.open(1, 0));
    let mut data = Aligned::new(4096);
    direct.read_exact_at(&mut data, 0).unwrap();
    device.set_gone(true);
    // The kernel refreshes older attributes, by its own coarse clock.
    std::thread::sleep(2 * switchyard_frontend::fuse::limits::ATTRIBUTES_AGE);
    assert_eq!(mounted.file(1).metadata().unwrap().len(), 1 << 20);
    for file in [&direct, &cached] {
        assert_eq!(errno(file.read_at(&mut data, 8192)), Errno::NODEV);
        assert_eq!(errno(file.write_at(&data, 8192)), Errno::NODEV);
        let punched = fallocate(
            file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            0,
            4096,
        );
        assert_eq!(punched, Err(Errno::NODEV));
        assert_eq!(errno(file.sync_all()), Errno::NODEV);
    }
}

/// A memory allocation in a front-end thread must not write to the file system over its own file,
/// which would wait for that thread. Without `CAP_SYS_RESOURCE` nothing changes.
#[test]
fn its_threads_wait_for_no_writes_to_get_memory() {
    // The kernel's PF_MEMALLOC_NOIO.
    const NO_IO: u64 = 0x8_0000;
    let of_threads = |name: &str| -> Vec<bool> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let stats = tasks.filter_map(|task| {
            let path = task.unwrap().path().join("stat");
            std::fs::read_to_string(path).ok()
        });
        let named = stats.filter(|stat| stat.contains(&format!("({name})")));
        let flags = named.map(|stat| {
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            let flags = fields.split(' ').nth(6).unwrap();
            flags.parse::<u64>().unwrap() & NO_IO > 0
        });
        flags.collect()
    };
    let may = std::thread::spawn(|| rustix::process::configure_io_flusher_behavior(true));
    let may = may.join().unwrap().is_ok();
    let Some(_mounted) = attach(vec![(1, same(ram(1 << 20, 4096)))], |_| {}) else {
        return;
    };
    // Other tests start threads with this name, too.
    let by = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let found = of_threads("fuse-dataplane");
        if !found.is_empty() && found.iter().all(|has| *has == may) {
            break;
        }
        assert!(std::time::Instant::now() < by, "{found:?}");
        std::thread::yield_now();
    }
}
