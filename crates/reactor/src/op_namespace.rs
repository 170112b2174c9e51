//! Operation namespaces that are given back: their numbers are few, and devices come and go for
//! ever.
//!
//! The table from which a driver hands operation namespaces out. It owns one token for each
//! namespace; the namespace's owner holds another one in its lease, so that dropping the lease
//! gives the namespace back, in whichever way that happens. Must never: let a completion of a
//! former owner reach a new one. Hence a namespace waits until no operation of it is left in the
//! driver, and until all completions that had left the driver when it was found to be free were
//! handed out.

use crate::op::OpNamespace;
use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Dropping its last clone tells its maker that abandoned operations have ended.
pub type Guard = Arc<dyn fmt::Debug + Send + Sync>;

/// Guards of abandoned operations, each with the operations' namespace.
pub(crate) type Guards = RefCell<Vec<(OpNamespace, Guard)>>;

/// An operation namespace, until this is dropped.
#[derive(Debug)]
pub struct OpNamespaceLease {
    op_namespace: OpNamespace,
    /// Tells the table that the namespace is taken. `None`: the namespace is never used again.
    _token: Option<Arc<()>>,
    /// The driver's guards.
    guards: Weak<Guards>,
}

impl OpNamespaceLease {
    /// Makes a lease that never ends, for a driver that reuses no namespace.
    #[must_use]
    pub fn for_ever(op_namespace: OpNamespace) -> Self {
        Self {
            op_namespace,
            _token: None,
            guards: Weak::new(),
        }
    }

    /// The namespace.
    #[must_use]
    pub fn id(&self) -> OpNamespace {
        self.op_namespace
    }

    /// The owner ends and does not wait for its operations. In its next turn the driver resets the
    /// connections on which one is outstanding. It keeps a clone of `guard` until it has done so, and
    /// has no file operation of this namespace left.
    pub fn abandon(&self, guard: &Guard) {
        // A driver that was dropped has waited for its file operations, and does no others.
        if let Some(guards) = self.guards.upgrade() {
            let guard = (self.op_namespace, Arc::clone(guard));
            guards.borrow_mut().push(guard);
        }
    }
}

/// An operation namespace that was handed out.
#[derive(Debug)]
struct LeasedNamespace {
    /// `None` for a namespace without a lease.
    token: Option<Arc<()>>,
    /// The turn of the driver's in which it was first seen to be free.
    free_since: Option<u64>,
}

/// All operation namespaces of a driver, by number.
#[derive(Debug, Default)]
pub(crate) struct OpNamespaces {
    entries: Vec<LeasedNamespace>,
    pub(crate) guards: Rc<Guards>,
}

impl OpNamespaces {
    /// A namespace for ever.
    ///
    /// # Panics
    /// When 2^16 namespaces are taken at the same time.
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

    /// A namespace until the lease is dropped. `turn` is the number of the driver's turn, and
    /// `in_flight` says whether the driver still has an operation of a namespace.
    ///
    /// # Panics
    /// When 2^16 namespaces are taken at the same time.
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
            // What was reaped on the turn in which its owner went may not be handed out yet.
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
        // Not on the turn in which it is found to be free, and not with anything in flight.
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
