//! Holdings of connections on a core, for tests that check that all of it comes back.

use crate::service::poll_group::PollGroup;

/// Holdings of the connections of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Connections that are not forgotten yet.
    pub connections: usize,
    /// Connections before Connect.
    pub fresh_connections: usize,
    /// Send lists under way or gathered.
    pub send_lists: usize,
    /// Tables of commands over extents.
    pub extent_tables: u64,
    /// Commands, and connections with input, that wait for buffers or shares.
    pub waiting: usize,
    /// I/O queues, of whatever class.
    pub queues: usize,
    /// Namespaces with commands under way, or requests that wait for their device.
    pub busy_namespaces: usize,
}

impl Held {
    /// Returns true if everything has come back.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl PollGroup {
    /// Returns the holdings of the core's connections.
    #[must_use]
    pub fn held(&self) -> Held {
        let core = &self.core;
        let subsystems = core.namespaces.subsystems.iter().flatten();
        let namespaces = subsystems.flat_map(|subsystem| subsystem.namespaces.iter().flatten());
        Held {
            connections: self.connections.len(),
            fresh_connections: core.connections.fresh,
            send_lists: core.lists.used(),
            extent_tables: core.accounts.tables(),
            waiting: core.waiters.lists.len_all(),
            queues: core.switch.queues.iter().map(|(_, &queues)| queues).sum(),
            busy_namespaces: namespaces.filter(|namespace| !namespace.is_quiet()).count(),
        }
    }
}
