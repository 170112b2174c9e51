//! Asynchronous events, delivered to the hosts that wait for them.

use crate::service::core::CoreState;
use crate::session::connection::{Connection, Owner};
use crate::session::transfer;
use reactor::Context;
use wire::nvme::Status;

/// Answers Asynchronous Event Requests with what is to be told.
pub(crate) fn deliver(connection: &mut Connection, core: &mut CoreState, cx: &mut Context<'_>) {
    while connection.answers()
        && let Owner::Admin(controller) = &mut connection.owner
        && let Some((cid, event)) = controller.events.next()
    {
        let result = u64::from(event.to_dword());
        transfer::respond(connection, cid, Status::SUCCESS, result, core, cx);
    }
}
