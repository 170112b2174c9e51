//! SIGTERM while hosts write to a file: acknowledged writes are in the file, and the exit code is 1
//! if and only if commands were abandoned.

use crate::common::{Folder, NQN, Serving, eventually, pattern};
use block::BlockError;
use host::{Host, RequestError, Subsystem};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BLOCK: usize = 4096;

/// Threads that write concurrently, each to its own blocks.
const WRITERS: u64 = 4;

/// Blocks per thread.
const BLOCKS: u64 = 64;

/// Serves a file of 16 MiB; `device` has further configuration lines of the device.
fn serve(folder: &Folder, drain_ms: u32, device: &str) -> Serving {
    let disk = folder.path("disk");
    let config = folder.write(
        "switchyard.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n[limits]\ndrain_timeout_ms = {drain_ms}\n\
             [devices.disk]\ntype = \"file\"\npath = \"{disk}\"\ncreate = true\nsize = \"16M\"\n\
             block_size = {BLOCK}\n{device}[[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, device = \"disk\" }}]\n"
        ),
    );
    Serving::start(&["--config", &config])
}

/// A host with short time-outs for a lost target.
fn connect(serving: &Serving) -> (Host, Subsystem) {
    let host = Host::builder()
        .loss_timeout(Some(Duration::from_secs(1)))
        .build()
        .unwrap();
    let subsystem = host.connect(serving.address(), NQN).unwrap();
    (host, subsystem)
}

/// Results of a writer's writes to one of its blocks.
#[derive(Clone, Default)]
struct Told {
    /// The round of the last acknowledged write, if any.
    done: Option<u64>,
    /// The round of a later failed write, which may or may not have been executed.
    unknown: Option<u64>,
}

/// Returns the unique content of a block that this writer wrote in this round.
fn content(writer: u64, round: u64) -> Vec<u8> {
    pattern(writer << 32 | round, BLOCK)
}

fn offset(writer: u64, block: u64) -> u64 {
    (writer * BLOCKS + block) * BLOCK as u64
}

/// Writes until a write fails. Returns the results for each of the writer's blocks.
fn write_until_the_end(subsystem: &Subsystem, writer: u64, done: &AtomicU64) -> Vec<Told> {
    let namespace = subsystem.namespace(1).unwrap();
    let mut told = vec![Told::default(); usize::try_from(BLOCKS).unwrap()];
    for round in 0.. {
        let block = round % BLOCKS;
        let of_block = &mut told[usize::try_from(block).unwrap()];
        let written = namespace.write(offset(writer, block), &content(writer, round));
        if written.is_err() {
            of_block.unknown = Some(round);
            break;
        }
        of_block.done = Some(round);
        done.fetch_add(1, Ordering::Relaxed);
    }
    told
}

/// Sends SIGTERM while all writers write. Returns the exit code, stderr, and the writers' results.
fn end_under_load(serving: Serving) -> (Option<i32>, String, Vec<Vec<Told>>) {
    let (_host, subsystem) = connect(&serving);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (subsystem, done) = (&subsystem, &done);
                scope.spawn(move || write_until_the_end(subsystem, writer, done))
            })
            .collect();
        eventually("the load runs", || done.load(Ordering::Relaxed) > 300);
        serving.signal("-TERM");
        let (code, said) = serving.end();
        let told = writers.into_iter().map(|writer| writer.join().unwrap());
        (code, said, told.collect())
    })
}

/// Compares the file with the writers' results.
fn check_file(folder: &Folder, told: &[Vec<Told>]) {
    let file = std::fs::read(folder.path("disk")).unwrap();
    for (writer, told) in (0..).zip(told) {
        for (block, told) in (0..).zip(told) {
            let at = usize::try_from(offset(writer, block)).unwrap();
            let found = &file[at..at + BLOCK];
            let is = |round: u64| found == content(writer, round);
            let untouched = || found.iter().all(|&byte| byte == 0);
            assert!(
                told.done.map_or_else(untouched, is) || told.unknown.is_some_and(is),
                "writer {writer}, block {block}"
            );
        }
    }
}

/// The drain time-out exceeds the test's: a process that uses all of it fails the test.
#[test]
fn sigterm_under_load_loses_no_acknowledged_write() {
    let folder = Folder::new();
    let (code, said, told) = end_under_load(serve(&folder, 3_600_000, ""));
    assert_eq!(code, Some(0), "{said}");
    check_file(&folder, &told);
}

/// A read that the device never completes is abandoned by its host, and then by the target when it
/// ends.
#[test]
fn sigterm_that_gives_a_command_up_says_so_and_loses_no_acknowledged_write() {
    let folder = Folder::new();
    let hanging = WRITERS * BLOCKS;
    let fault = format!(
        "[devices.disk.fault]\nseed = 1\n[[devices.disk.fault.rules]]\noperation = \"read\"\n\
         hang = true\nfirst_block = {hanging}\nblocks = 1\n"
    );
    let serving = serve(&folder, 500, &fault);
    let host = Host::builder()
        .command_timeout(Duration::from_millis(500))
        .build()
        .unwrap();
    let subsystem = host.connect(serving.address(), NQN).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    // The read has failed, so the device has it.
    let error = namespace.read(offset(WRITERS, 0), &mut [0; BLOCK]);
    let error = error.unwrap_err();
    assert!(
        matches!(error, RequestError::Device(BlockError::TimedOut)),
        "{error:?}"
    );
    let (code, said, told) = end_under_load(serving);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("a device has not completed"), "{said}");
    check_file(&folder, &told);
}
