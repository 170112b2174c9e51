//! Authentication again, on the request of the program. `[NVMe Base 2.0 §8.13.5]`
//!
//! On the admin queue, while requests continue.

use super::Controller;
use crate::command::table::Finished;
use crate::error::{AuthenticationError, ConnectionError};
use reactor::Context;

impl Controller {
    /// Begins the requested authentication, and reports its end.
    pub(super) fn authenticate_again(&mut self, cx: &mut Context<'_>) {
        if self.qpair.is_authenticating() {
            return;
        }
        self.answer_request(None);
        let requested = self.association.authentications();
        if requested > self.authenticated && self.qpair.authenticate_again(cx) {
            self.authenticating = Some(requested);
        }
    }

    /// Reports the end of the requested authentication.
    fn answer_request(&mut self, error: Option<ConnectionError>) {
        if let Some(number) = self.authenticating.take() {
            self.authenticated = number;
            self.association.note_authenticated(number, error);
        }
    }

    /// Continues after the answer to a message.
    pub(super) fn message_answered(&mut self, finished: Finished, cx: &mut Context<'_>) {
        let Err(error) = self.qpair.message_answered(finished, cx) else {
            return;
        };
        let is_unsupported = matches!(
            &error,
            ConnectionError::Authentication {
                error: AuthenticationError::Refused { .. },
                ..
            }
        );
        if is_unsupported && self.authenticating.is_some() {
            // What was proved before stays proved.
            self.qpair.end_authentication();
            self.answer_request(Some(error));
        } else {
            self.qpair.fail(error, cx);
        }
    }
}
