//! Unix sockets that a front end listens on.

use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

/// Listens on `path`, which only the user of the process may open; the socket does not block. One
/// that a process left behind is replaced, one in use is not.
pub(crate) fn listen(path: &Path, backlog: i32, send_bytes: Option<usize>) -> io::Result<Socket> {
    let found = fs::symlink_metadata(path);
    if found.is_ok_and(|found| found.file_type().is_socket()) {
        // One without a listener was left behind by a process that was killed.
        let client = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // A listener with as many waiting as it may have would hold a connection up.
        client.set_nonblocking(true)?;
        match client.connect(&SockAddr::unix(path)?) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Before anything can connect.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    if let Some(bytes) = send_bytes {
        // What the kernel refuses costs speed alone.
        let _ = socket.set_send_buffer_size(bytes);
    }
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
