//! The accept thread.

use super::message::Message;
use super::shared::SharedServer;
use crate::acceptor::{Acceptor, PAUSE, Woken, pause, wait};
use crate::address::Address;
use crate::error::FrontendError;
use crate::limits::NBD_CONNECTIONS_MAX;
use crate::passed_sockets;
use crate::unix_socket::{self, Origin, TakenSocket};
use reactor::uring::tune_to_peer;
use reactor::{MailboxSender, SocketOptions, Stream};
use socket2::{Domain, Socket, TcpKeepalive, Type};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Backlog: connections that the kernel queues for `accept`.
const BACKLOG: i32 = 128;

/// Idle time after which the kernel sends a TCP keep-alive.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Size of the socket buffers of a Unix connection, in bytes.
const SOCKET_BYTES: usize = 4 << 20;

/// A listening socket without an accept thread yet.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    socket: Arc<Socket>,
    pub(super) address: Address,
    origin: Origin,
}

impl Bound {
    /// Listens; beyond this machine only if each client must authenticate. A stale Unix socket is
    /// replaced, one in use is not. A socket passed by the service manager is used unchanged.
    /// That of a predecessor that was `taken` over listens already.
    pub(super) fn bind(
        address: &Address,
        knows_clients: bool,
        taken: Option<TakenSocket>,
    ) -> Result<Self, FrontendError> {
        let refused = |source| FrontendError::Listen {
            address: address.to_string(),
            source,
        };
        let (socket, origin) = match address {
            Address::Tcp(tcp) if !tcp.ip().is_loopback() && !knows_clients => {
                return Err(FrontendError::Option(format!(
                    "{tcp}: any machine that reaches this address could read and write; require \
                     TLS and verify clients, or listen on a loopback address or Unix socket (and \
                     use a tunnel such as ssh -L)"
                )));
            }
            address => match (address, taken) {
                (_, Some(TakenSocket { socket, origin })) => (socket, origin),
                (Address::Tcp(tcp), None) => bind_tcp(*tcp).map_err(refused)?,
                (Address::Unix(path), None) => {
                    unix_socket::listen(path, BACKLOG, Some(SOCKET_BYTES)).map_err(refused)?
                }
            },
        };
        let address = match address {
            Address::Tcp(_) => {
                let bound = socket.local_addr().map_err(refused)?;
                Address::Tcp(bound.as_socket().expect("a TCP socket"))
            }
            Address::Unix(path) => Address::Unix(path.clone()),
        };
        Ok(Self {
            socket,
            address,
            origin,
        })
    }

    /// Returns another descriptor of the socket, and its origin.
    pub(super) fn share(&self) -> io::Result<(OwnedFd, Origin)> {
        Ok((self.socket.try_clone()?.into(), self.origin))
    }

    /// Returns true if an earlier server may have had clients that reconnect.
    pub(super) fn may_have_clients(&self) -> bool {
        self.origin != Origin::New
    }

    /// Starts accepting, and assigns clients to the cores in turn.
    pub(super) fn start(
        self,
        cores: Vec<MailboxSender<Message>>,
        shared: Arc<SharedServer>,
    ) -> Result<Listener, FrontendError> {
        let (address, socket) = (&self.address, Arc::clone(&self.socket));
        let file = match address {
            Address::Unix(path) if self.origin != Origin::Passed => Some(path.clone()),
            Address::Unix(_) | Address::Tcp(_) => None,
        };
        let remove = Arc::new(AtomicBool::new(self.origin == Origin::New));
        let (path, removes) = (file.clone(), Arc::clone(&remove));
        let accept = move |end: &UnixStream| {
            accept_all(&socket, end, &cores, &shared);
            if let Some(path) = path.filter(|_| removes.load(Ordering::Relaxed)) {
                // While it is listened on, no other server replaces it. The file may already be
                // removed.
                let _ = fs::remove_file(path);
            }
        };
        Ok(Listener {
            bound: self,
            file,
            remove,
            _acceptor: Acceptor::start("nbd/accept", accept)?,
        })
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<(Arc<Socket>, Origin)> {
    if let Some(socket) = passed_sockets::claim(&Address::Tcp(address))? {
        return Ok((socket, Origin::Passed));
    }
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((Arc::new(socket), Origin::New))
}

/// The accept thread; dropping it ends the thread. It then removes its own Unix socket, unless that
/// replaced a stale one.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) bound: Bound,
    /// Path of its own Unix socket.
    pub(super) file: Option<PathBuf>,
    /// Remove the Unix socket at the end.
    remove: Arc<AtomicBool>,
    _acceptor: Acceptor,
}

impl Listener {
    /// Ends the thread, and leaves the socket as it is.
    pub(super) fn pause(self) -> Bound {
        self.remove.store(false, Ordering::Relaxed);
        self.bound.clone()
    }

    /// Ends the thread, and always removes its own Unix socket.
    pub(super) fn end(self) {
        self.remove.store(true, Ordering::Relaxed);
    }
}

fn accept_all(
    socket: &Socket,
    end: &UnixStream,
    cores: &[MailboxSender<Message>],
    shared: &SharedServer,
) {
    let mut cores = cores.iter().cycle();
    while wait(end, Some(socket), None) != Woken::End {
        let client = match socket.accept() {
            Ok((client, peer)) => {
                if let Some(peer) = peer.as_socket() {
                    tune_to_peer(&client, peer, &SocketOptions::default());
                }
                client
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            // Out of descriptors or memory, or the client has already disconnected.
            Err(_) if pause(end, PAUSE) => return,
            Err(_) => continue,
        };
        let before = shared.open.fetch_add(1, Ordering::Relaxed);
        let core = cores.next().expect("a server has a core");
        let refused = before >= NBD_CONNECTIONS_MAX || set_up(&client).is_err() || {
            let stream = Stream::Socket(client.into(), None);
            core.send(Message::Connection(stream)).is_err()
        };
        if refused {
            shared.connection_ended();
        }
    }
}

/// Configures a client's socket for the data path.
fn set_up(client: &Socket) -> io::Result<()> {
    client.set_nonblocking(true)?;
    if client.domain()? != Domain::UNIX {
        client.set_tcp_nodelay(true)?;
        let _ = client.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE));
    }
    Ok(())
}
