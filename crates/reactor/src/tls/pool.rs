//! The thread that makes the handshakes of all cores, so that none delays data.
//!
//! One thread holds many handshakes, each waiting for its peer without blocking the others. It runs
//! at a low priority, starts with the first handshake, and lives as long as the process. Peers
//! without a proven identity hold at most [`HANDSHAKES_MAX`] places: a new one takes the place of
//! the oldest, and each network has at most [`HANDSHAKES_PER_NETWORK`].

use super::attempts::Attempts;
use super::error::{Refused, TlsError};
use super::handshake::{Handshake, Shaken};
use super::peer::Peer;
use super::server::Server;
use super::session::Session;
use super::side::Side;
use crate::address::network;
use crate::clock::monotonic;
use crate::limits::{HANDSHAKES_MAX, HANDSHAKES_PER_NETWORK};
use crate::op::{OpKey, SocketOptions, Stream};
use crate::results::Results;
use base::{Nanos, SlabKey, Time};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Poll, ready};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A finished handshake.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The operation.
    pub(crate) key: OpKey,
    pub(crate) result: Shake,
}

/// The result of a handshake, by the role.
#[derive(Debug)]
pub(crate) enum Shake {
    Accepted(Result<(Stream, SocketAddr), Refused>),
    Connected(Result<(OwnedFd, Box<Session>), TlsError>),
}

/// A handshake in progress.
#[derive(Debug)]
struct Job {
    key: OpKey,
    peer: SocketAddr,
    socket: Socket,
    role: Role,
    deadline: Time,
    results: Weak<Results<Finished>>,
}

#[derive(Debug)]
enum Role {
    Accept(Handshake),
    Connect(ConnectTls),
}

/// Makes the handshake of an accepted connection.
pub(crate) fn accept(
    key: OpKey,
    (fd, peer): (OwnedFd, SocketAddr),
    server: &Arc<Server>,
    results: &Arc<Results<Finished>>,
) {
    Pool::add(Job {
        key,
        peer,
        socket: Socket::new(fd),
        role: Role::Accept(Handshake::accept(Arc::clone(server))),
        deadline: monotonic() + server.timeout(),
        results: Arc::downgrade(results),
    });
}

/// TLS of a connection that is being made.
#[derive(Debug)]
pub(crate) struct ConnectTls {
    attempts: Attempts,
    peer: SocketAddr,
    options: SocketOptions,
    deadline: Time,
    /// Begins another connection.
    redial: Redial,
}

/// Begins a connection without waiting for it.
pub(crate) type Redial = fn(SocketAddr, &SocketOptions) -> io::Result<OwnedFd>;

impl ConnectTls {
    /// Returns `None` if the options have no TLS.
    pub(crate) fn new(
        peer: SocketAddr,
        options: &SocketOptions,
        deadline: Time,
        redial: Redial,
    ) -> Option<Self> {
        let Some(Side::Client(client)) = &options.tls else {
            return None;
        };
        Some(Self {
            attempts: Attempts::new(Arc::clone(client)),
            peer,
            options: options.clone(),
            deadline,
            redial,
        })
    }
}

/// A driver's record of a handshake in progress.
#[derive(Debug)]
pub(crate) struct Shaking {
    pub(crate) key: OpKey,
    /// The listener that accepted it; `None` for a connect, which has a slot among the sockets.
    pub(crate) listener: Option<SlabKey>,
}

/// Makes the handshake of a connection that was made.
pub(crate) fn connect(key: OpKey, fd: OwnedFd, tls: ConnectTls, results: &Arc<Results<Finished>>) {
    Pool::add(Job {
        key,
        peer: tls.peer,
        socket: Socket::new(fd),
        deadline: tls.deadline,
        role: Role::Connect(tls),
        results: Arc::downgrade(results),
    });
}

/// Makes the library ready. A process that confines itself calls it before.
///
/// # Errors The library's reason.
pub(crate) fn prepare() -> Result<(), TlsError> {
    super::library::prepare()?;
    Pool::get().map(drop)
}

/// New handshakes for the thread.
#[derive(Debug)]
struct Pool {
    new: Mutex<Vec<Job>>,
    /// Counts what was added.
    bell: OwnedFd,
}

impl Pool {
    fn get() -> Result<&'static Self, TlsError> {
        static POOL: OnceLock<Result<Pool, TlsError>> = OnceLock::new();
        static START: OnceLock<Result<(), TlsError>> = OnceLock::new();
        let failed = |error: io::Error| TlsError::Io(error.to_string());
        let pool = POOL.get_or_init(|| {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            Ok(Self {
                new: Mutex::default(),
                bell: bell.map_err(|error| failed(error.into()))?,
            })
        });
        let pool = pool.as_ref().map_err(TlsError::clone)?;
        let started = START.get_or_init(|| {
            let thread = std::thread::Builder::new().name("tls".to_owned());
            thread.spawn(|| pool.run()).map(drop).map_err(failed)
        });
        started.clone().map(|()| pool)
    }

    fn add(job: Job) {
        match Self::get() {
            Ok(pool) => {
                lock(&pool.new).push(job);
                // The counter is full only after 2^64−2 jobs.
                #[expect(clippy::host_endian_bytes, reason = "a number of this machine")]
                let _ = rustix::io::write(&pool.bell, &1u64.to_ne_bytes());
            }
            Err(error) => job.fail(error),
        }
    }

    fn run(&self) {
        crate::priority::lower_nice();
        let mut jobs: Vec<Job> = Vec::new();
        loop {
            let ready = self.wait(&jobs);
            let now = monotonic();
            let ended = jobs.into_iter().zip(ready);
            jobs = ended
                .filter(|(job, _)| job.results.strong_count() > 0)
                .filter_map(|(job, is_ready)| job.go_on(is_ready, now))
                .collect();
            let mut count = [0; 8];
            // Nothing to read: nothing was added.
            let _ = rustix::io::read(&self.bell, &mut count);
            for job in std::mem::take(&mut *lock(&self.new)) {
                match room(&jobs, &job) {
                    Room::Free => {}
                    Room::Of(oldest) => jobs.remove(oldest).fail(TlsError::TimedOut),
                    Room::None => {
                        job.fail(TlsError::Crowded);
                        continue;
                    }
                }
                jobs.extend(job.go_on(true, now));
            }
        }
    }

    /// Waits until something was added, or a peer has sent something, or a deadline. Returns which
    /// handshakes can go on.
    fn wait(&self, jobs: &[Job]) -> Vec<bool> {
        let now = monotonic();
        let deadline = jobs.iter().map(|job| job.deadline).min();
        let timeout = deadline.map(|deadline| timespec(deadline.since(now)));
        let mut fds: Vec<_> = jobs.iter().map(Job::poll_fd).collect();
        fds.push(PollFd::new(&self.bell, PollFlags::IN));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
            // Interrupted, or out of memory: all are tried.
            Err(_) => vec![true; jobs.len()],
        }
    }
}

/// Room for another handshake.
enum Room {
    Free,
    /// That of the oldest one, which ends.
    Of(usize),
    /// Its network has its share.
    None,
}

/// Returns the room for another handshake. That of a host's own connections has no bound here: its
/// sockets have one.
fn room(jobs: &[Job], new: &Job) -> Room {
    if !new.is_accepted() {
        return Room::Free;
    }
    let accepted = || jobs.iter().filter(|job| job.is_accepted());
    let network_of = |job: &Job| network(job.peer.ip());
    let here = accepted().filter(|job| network_of(job) == network_of(new));
    if here.count() >= HANDSHAKES_PER_NETWORK {
        return Room::None;
    }
    let oldest = jobs.iter().position(Job::is_accepted);
    match oldest {
        Some(oldest) if accepted().count() >= HANDSHAKES_MAX => Room::Of(oldest),
        _ => Room::Free,
    }
}

impl Job {
    const fn is_accepted(&self) -> bool {
        matches!(self.role, Role::Accept(_))
    }

    fn poll_fd(&self) -> PollFd<'_> {
        let connecting = matches!(&self.role, Role::Connect(tls) if !tls.attempts.has_begun());
        let flags = if self.socket.is_full || connecting {
            PollFlags::OUT
        } else {
            PollFlags::IN
        };
        PollFd::new(&self.socket.fd, flags)
    }

    /// Continues if the peer has sent something. Returns `None` once it has ended and was
    /// reported.
    fn go_on(mut self, is_ready: bool, now: Time) -> Option<Self> {
        if is_ready && let Poll::Ready(result) = self.step() {
            match result
                .map(Some)
                .or_else(|error| self.try_next_key(error).map(|()| None))
            {
                Ok(None) => {}
                Ok(Some(shaken)) => {
                    self.report(Ok(shaken));
                    return None;
                }
                Err(error) => {
                    self.report(Err(error));
                    return None;
                }
            }
        }
        if self.deadline <= now {
            self.report(Err(TlsError::TimedOut));
            return None;
        }
        Some(self)
    }

    fn step(&mut self) -> Poll<Result<Shaken, TlsError>> {
        self.socket.is_full = false;
        match &mut self.role {
            Role::Accept(handshake) => handshake.advance(&mut self.socket),
            Role::Connect(tls) => {
                if !tls.attempts.has_begun() {
                    match is_connected(&self.socket.fd) {
                        Ok(true) => {}
                        Ok(false) => return Poll::Pending,
                        Err(error) => {
                            return Poll::Ready(Err(TlsError::Io(error.to_string())));
                        }
                    }
                }
                let session = ready!(tls.attempts.advance(&mut self.socket))?;
                Poll::Ready(Ok(Shaken::Secured(session)))
            }
        }
    }

    /// Tries the host's next key on a new connection.
    ///
    /// # Errors The failure to report, if there is none.
    fn try_next_key(&mut self, error: TlsError) -> Result<(), TlsError> {
        let Role::Connect(tls) = &mut self.role else {
            return Err(error);
        };
        tls.attempts.try_next(error)?;
        let fd = (tls.redial)(self.peer, &tls.options).map_err(|_| tls.attempts.failure())?;
        self.socket = Socket::new(fd);
        Ok(())
    }

    fn fail(self, error: TlsError) {
        self.report(Err(error));
    }

    /// Reports the result to the driver, if it is still there.
    fn report(self, result: Result<Shaken, TlsError>) {
        let Some(results) = self.results.upgrade() else {
            return;
        };
        let (key, peer, fd) = (self.key, self.peer, self.socket.fd);
        let result = match self.role {
            Role::Accept(_) => Shake::Accepted(match result {
                Ok(Shaken::Secured(session)) => Ok((Stream::Socket(fd, Some(session)), peer)),
                Ok(Shaken::Clear) => Ok((Stream::Socket(fd, None), peer)),
                Err(error) => Err(Refused { peer, error }),
            }),
            Role::Connect(_) => Shake::Connected(result.and_then(|shaken| match shaken {
                Shaken::Secured(session) => Ok((fd, session)),
                Shaken::Clear => Err(TlsError::NotTls),
            })),
        };
        results.add(Finished { key, result });
    }
}

/// Returns true once a connect has succeeded.
fn is_connected(fd: &OwnedFd) -> io::Result<bool> {
    rustix::net::sockopt::socket_error(fd)??;
    match rustix::net::getpeername(fd) {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::NOTCONN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn timespec(span: Nanos) -> Timespec {
    // A nanosecond more, so that the deadline is over afterwards.
    let span = std::time::Duration::from(Nanos(span.0.saturating_add(1)));
    Timespec::try_from(span).unwrap_or(Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    })
}

/// A socket in a handshake.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// The kernel has no room for more.
    is_full: bool,
}

impl Socket {
    const fn new(fd: OwnedFd) -> Self {
        let is_full = false;
        Self { fd, is_full }
    }
}

impl Peer for Socket {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (_, received) = rustix::net::recv(&self.fd, into, RecvFlags::DONTWAIT)?;
        Ok(received)
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        let mut first = [0];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let (_, received) = rustix::net::recv(&self.fd, &mut first, flags)?;
        Ok((received > 0).then_some(first[0]))
    }

    fn send(&mut self, from: &[u8]) -> io::Result<usize> {
        let sent = rustix::net::send(&self.fd, from, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let sent = sent.map_err(io::Error::from);
        self.is_full |= matches!(&sent, Err(error) if error.kind() == ErrorKind::WouldBlock);
        sent
    }
}
