//! Front ends as the command sees them, whatever their kind.

use super::source::Source;
use crate::args::Cores;
use anyhow::Result;
use base::units::CoreId;
use frontend::IoCounts;
use serde_json::Value;
use std::fmt::Debug;
use switch::PerClass;

/// A front end that serves clients.
pub(super) trait FrontEnd: Debug + Send {
    /// Ways for clients, each with the size of its device in bytes.
    fn ways(&self) -> Vec<(String, u64)>;

    /// Clients that use it at present.
    fn clients(&self) -> usize;

    /// The name of so many clients, such as "2 clients".
    fn clients_in_words(&self, count: usize) -> String;

    /// Counts of requests since the start.
    fn counts(&self) -> PerClass<IoCounts>;

    /// Finishes the requests under way and ends; does nothing the second time.
    ///
    /// # Errors
    /// Clients that keep it from ending, unless `force` is true: it goes on then.
    fn detach(&mut self, force: bool) -> Result<()>;

    /// Does what is due now and then.
    fn look(&mut self) {}

    /// Returns true if another program ended it.
    fn has_ended(&self) -> bool {
        false
    }
}

/// A front end that was just started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) front_end: Box<dyn FrontEnd>,
    pub(super) source: Source,
    /// Description for `--json`.
    pub(super) ready: Value,
    /// Name of the class, or `auto`.
    pub(super) class: &'static str,
    pub(super) read_only: bool,
}

/// The processors of a list, as front ends take them.
pub(super) fn cores(cores: Option<&Cores>) -> Vec<CoreId> {
    let cores = cores.map_or(&[][..], |cores| &cores.0);
    cores.iter().copied().map(CoreId).collect()
}
