//! Listeners that are added and removed while a target runs.

use super::Target;
use crate::change::step::{ChangeStep, NewListener};
use crate::error::TargetError;
use crate::shared::Shared;
use crate::tls::{Listener, OpenListener, TlsMode};
use reactor::SocketOptions;
use reactor::tls::Side;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Longest time for which an address may still be in use by the listener of a killed process, or by
/// one that was just closed.
const ADDRESS_IN_USE: Duration = Duration::from_secs(2);

/// Interval between two attempts to listen on such an address.
const ADDRESS_RETRY: Duration = Duration::from_millis(10);

impl Target {
    /// Sets the listeners in the discovery log page.
    pub fn set_listeners(&self, listeners: &[Listener]) {
        let open = |&bound: &Listener| OpenListener {
            requested: bound.address,
            bound,
        };
        self.shared.configuration().listeners = listeners.iter().map(open).collect();
        self.discovery_changed();
    }

    /// Listens on a further address. Returns the address in use.
    ///
    /// # Errors
    /// [`TargetError::Listen`], an address that was added before, or a core that does not answer.
    pub fn add_listener(&self, listener: Listener) -> Result<SocketAddr, TargetError> {
        let _order = self.change()?;
        let Listener { address, tls } = listener;
        let is_ours = |it: &OpenListener| [it.requested, it.bound.address].contains(&address);
        if self.shared.configuration().listeners.iter().any(is_ours) {
            return Err(TargetError::Exists(format!("a listener on {address}")));
        }
        if tls != TlsMode::Off {
            prepare_tls()?;
        }
        let options = self.shared.socket_options(SocketOptions::default(), tls);
        let bound = once_free(|| self.listen(address, &options))?;
        let open = OpenListener {
            requested: address,
            bound: Listener {
                address: bound,
                tls,
            },
        };
        self.shared.configuration().listeners.push(open);
        self.discovery_changed();
        Ok(bound)
    }

    /// Opens a listener on the first core.
    fn listen(
        &self,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> Result<SocketAddr, TargetError> {
        let new = Arc::new(NewListener {
            address,
            options: options.clone(),
            bound: OnceLock::new(),
        });
        if let Err(error) = self.apply(&[ChangeStep::Listen(Arc::clone(&new))]) {
            // The first core may open it later.
            self.shared.post(&[ChangeStep::CloseListener(address)]);
            return Err(error.into());
        }
        match new.bound.get() {
            Some(Ok(bound)) => Ok(*bound),
            Some(Err(error)) => Err(refused(address, again(error))),
            None => Err(TargetError::Undone("the target is ending".to_owned())),
        }
    }

    /// Closes the listener that was added for this address. Its connections stay.
    ///
    /// # Errors
    /// No such listener, or a core that does not answer.
    pub fn remove_listener(&self, address: SocketAddr) -> Result<(), TargetError> {
        let _order = self.change()?;
        let Some(position) = self.position(address) else {
            let reason = format!("no listener on {address}");
            return Err(TargetError::Invalid(reason));
        };
        // A core that answers late closes it then; until it has, the removal can be repeated.
        let closed = self.apply(&[ChangeStep::CloseListener(address)]);
        closed.map_err(|error| TargetError::NotUndone(error.to_string()))?;
        self.shared.configuration().listeners.remove(position);
        self.discovery_changed();
        Ok(())
    }

    fn position(&self, address: SocketAddr) -> Option<usize> {
        let configuration = self.shared.configuration();
        let mut listeners = configuration.listeners.iter();
        listeners.position(|it| it.requested == address)
    }

    /// Returns TLS of a listener, with the current [keys](Self::set_keys) of each handshake; `None`
    /// if it is off.
    #[must_use]
    pub fn tls(&self, mode: TlsMode) -> Option<Side> {
        self.shared.tls(mode)
    }
}

impl Shared {
    fn tls(&self, mode: TlsMode) -> Option<Side> {
        mode.side(self.limits.connect_timeout, &self.keys)
    }

    /// Returns `options` with the time-outs and the TLS of a listener's connections.
    pub(crate) fn socket_options(&self, options: SocketOptions, tls: TlsMode) -> SocketOptions {
        SocketOptions {
            user_timeout: self.limits.tcp_user_timeout,
            keep_alive: self.limits.tcp_keep_alive,
            tls: self.tls(tls),
            ..options
        }
    }
}

/// Prepares this process for TLS.
pub(super) fn prepare_tls() -> Result<(), TargetError> {
    reactor::tls::prepare().map_err(|error| TargetError::Invalid(format!("TLS: {error}")))
}

/// The same error once more: [`io::Error`] cannot be cloned.
fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// The error of an address that cannot be listened on, with advice.
pub(super) fn refused(address: SocketAddr, source: io::Error) -> TargetError {
    let remedy = match source.kind() {
        io::ErrorKind::AddrInUse => {
            "another program uses this port; stop it, or use another port (0 picks a free port)"
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have the address; see `ip addr`",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE; use a higher port"
        }
        _ => "use another address",
    };
    TargetError::Listen {
        address,
        source,
        remedy,
    }
}

/// Listens, and retries for [`ADDRESS_IN_USE`] while the address is in use. The kernel closes a
/// killed process's ring, and with it the listener, some time after the process has ended, so a
/// supervisor that restarts the target at once would find the port in use.
pub(super) fn once_free<T>(
    mut listen: impl FnMut() -> Result<T, TargetError>,
) -> Result<T, TargetError> {
    let deadline = Instant::now() + ADDRESS_IN_USE;
    loop {
        match listen() {
            Err(TargetError::Listen { source, .. })
                if source.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline =>
            {
                std::thread::sleep(ADDRESS_RETRY);
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: io::ErrorKind) -> TargetError {
        refused(SocketAddr::from(([127, 0, 0, 1], 0)), kind.into())
    }

    /// Regression: a target started right after another one was killed ended at once.
    #[test]
    fn an_address_that_is_in_use_for_a_moment_is_listened_on() {
        let mut busy = 3;
        let listened = once_free(|| match busy {
            0 => Ok("listening"),
            _ => {
                busy -= 1;
                Err(failed(io::ErrorKind::AddrInUse))
            }
        });
        assert_eq!((listened.unwrap(), busy), ("listening", 0));
        let mut attempts = 0;
        let refused = once_free::<()>(|| {
            attempts += 1;
            Err(failed(io::ErrorKind::AddrNotAvailable))
        });
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("does not have the address"), "{text}");
        assert_eq!(attempts, 1, "that address does not come");
    }
}
