//! The thread that accepts clients.

use super::message::Message;
use super::shared::SharedServer;
use crate::acceptor::{Acceptor, PAUSE, Woken, pause, wait};
use crate::error::FrontendError;
use crate::limits::NBD_CONNECTIONS_MAX;
use crate::unix_socket;
use reactor::uring::tune_to_peer;
use reactor::{MailboxSender, SocketOptions, Stream};
use socket2::{Domain, Socket, TcpKeepalive, Type};
use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;

/// Time without traffic after which the kernel asks whether a client is there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Kernel buffers of a connection over a Unix socket, in bytes.
const SOCKET_BYTES: usize = 4 << 20;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket, which only the user of the process may open.
    Unix(PathBuf),
    /// TCP on a loopback address.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    /// Reads HOST:PORT.
    fn from_str(text: &str) -> Result<Self, String> {
        let resolved = reactor::address::parse(text)
            .ok()
            .or_else(|| text.to_socket_addrs().ok()?.next());
        let address = resolved
            .ok_or_else(|| format!("write HOST:PORT, for example 127.0.0.1:10809, not {text}"))?;
        Ok(Self::Tcp(address))
    }
}

/// A socket that listens, and nothing accepts from it yet.
#[derive(Debug)]
pub(super) struct Bound {
    socket: Socket,
    address: Address,
    /// A server that was killed left the socket behind.
    pub(super) was_left: bool,
}

impl Bound {
    /// Listens; beyond this machine only where each client has to prove its name. A Unix socket
    /// that a server left behind is replaced, one in use is not.
    pub(super) fn bind(address: &Address, knows_clients: bool) -> Result<Self, FrontendError> {
        let refused = |source| FrontendError::Listen {
            address: address.to_string(),
            source,
        };
        let (socket, was_left) = match address {
            Address::Tcp(tcp) if !tcp.ip().is_loopback() && !knows_clients => {
                return Err(FrontendError::Option(format!(
                    "{tcp}: without TLS that is required and verifies clients, whatever reaches \
                     this address could read and write; verify clients, or listen on a loopback \
                     address or a Unix socket and bring that to other machines by a tunnel such \
                     as ssh -L"
                )));
            }
            Address::Tcp(tcp) => (bind_tcp(*tcp).map_err(refused)?, false),
            Address::Unix(path) => {
                unix_socket::listen(path, BACKLOG, Some(SOCKET_BYTES)).map_err(refused)?
            }
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
            was_left,
        })
    }

    /// Accepts from now on, and deals clients to the cores in turn.
    pub(super) fn start(
        self,
        cores: Vec<MailboxSender<Message>>,
        shared: Arc<SharedServer>,
    ) -> Result<Listener, FrontendError> {
        let (address, socket) = (self.address, self.socket);
        let path = match &address {
            Address::Unix(path) => Some(path.clone()),
            Address::Tcp(_) => None,
        };
        let remove = Arc::new(AtomicBool::new(!self.was_left));
        let removes = Arc::clone(&remove);
        let accept = move |end: &UnixStream| {
            accept_all(&socket, end, &cores, &shared);
            if let Some(path) = path.filter(|_| removes.load(Ordering::Relaxed)) {
                // While it is listened on, no other server takes its place. It may be gone already.
                let _ = fs::remove_file(path);
            }
        };
        Ok(Listener {
            address,
            remove,
            _acceptor: Acceptor::start("nbd/accept", accept)?,
        })
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The accepting thread; ended when dropped. A Unix socket is removed then, unless it replaced one that
/// was left behind.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) address: Address,
    /// The Unix socket is removed in the end.
    remove: Arc<AtomicBool>,
    _acceptor: Acceptor,
}

impl Listener {
    /// Ends the thread, and removes a Unix socket in any case.
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
            // Short of descriptors or memory, or the client is gone already.
            Err(_) if pause(end, PAUSE) => return,
            Err(_) => continue,
        };
        let before = shared.open.fetch_add(1, Ordering::Relaxed);
        let core = cores.next().expect("a server has a core");
        let refused = before >= NBD_CONNECTIONS_MAX || set_up(&client).is_err() || {
            let stream = Stream::Socket(client.into());
            core.send(Message::Connection(stream)).is_err()
        };
        if refused {
            shared.connection_ended();
        }
    }
}

/// Sets a client's socket up for the data path.
fn set_up(client: &Socket) -> io::Result<()> {
    client.set_nonblocking(true)?;
    if client.domain()? != Domain::UNIX {
        client.set_tcp_nodelay(true)?;
        let _ = client.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE));
    }
    Ok(())
}
