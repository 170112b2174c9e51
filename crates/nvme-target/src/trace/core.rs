//! The traces of a core: which of its commands are selected.

use crate::controller::registry::SharedController;
use crate::shared::Shared;
use crate::trace::selection::{Finished, Selection};
use crate::trace::stamps::{Stage, Stamps};
use base::{SlabKey, Time};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Stamps that a core keeps for its next commands.
const SPARE_MAX: usize = 1024;

/// The open traces, on one core. Without one, a command has no stamps.
#[derive(Debug, Default)]
pub(crate) struct CoreTraces {
    open: Vec<CoreTrace>,
    /// Commands whose answers the socket has not taken yet, by connection, each with the mark of its
    /// caravan.
    answered: BTreeMap<SlabKey, VecDeque<(u64, Box<Stamps>)>>,
    /// Stamps for the next commands.
    #[expect(clippy::vec_box, reason = "a slot takes the box")]
    spare: Vec<Box<Stamps>>,
    /// Receipt of the command that is dispatched now, if it waited for a buffer before it had a
    /// slot.
    pub(crate) received: Option<Time>,
}

/// An open trace on one core.
#[derive(Debug)]
struct CoreTrace {
    selection: Arc<Selection>,
    /// Commands since the last one that was taken as a sample.
    since_sample: u32,
}

/// The queue of a finished command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) core: usize,
    pub(crate) queue: u16,
    pub(crate) controller: &'a Arc<SharedController>,
    pub(crate) shared: &'a Shared,
}

impl CoreTraces {
    /// Returns true while a trace is open.
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        !self.open.is_empty()
    }

    /// Replaces the open traces.
    pub(crate) fn replace(&mut self, selections: Vec<Arc<Selection>>) {
        let selections = selections.into_iter();
        self.open = selections
            .map(|selection| CoreTrace {
                selection,
                since_sample: 0,
            })
            .collect();
        if !self.is_on() {
            self.answered.clear();
            self.spare = Vec::new();
        }
    }

    /// Returns stamps for a command that begins now.
    pub(crate) fn begin(&mut self, now: Time) -> Box<Stamps> {
        let mut stamps = Stamps::new(self.received.unwrap_or(now));
        stamps.charge(Stage::Buffer, now);
        match self.spare.pop() {
            Some(mut spare) => {
                *spare = stamps;
                spare
            }
            None => Box::new(stamps),
        }
    }

    /// Keeps the stamps of a command whose answer was appended to the caravan with this mark.
    pub(crate) fn answered(&mut self, connection: SlabKey, mark: u64, stamps: Box<Stamps>) {
        if self.is_on() {
            let answers = self.answered.entry(connection).or_default();
            answers.push_back((mark, stamps));
        }
    }

    /// Returns the next stamps of a connection's answers that have left.
    pub(crate) fn next_sent(
        &mut self,
        connection: SlabKey,
        has_left: impl FnOnce(u64) -> bool,
    ) -> Option<Box<Stamps>> {
        let answers = self.answered.get_mut(&connection)?;
        let (_, stamps) = answers.pop_front_if(|(mark, _)| has_left(*mark))?;
        Some(stamps)
    }

    /// Drops the stamps of a closed connection.
    pub(crate) fn forget(&mut self, connection: SlabKey) {
        self.answered.remove(&connection);
    }

    /// Sends a command whose answer was sent to the traces that select it.
    pub(crate) fn end(&mut self, stamps: Box<Stamps>, origin: Origin<'_>) {
        for trace in &mut self.open {
            if trace.selects(&stamps, origin) {
                trace.selection.send(Finished {
                    stamps: Stamps::clone(&stamps),
                    core: origin.core,
                    queue: origin.queue,
                    controller: Arc::clone(origin.controller),
                });
            }
        }
        if self.is_on() && self.spare.len() < SPARE_MAX {
            self.spare.push(stamps);
        }
    }
}

impl CoreTrace {
    /// Returns true for a command of the trace. Names are compared last: few commands are slow.
    fn selects(&mut self, stamps: &Stamps, origin: Origin<'_>) -> bool {
        let filter = &self.selection.filter;
        let is_other = |wanted: Option<u32>, it: u32| wanted.is_some_and(|wanted| wanted != it);
        if is_other(filter.opcode.map(u32::from), stamps.opcode.into())
            || is_other(filter.nsid, stamps.nsid)
        {
            return false;
        }
        if stamps.total() < filter.slower_than {
            let Some(every) = filter.sample else {
                return false;
            };
            self.since_sample += 1;
            if self.since_sample < every.get() {
                return false;
            }
            self.since_sample = 0;
        }
        let controller = origin.controller;
        let is = |wanted: &Option<String>, name: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == name)
        };
        let nqn = controller.subsystem.as_ref().map(|it| it.nqn.as_str());
        is(&filter.host, Some(&*controller.host_nqn))
            && is(&filter.nqn, nqn)
            && (filter.tenant.is_none()
                || is(
                    &filter.tenant,
                    controller
                        .tenants(&origin.shared.rules())
                        .tenant(stamps.nsid),
                ))
    }
}
