//! Unix sockets that a front end listens on.

use crate::address::Address;
use crate::passed_sockets;
use rustix::fs::OFlags;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The origin of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This server made it.
    New,
    /// It replaces one that a process left behind.
    Replaced,
    /// The service manager passed it, and keeps it.
    Passed,
}

/// Listens on `path`, which only the user of the process may open; the socket does not block. One
/// that the service manager passed has its owner and mode. One that a process left behind is replaced;
/// one in use is not.
pub(crate) fn listen(
    path: &Path,
    backlog: i32,
    send_bytes: Option<usize>,
) -> io::Result<(Arc<Socket>, Origin)> {
    if let Some(socket) = passed_sockets::claim(&Address::Unix(path.to_owned()))? {
        set_send_bytes(&socket, send_bytes);
        return Ok((socket, Origin::Passed));
    }
    let address = SockAddr::unix(path)?;
    let _lock = Lock::take(path)?;
    let mut origin = Origin::New;
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            let reason = "a file that is not a socket exists";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        }
        // One without a listener was left behind by a process that was killed.
        let client = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // A listener with as many waiting as it may have would hold a connection up.
        client.set_nonblocking(true)?;
        match client.connect(&address) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
                origin = Origin::Replaced;
            }
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&address)?;
    // Before anything can connect.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    set_send_bytes(&socket, send_bytes);
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok((Arc::new(socket), origin))
}

fn set_send_bytes(socket: &Socket, send_bytes: Option<usize>) {
    if let Some(bytes) = send_bytes {
        // What the kernel refuses costs speed alone.
        let _ = socket.set_send_buffer_size(bytes);
    }
}

/// Leaves a socket without a listener at `path`, as a process that is killed does, unless something
/// is there.
pub(crate) fn leave_behind(path: &Path) {
    let left = Socket::new(Domain::UNIX, Type::STREAM, None);
    let bound = left.and_then(|socket| socket.bind(&SockAddr::unix(path)?));
    if let Err(error) = bound {
        tracing::warn!("{}: {error}", path.display());
    }
}

/// The lock of a path while it is looked at and listened on: of two servers that find the same socket
/// left behind, the second one would replace the socket of the first. Removed when dropped.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn take(path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        loop {
            let mut options = File::options();
            let options = options.write(true).create(true).truncate(false).mode(0o600);
            let flags = OFlags::NOFOLLOW.bits().cast_signed();
            let file = options.custom_flags(flags).open(&path)?;
            file.lock()?;
            // The server that had it has removed it: another one may have it by another file.
            let own = file.metadata()?;
            let is_own = |there: fs::Metadata| (there.dev(), there.ino()) == (own.dev(), own.ino());
            if fs::symlink_metadata(&path).is_ok_and(is_own) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, SockAddr, Socket, Type};
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;

    /// Two servers replaced one stale socket, and the first of them was reached by no client any more.
    #[test]
    fn of_two_servers_at_one_socket_that_was_left_one_listens() {
        let path = block::temporary("socket");
        for _ in 0..500 {
            // It never listened: of a listener, a process that another test starts has a copy until
            // it executes its program.
            let left = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
            let address = SockAddr::unix(&path).expect("a path");
            left.bind(&address).expect("it is free");
            drop(left);
            let barrier = Barrier::new(2);
            let start = || {
                barrier.wait();
                listen(&path, 1, None)
            };
            let started: Vec<_> = std::thread::scope(|scope| {
                let starts = [scope.spawn(start), scope.spawn(start)];
                let ended = starts.map(|start| start.join().expect("it does not panic"));
                ended.into_iter().flatten().collect()
            });
            assert!(matches!(started[..], [(_, Origin::Replaced)]));
            UnixStream::connect(&path).expect("it is reached");
            fs::remove_file(&path).expect("it is there");
        }
        assert!(!path.with_extension("lock").exists());
    }
}
