//! A namespace of a remote subsystem, as a block device.

use crate::association::Association;
use crate::association::NamespaceState;
use crate::channel::RemoteChannel;
use crate::error::HostError;
use crate::info::NamespaceInfo;
use crate::recovery::epoch::Phase;
use crate::recovery::machine::OtherWay;
use block::{CacheLife, Capabilities, Channel, Device, DeviceError, Geometry, Operation};
use reactor::Driver;
use std::fmt;
use std::sync::Arc;
use switch::Class;

/// A namespace on another machine. Any core may open it; each gets I/O queues of its own.
///
/// The [`Controller`](crate::Controller) of its association must run meanwhile: a
/// [`Host`](crate::Host) does so on a thread of its own, a simulator on one of its cores.
#[derive(Clone)]
pub struct RemoteNamespace {
    association: Arc<Association>,
    state: Arc<NamespaceState>,
    info: NamespaceInfo,
    capabilities: Capabilities,
    class: Class,
    other_way: OtherWay,
    queues: u16,
    depth: u16,
    /// I/O queues that are left to other channels.
    left: usize,
}

impl RemoteNamespace {
    /// The namespace `nsid` of a controller that is live.
    ///
    /// # Errors
    /// When there is no such namespace, when we cannot use it, or when the controller is not
    /// identified yet.
    pub fn new(association: &Arc<Association>, nsid: u32) -> Result<Self, HostError> {
        if let Some(reason) = association.unusable(nsid) {
            return Err(HostError::UnusableNamespace { nsid, reason });
        }
        let known = association.namespaces();
        let info = known.iter().find(|info| info.nsid == nsid);
        let state = association.namespace_state(nsid);
        let (Some(info), Some(state)) = (info, state) else {
            let all: Vec<_> = known.iter().map(|info| info.nsid.to_string()).collect();
            return Err(HostError::NoNamespace {
                nsid,
                subsystem: association.options().subsystem.to_string(),
                available: if all.is_empty() {
                    "none".to_owned()
                } else {
                    all.join(", ")
                },
            });
        };
        let parameters = association.parameters();
        let block = info.geometry.block_bytes;
        let capabilities = Capabilities {
            volatile_cache: parameters.features.volatile_cache,
            read_only: info.read_only,
            thin: info.thin,
            max_transfer_bytes: (parameters.max_transfer_bytes / block).max(1) * block,
            preferred_bytes: info.preferred_bytes,
            extents_max: parameters.extents.map_or(0, |terms| terms.extents.into()),
        };
        let options = association.options();
        Ok(Self {
            class: Class::DEFAULT,
            other_way: OtherWay::None,
            queues: options.queues,
            depth: options.depth,
            left: 0,
            association: Arc::clone(association),
            info: info.clone(),
            state,
            capabilities,
        })
    }

    /// The same namespace; channels opened from it have `queues` queues of `depth` commands.
    #[must_use]
    pub fn with_queues(mut self, queues: u16, depth: u16) -> Self {
        self.queues = queues.clamp(1, crate::limits::CHANNEL_QUEUES_MAX);
        self.depth = depth.clamp(1, crate::limits::QUEUE_DEPTH_MAX - 1);
        self
    }

    /// The same namespace; a channel opened from it leaves this number of I/O queues to others, or gets
    /// none ([`DeviceError::NoQueue`]).
    #[must_use]
    pub const fn leaving(mut self, queues: usize) -> Self {
        self.left = queues;
        self
    }

    /// The same namespace; channels opened from it carry requests of this class. A Switchyard
    /// target serves `Latency` queues first; towards any other the class counts on this side only.
    #[must_use]
    pub fn with_class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// The same namespace below a [`PathDevice`](block::PathDevice): where a channel opened from it
    /// finds no queue again after a loss, another one sends what was under way, and a write of it
    /// not before that is safe (docs/design/decisions/0004-replay.md).
    #[must_use]
    pub const fn below_path(self) -> Self {
        self.with_other_way(OtherWay::Repeated)
    }

    /// The same namespace; requests of channels opened from it that find no queue go this way.
    #[must_use]
    pub(crate) const fn with_other_way(mut self, other_way: OtherWay) -> Self {
        self.other_way = other_way;
        self
    }

    /// The class of the requests that channels opened from it carry.
    pub(crate) const fn class(&self) -> Class {
        self.class
    }

    /// The namespace as it was identified when this value was made.
    #[must_use]
    pub fn info(&self) -> &NamespaceInfo {
        &self.info
    }

    /// The association that it is reached by.
    #[must_use]
    pub fn association(&self) -> &Arc<Association> {
        &self.association
    }

    pub(crate) fn state(&self) -> &Arc<NamespaceState> {
        &self.state
    }

    /// Opens it on the calling core, as [`Device::open`] does, with the type known.
    ///
    /// # Errors
    /// When the association is over, or every I/O queue that the controller grants is taken. Where
    /// some are left, but fewer than asked for, the channel makes do with those.
    pub fn open_remote(&self, driver: &mut dyn Driver) -> Result<RemoteChannel, DeviceError> {
        if self.association.phase() == Phase::Gone {
            let reason = self.association.last_error();
            let reason = reason.map_or_else(|| "it was disconnected".to_owned(), |e| e.to_string());
            return Err(DeviceError::Io {
                what: format!("{self:?} is gone: {reason}"),
                source: rustix::io::Errno::SHUTDOWN.into(),
                remedy: "connect to it again",
            });
        }
        let open = || {
            RemoteChannel::new(
                Arc::clone(&self.association),
                Arc::clone(&self.state),
                self.capabilities,
                self.class,
                self.queues,
                self.depth,
                driver,
            )
        };
        let has_free = self.association.free_queues() > self.left;
        let channel = has_free.then(open).filter(RemoteChannel::has_queue);
        let Some(mut channel) = channel else {
            return Err(DeviceError::NoQueue(format!(
                "{self:?}: all {} I/O queues that its controller grants are taken; use fewer \
                 queues, or raise the target's limit",
                self.association.parameters().io_queues
            )));
        };
        channel.set_other_way(self.other_way);
        Ok(channel)
    }
}

impl fmt::Debug for RemoteNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = self.association.options();
        write!(
            f,
            "namespace {} of {} at {}",
            self.state.nsid,
            options.subsystem,
            self.association.address()
        )
    }
}

impl Device for RemoteNamespace {
    fn outlives_channels(&self) -> bool {
        let is_over = self.association.is_closing() || self.association.phase() == Phase::Gone;
        !is_over && !self.state.is_gone()
    }

    fn cache_losses(&self) -> u32 {
        self.state.unflushed.reported()
    }

    fn cache_life(&self) -> CacheLife {
        self.association.cache_life()
    }

    fn inherit_writes(&self) {
        if self.association.parameters().features.volatile_cache {
            self.state.unflushed.wrote();
        }
    }

    fn geometry(&self) -> Geometry {
        self.state.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// As of the controller at the start; a later one may answer otherwise.
    fn supports(&self, operation: Operation) -> bool {
        self.association.parameters().features.supports(operation)
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(self.open_remote(driver)?))
    }
}
