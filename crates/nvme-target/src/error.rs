//! Errors of a control plane's calls.

use crate::change::ack::AckError;
use crate::limits::LimitsError;
use base::units::CoreId;
use qos::Refusal;
use std::io;
use std::net::SocketAddr;
use switch::knobs::KnobError;
use wire::nvme::NqnError;

/// Reason for which a target could not be made, started or changed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A limit is out of range.
    #[error("limits: {0}")]
    Limits(#[from] LimitsError),
    /// A name that hosts cannot be told or give.
    #[error("invalid NQN {name:?}: {reason}")]
    Name {
        /// The name that was given.
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
    /// It exists already.
    #[error("{0} already exists")]
    Exists(String),
    /// A number is out of range, or a limit is reached.
    #[error("{0}")]
    Invalid(String),
    /// A device cannot keep what a tenant is to be promised; nothing has changed.
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
    /// A core could not follow, or not in time; all is as before.
    #[error("the change failed and was undone: {0}")]
    Undone(String),
    /// A core could not follow, or not in time, and some cores have what was changed.
    #[error("the change failed and could not be undone on all cores: {0}")]
    NotUndone(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; {remedy}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
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
