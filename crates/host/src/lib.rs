//! The NVMe/TCP host: discovery, connections and recovery. A remote namespace is a block device.
//!
//! Re-exports all types that a program needs from other crates of the workspace.

mod association;
mod channel;
mod client;
mod command;
mod controller;
mod discovery;
mod errno;
mod error;
mod info;
pub mod limits;
mod namespace;
mod options;
mod qpair;
mod recovery;
pub mod switchboard;

pub use association::{Association, ControllersWatch, Phase};
pub use base::Nanos;
pub use base::units::{CoreId, Lba};
pub use block::{
    BlockError, Capabilities, Completion, Device, DeviceError, Geometry, Operation, PathDevice,
    Request,
};
pub use channel::RemoteChannel;
pub use client::{
    AsyncNamespace, Canceller, Completions, Host, HostBuilder, Namespace, Queue, QueueOptions,
    SubmitError, Subsystem, SwitchedQueueOptions, Transfer,
};
pub use controller::{Controller, ControllerState};
pub use discovery::referrals::{Discovery, FailedReferral, discover};
pub use errno::block_errno;
pub use error::{AuthenticationError, ConnectionError, HostError, ProtocolError, RequestError};
pub use info::{ControllerInfo, DiscoveryEntry, NamespaceInfo, SubsystemKind};
pub use namespace::RemoteNamespace;
pub use options::{ConnectOptions, HostIdentity, ReplayPolicy, parse_nqn, resolve};
pub use reactor::priority::{PriorityStatus, Privilege};
pub use reactor::{IoSlice, PollPolicy, SocketOptions};
pub use recovery::fences::ControllerName;
pub use recovery::machine::ChannelState;
pub use secure::TlsKey;
pub use secure::chap::Secret as ChapSecret;
pub use switch::knobs::{KnobValue, Preset};
pub use switch::{Class, Knobs, Path, PathRules, PathSpec, PerClass};
pub use switchboard::{Switchboard, SwitchboardOptions, SwitchedNamespace};
pub use wire::nvme::{Nqn, Status};
