//! The thread that talks to front ends, one after the other.

use super::session::Session;
use super::{Shared, config_channel};
use crate::limits::VHOST_MESSAGE_TIME;
use block::Geometry;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use socket2::Socket;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vhost::vhost_user::{BackendReqHandler, Error};

/// Time between two looks at the size of the device, which may change on its own.
const LOOK: Duration = Duration::from_millis(500);

/// Pause after the kernel had no descriptor or no memory for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The event that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// The server ends.
    End,
    /// The socket has something.
    Socket,
    /// The time is up.
    Time,
}

/// Serves front ends until the other end of `end` is closed.
pub(super) fn serve_all(socket: &Socket, end: &UnixStream, shared: &Arc<Shared>) {
    loop {
        match wait(end, Some(socket), LOOK) {
            Woken::End => return,
            Woken::Time => continue,
            Woken::Socket => {}
        }
        match socket.accept() {
            Ok((client, _)) => {
                let client = OwnedFd::from(client);
                serve(client.into(), end, shared);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Short of descriptors or memory, or the front end is gone already.
            Err(_) if wait(end, None::<&Socket>, PAUSE) == Woken::End => return,
            Err(_) => {}
        }
    }
}

fn wait(end: &UnixStream, socket: Option<&impl rustix::fd::AsFd>, time: Duration) -> Woken {
    let mut ready = vec![PollFd::new(end, PollFlags::IN)];
    ready.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
    let time = time.try_into().expect("a short time");
    // A signal ends the wait early, and the caller comes back.
    if poll(&mut ready, Some(&time)).is_err() {
        return Woken::Time;
    }
    match ready.iter().position(|fd| !fd.revents().is_empty()) {
        Some(0) => Woken::End,
        Some(_) => Woken::Socket,
        None => Woken::Time,
    }
}

/// Serves one front end until it disconnects, and everything that it asked for is finished.
fn serve(client: UnixStream, end: &UnixStream, shared: &Arc<Shared>) {
    let session = Arc::new(Mutex::new(Session::new(Arc::clone(shared))));
    match exchange(client, end, shared, &session) {
        // The front end is gone, or it has to go.
        Ok(()) | Err(Error::Disconnected) => {}
        Err(error) => tracing::warn!("a vhost-user front end is disconnected: {error}"),
    }
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    if session.stop_all().is_err() {
        tracing::warn!("requests of a vhost-user front end are left unfinished");
    }
}

fn exchange(
    client: UnixStream,
    end: &UnixStream,
    shared: &Shared,
    session: &Arc<Mutex<Session>>,
) -> Result<(), Error> {
    let failed = Error::SocketError;
    client.set_nonblocking(false).map_err(failed)?;
    client
        .set_read_timeout(Some(VHOST_MESSAGE_TIME.into()))
        .map_err(failed)?;
    client
        .set_write_timeout(Some(VHOST_MESSAGE_TIME.into()))
        .map_err(failed)?;
    let look = client.try_clone().map_err(failed)?;
    let mut requests = BackendReqHandler::from_stream(client, Arc::clone(session));
    let mut channel: Option<OwnedFd> = None;
    let mut known: Geometry = shared.device.geometry();
    loop {
        match wait(end, Some(&look), LOOK) {
            Woken::End => return Ok(()),
            Woken::Socket => {
                let announced = config_channel::announced(&look).map_err(failed)?;
                requests.handle_request()?;
                channel = announced.or(channel);
            }
            Woken::Time => {}
        }
        let geometry = shared.device.geometry();
        if geometry != known
            && let Some(channel) = &channel
        {
            known = geometry;
            config_channel::changed(channel).map_err(failed)?;
        }
    }
}
