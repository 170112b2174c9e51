//! The end of a connection that cannot go on: C2HTermReq, and a while for the host to read it.
//!
//! `[NVMe-TCP 1.0 §3.6.2.5]`

use crate::service::core::CoreState;
use crate::session::connection::{Connection, State};
use reactor::Context;
use switch::doorbell::Urgency;
use wire::tcp::framer::Role;
use wire::tcp::limits::TERM_REQ_BYTES_MAX;
use wire::tcp::{FatalErrorStatus, FramingError, TermReq};

/// Ends a connection because its bytes are no PDUs.
pub(crate) fn framing_error(
    connection: &mut Connection,
    error: FramingError,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let mut pdu = [0; TERM_REQ_BYTES_MAX];
    let request = error.term_req();
    let length = request.encode(
        Role::Controller,
        connection.framer.offending_header(),
        &mut pdu,
    );
    terminate(connection, &error.to_string(), &pdu[..length], core, cx);
}

/// Ends a connection because of a PDU that is legal by itself but not here.
pub(crate) fn protocol_error(
    connection: &mut Connection,
    status: FatalErrorStatus,
    information: u32,
    header: &[u8],
    reason: &str,
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    let mut pdu = [0; TERM_REQ_BYTES_MAX];
    let length = TermReq {
        status,
        information,
    }
    .encode(Role::Controller, header, &mut pdu);
    terminate(connection, reason, &pdu[..length], core, cx);
}

fn terminate(
    connection: &mut Connection,
    reason: &str,
    pdu: &[u8],
    core: &mut CoreState,
    cx: &mut Context<'_>,
) {
    if connection.state >= State::Terminating {
        return;
    }
    if let Some(suppressed) = core.log_budget.allow(connection.peer.ip(), cx.now) {
        let peer = connection.peer;
        tracing::warn!(%peer, reason, suppressed, "terminating a connection");
    }
    core.stats.terminations_sent += 1;
    core.touch();
    connection.leave_fresh(core);
    connection.state = State::Terminating;
    if connection.output.make_room(0, core, cx) {
        connection.output.push_bytes(pdu);
        connection.appended(0, Urgency::Urgent, core, cx);
        connection.close_at = cx.now + core.limits.linger;
        connection.arm(core, connection.close_at);
    } else {
        // The host does not read what it got already; it will not read this either.
        connection.close(core, cx);
    }
}
