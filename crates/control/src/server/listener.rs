//! The interface's socket: a loopback port, any port with TLS, or a Unix socket, which only its owner may
//! use unless more is configured.
//!
//! Strangers reach a port, so a connection has to show soon that it is worth its place: it is closed
//! without a request after `request_timeout_ms` of the [limits](config::schema::ApiLimits), in which its
//! handshake of TLS must end as well, and after a request that is refused for lack of a token. At most
//! `connections` are open at a time; for one more the oldest one without a request is closed, of the
//! address that has most of these, and where all have had one, it waits.
//! After that, one on which nothing moves for `idle_timeout_ms` is closed, except while an
//! answer is due: a change takes its time, and waits for those before it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::extract::Request;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use super::ServerError;
use super::encrypted::Encrypted;
use crate::api::{ClientLimit, Clients};
use crate::credentials::Credentials;
use crate::limits::API_ACCEPT_LOG_PERIOD_MS;
use crate::socket_access::SocketAccess;
use config::schema::ApiAddress;

/// Connections that the kernel keeps for us until we accept them.
const BACKLOG: i32 = 128;

/// A socket that was bound, outside of any runtime.
pub(super) struct Bound {
    address: ApiAddress,
    socket: Socket,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket; removed at the end if it is still ours.
pub(super) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
    /// Another process has the socket.
    kept: Arc<AtomicBool>,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            inode: inode(path)?,
            kept: Arc::default(),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let kept = self.kept.load(Ordering::Relaxed);
        if !kept && inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            // At worst a dead file stays, which the next start removes.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Takes the address; one of TCP only if there is a token that requests can show.
pub(super) fn bind(
    address: &ApiAddress,
    access: SocketAccess,
    credentials: Option<&Credentials>,
) -> Result<Bound, ServerError> {
    match address {
        ApiAddress::Unix(path) => bind_unix(path, access),
        _ if credentials.is_none_or(|it| it.current().tokens.is_empty()) => Err((
            io::Error::other(
                "every user of this machine reaches a TCP port, and there is no token",
            ),
            "use a Unix socket such as unix:/run/switchyard/api.sock, or set SWITCHYARD_API_TOKEN, \
             SWITCHYARD_API_TOKEN_FILE or api_tokens",
        )),
        ApiAddress::Loopback(address) if !address.ip().is_loopback() => Err((
            io::Error::other("it can be reached from other machines"),
            "use a loopback address, a Unix socket, or https with a certificate",
        )),
        ApiAddress::Loopback(address) => bind_tcp(*address, ApiAddress::Loopback),
        ApiAddress::Https { host, port } => match host.parse::<IpAddr>() {
            Ok(ip) => bind_tcp((ip, *port).into(), ApiAddress::https),
            Err(_) => Err((
                io::Error::other(format!("{host:?} is the name of a machine")),
                "write the IP address to listen at, like https://0.0.0.0:4421",
            )),
        },
    }
    .map_err(|(error, what_to_do)| ServerError::Bind {
        address: address.clone(),
        why: error.to_string(),
        what_to_do: what_to_do.to_owned(),
    })
}

/// Takes the socket of the interface at `address` over.
pub(super) fn taken_over(address: &ApiAddress, socket: &OwnedFd) -> io::Result<Bound> {
    let socket = socket.try_clone()?;
    let (address, socket) = match address {
        ApiAddress::Unix(path) => {
            let file = SocketFile::new(path)?;
            let socket = Socket::Unix(UnixListener::from(socket), file);
            (address.clone(), socket)
        }
        ApiAddress::Loopback(_) => {
            let listener = TcpListener::from(socket);
            let bound = listener.local_addr()?;
            (ApiAddress::Loopback(bound), Socket::Tcp(listener))
        }
        ApiAddress::Https { .. } => {
            let listener = TcpListener::from(socket);
            let bound = listener.local_addr()?;
            (ApiAddress::https(bound), Socket::Tcp(listener))
        }
    };
    Ok(Bound { address, socket })
}

type BindError = (io::Error, &'static str);

fn bind_tcp(
    address: SocketAddr,
    shown: impl Fn(SocketAddr) -> ApiAddress,
) -> Result<Bound, BindError> {
    let bound = || -> io::Result<Bound> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Bound {
            address: shown(listener.local_addr()?),
            socket: Socket::Tcp(listener),
        })
    };
    bound().map_err(|error| {
        let what_to_do = match error.kind() {
            io::ErrorKind::AddrInUse => "another program has this port; choose another one",
            io::ErrorKind::PermissionDenied => "choose a port above 1023",
            _ => "choose another address",
        };
        (error, what_to_do)
    })
}

fn bind_unix(path: &Path, access: SocketAccess) -> Result<Bound, BindError> {
    remove_dead(path)?;
    let bound = || -> io::Result<(OwnedFd, SocketFile)> {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        // The kernel gives the file the mode that the socket has when it is bound: no other user
        // can open it at any moment.
        rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        let file = SocketFile::new(path)?;
        Ok((socket, file))
    };
    let refused = |error: io::Error| {
        let what_to_do = match error.kind() {
            io::ErrorKind::NotFound => "create its directory",
            io::ErrorKind::PermissionDenied => "choose a directory that this user may write to",
            _ => "choose another path",
        };
        (error, what_to_do)
    };
    let (socket, file) = bound().map_err(refused)?;
    let applied = access.apply(path);
    applied.map_err(|error| (error, SocketAccess::REMEDY))?;
    // Before, nothing can connect.
    rustix::net::listen(&socket, BACKLOG).map_err(|error| refused(error.into()))?;
    Ok(Bound {
        address: ApiAddress::Unix(path.to_owned()),
        socket: Socket::Unix(UnixListener::from(socket), file),
    })
}

/// Removes the socket that a program left behind; anything else at `path` is an error.
fn remove_dead(path: &Path) -> Result<(), BindError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        let error = io::Error::other("something that is no socket is there");
        return Err((error, "choose another path"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| (error, "remove the dead socket"))
        }
        _ => {
            let error = io::Error::from(io::ErrorKind::AddrInUse);
            Err((error, "another program serves it; choose another path"))
        }
    }
}

impl Bound {
    pub(super) fn address(&self) -> &ApiAddress {
        &self.address
    }

    /// Returns another descriptor of the socket.
    pub(super) fn socket(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            Socket::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Socket::Unix(listener, _) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Returns the flag that keeps the file of a Unix socket.
    pub(super) fn keeps_file(&self) -> Arc<AtomicBool> {
        match &self.socket {
            Socket::Tcp(_) => Arc::default(),
            Socket::Unix(_, file) => Arc::clone(&file.kept),
        }
    }

    /// Hands the socket to the runtime that was entered.
    pub(super) fn into_listener(
        self,
        clients: Arc<Clients>,
        credentials: Option<Arc<Credentials>>,
    ) -> io::Result<(ApiListener, Option<SocketFile>)> {
        let (socket, file) = match self.socket {
            Socket::Tcp(listener) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                (AsyncSocket::Tcp(listener), None)
            }
            Socket::Unix(listener, file) => {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                (AsyncSocket::Unix(listener), Some(file))
            }
        };
        let listener = ApiListener {
            socket,
            address: self.address,
            clients,
            credentials,
            fresh: Vec::new(),
            accept_errors: LogPeriod::default(),
            handshake_errors: Arc::default(),
        };
        Ok((listener, file))
    }
}

/// Accepts connections, as many as there is room for.
pub(super) struct ApiListener {
    socket: AsyncSocket,
    address: ApiAddress,
    clients: Arc<Clients>,
    credentials: Option<Arc<Credentials>>,
    /// Connections that have not had a request, oldest first, and some that have.
    fresh: Vec<Weak<ClientState>>,
    accept_errors: LogPeriod,
    handshake_errors: Arc<Mutex<LogPeriod>>,
}

/// Bounds the log lines about connections that cannot be accepted, or whose handshake failed: descriptors
/// may be used up for long, and strangers may try for ever.
#[derive(Debug, Default)]
struct LogPeriod {
    /// Time of the next line.
    next: Option<Instant>,
    /// Errors without a line since the last one.
    suppressed: u64,
}

impl LogPeriod {
    /// Returns the number of errors that had no line since the last one, if this one may have one.
    fn allow(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_some_and(|next| now < next) {
            self.suppressed += 1;
            return None;
        }
        self.next = Some(now + Duration::from_millis(API_ACCEPT_LOG_PERIOD_MS));
        Some(std::mem::take(&mut self.suppressed))
    }
}

enum AsyncSocket {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl ApiListener {
    /// The address that requests must name; `None` for one with TLS, and for a Unix socket.
    pub(super) fn loopback(&self) -> Option<SocketAddr> {
        match &self.address {
            ApiAddress::Loopback(address) => Some(*address),
            ApiAddress::Https { .. } | ApiAddress::Unix(_) => None,
        }
    }

    /// Waits for room for one more connection: the oldest one without a request makes some, of the
    /// address that has most of these.
    async fn room(&mut self) -> OwnedSemaphorePermit {
        self.fresh
            .retain(|client| client.upgrade().is_some_and(|client| client.is_fresh()));
        let room = Arc::clone(&self.clients.room);
        if room.available_permits() == 0 {
            self.clients.count(ClientLimit::Connections);
            let fresh: Vec<_> = self.fresh.iter().filter_map(Weak::upgrade).collect();
            let mut counts = HashMap::new();
            for client in &fresh {
                *counts.entry(client.peer).or_insert(0) += 1;
            }
            let most = counts.values().max();
            let mut oldest = fresh.iter();
            if let Some(oldest) = oldest.find(|client| counts.get(&client.peer) == most) {
                oldest.end();
                let ended = Arc::downgrade(oldest);
                self.fresh.retain(|client| !client.ptr_eq(&ended));
            }
        }
        room.acquire_owned().await.expect("nobody closes it")
    }

    /// Puts TLS on a connection from `peer`, if the interface has it.
    fn encrypt(&self, stream: tokio::net::TcpStream, peer: SocketAddr) -> Box<dyn Stream> {
        let tls = self.credentials.as_ref().and_then(|it| it.current().tls());
        let Some(tls) = tls else {
            return Box::new(stream);
        };
        let errors = Arc::clone(&self.handshake_errors);
        Box::new(Encrypted::new(stream, tls, move |error| {
            let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(suppressed) = errors.allow(Instant::now()) {
                tracing::warn!(
                    suppressed,
                    "the HTTP interface: TLS handshake with {peer} failed: {error}"
                );
            }
        }))
    }
}

impl axum::serve::Listener for ApiListener {
    type Io = Connection;
    type Addr = ();

    async fn accept(&mut self) -> (Connection, ()) {
        loop {
            let accepted: io::Result<(Box<dyn Stream>, _)> = match &self.socket {
                AsyncSocket::Tcp(tcp) => {
                    let accepted = tcp.accept().await;
                    accepted.map(|(it, peer)| (self.encrypt(it, peer), Some(peer.ip())))
                }
                AsyncSocket::Unix(unix) => {
                    let accepted = unix.accept().await;
                    accepted.map(|(it, _)| (Box::new(it) as _, None))
                }
            };
            match accepted {
                Ok((stream, peer)) => {
                    let room = self.room().await;
                    let connection = Connection::new(stream, peer, &self.clients, room);
                    self.fresh.push(Arc::downgrade(&connection.client.0));
                    return (connection, ());
                }
                Err(error) => {
                    if let Some(suppressed) = self.accept_errors.allow(Instant::now()) {
                        tracing::warn!(
                            suppressed,
                            "the HTTP interface cannot accept a connection: {error}"
                        );
                    }
                    // Out of files: others must close theirs first.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection that ends when nothing moves for too long.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    clients: Arc<Clients>,
    deadline: Pin<Box<Sleep>>,
    /// The deadline has passed.
    is_late: bool,
    client: Client,
    _room: OwnedSemaphorePermit,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub(super) struct Client(Arc<ClientState>);

#[derive(Debug, Default)]
struct ClientState {
    /// Its address, or that of its network where such a network is one machine's; `None` on this machine.
    peer: Option<IpAddr>,
    /// The head of a request has come.
    asked: AtomicBool,
    /// It waits for the answer to a request.
    answering: AtomicBool,
    /// It has to make room for another one.
    ended: AtomicBool,
    /// Wakes the task that reads from it.
    reader: Mutex<Option<Waker>>,
}

impl ClientState {
    fn is_fresh(&self) -> bool {
        !self.asked.load(Ordering::Relaxed)
    }

    fn reader(&self) -> MutexGuard<'_, Option<Waker>> {
        // It is replaced as a whole.
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has its connection closed.
    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader().take() {
            reader.wake();
        }
    }
}

impl Connected<IncomingStream<'_, ApiListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, ApiListener>) -> Self {
        stream.io().client.clone()
    }
}

/// Tells the connection of a request, of which it has one at a time, that the answer is due. One that
/// was refused to a stranger ends it: strangers hold no place.
pub(super) async fn answer(
    ConnectInfo(Client(client)): ConnectInfo<Client>,
    request: Request,
    next: Next,
) -> Response {
    client.asked.store(true, Ordering::Relaxed);
    client.answering.store(true, Ordering::Relaxed);
    let mut response = next.run(request).await;
    client.answering.store(false, Ordering::Relaxed);
    if matches!(
        response.status(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    ) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

impl Connection {
    fn new(
        stream: Box<dyn Stream>,
        peer: Option<IpAddr>,
        clients: &Arc<Clients>,
        room: OwnedSemaphorePermit,
    ) -> Self {
        let first = clients.limits.request_timeout();
        let client = ClientState {
            peer: peer.map(machine),
            ..ClientState::default()
        };
        Self {
            stream,
            clients: Arc::clone(clients),
            deadline: Box::pin(tokio::time::sleep(first)),
            is_late: false,
            client: Client(Arc::new(client)),
            _room: room,
        }
    }

    /// Moves the deadline when something moved or an answer is due, once there was a request; ends
    /// the connection when it has passed, or when another one needs the place of one without.
    fn watch<T>(
        &mut self,
        moved: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let client = &self.client.0;
        if client.is_fresh() {
            *client.reader() = Some(context.waker().clone());
            if moved.is_pending() && client.ended.load(Ordering::Relaxed) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        } else if moved.is_ready() || client.answering.load(Ordering::Relaxed) {
            let idle = self.clients.limits.idle_timeout();
            self.deadline.as_mut().reset(Instant::now() + idle);
        }
        if moved.is_ready() {
            return moved;
        }
        if self.deadline.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        if !std::mem::replace(&mut self.is_late, true) {
            let limit = match client.is_fresh() {
                true => ClientLimit::RequestTimeout,
                false => ClientLimit::IdleTimeout,
            };
            self.clients.count(limit);
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.watch(moved, context)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(moved, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.watch(Poll::Pending, context),
            flushed => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.watch(Poll::Pending, context),
            closed => closed,
        }
    }
}

/// Returns the address by which connections of one machine are counted: of IPv6 the network of 64 bits.
fn machine(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(peer) => IpAddr::V6((peer.to_bits() >> 64 << 64).into()),
        peer => peer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line a second, for as long as descriptors were used up.
    #[test]
    fn errors_of_accepting_are_logged_once_in_a_while_and_counted() {
        let mut errors = LogPeriod::default();
        let begun = Instant::now();
        let period = Duration::from_millis(API_ACCEPT_LOG_PERIOD_MS);
        assert_eq!(errors.allow(begun), Some(0));
        for _ in 0..100 {
            assert_eq!(errors.allow(begun + period / 2), None);
        }
        assert_eq!(errors.allow(begun + period), Some(100));
        assert_eq!(errors.allow(begun + period), None);
    }
}
