//! Reservation commands on I/O queues. `[NVMe Base 2.0 §7.2 to §7.5]`
//!
//! A report is answered at once. Commands that change the state go to the
//! [thread of reservations](crate::reservation::executor).

use crate::controller::registry::SharedController;
use crate::controller::reply::Reply;
use crate::request::{Step, Ticket};
use crate::reservation::job::Job;
use crate::reservation::state::Request;
use crate::service::poll_group::PollGroup;
use crate::service::requests::Running;
use crate::subsystem::Subsystem;
use qos::access::Need;
use reactor::Context;
use std::sync::Arc;
use wire::nvme::reservation::{
    AcquireData, RegisterData, RegisteredController, ReleaseData, ReservationAcquire,
    ReservationRegister, ReservationRelease, ReservationReport, ReservationStatus,
};
use wire::nvme::{Command, IoOpcode, Status};

const INVALID: Status = Status::INVALID_FIELD.with_dnr();
const SHORT: Status = Status::DATA_SGL_LENGTH_INVALID.with_dnr();

impl Running<'_, '_> {
    /// Executes a reservation command that has its data.
    pub(super) fn reserve(
        &mut self,
        controller: &SharedController,
        command: &Command,
    ) -> Result<Reply, Status> {
        let (opcode, nsid) = (IoOpcode(command.opcode()), command.nsid());
        if command.fuse() != 0 {
            return Err(INVALID);
        }
        let access = &self.connection.access;
        let namespace = self.core.namespaces.get(access.subsystem, nsid);
        let namespace = namespace.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
        namespace.check_access()?;
        if let Some(rights) = &access.rights {
            rights.check_any(nsid)?;
            // It concerns every block, so a host that may not write all of them gets none.
            if opcode != IoOpcode::RESERVATION_REPORT {
                rights.check(nsid, Need::Write, 0, namespace.blocks)?;
            }
        }
        if opcode == IoOpcode::RESERVATION_REPORT {
            return self.report_reservations(controller, command);
        }
        let entry = self.connection.session.commands.slot(self.slot);
        let data = entry.transfer.data.as_ref();
        let data = data.and_then(|data| data.bytes()).unwrap_or_default();
        let request = match opcode {
            IoOpcode::RESERVATION_REGISTER => Request::Register(
                ReservationRegister::parse(command).ok_or(INVALID)?,
                RegisterData::parse_prefix(data).ok_or(SHORT)?,
            ),
            IoOpcode::RESERVATION_ACQUIRE => Request::Acquire(
                ReservationAcquire::parse(command).ok_or(INVALID)?,
                AcquireData::parse_prefix(data).ok_or(SHORT)?,
            ),
            IoOpcode::RESERVATION_RELEASE => Request::Release(
                ReservationRelease::parse(command).ok_or(INVALID)?,
                ReleaseData::parse_prefix(data).ok_or(SHORT)?,
            ),
            _ => return Err(Status::INVALID_OPCODE.with_dnr()),
        };
        Ok(Reply::Reserve { nsid, request })
    }

    /// Leaves a change of reservations to their thread.
    pub(super) fn leave_to_reserver(&mut self, nsid: u32, request: Request) -> Step {
        let controller = self.connection.controller().cloned();
        let found = controller.and_then(|it| Some((it.subsystem.clone()?, it.host_id)));
        let (Some((subsystem, host)), Some(reserver)) = (found, self.core.shared.reserver.get())
        else {
            return Step::Answer(Status::INTERNAL_ERROR);
        };
        let job = Job {
            core: self.core.index,
            asker: self.connection.ticket(self.slot),
            subsystem,
            nsid,
            host,
            request,
        };
        let sent = reserver.send(job);
        self.entry().transfer.data = None;
        match sent {
            Ok(()) => Step::Wait,
            Err(_) => Step::Answer(Status::INTERNAL_ERROR),
        }
    }

    /// Executes Reservation Report. Over fabrics a HOSTID has 128 bits, which only the extended data
    /// structure holds.
    fn report_reservations(
        &mut self,
        controller: &SharedController,
        command: &Command,
    ) -> Result<Reply, Status> {
        let report = ReservationReport::parse(command);
        if !report.extended {
            return Err(Status::HOST_ID_INCONSISTENT.with_dnr());
        }
        let subsystem = controller.subsystem.as_ref();
        let page =
            subsystem.and_then(|subsystem| self.reservation_status(subsystem, command.nsid()));
        let page = page.ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
        let data = self.entry().transfer.data.as_mut();
        let data = data.and_then(|data| data.bytes_mut()).unwrap_or_default();
        if data.len() as u64 != report.dwords * 4 {
            return Err(SHORT);
        }
        let count = page.len().min(data.len());
        data[..count].copy_from_slice(&page[..count]);
        Ok(Reply::Data(0))
    }

    /// Returns the extended Reservation Status of a namespace.
    fn reservation_status(&self, subsystem: &Arc<Subsystem>, nsid: u32) -> Option<Vec<u8>> {
        let namespace = subsystem.namespace(nsid)?;
        let state = namespace.reservations().clone();
        let mut entries = Vec::new();
        let controllers = self.core.shared.controllers();
        for (host, key, holds) in state.registrants() {
            let theirs = controllers.iter().filter(|controller| {
                let here = controller.subsystem.as_ref();
                controller.host_id == *host && here.is_some_and(|it| Arc::ptr_eq(it, subsystem))
            });
            let mut ids: Vec<_> = theirs.map(|controller| controller.id).collect();
            if ids.is_empty() {
                ids.push(RegisteredController::NO_CONTROLLER);
            }
            entries.extend(ids.into_iter().map(|cntlid| RegisteredController {
                cntlid,
                status: u8::from(holds) * RegisteredController::HOLDER,
                key,
                host: *host,
            }));
        }
        drop(controllers);
        let header = ReservationStatus {
            generation: state.generation(),
            kind: state.kind().map_or(0, |kind| kind as u8),
            controllers: u16::try_from(entries.len())
                .unwrap_or(u16::MAX)
                .to_le_bytes(),
            persists: u8::from(state.persists()),
        };
        let entries = entries.iter().flat_map(|entry| entry.to_bytes());
        Some(header.to_bytes().into_iter().chain(entries).collect())
    }
}

impl PollGroup {
    /// Answers a command that changed reservations, or could not.
    pub(super) fn reserved(&mut self, asker: Ticket, status: Status, cx: &mut Context<'_>) {
        if let Some(connection) = self.connections.get_mut(asker.connection)
            && let Some(entry) = connection.session.commands.get(asker.slot)
            && !status.is_success()
        {
            let (cid, nsid, opcode) = (entry.cid, entry.nsid, entry.opcode);
            connection.log_error(cid, nsid, opcode, status);
        }
        self.answer_with(asker, (status, 0), cx);
    }
}
