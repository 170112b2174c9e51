//! Operation namespaces, which are reused: their numbers are few, while devices come and go.
//!
//! The table from which a driver assigns operation namespaces. It owns one token per namespace; the
//! lease of the namespace's owner holds another, so that dropping the lease always returns the
//! namespace. Invariant: a completion of a former owner never reaches a new one. A namespace is
//! therefore reused only when the driver has none of its operations left, and all completions that
//! had left the driver when it was found to be free have been passed on.

use crate::op::OpNamespace;
use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Dropping the last clone signals its creator that abandoned operations have ended.
pub type Guard = Arc<dyn fmt::Debug + Send + Sync>;

/// Guards of abandoned operations, each with the operations' namespace.
pub(crate) type Guards = RefCell<Vec<(OpNamespace, Guard)>>;

/// An operation namespace; dropping it returns the namespace.
#[derive(Debug)]
pub struct OpNamespaceLease {
    op_namespace: OpNamespace,
    /// Marks the namespace as taken. `None`: the namespace is never reused.
    _token: Option<Arc<()>>,
    /// The driver's guards.
    guards: Weak<Guards>,
}

impl OpNamespaceLease {
    /// Creates a permanent lease, for a driver that does not reuse namespaces.
    #[must_use]
    pub fn for_ever(op_namespace: OpNamespace) -> Self {
        Self {
            op_namespace,
            _token: None,
            guards: Weak::new(),
        }
    }

    /// Returns the namespace.
    #[must_use]
    pub fn id(&self) -> OpNamespace {
        self.op_namespace
    }

    /// Ends the owner without waiting for its operations. In its next turn the driver resets the
    /// connections on which one is outstanding. It keeps a clone of `guard` until that is done and
    /// no file operation of this namespace is left.
    pub fn abandon(&self, guard: &Guard) {
        // A dropped driver has waited for its file operations, and performs no others.
        if let Some(guards) = self.guards.upgrade() {
            let guard = (self.op_namespace, Arc::clone(guard));
            guards.borrow_mut().push(guard);
        }
    }
}

/// An assigned operation namespace.
#[derive(Debug)]
struct LeasedNamespace {
    /// `None` for a namespace without a lease.
    token: Option<Arc<()>>,
    /// The driver's turn in which it was first found to be free.
    free_since: Option<u64>,
}

/// All operation namespaces of a driver, by number.
#[derive(Debug, Default)]
pub(crate) struct OpNamespaces {
    entries: Vec<LeasedNamespace>,
    pub(crate) guards: Rc<Guards>,
}

impl OpNamespaces {
    /// Takes a namespace permanently.
    ///
    /// # Panics If all 2^16 namespaces are taken.
    pub(crate) fn take(&mut self) -> OpNamespace {
        let number = u16::try_from(self.entries.len());
        let op_namespace =
            OpNamespace(number.expect("a core has fewer than 2^16 namespaces at a time"));
        self.entries.push(LeasedNamespace {
            token: None,
            free_since: None,
        });
        op_namespace
    }

    /// Leases a namespace until the lease is dropped. `turn` is the number of the driver's turn;
    /// `in_flight` returns true if the driver still has an operation of a namespace.
    ///
    /// # Panics If all 2^16 namespaces are taken.
    pub(crate) fn lease(
        &mut self,
        turn: u64,
        in_flight: impl Fn(OpNamespace) -> bool,
    ) -> OpNamespaceLease {
        let mut reused = None;
        for (number, entry) in (0..).zip(&mut self.entries) {
            let free = entry
                .token
                .as_ref()
                .is_some_and(|token| Arc::strong_count(token) == 1);
            if !free {
                continue;
            }
            // Completions reaped on the turn in which the owner ended may not have been passed on
            // yet.
            let since = *entry.free_since.get_or_insert(turn);
            let op_namespace = OpNamespace(number);
            if reused.is_none() && since < turn && !in_flight(op_namespace) {
                entry.free_since = None;
                reused = Some(op_namespace);
            }
        }
        let op_namespace = reused.unwrap_or_else(|| self.take());
        let entry = &mut self.entries[usize::from(op_namespace.0)];
        let token = entry.token.get_or_insert_default();
        OpNamespaceLease {
            op_namespace,
            _token: Some(Arc::clone(token)),
            guards: Rc::downgrade(&self.guards),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: fn(OpNamespace) -> bool = |_| false;

    #[test]
    fn a_room_is_reused_once_its_owner_and_all_of_its_operations_are_gone() {
        let mut op_namespaces = OpNamespaces::default();
        let for_ever = op_namespaces.take();
        let first = op_namespaces.lease(1, IDLE);
        let op_namespace = first.id();
        assert_ne!(op_namespace, for_ever);
        let second = op_namespaces.lease(2, IDLE);
        assert_ne!(second.id(), op_namespace);
        drop(first);
        // Not on the turn in which it is found to be free, and not with operations in flight.
        let third = op_namespaces.lease(3, IDLE);
        assert_ne!(third.id(), op_namespace);
        let fourth = op_namespaces.lease(4, |busy| busy == op_namespace);
        assert_ne!(fourth.id(), op_namespace);
        assert_eq!(op_namespaces.lease(5, IDLE).id(), op_namespace);
    }

    #[test]
    fn numbers_do_not_run_out() {
        let mut op_namespaces = OpNamespaces::default();
        let taken: Vec<_> = (0..10).map(|_| op_namespaces.take()).collect();
        let held = op_namespaces.lease(0, IDLE);
        for turn in 1..200_000 {
            let lease = op_namespaces.lease(turn, IDLE);
            assert!(lease.id() != held.id() && !taken.contains(&lease.id()));
        }
        assert!(
            op_namespaces.entries.len() < 20,
            "{}",
            op_namespaces.entries.len()
        );
    }
}
