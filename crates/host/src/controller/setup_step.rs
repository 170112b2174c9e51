//! The steps of a controller's set-up, and what they have found so far.

use crate::association::parameters::Parameters;
use crate::info::ControllerInfo;
use base::Time;
use wire::fabrics::property::Capabilities;
use wire::nvme::feature::AsyncEventConfiguration;

/// The step of the set-up that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SetupStep {
    /// CAP is being read.
    #[default]
    Capabilities,
    /// CC.EN is being set.
    Enable,
    /// CSTS.RDY is awaited.
    Ready,
    /// Identify Controller.
    Identify,
    /// Identify Controller of the NVM command set: limits of single commands.
    Lengths,
    /// Set Features: Host Extensions.
    Extensions,
    /// Too many lost associations are not known to be over: one of them has to be.
    Fence,
    /// Set Features: Number of Queues.
    Queues,
    /// Set Features: Asynchronous Event Configuration.
    Events,
    /// Namespaces, or the discovery log.
    Inquiry,
}

/// Results of the set-up so far.
#[derive(Debug, Default)]
pub(super) struct Setup {
    pub(super) step: SetupStep,
    pub(super) capabilities: Option<Capabilities>,
    pub(super) identified: Option<Box<ControllerInfo>>,
    pub(super) parameters: Parameters,
    pub(super) wanted_events: AsyncEventConfiguration,
    /// Time at which the controller must be ready.
    pub(super) ready_by: Time,
    pub(super) shutdown_asked: bool,
}
