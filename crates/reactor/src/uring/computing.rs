//! Operations that compute for DH-HMAC-CHAP.

use super::UringDriver;
use crate::chap;
use crate::op::{OpKey, OpNamespace, Outcome};
use secure::chap::Job;

impl UringDriver {
    /// Computes here if it takes microseconds, otherwise on the thread of [`chap`].
    pub(super) fn start_computing(&mut self, key: OpKey, job: Job) {
        if !job.is_heavy() {
            return self.complete(key, Outcome::Computed(Ok(chap::run(job))));
        }
        self.computing.push(key);
        chap::compute(key, job, &self.computed);
    }

    /// Completes the operations that the thread has finished.
    pub(super) fn take_computed(&mut self) {
        for (key, result) in self.computed.take() {
            if let Some(index) = self.computing.iter().position(|other| *other == key) {
                self.computing.swap_remove(index);
                self.complete(key, Outcome::Computed(result));
            }
        }
    }

    /// Returns true while an operation of this namespace computes.
    pub(super) fn computes_for(&self, op_namespace: OpNamespace) -> bool {
        let mut keys = self.computing.iter();
        keys.any(|key| key.op_namespace == op_namespace)
    }
}
