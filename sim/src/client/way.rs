//! The channel through which an application sends its requests.

use block::Channel;
use host::RemoteChannel;

/// The channel through which an application sends its requests.
#[derive(Debug)]
pub(crate) enum Way {
    /// Any channel.
    Any(Box<dyn Channel>),
    /// A channel of a remote namespace.
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
