//! Front ends as the process sees them, whatever their kind.

pub(crate) mod fuse;
pub(crate) mod nbd;
pub(crate) mod ublk;
pub(crate) mod vhost;

use crate::attach::source::Source;
use crate::fuse::FuseError;
use crate::ublk::UblkError;
use crate::{Handed, IoCounts, Origin, Ping, TakenSocket};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::time::Instant;
use switch::PerClass;

/// A front end that serves clients. Dropped without [`detach`](Self::detach), it leaves what the next
/// process needs to go on with clients that rely on it, as one that is killed does.
pub(crate) trait FrontEnd: Debug + Send {
    /// Clients that use it at present.
    fn clients(&self) -> usize;

    /// The name of so many clients, such as "2 clients".
    fn clients_in_words(&self, count: usize) -> String;

    /// Counts of requests since the start.
    fn counts(&self) -> PerClass<IoCounts>;

    /// Finishes the requests under way and ends; does nothing the second time.
    ///
    /// # Errors
    /// Clients that keep it from ending, unless `force` is true: it goes on then.
    fn detach(&mut self, force: bool) -> Result<()>;

    /// Finishes the requests in flight and ends with the process, also while clients use it. A next
    /// process can serve them again if the interface allows it.
    ///
    /// # Errors
    /// As [`detach`](Self::detach) with `force`.
    fn leave(&mut self) -> Result<()> {
        self.detach(true)
    }

    /// Returns what a successor needs before this one stops.
    ///
    /// # Errors
    /// The reason why no process can take it over.
    fn offer(&self) -> Result<Offered>;

    /// Stops at a boundary of requests, and returns the state.
    ///
    /// # Errors
    /// The reason why it serves on, such as requests that do not finish by `by`.
    fn pause(&mut self, by: Instant) -> Result<Handed, String>;

    /// Serves with the state of a pause: its own, or that of a predecessor.
    ///
    /// # Errors
    /// The reason why it does not serve.
    fn resume(&mut self, handed: Handed) -> Result<(), String>;

    /// Prepares a paused one to be dropped without an effect on its clients, which a successor serves.
    fn give_away(&mut self) {}

    /// Asks its threads whether they take messages.
    fn ping(&self, ping: &Ping);

    /// Returns true if it ended while clients used it, or gave up their requests.
    fn was_forced(&self) -> bool {
        false
    }

    /// Does what is due now and then.
    fn look(&mut self) {}

    /// Returns the number of its block device, by which the next server finds that if this one leaves
    /// it behind; `None` where there is none.
    fn block_device(&self) -> Option<u32> {
        None
    }

    /// Returns the reason for which it has ended by itself; `None` while it serves.
    fn end(&self) -> Option<End> {
        None
    }
}

/// What a successor needs before its predecessor stops.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) state: Value,
    /// A listening socket, or the connection of a mount.
    pub(crate) file: Option<OwnedFd>,
}

impl Offered {
    /// Offers a listening socket.
    fn socket((socket, origin): (OwnedFd, Origin)) -> Self {
        Self {
            state: json!(origin),
            file: Some(socket),
        }
    }

    /// Returns the socket of a predecessor.
    fn into_socket(self) -> Result<TakenSocket> {
        let origin = serde_json::from_value(self.state)?;
        let socket = self.file.context("the socket is missing")?;
        Ok(TakenSocket::new(socket, origin))
    }
}

/// The reason for which a front end has ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Another program has removed it.
    Removed,
    /// It cannot serve any more.
    Failed,
}

/// Returns true if a front end refused to be detached because it is in use, or may be.
pub(crate) fn is_in_use(error: &anyhow::Error) -> bool {
    let fuse = matches!(error.downcast_ref(), Some(FuseError::InUse { .. }));
    let ublk = error.downcast_ref();
    fuse || matches!(
        ublk,
        Some(UblkError::InUse { .. } | UblkError::MayBeInUse { .. })
    )
}

/// A front end that was just started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) front_end: Box<dyn FrontEnd>,
    pub(crate) source: Source,
    /// Ways for clients, each with the size of its device in bytes.
    pub(crate) ways: Vec<(String, u64)>,
    /// Description for programs.
    pub(crate) description: Value,
    pub(crate) read_only: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn an_attachment_that_cannot_be_unmounted_is_not_in_use() {
        let path = PathBuf::from("/mnt");
        let open = FuseError::InUse {
            path: path.clone(),
            open: 1,
        };
        assert!(is_in_use(&open.into()));
        let reason = String::new();
        assert!(!is_in_use(&FuseError::Unmount { path, reason }.into()));
        let path = || "/dev/ublkb0".to_owned();
        let user = "a process".to_owned();
        assert!(is_in_use(&UblkError::InUse { path: path(), user }.into()));
        assert!(is_in_use(&UblkError::MayBeInUse { path: path() }.into()));
        assert!(!is_in_use(&UblkError::TooOld.into()));
    }
}
