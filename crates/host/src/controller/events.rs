//! Asynchronous events of the controller. `[NVMe Base 2.0 §5.2]`

use super::{Controller, Purpose};
use reactor::Context;
use wire::nvme::{AdminCommand, AsyncEvent, Completion};

impl Controller {
    /// Handles an asynchronous event, and asks for the next one. `[NVMe Base 2.0 §5.2]`
    pub(super) fn event(&mut self, completion: &Completion, cx: &mut Context<'_>) {
        if !completion.status.is_success() {
            self.events = false;
            return;
        }
        let event = AsyncEvent::from_dword(completion.dword0());
        if matches!(
            event,
            AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED | AsyncEvent::DISCOVERY_LOG_CHANGE
        ) {
            self.look_again(cx);
        }
        self.ask_admin(Purpose::Event, &AdminCommand::AsyncEventRequest, 0, cx);
    }
}
