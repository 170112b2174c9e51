//! Traces that a client opens.

use crate::error::TargetError;
use crate::limits::{TRACE_RECORDS, TRACES_MAX};
use crate::message::CoreMessage;
use crate::shared::Shared;
use crate::target::Target;
use crate::trace::record::TraceRecord;
use crate::trace::selection::{Finished, Selection, TraceFilter};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// An open trace; ends when dropped.
#[derive(Debug)]
pub struct Trace {
    shared: Arc<Shared>,
    selection: Arc<Selection>,
    finished: Receiver<Finished>,
}

impl Target {
    /// Opens a trace: each core records commands that it receives after its next message, when their
    /// answers have been sent. Commands that are refused on arrival are not recorded.
    ///
    /// # Errors
    /// [`TargetError::Invalid`] if [`TRACES_MAX`] traces are open; [`TargetError::Undone`] if a core
    /// does not process its messages.
    pub fn trace(&self, filter: TraceFilter) -> Result<Trace, TargetError> {
        // Not serialised with changes: a change that waits is a reason to trace.
        self.check_mailboxes()?;
        let (sender, finished) = sync_channel(TRACE_RECORDS);
        let selection = Arc::new(Selection::new(filter, sender));
        let mut open = self.shared.traces();
        if open.len() >= TRACES_MAX {
            let reason = format!("{TRACES_MAX} traces are open, the most at a time");
            return Err(TargetError::Invalid(reason));
        }
        open.push(Arc::clone(&selection));
        deliver(&self.shared, &open);
        drop(open);
        Ok(Trace {
            shared: Arc::clone(&self.shared),
            selection,
            finished,
        })
    }
}

/// Sends the open traces to every core. The caller holds their lock, so that all cores receive the
/// changes in the same order.
fn deliver(shared: &Shared, open: &[Arc<Selection>]) {
    shared.deliver_all(|| CoreMessage::Trace(open.to_vec()));
}

impl Trace {
    /// Returns at most `most` records, oldest first on each core. `epoch_unix_ns` is the time of
    /// [`Time::ZERO`](base::Time::ZERO), in nanoseconds since 1970.
    #[must_use]
    pub fn take(&self, most: usize, epoch_unix_ns: u64) -> Vec<TraceRecord> {
        let finished = self.finished.try_iter().take(most);
        finished
            .map(|it| TraceRecord::new(&it, &self.shared, epoch_unix_ns))
            .collect()
    }

    /// Returns the number of records that were lost because [`TRACE_RECORDS`] were not taken yet.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.selection.lost()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let mut open = self.shared.traces();
        open.retain(|other| !Arc::ptr_eq(other, &self.selection));
        deliver(&self.shared, &open);
    }
}
