//! Messages of a switchboard to its dataplane cores, and the configuration that each starts with.

use super::counters::PublishedCounters;
use super::ingress::TargetNumber;
use super::ingress::{Ingress, Submitter};
use super::request_steering::LoadTable;
use crate::association::Association;
use crate::association::NamespaceState;
use base::units::CoreId;
use block::Capabilities;
use std::sync::Arc;
use switch::Knobs;

/// A message of a switchboard to one of its dataplane cores.
#[derive(Debug)]
pub struct DataplaneMessage(pub(super) Update);

#[derive(Debug)]
pub(super) enum Update {
    /// Adds a controller with this number.
    Target(Arc<TargetNumber>, Arc<Association>),
    /// Adds a namespace with this number to a controller.
    Namespace {
        target: u16,
        namespace: u16,
        state: Arc<NamespaceState>,
        capabilities: Capabilities,
    },
    /// Adds a submitter with this number, which may send requests.
    Join(u32, Arc<Submitter>),
    /// The submitter with this number sends no more requests.
    Leave(u32),
    /// Sets the knobs.
    Knobs(Box<Knobs>),
    /// Closes everything and ends.
    Close,
}

/// Configuration of a dataplane core of a switchboard.
#[derive(Debug)]
pub struct DataplaneConfig {
    pub(super) id: CoreId,
    /// The core's number on the switchboard.
    pub(super) core: usize,
    /// The ingress of every core: of this one, and the destinations of steered requests.
    pub(super) ingresses: Arc<Vec<Ingress>>,
    pub(super) loads: Arc<LoadTable>,
    pub(super) published: Arc<PublishedCounters>,
    pub(super) knobs: Knobs,
}

impl DataplaneConfig {
    /// The core on which it runs.
    #[must_use]
    pub const fn id(&self) -> CoreId {
        self.id
    }
}
