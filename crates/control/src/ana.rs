//! States of ANA groups, which are set while a target runs. They are no part of the configuration: a
//! target that shares volumes with another one must not serve them again, after a restart, because it
//! did before.

use config::schema::AnaState;
use serde::{Deserialize, Serialize};
use target::AnaState as WireState;

/// The state of an ANA group, as it was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnaGroup {
    /// The subsystem's name.
    pub nqn: String,
    /// The identifier of the group.
    pub group: u32,
    /// The state.
    pub state: AnaState,
    /// Number of the ownership under which it was set, which never decreases; 0: set by a person.
    pub epoch: u64,
}

/// Returns the groups after a restart: one that was set under an ownership may have another owner by
/// now, and waits for the next one.
pub(crate) fn after_restart(groups: Vec<AnaGroup>) -> Vec<AnaGroup> {
    let groups = groups.into_iter().map(|group| AnaGroup {
        state: match group.state {
            AnaState::PersistentLoss => AnaState::PersistentLoss,
            _ if group.epoch > 0 => AnaState::Inaccessible,
            state => state,
        },
        ..group
    });
    groups.collect()
}

/// Returns the state as the target takes it.
pub(crate) const fn to_wire(state: AnaState) -> WireState {
    match state {
        AnaState::Optimized => WireState::Optimized,
        AnaState::NonOptimized => WireState::NonOptimized,
        AnaState::Inaccessible => WireState::Inaccessible,
        AnaState::PersistentLoss => WireState::PersistentLoss,
        AnaState::Change => WireState::Change,
    }
}
