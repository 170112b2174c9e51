//! Listening sockets that the service manager passed to the process: `sd_listen_fds(3)`.
//!
//! The process keeps them to its end, as the service manager does: an attachment that is started
//! again listens on the same socket. Servers never remove the file of one.

use crate::address::Address;
use crate::error::FrontendError;
use listenfd::ListenFd;
use socket2::Socket;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: usize = 3;

/// The passed sockets of the process.
static PASSED: Mutex<Vec<Arc<Socket>>> = Mutex::new(Vec::new());

/// Takes the number of sockets in `LISTEN_FDS` if `LISTEN_PID` is this process, and removes both
/// variables. Call it before the process has a second thread.
///
/// # Errors
/// A descriptor that is not a listening stream socket.
pub fn take() -> Result<(), FrontendError> {
    // Without the variable, listenfd would take the sockets of another process, too.
    let meant = std::env::var("LISTEN_PID").ok();
    if meant.and_then(|pid| pid.parse().ok()) != Some(std::process::id()) {
        return Ok(());
    }
    let mut given = ListenFd::from_env();
    for index in 0..given.len() {
        let socket = listener(&mut given, index).map_err(|error| {
            FrontendError::Option(format!(
                "descriptor {} of LISTEN_FDS: {error}; the .socket unit needs ListenStream= and \
                 Accept=no",
                FIRST + index
            ))
        })?;
        passed().push(Arc::new(socket));
    }
    Ok(())
}

/// Keeps a socket that the service manager passed to a predecessor.
pub(crate) fn keep(socket: &Arc<Socket>) {
    passed().push(Arc::clone(socket));
}

/// Takes the descriptor with this index and sets close-on-exec.
fn listener(given: &mut ListenFd, index: usize) -> io::Result<Socket> {
    let socket = match given.take_unix_listener(index) {
        Ok(listener) => listener.map(Socket::from),
        Err(_) => given.take_tcp_listener(index)?.map(Socket::from),
    };
    let socket = socket.filter(|socket| socket.is_listener().is_ok_and(|listens| listens));
    let socket = socket.ok_or_else(|| io::Error::other("not a listening socket"))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Checks that each passed socket has one of these addresses.
///
/// # Errors
/// A socket that no server would use.
pub fn check_used(addresses: &[Address]) -> Result<(), FrontendError> {
    for (socket, number) in passed().iter().zip(FIRST..) {
        if !addresses.iter().any(|address| is_at(socket, address)) {
            let own = shown(socket);
            return Err(FrontendError::Option(format!(
                "the service manager passed the socket {own} (descriptor {number}), but no \
                 attachment has this address; add one, or remove the socket from the .socket unit"
            )));
        }
    }
    Ok(())
}

/// Returns the passed socket with this address, if there is one.
///
/// # Errors
/// Another server already listens on the socket.
pub(crate) fn claim(address: &Address) -> io::Result<Option<Arc<Socket>>> {
    let passed = passed();
    let Some(socket) = passed.iter().find(|socket| is_at(socket, address)) else {
        return Ok(None);
    };
    // A server holds it until its thread has ended.
    if Arc::strong_count(socket) > 1 {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    Ok(Some(Arc::clone(socket)))
}

fn is_at(socket: &Socket, address: &Address) -> bool {
    let Ok(own) = socket.local_addr() else {
        return false;
    };
    match address {
        Address::Unix(path) => {
            std::path::absolute(path).is_ok_and(|path| own.as_pathname() == Some(&*path))
        }
        Address::Tcp(address) => own.as_socket() == Some(*address),
    }
}

fn shown(socket: &Socket) -> String {
    match socket.local_addr() {
        Ok(own) => match (own.as_pathname(), own.as_socket()) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => "without a path".to_owned(),
        },
        Err(error) => format!("without an address ({error})"),
    }
}

fn passed() -> MutexGuard<'static, Vec<Arc<Socket>>> {
    PASSED.lock().unwrap_or_else(PoisonError::into_inner)
}
