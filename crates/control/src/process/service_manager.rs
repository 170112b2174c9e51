//! Messages to the service manager: the process is ready, it ends, it lives.
//!
//! The protocol of sd_notify(3): datagrams to the socket that the environment names; without one
//! there is no service manager. A watchdog is fed only while every core of the dataplane takes
//! messages; one that hangs has the service manager start the process again.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

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

    /// Feeds its watchdog while `responds` returns true, until what is returned is dropped. `responds`
    /// is called once in half the limit of the watchdog, which is its time to answer.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn watch(
        &self,
        responds: impl Fn(Duration) -> bool + Send + 'static,
    ) -> io::Result<Option<mpsc::Sender<()>>> {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        // 0 is no time, and no watchdog.
        let (Some(_), Some(limit @ 1..), true) = (&self.0, number("WATCHDOG_USEC"), meant) else {
            return Ok(None);
        };
        // Twice within the limit, as sd_watchdog_enabled(3) recommends.
        self.feed(responds, Duration::from_micros(limit / 2))
            .map(Some)
    }

    /// Feeds the watchdog once in each period in which `responds` returns true.
    fn feed(
        &self,
        responds: impl Fn(Duration) -> bool + Send + 'static,
        period: Duration,
    ) -> io::Result<mpsc::Sender<()>> {
        let (watch, ended) = mpsc::channel::<()>();
        let manager = self.clone();
        let feed = move || {
            loop {
                let began = Instant::now();
                if responds(period) {
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
        Ok(watch)
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

#[cfg(test)]
mod tests {
    use super::*;
    use reactor::{Mailbox, Wake};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use target::{Limits, Target};

    /// A core that counts its messages.
    #[derive(Debug, Default)]
    struct Core(AtomicUsize);

    impl Wake for Core {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_watchdog_is_fed_while_the_core_takes_messages_alone() {
        let (ours, theirs) = UnixDatagram::pair().expect("two sockets");
        let manager = ServiceManager(Some(Arc::new(ours)));
        let target = Target::new(Limits::default(), 1).expect("the defaults are in range");
        let core = Arc::new(Core::default());
        let mut mailbox = Mailbox::new(Arc::clone(&core) as Arc<dyn Wake>);
        target.attach(vec![mailbox.sender()]);
        let period = Duration::from_millis(20);
        let responds = move |time| target.responds(time);
        let _watch = manager.feed(responds, period).expect("room for a thread");
        let wait = Some(Duration::from_millis(1));
        theirs.set_read_timeout(wait).expect("a socket");
        let fed = || {
            let mut text = [0; 64];
            let length = theirs.recv(&mut text);
            length.is_ok_and(|length| &text[..length] == b"WATCHDOG=1")
        };
        let end = Instant::now() + Duration::from_secs(60);
        let mut serve = || {
            while !fed() {
                assert!(Instant::now() < end, "it is not fed");
                // A message that is let go of is acknowledged.
                while mailbox.pop().is_some() {}
            }
        };
        serve();
        serve();
        // The core hangs: what it took before may still be told.
        let before = core.0.load(Ordering::SeqCst);
        let mut told = 0;
        while core.0.load(Ordering::SeqCst) < before + 4 {
            assert!(Instant::now() < end, "it is not asked");
            told += usize::from(fed());
        }
        while fed() {
            told += 1;
        }
        assert!(told <= 1, "{told}");
        serve();
    }
}
