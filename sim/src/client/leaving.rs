//! The end of an application before its time.

use super::{Client, RequestKind};

impl Client {
    /// Asks for nothing more.
    pub(crate) fn leave(&mut self) {
        self.leaves = true;
        self.workload.requests = self.issued;
    }
}

/// A crashed application reads nothing more; what was being written may still take effect, as long as
/// a controller of its host is there.
impl Drop for Client {
    fn drop(&mut self) {
        let Ok(mut oracle) = self.oracle.try_borrow_mut() else {
            return;
        };
        for (_, request) in self.in_flight.iter() {
            match request.kind {
                RequestKind::Read(began) | RequestKind::Compare(began, _) => oracle.end_read(began),
                RequestKind::Write { version, .. } => {
                    oracle.orphan(request.range.clone(), version, self.host);
                }
                _ => {}
            }
        }
    }
}
