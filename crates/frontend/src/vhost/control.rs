//! The control thread, which serves front ends one after the other.

use super::config_channel;
use super::machine::Machine;
use super::served_disk::ServedDisk;
use super::session::Session;
use crate::acceptor::{PAUSE, Woken, pause, wait};
use crate::limits::{VHOST_MESSAGE_TIME, VHOST_SECOND_TIME};
use crate::served_size::served;
use block::Geometry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::ioctl_fionread;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vhost::vhost_user::{BackendReqHandler, Error};

/// Interval between checks of the device's size, which may change at any time.
const LOOK: Duration = Duration::from_millis(500);

/// Interval between checks of a message that has arrived in part.
const REST: Duration = Duration::from_millis(5);

/// Bytes of a message's header: request, flags and payload size, 32 bits each.
const HEADER_BYTES: usize = 12;

/// Maximum bytes of a payload; the `vhost` crate refuses a header with a larger size.
const PAYLOAD_MAX: u64 = 4096;

/// Serves front ends until the other end of `end` is closed.
pub(super) fn serve_all(socket: &Socket, end: &UnixStream, shared: &Arc<ServedDisk>) {
    let mut last = Machine::new();
    let mut door = Door {
        socket,
        second: None,
    };
    loop {
        if let Some((client, _)) = door.second.take() {
            serve(client, end, shared, &mut door, &mut last);
            continue;
        }
        match wait(end, Some(socket), Some(LOOK)) {
            Woken::End => return,
            Woken::Time => continue,
            Woken::Socket => {}
        }
        match door.accept() {
            Ok(()) => {}
            // Out of descriptors or memory, or the front end has already disconnected.
            Err(_) if pause(end, PAUSE) => return,
            Err(_) => {}
        }
    }
}

/// The listening socket, with a second front end that has connected and is not served yet.
struct Door<'a> {
    socket: &'a Socket,
    /// With the time of its connection.
    second: Option<(UnixStream, Instant)>,
}

impl Door<'_> {
    /// Accepts the next front end, if there is one.
    fn accept(&mut self) -> io::Result<()> {
        match self.socket.accept() {
            Ok((client, _)) => {
                let client = OwnedFd::from(client);
                self.second = Some((client.into(), Instant::now()));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Disconnects a second front end unless the first one disconnects within
    /// [`VHOST_SECOND_TIME`], as a reconnecting machine does. Otherwise the second one would wait
    /// for ever.
    fn refuse_second(&mut self, shared: &ServedDisk) {
        match &self.second {
            // A failure is retried at the next check.
            None => drop(self.accept()),
            Some((_, since)) if since.elapsed() < Duration::from(VHOST_SECOND_TIME) => {}
            Some(_) => {
                self.second = None;
                if let Some(suppressed) = shared.log.allow() {
                    tracing::warn!(
                        suppressed,
                        "refused a second vhost-user connection: another virtual machine uses the \
                         disk; stop it, or attach another disk at another socket"
                    );
                }
            }
        }
    }
}

/// Serves one front end until it disconnects and its queues have stopped. Its machine then becomes
/// `last`.
fn serve(
    client: UnixStream,
    end: &UnixStream,
    shared: &Arc<ServedDisk>,
    door: &mut Door<'_>,
    last: &mut Machine,
) {
    let geometry = served(&*shared.device);
    if geometry.is_gone() {
        if let Some(suppressed) = shared.log.allow() {
            tracing::warn!(
                suppressed,
                "refused a vhost-user connection: the device is no longer available"
            );
        }
        return;
    }
    shared.connected.store(true, Ordering::Relaxed);
    let session = Session::new(Arc::clone(shared), geometry, last.clone());
    let session = Arc::new(Mutex::new(session));
    // When the server ends, the connection stays open until all requests are finished: its end
    // signals the machine that nothing follows.
    let kept = client.try_clone();
    match exchange(client, end, shared, door, &session) {
        // The front end has disconnected, or is being disconnected.
        Ok(()) | Err(Error::Disconnected) => {}
        Err(error) => {
            drop(kept);
            if let Some(suppressed) = shared.log.allow() {
                tracing::warn!(suppressed, "closed a vhost-user connection: {error}");
            }
        }
    }
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    match session.stop_all() {
        Ok(_) if shared.holds_writes() => {}
        Ok(_) => shared.writers.strike_out(),
        Err(_) => {
            shared.gave_up.store(true, Ordering::Relaxed);
            if let Some(suppressed) = shared.log.allow() {
                tracing::warn!(
                    suppressed,
                    "a vhost-user connection ended with unfinished requests"
                );
            }
        }
    }
    *last = session.machine();
    shared.connected.store(false, Ordering::Relaxed);
}

fn exchange(
    client: UnixStream,
    end: &UnixStream,
    shared: &ServedDisk,
    door: &mut Door<'_>,
    session: &Arc<Mutex<Session>>,
) -> Result<(), Error> {
    let failed = Error::SocketError;
    client.set_nonblocking(false).map_err(failed)?;
    let look = client.try_clone().map_err(failed)?;
    let mut requests = BackendReqHandler::from_stream(client, Arc::clone(session));
    let mut channel: Option<OwnedFd> = None;
    let mut known: Geometry = served(&*shared.device);
    loop {
        match wait(end, Some(&look), Some(LOOK)) {
            Woken::End => return Ok(()),
            Woken::Socket => {
                if !whole(&look, end)? {
                    return Ok(());
                }
                let announced = config_channel::announced(&look).map_err(failed)?;
                requests.handle_request()?;
                channel = announced.or(channel);
            }
            Woken::Time => {}
        }
        door.refuse_second(shared);
        let geometry = served(&*shared.device);
        // After the device is removed, the disk keeps its size and its requests fail.
        if geometry != known
            && !geometry.is_gone()
            && let Some(channel) = &channel
        {
            known = geometry;
            config_channel::changed(channel).map_err(failed)?;
        }
    }
}

/// Waits until a whole message can be read and its reply can be written without blocking. The
/// `vhost` crate retries both for ever, whatever the socket's timeouts. Returns false if the server
/// ends.
fn whole(look: &UnixStream, end: &UnixStream) -> Result<bool, Error> {
    let failed = |error: rustix::io::Errno| Error::SocketError(error.into());
    let by = Instant::now() + Duration::from(VHOST_MESSAGE_TIME);
    loop {
        let flags = PollFlags::OUT | PollFlags::RDHUP;
        let mut ready = [PollFd::new(look, flags)];
        let polled = poll(&mut ready, Some(&Timespec::default()));
        let events = polled.map(|_| ready[0].revents());
        let events = events.or_else(interrupted).map_err(failed)?;
        if events.contains(PollFlags::OUT) && arrived(look).map_err(failed)? {
            return Ok(true);
        }
        // The front end has closed: the rest of the message will not arrive, and a reply has no
        // reader.
        if events.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            return Err(Error::Disconnected);
        }
        if Instant::now() >= by {
            return Err(Error::SocketError(io::ErrorKind::TimedOut.into()));
        }
        if pause(end, REST) {
            return Ok(false);
        }
    }
}

fn interrupted(error: rustix::io::Errno) -> rustix::io::Result<PollFlags> {
    if error == rustix::io::Errno::INTR {
        Ok(PollFlags::empty())
    } else {
        Err(error)
    }
}

/// Returns true if a whole message, or the end of the connection, has arrived.
fn arrived(look: &UnixStream) -> rustix::io::Result<bool> {
    let mut header = [0; HEADER_BYTES];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let bytes = match recv(look, &mut header, flags) {
        Ok((_, 0)) => return Ok(true),
        Ok((_, bytes)) => bytes,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
        Err(error) => return Err(error),
    };
    let payload = u32::from_le_bytes(header[8..].try_into().expect("four bytes"));
    let message = HEADER_BYTES as u64 + u64::from(payload).min(PAYLOAD_MAX);
    Ok(bytes == HEADER_BYTES && ioctl_fionread(look)? >= message)
}
