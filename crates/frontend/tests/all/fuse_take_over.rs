//! Attachments that take each other over: a mount with open files, under load.

use crate::closed_gate::gated;
use crate::mounts::{Aligned, DIRECT, attach, ram, same};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use switchyard_frontend::fuse::{Attachment, FuseError, Options};

/// Longer than any pause that works.
fn patience() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn open_files_continue_in_the_next_process() {
    let namespaces = vec![(1, same(ram(1 << 20, 512))), (7, same(ram(1 << 20, 4096)))];
    let Some(mut mounted) = attach(namespaces.clone(), |_| {}) else {
        return;
    };
    let options = Options::new(&mounted.directory);
    let file = mounted.open(7, DIRECT);
    let inode = file.metadata().unwrap().ino();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (nsid, len) in [(1, 512), (7, 8192)] {
            let (file, stop, rounds) = (mounted.open(nsid, DIRECT), &stop, &rounds);
            scope.spawn(move || {
                for seed in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let data = Aligned::filled(len, seed);
                    file.write_all_at(&data, 65536).unwrap();
                    let mut read = Aligned::new(len);
                    file.read_exact_at(&mut read, 65536).unwrap();
                    assert!(*read == *data, "file {nsid}, round {seed}");
                    if seed % 8 == 0 {
                        file.sync_all().unwrap();
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..6 {
            let begun = rounds.load(Ordering::Relaxed);
            let runs = || rounds.load(Ordering::Relaxed) > begun + 20;
            testing::eventually("the load runs", runs);
            let mut before = mounted.attachment.take().unwrap();
            let taken = before.share_mount().unwrap();
            let next = Attachment::prepare(namespaces.clone(), &options, Some(taken));
            let mut next = next.unwrap();
            let handed = before.pause(patience()).unwrap();
            assert_eq!(next.open_files(), 0);
            next.resume(handed).unwrap();
            testing::eventually("its files are open", || next.open_files() == 3);
            before.leave();
            drop(before);
            mounted.attachment = Some(next);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(mounted.open(7, 0).metadata().unwrap().ino(), inode);
    let mut read = Aligned::new(4096);
    file.read_exact_at(&mut read, 65536).unwrap();
    drop(file);
    testing::eventually("closed files are known", || {
        mounted.attachment().open_files() == 0
    });
    mounted.detach();
}

#[test]
fn a_take_over_that_fails_leaves_the_mount_as_it_is() {
    let (device, gate) = gated(&ram(1 << 20, 512));
    let Some(mut mounted) = attach(vec![(1, same(Arc::clone(&device)))], |_| {}) else {
        return;
    };
    let file = mounted.open(1, DIRECT);
    let options = Options::new(&mounted.directory);
    // Other namespaces would have the numbers of these files.
    let taken = mounted.attachment().share_mount().unwrap();
    let other = Attachment::prepare(vec![(2, same(ram(1 << 20, 512)))], &options, Some(taken));
    assert!(matches!(other.unwrap_err(), FuseError::Different(_)));
    std::thread::scope(|scope| {
        let file = &file;
        let write = scope.spawn(move || file.write_all_at(&Aligned::filled(4096, 3), 0));
        testing::eventually("the request is in the device", || gate.waiting() == 1);
        let reason = mounted.attachment().pause(Instant::now()).unwrap_err();
        assert!(reason.contains("in time"), "{reason}");
        gate.open();
        write.join().unwrap().unwrap();
    });
    // A successor that ends before it serves.
    let taken = mounted.attachment().share_mount().unwrap();
    let next = Attachment::prepare(vec![(1, same(device))], &options, Some(taken)).unwrap();
    let handed = mounted.attachment().pause(patience()).unwrap();
    drop(next);
    mounted.attachment().resume(handed).unwrap();
    let mut read = Aligned::new(4096);
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(*read == *Aligned::filled(4096, 3));
    drop(file);
    mounted.detach();
}
