//! The peer's admin commands and identify data.

use super::{Connection, Step};
use std::sync::atomic::Ordering;
use wire::fabrics::property::Capabilities;
use wire::nvme::feature::{FeatureId, NumberOfQueues};
use wire::nvme::identify::Cns;
use wire::nvme::identify_lists::{
    NamespaceId, encode_namespace_descriptors, encode_namespace_list,
};
use wire::nvme::identify_namespace::LbaFormat;
use wire::nvme::{AdminCommand, Command, Identify, IdentifyController, IdentifyNamespace, Status};

impl Connection {
    pub(super) fn admin(&mut self, command: &Command) -> Step {
        let cid = command.cid();
        if command.opcode() == wire::nvme::AdminOpcode::END_CONTROLLER.0 {
            assert!(self.behaviour.fences, "it was not announced");
            let end = wire::nvme::vendor::EndController::parse(command);
            let mut ended = self.state.seen.ended.lock().unwrap();
            ended.push(end.controller_id);
            let is_refused = ended.len() <= self.behaviour.refused_ends;
            drop(ended);
            if is_refused {
                return self.complete(cid, Status::from_type_and_code(0, 0x06), 0);
            }
            if self.behaviour.slow_fences {
                let answer = self.late_answer(cid);
                self.state.fences.lock().unwrap().push(answer);
                return Ok(());
            }
            return self.done(cid);
        }
        match AdminCommand::parse(command).unwrap() {
            AdminCommand::Identify(identify) => {
                if let Some(status) = self.unready(&identify) {
                    self.state.seen.unready.fetch_add(1, Ordering::SeqCst);
                    return self.complete(cid, status, 0);
                }
                std::thread::sleep(self.behaviour.slow_identify);
                let Some(data) = self.identify(identify.cns, identify.nsid) else {
                    return self.complete(cid, Status::INVALID_NAMESPACE.with_dnr(), 0);
                };
                self.send_data(cid, &data)
            }
            AdminCommand::SetFeatures(set) if set.feature == FeatureId::NUMBER_OF_QUEUES => {
                let queues = NumberOfQueues::of(self.behaviour.io_queues);
                self.complete(cid, Status::SUCCESS, u64::from(queues.to_dword()))
            }
            AdminCommand::AsyncEventRequest => {
                let slot = self.late_answer(cid);
                let mut events = self.state.events.lock().unwrap();
                if std::mem::take(&mut events.1) {
                    slot.tell();
                } else {
                    events.0.push(slot);
                }
                Ok(())
            }
            // The log of changed namespaces; its content does not matter to the host under test.
            AdminCommand::GetLogPage(_) => self.send_data(cid, &[0; 4096]),
            AdminCommand::KeepAlive => {
                self.state.seen.keep_alives.fetch_add(1, Ordering::SeqCst);
                self.done(cid)
            }
            AdminCommand::Abort(abort) => {
                self.state.seen.aborts.fetch_add(1, Ordering::SeqCst);
                let aborts = self.state.behaviour.lock().unwrap().aborts;
                let Some(held) = aborts.then(|| self.state.take_held(&abort)).flatten() else {
                    return self.complete(cid, Status::SUCCESS, 1);
                };
                let mut connection = held.connection(&self.state);
                connection.complete(abort.cid, Status::ABORTED_BY_REQUEST, 0)?;
                self.done(cid)
            }
            _ => self.done(cid),
        }
    }

    /// The status of an Identify that is set to fail.
    fn unready(&self, identify: &Identify) -> Option<Status> {
        let unready = self.state.behaviour.lock().unwrap().unready;
        let unready =
            unready.filter(|(cns, nsid, _)| (*cns, *nsid) == (identify.cns, identify.nsid));
        unready.map(|(.., status)| status)
    }

    fn identify(&self, cns: Cns, nsid: u32) -> Option<Vec<u8>> {
        let mut page = [0; 4096];
        match cns {
            Cns::CONTROLLER => page = self.identify_controller().to_bytes(),
            Cns::COMMAND_SET_CONTROLLER => page = self.behaviour.lengths.as_ref()?.to_bytes(),
            Cns::ACTIVE_NAMESPACES => {
                encode_namespace_list(nsid + 1..=self.behaviour.namespaces, &mut page);
            }
            Cns::NAMESPACE if (1..=self.behaviour.namespaces).contains(&nsid) => {
                let mut identify = IdentifyNamespace {
                    nsze: self.state.blocks.load(Ordering::SeqCst),
                    ..IdentifyNamespace::default()
                };
                identify.lba_formats[0] = LbaFormat::of_shift(9);
                page = identify.to_bytes();
            }
            Cns::NAMESPACE_DESCRIPTORS if (1..=self.behaviour.namespaces).contains(&nsid) => {
                let mut uuid = [self.behaviour.volume; 16];
                uuid[0] += nsid as u8 - 1;
                encode_namespace_descriptors([NamespaceId::Uuid(uuid)], &mut page);
            }
            _ => return None,
        }
        Some(page.to_vec())
    }

    fn identify_controller(&self) -> IdentifyController {
        IdentifyController {
            cntlid: 7,
            model_number: wire::text::ascii_field("Test peer"),
            serial_number: wire::text::ascii_field("1"),
            firmware_revision: wire::text::ascii_field("0"),
            mdts: self.behaviour.mdts,
            oaes: IdentifyController::OAES_NAMESPACE_ATTRIBUTE,
            oncs: IdentifyController::ONCS_COMPARE
                | IdentifyController::ONCS_DATASET_MANAGEMENT
                | IdentifyController::ONCS_WRITE_ZEROES
                | IdentifyController::ONCS_VERIFY,
            kas: 1,
            ctratt: if self.behaviour.traffic_based {
                IdentifyController::CTRATT_TRAFFIC_BASED_KEEP_ALIVE
            } else {
                0
            },
            nn: self.behaviour.namespaces,
            maxcmd: 128,
            ioccsz: 4 + self.behaviour.in_capsule_bytes / 16,
            iorcsz: 1,
            vwc: if self.behaviour.cache_life.is_some() {
                IdentifyController::VWC_PRESENT
            } else {
                0
            },
            vendor: wire::nvme::vendor::Extensions {
                cache_life: self.state.behaviour.lock().unwrap().cache_life.unwrap_or(0),
                end_controller: self.behaviour.fences,
                extents: self.behaviour.extents,
                ..wire::nvme::vendor::Extensions::default()
            }
            .encode(),
            ..IdentifyController::default()
        }
    }
}

impl Connection {
    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_queue_entries: self.behaviour.max_queue_entries,
            contiguous_queues: true,
            arbitration: 0,
            timeout: 4,
            subsystem_reset: false,
            command_sets: Capabilities::CSS_NVM,
            page_shift_min: 0,
            page_shift_max: 0,
            ready_modes: 1,
        }
    }
}
