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
    /// There is a controller with this number.
    Target(Arc<TargetNumber>, Arc<Association>),
    /// A controller has a namespace with this number.
    Namespace {
        target: u16,
        namespace: u16,
        state: Arc<NamespaceState>,
        capabilities: Capabilities,
    },
    /// A submitter with this number may send requests.
    Join(u32, Arc<Submitter>),
    /// It sends none any more.
    Leave(u32),
    /// Knobs were turned.
    Knobs(Box<Knobs>),
    /// End everything.
    Close,
}

/// Configuration of a dataplane core of a switchboard.
#[derive(Debug)]
pub struct DataplaneConfig {
    pub(super) id: CoreId,
    /// The core's number on the switchboard.
    pub(super) core: usize,
    /// The ingress of every core: that of this one, and where steered requests go.
    pub(super) ingresses: Arc<Vec<Ingress>>,
    pub(super) loads: Arc<LoadTable>,
    pub(super) published: Arc<PublishedCounters>,
    pub(super) knobs: Knobs,
}

impl DataplaneConfig {
    /// The core that it is on.
    #[must_use]
    pub const fn id(&self) -> CoreId {
        self.id
    }
}
