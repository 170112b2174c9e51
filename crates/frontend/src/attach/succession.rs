//! The end of the controllers that a killed process had at a target.

use crate::attach::identifier_hash::hash;
use crate::vhost::{NoteWriters, Succession, Writers};
use host::{ControllerName, ControllersWatch, Host, HostIdentity, Subsystem};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Pause after an attempt to end controllers that failed, such as at a target that is away, and between
/// two looks whether the server ends meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(100);

/// The controllers of a subsystem.
#[derive(Debug)]
pub(crate) struct TargetSuccession {
    pub(crate) host: Host,
    pub(crate) address: String,
    pub(crate) nqn: String,
    pub(crate) subsystem: Subsystem,
}

impl Succession for TargetSuccession {
    fn watch(&self, note: NoteWriters) {
        let host_id = self.host.identity().id;
        let watch = Arc::new(Watch { host_id, note });
        self.subsystem.association().watch_controllers(watch);
    }

    fn end(&self, left: &Writers, is_over: &dyn Fn() -> bool) -> bool {
        let controllers = left.controllers.iter();
        let controllers = controllers.map(|&(cntlid, incarnation)| ControllerName {
            cntlid,
            incarnation,
        });
        let controllers: Vec<_> = controllers.collect();
        let mut is_told = false;
        while !is_over() {
            let at = (&*self.address, &*self.nqn);
            let ended = self
                .host
                .end_controllers(at, left.host_id, &controllers, is_over);
            let Err(error) = ended else { return true };
            if !std::mem::replace(&mut is_told, true) {
                tracing::warn!(
                    "the machine's writes wait: the target at {} does not confirm that those of the \
                     killed back end are over: {error}; trying again",
                    self.address
                );
            }
            let looks = (0..).map(|look| LOOK * look);
            for _ in looks.take_while(|&waited| waited < PAUSE && !is_over()) {
                std::thread::sleep(LOOK);
            }
        }
        false
    }
}

struct Watch {
    host_id: [u8; 16],
    note: NoteWriters,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl ControllersWatch for Watch {
    fn note(&self, controllers: &[ControllerName]) {
        let controllers = controllers.iter();
        (self.note)(&Writers {
            host_id: self.host_id,
            controllers: controllers
                .map(|controller| (controller.cntlid, controller.incarnation))
                .collect(),
        });
    }
}

/// Returns the identity of the host of a back end at this socket, the same at each start: only the host
/// that had a controller can have it ended. `None` on a machine without an identifier.
pub(crate) fn identity_at(socket: &Path) -> Option<HostIdentity> {
    let machine = std::fs::read("/etc/machine-id").ok()?;
    let socket = std::path::absolute(socket).ok()?;
    let place = [&machine, socket.as_os_str().as_encoded_bytes()].concat();
    let [high, low] =
        ["host identifier, high", "host identifier, low"].map(|kind| hash(kind, &place));
    // Version 8, variant 1. `[RFC 9562 §5.8]`
    let uuid = format!(
        "{:08x}-{:04x}-8{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff,
    );
    HostIdentity::from_nqn(&format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_end_at_the_same_socket_is_the_same_host() {
        let at = |path| identity_at(Path::new(path));
        if let Some(identity) = at("/run/a.sock") {
            assert_eq!(at("/run/a.sock"), Some(identity.clone()));
            assert_ne!(at("/run/b.sock"), Some(identity));
        }
    }
}
