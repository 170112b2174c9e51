//! The requests of a layer that are on their way through the channel below.
//!
//! Tags are the submitter's and need not differ, so a layer gives the channel below tags of its
//! own: the number of a slot in which it keeps the submitter's tag and what it has to remember.

use crate::limits::LAYER_QUEUE_DEPTH;
use crate::request::{Completion, Request};
use base::{Slab, SlabKey};

/// A layer's records of its requests that are under way.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    slots: Slab<(u64, T)>,
}

impl<T> InFlight<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: Slab::with_capacity(LAYER_QUEUE_DEPTH),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// Remembers `note` of a request and replaces its tag.
    ///
    /// # Panics
    /// If the table is full: ask first.
    pub(super) fn enter(&mut self, request: &mut Request, note: T) {
        let Ok(key) = self.slots.insert((request.tag, note)) else {
            unreachable!("the caller asked whether there is room");
        };
        request.tag = key.tag();
    }

    /// Forgets a request that came back with the tag that [`enter`](Self::enter) gave it; returns
    /// the note, and the submitter's tag.
    pub(super) fn leave(&mut self, tag: u64) -> Option<(u64, T)> {
        self.slots.remove(SlabKey::from_tag(tag))
    }

    /// Gives a completion its submitter's tag back; returns the note.
    pub(super) fn restore(&mut self, completion: &mut Completion) -> Option<T> {
        let (tag, note) = self.leave(completion.tag)?;
        completion.tag = tag;
        Some(note)
    }
}
