//! The life of a FUSE attachment: what it refuses to attach, and how it ends.

use crate::growing::Growing;
use crate::mounts::{Aligned, DIRECT, attach, ram, same};
use crate::nbd_servers;
use block::Device;
use block::device::Null;
use block::layer::fault::{Fault, FaultEffect, FaultOptions, FaultRule};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use switchyard_frontend::fuse::{Attachment, FuseError, Options};

#[test]
fn an_attachment_in_use_stays_and_a_dropped_one_is_gone() {
    let Some(mut mounted) = attach(vec![(3, same(ram(1 << 20, 512)))], |_| {}) else {
        return;
    };
    let (path, directory) = (mounted.file(3), mounted.directory.clone());
    let again = Attachment::start(vec![(1, same(ram(4096, 512)))], &Options::new(&directory));
    let again = again.unwrap_err();
    assert!(matches!(again, FuseError::AlreadyMounted(_)), "{again}");

    let file = mounted.open(3, 0);
    assert_eq!(mounted.attachment().open_files(), 1);
    let error = mounted.attachment().detach().unwrap_err();
    assert!(matches!(error, FuseError::InUse { open: 1, .. }), "{error}");
    file.write_all_at(&[5; 512], 0).unwrap();
    drop(file);
    assert!(!mounted.attachment().has_ended());
    mounted.detach();
    mounted.attachment().detach().unwrap();
    assert!(mounted.attachment().has_ended());
    assert!(!path.exists());

    // Dropped while a file is open: that file is dead, and the directory is empty again.
    let mounted = attach(vec![(3, same(ram(1 << 20, 512)))], |_| {}).unwrap();
    let (file, directory) = (mounted.open(3, DIRECT), mounted.directory.clone());
    let mut mounted = mounted;
    drop(mounted.attachment.take());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    file.read_at(&mut Aligned::new(4096), 0).unwrap_err();
}

/// A device that answers nothing, also as what counts the requests to it.
fn hanging() -> (Arc<dyn Device>, Arc<Fault>) {
    let options = FaultOptions {
        rules: vec![FaultRule::new(FaultEffect::Hang)],
        ..FaultOptions::default()
    };
    let fault = Arc::new(Fault::new(ram(1 << 20, 512), &options).unwrap());
    (Arc::<Fault>::clone(&fault), fault)
}

#[test]
fn requests_that_hang_are_given_up_with_the_attachment() {
    let (device, fault) = hanging();
    let Some(mut mounted) = attach(vec![(1, same(device))], |_| {}) else {
        return;
    };
    let file = mounted.open(1, DIRECT);
    let reader = std::thread::spawn(move || file.read_at(&mut Aligned::new(4096), 0));
    while fault.strikes() == [0] {
        std::thread::yield_now();
    }
    drop(mounted.attachment.take());
    reader.join().unwrap().unwrap_err();
}

/// Runs a program; returns its output if it succeeds.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then(|| text.trim().to_owned())
}

/// A loop device over a file, with a mounted file system on it; both are gone when it is dropped.
struct Loop {
    device: String,
    mountpoint: std::path::PathBuf,
}

impl Loop {
    /// `None` where this machine or this user cannot have it.
    fn mount(file: &str, mountpoint: &std::path::Path) -> Option<Self> {
        let device = run("losetup", &["--find", "--show", file])?;
        let mountpoint = mountpoint.to_owned();
        std::fs::create_dir(&mountpoint).unwrap();
        let mounted = Self { device, mountpoint };
        run("mount", &[&mounted.device, mounted.mountpoint.to_str()?])?;
        Some(mounted)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("umount", &["-l", self.mountpoint.to_str().unwrap()]);
        run("losetup", &["-d", &self.device]);
        let _ = std::fs::remove_dir(&self.mountpoint);
    }
}

/// A file that was written a moment before the forced end was empty afterwards.
#[test]
fn a_forced_end_writes_back_what_a_file_system_above_holds() {
    let (device, image) = nbd_servers::file_device();
    let image = Image(image);
    if run("mkfs.ext4", &["-q", image.path()]).is_none() {
        return block::skipped("mkfs.ext4 is missing");
    }
    let Some(mut mounted) = attach(vec![(1, same(device))], |_| {}) else {
        return;
    };
    let directory = image.0.with_extension("mnt");
    let file = mounted.file(1);
    let Some(above) = Loop::mount(file.to_str().unwrap(), &directory) else {
        return block::skipped("no loop device can be mounted here");
    };
    let content = vec![0x5a; 8 << 20];
    std::fs::write(directory.join("file"), &content).unwrap();
    mounted.attachment().detach_forced();
    assert!(mounted.attachment().was_forced());
    drop(above);
    let again = Loop::mount(image.path(), &directory).unwrap();
    assert!(std::fs::read(directory.join("file")).unwrap() == content);
    drop(again);
}

/// The file of a device; removed when dropped.
struct Image(std::path::PathBuf);

impl Image {
    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Names the process that is to be killed in the next test.
const IS_KILLED: &str = "SWITCHYARD_FUSE_TEST_IS_KILLED";

/// A thread of it waited for an answer of another one that had ended, so the process and its mount
/// stayed, and what looked at the mount waited as well.
#[test]
fn a_process_of_tests_that_is_killed_leaves_no_mount() {
    if std::env::var_os(IS_KILLED).is_some() {
        return be_killed();
    }
    let name = "fuse_attachment::a_process_of_tests_that_is_killed_leaves_no_mount";
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(["--exact", name, "--nocapture"]);
    tests.env(IS_KILLED, "").stdout(Stdio::piped());
    tests.env("TMPDIR", block::temporary_folder("tmp"));
    let mut tests = tests.spawn().unwrap();
    let lines = BufReader::new(tests.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    let waits = lines.find_map(|line| Some(line.strip_prefix("waits in ")?.to_owned()));
    let Some(directory) = waits else {
        assert!(tests.wait().unwrap().success());
        block::skipped("nothing can be mounted here");
        return;
    };
    tests.kill().unwrap();
    let by = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // The directory is removed behind the mount. To look at it before the process has ended may wait.
    while tests.try_wait().unwrap().is_none() || std::fs::exists(&directory).unwrap_or(true) {
        assert!(std::time::Instant::now() < by, "{directory} is left");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Waits for a request to its own mount that is never answered, and says where.
fn be_killed() {
    let (device, fault) = hanging();
    let Some(mounted) = attach(vec![(1, same(device))], |_| {}) else {
        return;
    };
    let file = mounted.open(1, DIRECT);
    std::thread::spawn(move || file.read_at(&mut Aligned::new(4096), 0));
    while fault.strikes() == [0] {
        std::thread::yield_now();
    }
    // In a line of its own: the harness has begun one.
    let said = format!("\nwaits in {}\n", mounted.directory.display());
    io::stdout().write_all(said.as_bytes()).unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let device = || same(ram(4096, 512));
    let directory = block::temporary_folder("empty");
    let start = |namespaces, path: &std::path::Path| {
        Attachment::start(namespaces, &Options::new(path)).unwrap_err()
    };
    let error = start(vec![], &directory);
    assert!(matches!(error, FuseError::Namespaces(_)), "{error}");
    let error = start(vec![(1, device()), (1, device())], &directory);
    assert!(error.to_string().contains("twice"), "{error}");
    let error = start(vec![(1, device())], &directory.join("not there"));
    assert!(matches!(error, FuseError::MountPoint { .. }), "{error}");
    let error = start(vec![(1, device())], std::path::Path::new("/dev/null"));
    assert!(matches!(error, FuseError::NotADirectory(_)), "{error}");
}

/// Its file could be neither looked at nor opened (EIO).
#[test]
fn a_device_that_is_larger_than_a_file_can_be_is_refused() {
    let null = |bytes| same(Arc::new(Null::new(bytes, 4096).unwrap()) as _);
    let most = (1 << 63) - 4096;
    let Some(mut mounted) = attach(vec![(1, null(most))], |_| {}) else {
        return;
    };
    let file = mounted.open(1, 0);
    assert_eq!(file.metadata().unwrap().len(), most);
    file.read_exact_at(&mut [1; 4096], most - 4096).unwrap();
    drop(file);
    mounted.detach();
    let options = Options::new(&mounted.directory);
    let error = Attachment::start(vec![(1, null(1 << 63))], &options).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("at most 9223372036854775807 bytes"),
        "{error}"
    );
}

/// The same where it became so while it was a file.
#[test]
fn a_device_that_grows_beyond_what_a_file_can_be_is_one_as_large_as_files_are() {
    let growing = Growing::new(Arc::new(Null::new(1 << 63, 4096).unwrap()));
    let Some(mounted) = attach(vec![(1, same(Arc::clone(&growing) as _))], |_| {}) else {
        return;
    };
    let (file, path) = (mounted.open(1, DIRECT), mounted.file(1));
    assert_eq!(path.metadata().unwrap().len(), 1 << 62);
    growing.grow();
    let most = (1 << 63) - 4096;
    let by = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while path.metadata().unwrap().len() != most {
        assert!(std::time::Instant::now() < by, "it was not seen");
        std::thread::yield_now();
    }
    let mut block = Aligned::new(4096);
    file.read_exact_at(&mut block, most - 4096).unwrap();
    file.write_all_at(&block, most - 4096).unwrap();
    mounted.open(1, 0).sync_all().unwrap();
}

#[test]
fn a_processor_that_is_not_there_is_refused_and_nothing_is_left() {
    let namespaces = || vec![(1, same(ram(4096, 512)))];
    let here = rustix::thread::sched_getcpu();
    let core = Some(base::units::CoreId(u32::try_from(here).unwrap()));
    let Some(mut mounted) = attach(namespaces(), |options| options.core = core) else {
        return;
    };
    mounted.open(1, 0).write_all_at(&[1; 512], 0).unwrap();
    mounted.detach();
    let mut options = Options::new(&mounted.directory);
    options.core = Some(base::units::CoreId(u32::MAX));
    let error = Attachment::start(namespaces(), &options).unwrap_err();
    assert!(matches!(error, FuseError::Placement(_)), "{error}");
    assert_eq!(std::fs::read_dir(&mounted.directory).unwrap().count(), 0);
}
