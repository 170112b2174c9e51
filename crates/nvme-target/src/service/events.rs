//! Asynchronous events, delivered to the hosts that wait for them.

use crate::service::answers;
use crate::service::connection::{Connection, Owner};
use crate::service::core::CoreState;
use reactor::Context;
use wire::nvme::Status;

/// Answers Asynchronous Event Requests with the events that are pending.
pub(crate) fn deliver(connection: &mut Connection, core: &mut CoreState, cx: &mut Context<'_>) {
    while connection.answers()
        && let Owner::Admin(controller) = &mut connection.owner
        && let Some((cid, event)) = controller.events.next()
    {
        let result = u64::from(event.to_dword());
        answers::respond(connection, cid, Status::SUCCESS, result, core, cx);
    }
}
