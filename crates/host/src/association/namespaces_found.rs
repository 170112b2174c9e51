//! Results of identifying namespaces.

use crate::info::NamespaceInfo;
use std::collections::{BTreeMap, BTreeSet};

/// Namespaces as the controller identified them.
#[derive(Debug, Default)]
pub(crate) struct NamespacesFound {
    /// Those that can be used.
    pub(crate) found: Vec<NamespaceInfo>,
    /// Those that cannot, each with the reason.
    pub(crate) unusable: BTreeMap<u32, &'static str>,
    /// Those of which nothing is known: the controller could not identify them.
    pub(crate) unknown: BTreeSet<u32>,
    /// The namespaces that it was asked for, where it is not all of them.
    pub(crate) only: Option<BTreeSet<u32>>,
}

/// Reason for which a namespace cannot be opened that the controller could not identify.
pub(super) const NOT_IDENTIFIED: &str = "the controller cannot identify it now; try again later, or see the \
                              target's log";
