//! Take-overs of a target by another process.

use super::Machine;
use std::time::Duration;
use target::{Handed, Listener};

/// Time in which a target releases its connections.
const PATIENCE: Duration = Duration::from_secs(5);

impl Machine {
    /// Hands the connections of a target to another process, or back to the same.
    pub(super) fn take_over(&mut self, target: usize, fails: bool) {
        let listener = Listener {
            address: self.known[target].address,
            tls: self.plan.proofs.mode(),
        };
        let mut handed = None;
        let departed = self.change(target, |it| {
            it.set_listeners(&[listener]);
            handed = Some(it.depart(PATIENCE)?);
            Ok(())
        });
        let Some(handed) = handed.filter(|_| departed) else {
            self.count("take-overs refused");
            return;
        };
        let handed = in_bytes(handed);
        if fails {
            self.count("take-overs failed");
            self.change(target, |it| it.take_over(handed));
            return;
        }
        self.count("take-overs");
        let before = self.cast.borrow_mut().targets[target].take();
        let limits = before.as_ref().map(|it| it.shared.limits().clone());
        self.start_process(target, limits.expect("it runs"), Some(listener));
        self.change(target, |it| {
            it.check_handed(&handed)?;
            it.take_over(handed)
        });
        drop(before);
    }
}

/// Passes the state of the connections on as another process receives it.
fn in_bytes(handed: Handed) -> Handed {
    let (state, bytes) = {
        let (state, bytes) = handed.state();
        (serde_json::to_vec(&state).expect("a state"), bytes)
    };
    let state = serde_json::from_slice(&state).expect("the same state");
    Handed::join(state, &bytes, handed.into_sockets()).expect("they fit")
}
