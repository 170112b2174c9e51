//! Unix sockets that a front end listens on.

use crate::address::Address;
use crate::passed_sockets;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The origin of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// Created by this server.
    New,
    /// Replaces a stale socket of an earlier process.
    Replaced,
    /// Passed by the service manager, which keeps it.
    Passed,
}

/// A listening socket of a predecessor.
#[derive(Clone, Debug)]
pub struct TakenSocket {
    pub(crate) socket: Arc<Socket>,
    pub(crate) origin: Origin,
}

impl TakenSocket {
    /// A socket with the origin that it has for the predecessor. One of the service manager stays until
    /// the process ends.
    #[must_use]
    pub fn new(socket: OwnedFd, origin: Origin) -> Self {
        let socket = Arc::new(Socket::from(socket));
        if origin == Origin::Passed {
            passed_sockets::keep(&socket);
        }
        Self { socket, origin }
    }
}

/// Listens on `path`, which only the user of the process may open; the socket is non-blocking. A
/// socket passed by the service manager keeps its owner and mode. A stale socket of an ended
/// process is replaced; a socket in use is not.
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
        // A socket without a listener is a leftover of a killed process.
        let client = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // A listener with a full backlog would block the connection attempt.
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
    // Before any client can connect.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    set_send_bytes(&socket, send_bytes);
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok((Arc::new(socket), origin))
}

fn set_send_bytes(socket: &Socket, send_bytes: Option<usize>) {
    if let Some(bytes) = send_bytes {
        // A refusal costs only speed.
        let _ = socket.set_send_buffer_size(bytes);
    }
}

/// Leaves a socket without a listener at `path`, as a killed process does, unless the path exists.
pub(crate) fn leave_behind(path: &Path) {
    let left = Socket::new(Domain::UNIX, Type::STREAM, None);
    let bound = left.and_then(|socket| socket.bind(&SockAddr::unix(path)?));
    if let Err(error) = bound {
        tracing::warn!("{}: {error}", path.display());
    }
}

/// The lock of a path while its socket is checked and replaced. Without it, two servers that find
/// the same stale socket could replace each other's new socket. Removed when dropped.
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
            // Its earlier holder has removed the file: a third process may hold the lock through a
            // new file.
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

    /// If two servers replaced one stale socket, no client would reach the first of them.
    #[test]
    fn of_two_servers_at_one_socket_that_was_left_one_listens() {
        let path = block::temporary("socket");
        for _ in 0..500 {
            // It never listened: a listener's descriptor could be duplicated into a process that
            // another test starts, until that process executes its program.
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
