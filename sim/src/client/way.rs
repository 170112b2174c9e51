//! The way in which an application's requests leave.

use block::Channel;
use host::RemoteChannel;

/// The way in which an application's requests leave.
#[derive(Debug)]
pub(crate) enum Way {
    /// By any channel.
    Any(Box<dyn Channel>),
    /// By one of a remote namespace.
    Remote(Box<RemoteChannel>),
}

impl Way {
    pub(super) fn as_mut(&mut self) -> &mut dyn Channel {
        match self {
            Self::Any(channel) => &mut **channel,
            Self::Remote(channel) => &mut **channel,
        }
    }

    pub(super) fn as_ref(&self) -> &dyn Channel {
        match self {
            Self::Any(channel) => &**channel,
            Self::Remote(channel) => &**channel,
        }
    }
}
