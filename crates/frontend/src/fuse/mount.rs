//! Mounting and unmounting, by the kernel or through `fusermount3`.

use super::error::FuseError;
use super::limits::MESSAGE_MAX_BYTES;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstatfs, open, statfs, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Source name of the mounts in `/proc/mounts`.
const NAME: &str = "switchyard";

/// File system type in `/proc/mounts`, with the name as its subtype.
const TYPE: &str = "fuse.switchyard";

/// The program that mounts for unprivileged processes.
const HELPER: &str = "fusermount3";

/// Options of a mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct MountOptions {
    pub(super) allow_other: bool,
    pub(super) read_only: bool,
}

/// How a mount is created and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Kernel,
    Helper,
}

/// A connection to the kernel, identified by the device number of its mount; `None` if unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection(Option<(u32, u32)>);

impl Connection {
    /// Aborts the connection: requests fail from now on. Only while the session is alive: later the
    /// number may belong to another mount.
    pub(super) fn abort(self) {
        if let Self(Some((_, minor))) = self {
            let control = format!("/sys/fs/fuse/connections/{minor}/abort");
            // The control file system is not mounted everywhere; unmounting has the same effect.
            let _ = std::fs::write(control, "1");
        }
    }
}

/// A mount of this process; removed when dropped, even if files are open.
#[derive(Debug)]
pub(super) struct Mount {
    path: PathBuf,
    means: Means,
    /// Device number of the mount, major and minor; `None` if unknown.
    device: Option<(u32, u32)>,
    mounted: bool,
}

impl Mount {
    /// Mounts at `path`; also returns the connection to the kernel.
    pub(super) fn new(path: &Path, options: MountOptions) -> Result<(Self, OwnedFd), FuseError> {
        let path = check_mount_point(path)?;
        let connection = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let connection = connection.map_err(FuseError::NoFuse)?.into();
        match mount_by_kernel(&path, options, &connection) {
            Ok(()) => Ok((Self::made(path, Means::Kernel), connection)),
            Err(Errno::PERM) => Self::by_helper(path, options),
            Err(errno) => Err(FuseError::Mount {
                path,
                reason: io::Error::from(errno).to_string(),
            }),
        }
    }

    /// Mounts through `fusermount3`.
    pub(super) fn by_helper(
        path: PathBuf,
        options: MountOptions,
    ) -> Result<(Self, OwnedFd), FuseError> {
        let connection = mount_by_helper(&path, options)?;
        Ok((Self::made(path, Means::Helper), connection))
    }

    /// Continues the mount of a predecessor.
    pub(super) fn taken_over(path: PathBuf, by_helper: bool, device: Option<(u32, u32)>) -> Self {
        let means = if by_helper {
            Means::Helper
        } else {
            Means::Kernel
        };
        Self {
            path,
            means,
            device,
            mounted: true,
        }
    }

    /// Returns true if `fusermount3` has made it, and its device number.
    pub(super) fn identity(&self) -> (bool, Option<(u32, u32)>) {
        (self.means == Means::Helper, self.device)
    }

    /// Removes the mount at the end, as one that this process has made.
    pub(super) const fn own(&mut self) {
        self.mounted = true;
    }

    /// Leaves the mount to a successor.
    pub(super) const fn leave(&mut self) {
        self.mounted = false;
    }

    fn made(path: PathBuf, means: Means) -> Self {
        Self {
            device: device_at(&path),
            path,
            means,
            mounted: true,
        }
    }

    /// The absolute path of the mount point.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the mount exists: another program may have removed it.
    fn is_there(&self) -> bool {
        self.mounted && (self.device.is_none() || device_at(&self.path) == self.device)
    }

    /// Unmounts; `open` is the number of open files, for the error.
    ///
    /// # Errors
    /// [`FuseError::InUse`], [`FuseError::Unmount`].
    pub(super) fn unmount(&mut self, open: usize) -> Result<(), FuseError> {
        if self.is_there() {
            match self.means {
                Means::Kernel => self.unmount_by_kernel(open)?,
                Means::Helper => self.unmount_by_helper(open)?,
            }
        }
        self.mounted = false;
        Ok(())
    }

    fn unmount_by_kernel(&self, open: usize) -> Result<(), FuseError> {
        let path = self.path.clone();
        match rustix::mount::unmount(&self.path, UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(FuseError::InUse { path, open }),
            // The process has dropped the privilege to mount.
            Err(Errno::PERM) => self.unmount_by_helper(open),
            Err(errno) => Err(FuseError::Unmount {
                path,
                reason: io::Error::from(errno).to_string(),
            }),
        }
    }

    fn unmount_by_helper(&self, open: usize) -> Result<(), FuseError> {
        let mut helper = Command::new(HELPER);
        let output = helper.args(["-u", "--"]).arg(&self.path).output();
        let output = output.map_err(FuseError::NoHelper)?;
        let path = self.path.clone();
        let reason = message(&output.stderr);
        if output.status.success() {
            Ok(())
        } else if reason.contains("busy") {
            Err(FuseError::InUse { path, open })
        } else {
            Err(FuseError::Unmount { path, reason })
        }
    }

    /// The means to abort the connection to the kernel.
    pub(super) const fn connection(&self) -> Connection {
        Connection(self.device)
    }

    /// Aborts the connection to the kernel: requests and open files fail from now on. Detaches the
    /// mount from the tree.
    pub(super) fn abort(&mut self) {
        if !self.is_there() {
            self.mounted = false;
            return;
        }
        self.connection().abort();
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        let by_kernel =
            self.means == Means::Kernel && rustix::mount::unmount(&self.path, flags).is_ok();
        if !by_kernel && !detach_by_helper(&self.path) {
            let path = self.path.display();
            tracing::warn!("could not unmount {path}; remove the mount: fusermount3 -u -z {path}");
        }
        self.mounted = false;
    }
}

/// Detaches a mount from the tree through `fusermount3`, even while files are open. Returns false
/// if it refuses.
fn detach_by_helper(path: &Path) -> bool {
    let mut helper = Command::new(HELPER);
    let output = helper.args(["-u", "-z", "--"]).arg(path).output();
    output.is_ok_and(|output| output.status.success())
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted && self.unmount(0).is_err() {
            self.abort();
        }
    }
}

/// Checks that a file system can be mounted at `path`, and makes the path absolute. Removes stale
/// mounts of this program left by killed processes.
fn check_mount_point(path: &Path) -> Result<PathBuf, FuseError> {
    let wrong = |source: io::Error| FuseError::MountPoint {
        path: path.to_owned(),
        source,
    };
    while remove_stale(path)? {}
    let absolute = path.canonicalize().map_err(wrong)?;
    let metadata = absolute.metadata().map_err(wrong)?;
    if !metadata.is_dir() {
        return Err(FuseError::NotADirectory(absolute));
    }
    let parent = absolute.join("..").metadata().map_err(wrong)?;
    let fuse = statfs(&absolute).is_ok_and(|found| found.f_type == FUSE_SUPER_MAGIC);
    if fuse && metadata.dev() != parent.dev() {
        return Err(FuseError::AlreadyMounted(absolute));
    }
    Ok(absolute)
}

/// Detaches the mount at `path` if it belongs to this program and its process has ended. Returns
/// false if there is no such mount.
///
/// # Errors
/// [`FuseError::Stale`] if the mount belongs to another program, or may not be removed.
fn remove_stale(path: &Path) -> Result<bool, FuseError> {
    // All checks and the removal use this descriptor, whatever is mounted at the path meanwhile.
    let Ok(place) = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
        return Ok(false);
    };
    // `statfs` is never cached, unlike attributes, so it reaches the process. A request pending
    // when the process ended was aborted.
    if !matches!(fstatfs(&place), Err(Errno::NOTCONN | Errno::CONNABORTED)) {
        return Ok(false);
    }
    let stale = || FuseError::Stale(path.to_owned());
    let read = |name: &str| {
        let bytes = std::fs::read(format!("/proc/self/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let number = place.as_raw_fd();
    if !is_ours(&read("mountinfo"), &read(&format!("fdinfo/{number}"))) {
        return Err(stale());
    }
    let link = format!("/proc/self/fd/{number}");
    let absolute = std::fs::read_link(&link).map_err(|_| stale())?;
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
    if rustix::mount::unmount(&link, flags).is_err() && !detach_by_helper(&absolute) {
        return Err(stale());
    }
    let absolute = absolute.display();
    tracing::warn!("removed the stale mount at {absolute}");
    Ok(true)
}

/// Returns true if `table` lists the mount of an open file, described by `file`, with this
/// program's mount name and type. `[proc_pid_mountinfo(5), proc_pid_fdinfo(5)]`
fn is_ours(table: &str, file: &str) -> bool {
    let mut lines = file.lines();
    let Some(id) = lines.find_map(|line| line.strip_prefix("mnt_id:")) else {
        return false;
    };
    table.lines().any(|line| {
        let (at, described) = line.split_once(" - ").unwrap_or_default();
        let described = described.split(' ').take(2);
        at.split(' ').next() == Some(id.trim()) && described.eq([TYPE, NAME])
    })
}

/// The type of FUSE file systems in `statfs`, in the width of the kernel's answer.
const FUSE_SUPER_MAGIC: rustix::fs::FsWord = 0x6573_5546;

fn mount_by_kernel(path: &Path, options: MountOptions, connection: &OwnedFd) -> Result<(), Errno> {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        connection.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).expect("the options have no NUL byte");
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    if options.read_only {
        flags |= MountFlags::RDONLY;
    }
    rustix::mount::mount(NAME, path, TYPE, flags, data.as_c_str())
}

fn mount_by_helper(path: &Path, options: MountOptions) -> Result<OwnedFd, FuseError> {
    let refused = |reason: String| FuseError::Mount {
        path: path.to_owned(),
        reason,
    };
    let mut words = format!("fsname={NAME},subtype={NAME},default_permissions,nosuid,nodev");
    if options.allow_other {
        words.push_str(",allow_other");
    }
    if options.read_only {
        words.push_str(",ro");
    }
    let pair = UnixStream::pair().map_err(FuseError::Thread)?;
    let (ours, theirs) = pair;
    // The program sends the connection over the descriptor named by the variable: its standard
    // input.
    let child = Command::new(HELPER)
        .args(["-o", &words, "--"])
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(FuseError::NoHelper)?;
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(FuseError::NoHelper)?;
    match received {
        Ok(Some(connection)) if output.status.success() => Ok(connection),
        _ if !output.stderr.is_empty() => Err(refused(message(&output.stderr))),
        Err(error) => Err(refused(error.to_string())),
        Ok(_) => Err(refused(format!("{HELPER} failed with {}", output.status))),
    }
}

/// Returns the descriptor sent by the other end; `None` if it closes without one.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut into = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => break,
        }
    }
    let mut messages = control.drain();
    let found = messages.find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(found)
}

/// Returns the device number of the topmost file system at `path`. The kernel answers without a
/// request to the file system and without a file descriptor, so that none can leak.
fn device_at(path: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    let found = statx(CWD, path, flags, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

/// Returns a program's error output as one line of bounded length.
fn message(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(&stderr[..stderr.len().min(MESSAGE_MAX_BYTES)]);
    text.trim().replace('\n', "; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn our_mounts_are_known_by_name_and_type() {
        let table = "30 25 0:40 / /a rw shared:1 master:2 - fuse.switchyard switchyard rw\n\
            31 30 0:41 / /a rw - fuse.sshfs switchyard rw\n\
            310 30 0:41 / /a rw - fuse.switchyard other rw\nnonsense\n";
        let is_ours = |id| {
            is_ours(
                table,
                &format!("pos:\t0\nflags:\t010000000\nmnt_id:\t{id}\n"),
            )
        };
        assert!(is_ours(30));
        assert!(!is_ours(31) && !is_ours(310) && !is_ours(3));
        assert!(!super::is_ours(table, ""));
    }

    #[test]
    fn a_mount_point_is_checked() {
        let error = check_mount_point(Path::new("/nowhere/at/all")).expect_err("not there");
        assert!(
            error.to_string().contains("create the directory"),
            "{error}"
        );
        let error = check_mount_point(Path::new("/proc/version")).expect_err("a file");
        assert!(matches!(error, FuseError::NotADirectory(_)), "{error}");
        check_mount_point(Path::new("/")).expect("a directory");
    }

    const OPTIONS: MountOptions = MountOptions {
        allow_other: false,
        read_only: true,
    };

    fn directory(name: &str) -> PathBuf {
        block::temporary_folder(name)
    }

    /// The stale mount must not require manual removal before the next process starts.
    #[test]
    fn a_mount_of_a_process_that_ended_is_removed() {
        let path = directory("stale");
        match Mount::new(&path, OPTIONS) {
            Ok((mut left, connection)) => {
                drop(connection);
                // A file held open by some process: the mount stays until it is closed.
                let held = open(&path, OFlags::PATH, Mode::empty());
                let held = held.expect("a place in the tree");
                let (again, connection) = Mount::new(&path, OPTIONS).expect("removed");
                assert!(!left.is_there() && again.is_there());
                drop((held, connection, again));
                left.abort();
            }
            Err(error) => block::skipped(error),
        }
        assert_eq!(device_at(&path), device_at(&path.join("..")));
        std::fs::remove_dir(&path).expect("empty");
    }

    /// Another program's mount is not removed.
    #[test]
    fn a_mount_of_another_program_that_ended_is_told_apart() {
        let path = directory("foreign");
        let connection = File::options().read(true).write(true).open("/dev/fuse");
        let connection = connection.map(OwnedFd::from);
        let data =
            |fd: &OwnedFd| format!("fd={},rootmode=40000,user_id=0,group_id=0", fd.as_raw_fd());
        let mounted = connection
            .map_err(FuseError::NoFuse)
            .and_then(|connection| {
                let data = CString::new(data(&connection)).expect("no NUL byte");
                let flags = MountFlags::empty();
                match rustix::mount::mount("other", &path, "fuse.other", flags, data.as_c_str()) {
                    Ok(()) => Ok(connection),
                    Err(errno) => Err(FuseError::NoFuse(errno.into())),
                }
            });
        match mounted {
            Ok(connection) => {
                drop(connection);
                let error = check_mount_point(&path).expect_err("dead");
                assert!(matches!(error, FuseError::Stale(_)), "{error}");
                rustix::mount::unmount(&path, UnmountFlags::DETACH).expect("it is mounted");
            }
            // Without the privilege to mount, the test is skipped.
            Err(error) => block::skipped(error),
        }
        std::fs::remove_dir(&path).expect("empty");
    }

    #[test]
    fn the_helper_mounts_and_unmounts() {
        let path = directory("helper");
        match Mount::by_helper(path.clone(), OPTIONS) {
            Ok((mut mount, connection)) => {
                assert!(mount.is_there() && mount.device.is_some());
                drop(connection);
                mount.unmount(0).expect("not in use");
                assert!(!mount.is_there());
                assert_eq!(device_at(&path), device_at(&path.join("..")));
            }
            Err(error) => block::skipped(error),
        }
        std::fs::remove_dir(&path).expect("empty");
    }
}
