//! Errors of a control plane's calls.

use crate::change::ack::AckError;
use crate::limits::LimitsError;
use base::units::CoreId;
use qos::Refusal;
use std::io;
use std::net::SocketAddr;
use switch::knobs::KnobError;
use wire::nvme::NqnError;

/// Reason why a target could not be created, started or changed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A limit is out of range.
    #[error("limits: {0}")]
    Limits(#[from] LimitsError),
    /// A name is not a valid NQN.
    #[error("invalid NQN {name:?}: {reason}")]
    Name {
        /// The name.
        name: String,
        /// Its defect.
        reason: NqnError,
    },
    /// There is no such subsystem.
    #[error("no subsystem {0}")]
    NoSubsystem(String),
    /// There is no such namespace.
    #[error("subsystem {nqn} has no namespace {nsid}")]
    NoNamespace {
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
    },
    /// The object exists already.
    #[error("{0} already exists")]
    Exists(String),
    /// A number is out of range, or a limit is reached.
    #[error("{0}")]
    Invalid(String),
    /// A device cannot meet a tenant's SLO; nothing has changed.
    #[error("device {device:?} cannot meet the SLO of tenant {tenant:?}: {refusal}")]
    Refused {
        /// The tenant.
        tenant: String,
        /// The device.
        device: String,
        /// The reason, and a declaration that would be admitted.
        refusal: Refusal,
    },
    /// A device refused.
    #[error(transparent)]
    Device(#[from] block::DeviceError),
    /// A knob is out of its range.
    #[error("switch parameters: {0}")]
    Knobs(#[from] KnobError),
    /// A core failed to apply a change, or not in time; the change was undone.
    #[error("the change failed and was undone: {0}")]
    Undone(String),
    /// A core failed to apply a change, or not in time, and some cores still have the change.
    #[error("the change failed and could not be undone on all cores: {0}")]
    NotUndone(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; {remedy}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
        /// Advice.
        remedy: &'static str,
    },
    /// A core's thread or driver could not be set up.
    #[error("core {core}: {reason}")]
    Core {
        /// The core.
        core: CoreId,
        /// Reason and advice.
        reason: String,
    },
}

impl From<AckError> for TargetError {
    fn from(error: AckError) -> Self {
        Self::Undone(error.to_string())
    }
}
