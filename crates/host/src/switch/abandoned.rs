//! Blocks of writes that a submitter left behind.

use crate::association::Association;
use crate::recovery::span::Span;
use std::sync::Arc;

/// The generation of the holds: they outlast every association, for a lane may send a write again that
/// it was not yet told to give up.
const EVERY: u64 = u64::MAX;

/// Holds newer writes of these blocks back, until it is dropped. A lane that gives one of the writes up
/// holds or closes its blocks itself before that.
#[derive(Debug)]
pub(super) struct AbandonedWrites {
    association: Arc<Association>,
    spans: Vec<Span>,
}

impl AbandonedWrites {
    pub(super) fn hold(association: &Arc<Association>, spans: Vec<Span>) -> Self {
        let hold = |&span: &Span| association.hold_blocks(EVERY, span);
        spans.iter().for_each(hold);
        Self {
            association: Arc::clone(association),
            spans,
        }
    }
}

impl Drop for AbandonedWrites {
    fn drop(&mut self) {
        let let_go = |span: &Span| self.association.let_go_blocks(EVERY, *span);
        self.spans.iter().for_each(let_go);
    }
}
