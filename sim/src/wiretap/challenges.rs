//! Checks that no challenge of DH-HMAC-CHAP is used twice: a recorded response would be right again.

use secure::chap::Message;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The challenges of all targets of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Challenges(Rc<RefCell<BTreeSet<Vec<u8>>>>);

impl Challenges {
    /// Checks the data of an Authentication Receive.
    ///
    /// # Panics
    /// If it is a challenge that was used before.
    pub(super) fn note(&self, message: &[u8]) {
        if let Ok(Message::Challenge(challenge)) = Message::parse(message, None) {
            assert!(
                self.0.borrow_mut().insert(challenge.challenge),
                "a challenge is used twice"
            );
        }
    }
}
