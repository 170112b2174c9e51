//! Mounts for tests, and a device that counts requests.
#![allow(clippy::unwrap_used)] // What fails here fails the test.
#![allow(dead_code)] // No test uses all of it.

use block::{Channel, Device, Operation, Request, Submit};
use reactor::{Completion, Context, OpNamespace};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use switch::{Class, PerClass};
use switchyard_frontend::fuse::{Attachment, FuseError, Options};
use testing::device::TestDevice;

/// `O_DIRECT` and `O_DSYNC`, in the type that the standard library expects.
pub(crate) const DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits().cast_signed();
pub(crate) const DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits().cast_signed();

/// The same device for each class of a namespace.
pub(crate) fn same(device: Arc<dyn Device>) -> PerClass<Arc<dyn Device>> {
    PerClass::from_fn(|_| Arc::clone(&device))
}

pub(crate) fn ram(bytes: u64, block_bytes: u32) -> Arc<dyn Device> {
    Arc::new(block::device::Ram::new(bytes, block_bytes).unwrap())
}

/// An attachment in its own directory. Both are removed when it is dropped, and also if the test
/// panics or its process is killed.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) attachment: Option<Attachment>,
    pub(crate) directory: PathBuf,
    watcher: Watcher,
}

/// A process that removes a directory and its mount once this process has ended or is being killed.
///
/// A thread that waits for a file served by its own process does not end when the process is
/// killed, because the serving thread has ended. The process and the mount then remain, and every
/// other process that accesses the mount blocks as well.
#[derive(Debug)]
struct Watcher(Child);

/// Waits until the process `$1` or its first thread has ended, or is being killed by a signal, and
/// then aborts the connection of the mount at `$2`. `[proc_pid_status(5), proc_pid_mountinfo(5)]`
const WATCH: &str = r#"
ends='^State:\s*[ZX]|^(SigPnd|ShdPnd):\s*[0-9a-f]*[13579bdf][0-9a-f]{2}$'
while [ -e "/proc/$1" ] && ! grep -Eq "$ends" "/proc/$1/status"; do
    sleep 0.5
done
while read -r _ _ device _ path _; do
    [ "$path" = "$2" ] || continue
    echo 1 >"/sys/fs/fuse/connections/${device#*:}/abort"
    umount -f -l "$2" || fusermount3 -u -z "$2"
done </proc/self/mountinfo
rmdir "$2"
"#;

impl Watcher {
    fn start(directory: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCH, "watcher", &std::process::id().to_string()]);
        shell.arg(directory).stdin(Stdio::null());
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        // A signal to this process's group does not reach it.
        Self(shell.process_group(0).spawn().unwrap())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns why this machine cannot mount, or `None` for any other error.
fn refusal(error: &FuseError) -> Option<String> {
    let missing = matches!(error, FuseError::NoFuse(_) | FuseError::NoHelper(_));
    let denied = matches!(error, FuseError::Mount { reason, .. }
        if reason.to_lowercase().contains("permi"));
    (missing || denied).then(|| error.to_string())
}

/// Attaches devices with default options as modified by `change`; reports why and returns `None` if
/// this machine cannot.
pub(crate) fn attach(
    namespaces: Vec<(u32, PerClass<Arc<dyn Device>>)>,
    change: impl FnOnce(&mut Options),
) -> Option<Mounted> {
    let directory = block::temporary_folder("fuse").canonicalize().unwrap();
    let mut options = Options::new(&directory);
    change(&mut options);
    let mut mounted = Mounted {
        attachment: None,
        watcher: Watcher::start(&directory),
        directory,
    };
    match Attachment::start(namespaces, &options) {
        Ok(attachment) => {
            mounted.attachment = Some(attachment);
            Some(mounted)
        }
        Err(error) => {
            let why = refusal(&error).unwrap_or_else(|| panic!("{error}"));
            block::skipped(why);
            None
        }
    }
}

impl Mounted {
    pub(crate) fn file(&self, nsid: u32) -> PathBuf {
        self.directory.join(nsid.to_string())
    }

    pub(crate) fn open(&self, nsid: u32, flags: i32) -> File {
        open(&self.file(nsid), flags)
    }

    /// Detaches once no file is open: a program started by another test holds all files of this
    /// process until it executes.
    pub(crate) fn detach(&mut self) {
        loop {
            match self.attachment().detach() {
                Err(FuseError::InUse { .. }) => std::thread::yield_now(),
                result => return result.unwrap(),
            }
        }
    }

    pub(crate) fn attachment(&mut self) -> &mut Attachment {
        self.attachment.as_mut().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.attachment.take());
        let removed = std::fs::remove_dir(&self.directory);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

/// Opens a file for reading and writing.
pub(crate) fn open(path: &Path, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options.open(path).unwrap()
}

/// Bytes at a multiple of 4 KiB, as required for direct I/O.
#[derive(Debug)]
pub(crate) struct Aligned {
    memory: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    pub(crate) fn new(len: usize) -> Self {
        let memory = vec![0; len + 4096];
        let from = memory.as_ptr().align_offset(4096);
        Self { memory, from, len }
    }

    pub(crate) fn filled(len: usize, seed: u64) -> Self {
        let mut bytes = Self::new(len);
        fill(&mut bytes, seed);
        bytes
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.from..self.from + self.len]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.len]
    }
}

/// A pattern that differs in each 8 bytes and with each seed.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in bytes.chunks_mut(8) {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let word = state.to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Numbers of requests that reached a device.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: PerClass<AtomicUsize>,
    pub(crate) writes: PerClass<AtomicUsize>,
    pub(crate) durable: AtomicUsize,
    pub(crate) flushes: AtomicUsize,
    pub(crate) deallocations: AtomicUsize,
    pub(crate) zeroes: AtomicUsize,
}

impl Counts {
    pub(crate) fn reads(&self, class: Class) -> usize {
        self.reads[class].load(Ordering::Relaxed)
    }

    pub(crate) fn writes(&self, class: Class) -> usize {
        self.writes[class].load(Ordering::Relaxed)
    }
}

/// Counting paths to `below`, one for each class.
pub(crate) fn counting(below: &Arc<dyn Device>) -> (PerClass<Arc<dyn Device>>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let devices = PerClass::from_fn(|class| {
        let counts = Arc::clone(&counts);
        Arc::new(TestDevice::new(Arc::clone(below), move |below| {
            Box::new(CountingChannel {
                below,
                class,
                counts: Arc::clone(&counts),
            })
        })) as Arc<dyn Device>
    });
    (devices, counts)
}

/// A channel that counts the requests to the one below it.
#[derive(Debug)]
struct CountingChannel {
    below: Box<dyn Channel>,
    class: Class,
    counts: Arc<Counts>,
}

impl Channel for CountingChannel {
    fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> Submit {
        let operation = request.operation;
        let submit = self.below.submit(request, cx);
        if matches!(submit, Submit::Busy(_)) {
            return submit;
        }
        let counts = &self.counts;
        let counter = match operation {
            Operation::Read => &counts.reads[self.class],
            Operation::Write { durable } => {
                counts
                    .durable
                    .fetch_add(usize::from(durable), Ordering::Relaxed);
                &counts.writes[self.class]
            }
            Operation::Flush => &counts.flushes,
            Operation::WriteZeroes {
                deallocate: true, ..
            } => &counts.deallocations,
            _ => &counts.zeroes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        submit
    }

    fn kick(&mut self, cx: &mut Context<'_>) {
        self.below.kick(cx);
    }

    fn owns(&self, op_namespace: OpNamespace) -> bool {
        self.below.owns(op_namespace)
    }

    fn complete(&mut self, completion: Completion, cx: &mut Context<'_>) {
        self.below.complete(completion, cx);
    }

    fn reap(&mut self) -> Option<block::Completion> {
        self.below.reap()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.below.tick(cx);
    }

    fn deadline(&self) -> base::Time {
        self.below.deadline()
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.below.close(cx);
    }

    fn closed(&self) -> bool {
        self.below.closed()
    }
}

/// Runs a program; returns whether it succeeded, and its output. `None` if it is not installed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Option<(bool, String)> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{program}: {error}"),
    };
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some((output.status.success(), text))
}
