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

/// A remote namespace as a block device. Each core that opens it gets its own I/O queues.
///
/// The [`Controller`](crate::Controller) of its association must be running: on the thread of a
/// [`Host`](crate::Host), or on a core of the simulator.
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
    /// I/O queues reserved for other channels.
    left: usize,
}

impl RemoteNamespace {
    /// The namespace `nsid` of a live controller.
    ///
    /// # Errors
    /// No such namespace, an unsupported format, or a controller without Identify data.
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

    /// The same namespace, with `queues` queues of depth `depth` per channel.
    #[must_use]
    pub fn with_queues(mut self, queues: u16, depth: u16) -> Self {
        self.queues = queues.clamp(1, crate::limits::CHANNEL_QUEUES_MAX);
        self.depth = depth.clamp(1, crate::limits::QUEUE_DEPTH_MAX - 1);
        self
    }

    /// The same namespace; opening a channel fails with [`DeviceError::NoQueue`] unless this number
    /// of I/O queues stays free.
    #[must_use]
    pub const fn leaving(mut self, queues: usize) -> Self {
        self.left = queues;
        self
    }

    /// The same namespace, for requests of this class. A Switchyard target serves `Latency` queues
    /// first; with other targets the class has an effect in this host only.
    #[must_use]
    pub fn with_class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// The same namespace below a [`PathDevice`](block::PathDevice): if a channel gets no queue
    /// after a loss, another channel sends its outstanding requests, writes only when that is safe
    /// (docs/design/decisions/0004-replay.md).
    #[must_use]
    pub const fn below_path(self) -> Self {
        self.with_other_way(OtherWay::Repeated)
    }

    /// The same namespace; requests of channels opened from it that get no queue are handled this
    /// way.
    #[must_use]
    pub(crate) const fn with_other_way(mut self, other_way: OtherWay) -> Self {
        self.other_way = other_way;
        self
    }

    /// The class of the requests on channels opened from it.
    pub(crate) const fn class(&self) -> Class {
        self.class
    }

    /// Identify data of the namespace at creation of this value.
    #[must_use]
    pub fn info(&self) -> &NamespaceInfo {
        &self.info
    }

    /// The association of the namespace.
    #[must_use]
    pub fn association(&self) -> &Arc<Association> {
        &self.association
    }

    pub(crate) fn state(&self) -> &Arc<NamespaceState> {
        &self.state
    }

    /// Opens a channel on the calling core, as [`Device::open`], with its concrete type.
    ///
    /// # Errors
    /// The association has ended, or no I/O queue is free. If fewer queues are free than requested,
    /// the channel uses those.
    pub fn open_remote(&self, driver: &mut dyn Driver) -> Result<RemoteChannel, DeviceError> {
        if self.association.phase() == Phase::Gone {
            let reason = self.association.last_error();
            let reason = reason.map_or_else(|| "it was disconnected".to_owned(), |e| e.to_string());
            return Err(DeviceError::Io {
                what: format!("{self:?} is no longer available: {reason}"),
                source: rustix::io::Errno::SHUTDOWN.into(),
                remedy: "connect again",
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
                "{self:?}: all {} I/O queues that the controller grants are in use; use fewer \
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

    /// As reported by the first controller; after a reconnect they may differ.
    fn supports(&self, operation: Operation) -> bool {
        self.association.parameters().features.supports(operation)
    }

    fn open(&self, driver: &mut dyn Driver) -> Result<Box<dyn Channel>, DeviceError> {
        Ok(Box::new(self.open_remote(driver)?))
    }
}
