//! Messages to the service manager: the target is ready, it ends, it lives.
//!
//! The protocol of sd_notify(3): datagrams to the socket that the environment names; without one
//! there is no service manager. A watchdog is fed only while every core of the dataplane takes
//! messages; one that hangs has the service manager start the target again.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use target::Target;

/// The service manager, if there is one.
#[derive(Clone, Debug)]
pub struct ServiceManager(Option<Arc<UnixDatagram>>);

impl ServiceManager {
    /// The one that the environment names, if it names one.
    ///
    /// # Errors
    /// A socket that is named and cannot be reached.
    pub fn from_environment() -> io::Result<Self> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self(None));
        };
        let connected = connect(&name).map_err(|error| {
            let name = name.to_string_lossy();
            io::Error::new(error.kind(), format!("NOTIFY_SOCKET={name}: {error}"))
        })?;
        Ok(Self(Some(Arc::new(connected))))
    }

    /// Tells it `state`, such as "READY=1".
    pub fn tell(&self, state: &str) {
        if let Some(socket) = &self.0
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::warn!(%error, state, "the service manager cannot be told");
        }
    }

    /// Feeds its watchdog while `target` works, until what is returned is dropped.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn watch(&self, target: &Arc<Target>) -> io::Result<Option<mpsc::Sender<()>>> {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let (Some(_), Some(limit), true) = (&self.0, number("WATCHDOG_USEC"), meant) else {
            return Ok(None);
        };
        // Twice within the limit, as sd_watchdog_enabled(3) recommends.
        let period = Duration::from_micros(limit / 2);
        let (watch, ended) = mpsc::channel::<()>();
        let (manager, target) = (self.clone(), Arc::clone(target));
        let feed = move || {
            loop {
                let began = Instant::now();
                if target.responds(period) {
                    manager.tell("WATCHDOG=1");
                } else {
                    tracing::error!("a core takes no messages: the watchdog is not fed");
                }
                let rest = period.saturating_sub(began.elapsed());
                if ended.recv_timeout(rest) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("watchdog".to_owned());
        thread.spawn(feed)?;
        Ok(Some(watch))
    }
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}
