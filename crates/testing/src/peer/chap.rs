//! DH-HMAC-CHAP of the small controller. Its exchange is that of the product, which is checked
//! against the specification by itself.

use super::{Connection, Over, Step};
use secure::chap::{ControllerExchange, Names, Progress};
use std::sync::atomic::Ordering;
use wire::fabrics::{AuthenticationTransfer, ConnectData, ConnectResponse};
use wire::nvme::{Command, FabricsType, Status};

impl Connection {
    pub(super) fn begin_chap(&mut self, data: &[u8]) {
        let connect = ConnectData::parse_prefix(data).unwrap();
        let names = Names {
            hostnqn: connect.hostnqn().unwrap().as_str().to_owned(),
            subnqn: connect.subnqn().unwrap().as_str().to_owned(),
        };
        let keys = self.behaviour.keys.clone();
        self.chap = keys.map(|keys| ControllerExchange::new(names, keys));
    }

    /// Returns true if the host must authenticate before this command.
    pub(super) fn lacks_authentication(&self, command: &Command) -> bool {
        let required = ConnectResponse::AUTHENTICATION_REQUIRED;
        let is_allowed = command.is_fabrics()
            && [
                FabricsType::CONNECT,
                FabricsType::AUTHENTICATION_SEND,
                FabricsType::AUTHENTICATION_RECEIVE,
            ]
            .contains(&command.fabrics_type());
        self.behaviour.authentication & required != 0 && !self.is_authenticated && !is_allowed
    }

    pub(super) fn message_sent(&mut self, cid: u16, message: &[u8]) -> Step {
        let Some(chap) = &mut self.chap else {
            return self.complete(cid, Status::INVALID_OPCODE.with_dnr(), 0);
        };
        let mut progress = chap.receive(message);
        if let Progress::Compute(job) = progress {
            // Any bytes will do for a test.
            let mut next = 1;
            progress = chap.computed(job.run(&mut |bytes| {
                bytes.fill_with(|| {
                    next = next % 251 + 1;
                    next
                });
            }));
        }
        let noted = self.note(&progress);
        self.done(cid)?;
        noted
    }

    pub(super) fn message_due(&mut self, cid: u16, receive: AuthenticationTransfer) -> Step {
        let response = self.chap.as_mut().and_then(ControllerExchange::response);
        let Some((mut message, progress)) = response else {
            return self.complete(cid, Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0);
        };
        if let Some(tamper) = self.behaviour.tamper {
            message = tamper(message);
        }
        assert!(message.len() <= receive.length as usize, "it has room");
        let noted = self.note(&progress);
        self.send_data(cid, &message)?;
        noted
    }

    /// Records the progress. Called before the answer, so that a host that acts on it finds it
    /// recorded. Returns the end of a connection that failed.
    fn note(&mut self, progress: &Progress) -> Step {
        match progress {
            Progress::Authenticated => {
                self.is_authenticated = true;
                self.state.seen.authenticated.fetch_add(1, Ordering::SeqCst);
            }
            Progress::Failed(failure) => {
                self.state.seen.failures.lock().unwrap().push(*failure);
                return Err(Over);
            }
            Progress::Continue | Progress::Compute(_) => {}
        }
        Ok(())
    }
}
