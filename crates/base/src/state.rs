//! Declared state machines: named states, checked transitions, and a counter per state.
//!
//! The states are an enum that implements [`State`]: it defines the valid transitions, and the
//! names for traces and metrics. The owner changes a [`StateMachine`] only with
//! [`enter`](StateMachine::enter), which panics on an undeclared transition.

use std::fmt;

/// The states of a machine.
pub trait State: Copy + Eq + fmt::Debug + 'static {
    /// All states, in the order of [`index`](Self::index).
    const ALL: &'static [Self];

    /// Returns the state's place in [`ALL`](Self::ALL).
    fn index(self) -> usize;

    /// Returns the state's name, for traces and metrics.
    fn name(self) -> &'static str;

    /// Returns true if the transition from `before` to this state is valid.
    fn follows(self, before: Self) -> bool;
}

/// Declares the states of a machine with their names. The type's function `follows` defines the
/// transitions.
#[macro_export]
macro_rules! states {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($body:tt)+ }) => {
        $crate::named! {
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            $vis enum $name { $($body)+ }
        }

        impl $crate::state::State for $name {
            const ALL: &'static [Self] = &$name::ALL;

            #[inline]
            fn index(self) -> usize {
                $name::index(self)
            }

            fn name(self) -> &'static str {
                $name::name(self)
            }

            #[inline]
            fn follows(self, before: Self) -> bool {
                $name::follows(self, before)
            }
        }
    };
}

/// A machine with `N` states, and the number of entries into each.
#[derive(Clone, Debug)]
pub struct StateMachine<S, const N: usize> {
    state: S,
    entered: [u64; N],
}

impl<S: State, const N: usize> StateMachine<S, N> {
    /// A machine that starts in this state.
    #[must_use]
    pub fn new(state: S) -> Self {
        const { assert!(S::ALL.len() == N, "a counter for each state") };
        Self {
            state,
            entered: [0; N],
        }
    }

    /// Returns the current state.
    #[inline]
    #[must_use]
    pub const fn get(&self) -> S {
        self.state
    }

    /// Enters the state `next`.
    ///
    /// # Panics
    /// If the transition is invalid: a bug of the owner, never of a peer.
    #[inline]
    pub fn enter(&mut self, next: S) {
        assert!(
            next.follows(self.state),
            "{} does not follow {}",
            next.name(),
            self.state.name()
        );
        self.state = next;
        self.entered[next.index()] += 1;
    }

    /// Returns the number of entries into each state, with its name.
    pub fn entered(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        S::ALL.iter().map(|state| state.name()).zip(self.entered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    states! {
        enum Door {
            Closed = "closed",
            Open = "open",
        }
    }

    impl Door {
        fn follows(self, before: Self) -> bool {
            self != before
        }
    }

    #[test]
    fn moves_are_counted() {
        let mut door = StateMachine::<_, 2>::new(Door::Closed);
        door.enter(Door::Open);
        door.enter(Door::Closed);
        door.enter(Door::Open);
        assert_eq!(door.get(), Door::Open);
        let entered: Vec<_> = door.entered().collect();
        assert_eq!(entered, [("closed", 1), ("open", 2)]);
    }

    #[test]
    #[should_panic(expected = "closed does not follow closed")]
    fn an_undeclared_move_is_found() {
        StateMachine::<_, 2>::new(Door::Closed).enter(Door::Closed);
    }
}
