//! Knobs of a switchboard that runs.

use super::Switchboard;
use super::message::Update;
use crate::error::HostError;
use std::sync::{MutexGuard, PoisonError};
use switch::Knobs;

/// The keys of the knobs by which a switchboard is made: they stay as they were then.
pub const FIXED_KNOBS: [&str; 3] = ["lanes", "latency_threads", "polling"];

impl Switchboard {
    /// Returns the knobs that count.
    #[must_use]
    pub fn knobs(&self) -> Knobs {
        *self.lock_knobs()
    }

    /// Other knobs, while it runs. Those of [`FIXED_KNOBS`] stay as they are.
    ///
    /// # Errors
    /// [`HostError::Option`] with the first knob that is out of range, or the switchboard's where it
    /// has ended. Nothing has changed then.
    pub fn set_knobs(&self, knobs: &Knobs) -> Result<(), HostError> {
        self.replace_knobs(&mut self.lock_knobs(), *knobs)
    }

    /// Changes single knobs together, while it runs: each by its key and its value as text, as
    /// `--knob` of the program takes them.
    ///
    /// # Errors
    /// [`HostError::Option`] for a word that is no knob, a value that the knob has not, another
    /// value of one of [`FIXED_KNOBS`], or knobs that do not go together; the text says what is
    /// possible. The switchboard's where it has ended. Nothing has changed then.
    pub fn change_knobs<'a>(
        &self,
        changes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), HostError> {
        let mut current = self.lock_knobs();
        let mut changed = *current;
        changed
            .change(changes)
            .map_err(|error| HostError::Option(error.to_string()))?;
        let mut keys = changed.differences(&current).map(|entry| entry.knob.key);
        if let Some(key) = keys.find(|key| FIXED_KNOBS.contains(key)) {
            return Err(HostError::Option(format!(
                "{key} stays as it was when the switchboard started: start another one with it"
            )));
        }
        self.replace_knobs(&mut current, changed)
    }

    fn lock_knobs(&self) -> MutexGuard<'_, Knobs> {
        // They are replaced as a whole.
        let knobs = self.inner.knobs.lock();
        knobs.unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the knobs, on every core or on none; the lock keeps others from doing so meanwhile.
    fn replace_knobs(&self, current: &mut Knobs, wanted: Knobs) -> Result<(), HostError> {
        wanted
            .validate()
            .map_err(|error| HostError::Option(error.to_string()))?;
        let knobs = Knobs {
            lanes: current.lanes,
            latency_threads: current.latency_threads,
            polling: current.polling,
            ..wanted
        };
        self.inner.tell(|| Update::Knobs(Box::new(knobs)))?;
        self.inner.steering.reconfigure(knobs.application_steering);
        let loads = &self.inner.loads;
        loads.set_direct_submitters_max(knobs.direct_submitters);
        *current = knobs;
        Ok(())
    }
}
