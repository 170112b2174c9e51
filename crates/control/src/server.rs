//! The control plane's thread: the HTTP interface and the signals.
//!
//! What is this: one thread with a single-threaded runtime, and a few more that come and go for
//! calls that block. It owns the interface's socket and the handlers of SIGTERM, SIGINT and
//! SIGHUP. It has no periodic timers: without requests and signals it sleeps in the kernel.
//! It also does the handshakes of TLS.
//! It must never run on a dataplane core where it can be helped: see [`ServerOptions::cpus`].

mod encrypted;
mod listener;
mod managed;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::{Extension, middleware};
use base::units::CoreId;
use reactor::placement::{self, PlacementError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::api::{self, Clients};
use crate::control::Control;
use crate::credentials::{Credentials, CredentialsError, Token};
use crate::limits::{API_BLOCKING_THREADS_MAX, API_STOP_GRACE_MS};
use crate::socket_access::SocketAccess;
use config::schema::{ApiAddress, ApiFiles, ApiLimits};
use listener::{ApiListener, Bound, Client};
use managed::TargetProcess;
pub use managed::{Managed, log_refused};

/// Options of the control plane's thread; by default it serves signals alone.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The address of the HTTP interface; `None` serves signals alone.
    pub api: Option<ApiAddress>,
    /// The access to its Unix socket.
    pub access: SocketAccess,
    /// The token of requests over TCP that may change something. Without it and a file of tokens there
    /// is no interface on a TCP port.
    pub token: Option<Token>,
    /// The files of an interface on a TCP port, which SIGHUP reads again.
    pub files: ApiFiles,
    /// The file that SIGHUP reads again.
    pub config_path: Option<PathBuf>,
    /// The processors that its threads may use: those without a dataplane thread, where there
    /// are any. `None` leaves them where the calling thread may run.
    pub cpus: Option<Vec<u32>>,
    /// Limits of the interface's clients.
    pub limits: ApiLimits,
    /// The interface's socket, from the process before.
    pub socket: Option<Arc<OwnedFd>>,
}

/// The reason for which the control plane's thread could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The interface's address cannot be taken.
    #[error("the HTTP interface cannot be at {address}: {why}; {what_to_do}")]
    Bind {
        /// The address.
        address: ApiAddress,
        /// The obstacle.
        why: String,
        /// The remedy.
        what_to_do: String,
    },
    /// Its certificate, key or tokens cannot be used.
    #[error("the HTTP interface does not start: {0}")]
    Credentials(#[from] CredentialsError),
    /// The processors are not ours to use.
    #[error("the control thread cannot be placed: {0}")]
    Pin(#[from] PlacementError),
    /// The machine has no room for a thread, or for handlers of signals.
    #[error(
        "the control thread cannot start: {0}; raise the limits of processes and open files (ulimit -u, ulimit -n)"
    )]
    Start(#[from] io::Error),
}

/// The running control plane; stops when dropped.
#[derive(Debug)]
pub struct Server {
    address: Option<ApiAddress>,
    socket: Option<OwnedFd>,
    /// The file of a Unix socket stays at the end.
    keeps_file: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Returns the interface's socket, for a process that takes it over; `None` if there is none.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn socket(&self) -> io::Result<Option<OwnedFd>> {
        self.socket.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// Leaves the file of a Unix socket to the process that has taken it over.
    pub fn keep_file(&self) {
        self.keeps_file.store(true, Ordering::Relaxed);
    }

    /// Returns the address of the interface, with the port that it got.
    #[must_use]
    pub fn address(&self) -> Option<&ApiAddress> {
        self.address.as_ref()
    }

    /// Ends the interface and gives signals back no handler; returns when the thread is gone.
    /// Must not be called by `on_terminate` itself.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // The receiver is gone only if the thread is.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the control thread panicked; this is a bug");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts the control plane's thread; returns when the interface and the signals are served.
///
/// The first SIGTERM or SIGINT calls `on_terminate`, which asks the program to drain; the
/// interface goes on until [`Server::stop`]. Each SIGHUP puts in force what changed in the
/// configuration file since it was last read; what was changed over HTTP stays. An error is logged
/// and leaves the old configuration in force.
///
/// # Errors
/// An address or processors that cannot be had.
pub fn run(
    control: Arc<Control>,
    options: ServerOptions,
    on_terminate: impl FnOnce() + Send + 'static,
) -> Result<Server, ServerError> {
    let file = options.config_path.clone();
    start(
        Arc::new(TargetProcess::new(control, file, on_terminate)),
        options,
    )
}

/// Starts the same thread for another process: each signal to end calls [`Managed::terminate`], and
/// each SIGHUP [`Managed::reload`].
///
/// # Errors
/// As [`run`].
pub fn start<M: Managed>(managed: Arc<M>, options: ServerOptions) -> Result<Server, ServerError> {
    let bind = |address: &ApiAddress| -> Result<_, ServerError> {
        let credentials = Credentials::load(address, &options.files, options.token.as_ref())?;
        let credentials = credentials.map(Arc::new);
        let bound = match &options.socket {
            Some(socket) => listener::taken_over(address, socket)?,
            None => listener::bind(address, options.access, credentials.as_deref())?,
        };
        Ok((bound, credentials))
    };
    let bound = options.api.as_ref().map(bind).transpose()?;
    let (bound, credentials) = bound.unzip();
    let credentials = credentials.flatten();
    let address = bound.as_ref().map(|bound| bound.address().clone());
    let socket = bound.as_ref().map(Bound::socket).transpose()?;
    let keeps_file = bound.as_ref().map(Bound::keeps_file).unwrap_or_default();
    let (stop, stopped) = oneshot::channel();
    let (ready, is_ready) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || serve(managed, bound, credentials, options, stopped, &ready))?;
    let mut server = Server {
        address,
        socket,
        keeps_file,
        stop: Some(stop),
        thread: Some(thread),
    };
    match is_ready.recv() {
        Ok(Ok(())) => Ok(server),
        Ok(Err(error)) => {
            server.end();
            Err(error)
        }
        Err(_) => {
            server.end();
            Err(io::Error::other("its thread ended").into())
        }
    }
}

/// The thread's life, from pinning to the end.
fn serve<M: Managed>(
    managed: Arc<M>,
    bound: Option<Bound>,
    credentials: Option<Arc<Credentials>>,
    options: ServerOptions,
    stopped: oneshot::Receiver<()>,
    ready: &mpsc::SyncSender<Result<(), ServerError>>,
) {
    let clients = Clients::new(options.limits, credentials.clone());
    let clients = Arc::new(clients);
    let prepared = prepare(&options, bound, &clients, credentials.as_ref());
    let (runtime, signals, listener, _socket) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            // The caller waits until this arrives.
            let _ = ready.send(Err(error));
            return;
        }
    };
    runtime.block_on(async {
        let (end_api, api_ends) = oneshot::channel::<()>();
        let api = listener.map(|listener| {
            let loopback = listener.loopback();
            let router = api::guarded(managed.routes(), loopback, credentials.clone())
                .layer(Extension(clients))
                .layer(middleware::from_fn(listener::answer));
            let service = router.into_make_service_with_connect_info::<Client>();
            let served = axum::serve(listener, service).with_graceful_shutdown(async {
                let _ = api_ends.await;
            });
            tokio::spawn(served.into_future())
        });
        let _ = ready.send(Ok(()));
        tokio::select! {
            () = handle(signals, managed, options.config_path, credentials) => {}
            _ = stopped => {}
        }
        drop(end_api);
        if let Some(api) = api {
            let grace = Duration::from_millis(API_STOP_GRACE_MS);
            // A client that still reads after that is cut off with the runtime.
            let _ = tokio::time::timeout(grace, api).await;
        }
    });
    runtime.shutdown_timeout(Duration::from_millis(API_STOP_GRACE_MS));
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

type Prepared = (
    tokio::runtime::Runtime,
    Signals,
    Option<ApiListener>,
    Option<listener::SocketFile>,
);

fn prepare(
    options: &ServerOptions,
    bound: Option<Bound>,
    clients: &Arc<Clients>,
    credentials: Option<&Arc<Credentials>>,
) -> Result<Prepared, ServerError> {
    if let Some(cpus) = &options.cpus {
        let cores: Vec<_> = cpus.iter().copied().map(CoreId).collect();
        placement::pin_to_any(&cores)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(API_BLOCKING_THREADS_MAX)
        .thread_name("control-call")
        .build()?;
    let entered = runtime.enter();
    let signals = Signals {
        terminate: signal(SignalKind::terminate())?,
        interrupt: signal(SignalKind::interrupt())?,
        hang_up: signal(SignalKind::hangup())?,
    };
    let (listener, socket) = match bound {
        Some(bound) => {
            let (listener, socket) =
                bound.into_listener(Arc::clone(clients), credentials.cloned())?;
            (Some(listener), socket)
        }
        None => (None, None),
    };
    drop(entered);
    Ok((runtime, signals, listener, socket))
}

/// Serves signals for ever.
async fn handle<M: Managed>(
    mut signals: Signals,
    managed: Arc<M>,
    config_path: Option<PathBuf>,
    credentials: Option<Arc<Credentials>>,
) {
    loop {
        let name = tokio::select! {
            _ = signals.terminate.recv() => "SIGTERM",
            _ = signals.interrupt.recv() => "SIGINT",
            _ = signals.hang_up.recv() => {
                if let Some(credentials) = credentials.clone() {
                    tokio::task::spawn_blocking(move || credentials.reload());
                }
                let Some(path) = config_path.clone() else {
                    if credentials.is_none() {
                        tracing::warn!(
                            "SIGHUP: there is no file to read again; start with --config FILE"
                        );
                    }
                    continue;
                };
                // Of its own: a change takes its time, and the end of the process does not wait.
                tokio::spawn(Arc::clone(&managed).reload(path));
                continue;
            }
        };
        managed.terminate(name);
    }
}
