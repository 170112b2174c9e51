//! One connection of a session's hosts, and what is known of it.

use sim::{RawEnd, RawState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use testing::{Dialect, Found, Pdu, Pdus, Session};
use wire::fabrics::Connect;
use wire::nvme::{AdminOpcode, Command, FabricsType, IoOpcode, Status};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::{C2hData, DataAlignment, IcReq, PduHeader, R2t, Role};

use super::content::Content;

/// Offset of HPDA in ICReq.
const HPDA: usize = 10;

/// A command that may be outstanding.
#[derive(Debug)]
struct Asked {
    command: Command,
    /// Bytes of data that came.
    received: u32,
}

/// The host's end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    end: Option<RawEnd>,
    /// Format, and the stream from the target.
    pub(super) session: Session,
    /// The stream to the target, as it sees it; `None` after the first error in it.
    outward: Option<Pdus>,
    /// The first bytes sent: an ICReq, if the target answers them with ICResp.
    first: Vec<u8>,
    asked: BTreeMap<u16, Vec<Asked>>,
    /// Identifiers that several commands had at once: it is not known which one was answered.
    ambiguous: BTreeSet<u16>,
    pub(super) r2ts: VecDeque<R2t>,
    pub(super) next_cid: u16,
    /// The last result of a command: a controller identifier after Connect.
    pub(super) result: u64,
    /// The status of the last completion that had one of its own.
    pub(super) status: Option<Status>,
    /// A Connect for an I/O queue was sent.
    pub(super) is_io: bool,
    connects: u32,
    terminated: bool,
}

impl Peer {
    pub(super) fn new(end: RawEnd) -> Self {
        Self {
            end: Some(end),
            session: Session::new(Dialect::default()),
            outward: Some(Pdus::to(Role::Controller)),
            first: Vec::new(),
            asked: BTreeMap::new(),
            ambiguous: BTreeSet::new(),
            r2ts: VecDeque::new(),
            next_cid: 0,
            result: 0,
            status: None,
            is_io: false,
            connects: 0,
            terminated: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.end.is_some()
    }

    /// Takes the connection's end, which is closed or broken then.
    pub(super) fn hang_up(&mut self) -> Option<RawEnd> {
        self.end.take()
    }

    /// Sends bytes, and notes what the target may make of them.
    pub(super) fn send(&mut self, bytes: &[u8], content: &mut Content) {
        let Some(end) = &self.end else {
            return;
        };
        end.send(bytes);
        let rest = IcReq::SIZE.saturating_sub(self.first.len());
        self.first
            .extend_from_slice(&bytes[..rest.min(bytes.len())]);
        let Some(outward) = &mut self.outward else {
            return;
        };
        outward.feed(bytes);
        loop {
            let Some(outward) = &mut self.outward else {
                return;
            };
            match outward.find() {
                Ok(None) => return,
                Ok(Some(Found::Begins(header))) => self.note(&header),
                Ok(Some(Found::Whole(pdu))) => {
                    if !pdu.announced {
                        self.note(&pdu.header);
                    }
                    self.note_data(&pdu, content);
                }
                Err(_) => self.outward = None,
            }
        }
    }

    /// A header left for the target.
    fn note(&mut self, header: &PduHeader) {
        match header {
            PduHeader::IcReq(request) => {
                if let Some(outward) = &mut self.outward {
                    let framer = &mut outward.framer;
                    framer.set_digests(request.header_digest, request.data_digest);
                }
            }
            PduHeader::CapsuleCmd(capsule) => {
                let command = capsule.command;
                if command.is_fabrics() && command.fabrics_type() == FabricsType::CONNECT {
                    self.connects += 1;
                    self.is_io = Connect::parse(&command).queue_id != 0;
                }
                let asked = self.asked.entry(command.cid()).or_default();
                if !asked.is_empty() {
                    self.ambiguous.insert(command.cid());
                }
                asked.push(Asked {
                    command,
                    received: 0,
                });
            }
            _ => {}
        }
    }

    /// All data of a PDU left for the target.
    fn note_data(&self, pdu: &Pdu, content: &mut Content) {
        match &pdu.header {
            PduHeader::CapsuleCmd(capsule) => content.may_hold(&capsule.command, &pdu.data),
            PduHeader::H2cData(data) => {
                let asked = self.asked.get(&data.command_id);
                for asked in asked.into_iter().flatten() {
                    content.may_hold(&asked.command, &pdu.data);
                }
            }
            _ => {}
        }
    }

    /// Receives what has arrived and checks it.
    pub(super) fn receive(&mut self, content: &Content) {
        let Some(end) = &self.end else {
            return;
        };
        let mut bytes = Vec::new();
        let state = end.receive(&mut bytes);
        self.session.inward.feed(&bytes);
        while let Some(found) = self
            .session
            .inward
            .find()
            .expect("the target sends legal PDUs")
        {
            let Found::Whole(pdu) = found else {
                continue;
            };
            assert!(!self.terminated, "nothing follows a termination request");
            assert!(pdu.digest_ok, "the data digest of {:?}", pdu.header);
            self.take(&pdu, content);
        }
        if state == RawState::Ended {
            assert!(
                self.session.inward.framer.is_between_pdus()
                    || self.outward.is_none()
                    || !self.is_silent(),
                "the target closes a connection between PDUs"
            );
            self.end = None;
        }
    }

    /// Returns true if no command may be outstanding.
    fn is_silent(&self) -> bool {
        self.asked.values().all(Vec::is_empty)
    }

    fn take(&mut self, pdu: &Pdu, content: &Content) {
        content.assert_no_secret(&pdu.data);
        match &pdu.header {
            PduHeader::IcResp(response) => {
                let alignment = self.first.get(HPDA).copied().unwrap_or_default();
                let alignment = DataAlignment::from_code(alignment);
                let alignment = alignment.expect("ICResp answers a legal ICReq");
                self.session.agree(response, alignment);
            }
            PduHeader::CapsuleResp(response) => {
                let completion = response.completion;
                self.result = completion.result;
                self.status = Some(completion.status);
                self.answered(completion.cid);
            }
            PduHeader::C2hData(data) => self.take_data(data, &pdu.data, content),
            PduHeader::R2t(r2t) => {
                let asked = self
                    .asked
                    .get(&r2t.command_id)
                    .is_some_and(|a| !a.is_empty());
                assert!(
                    asked,
                    "an R2T for a command that is not outstanding: {r2t:?}"
                );
                self.r2ts.push_back(*r2t);
            }
            PduHeader::C2hTermReq(_) => self.terminated = true,
            other => panic!("a target does not send {other:?}"),
        }
    }

    /// A command was answered: for the last time.
    fn answered(&mut self, cid: u16) {
        let asked = self.asked.get_mut(&cid).and_then(Vec::pop);
        assert!(
            asked.is_some(),
            "an answer to command {cid:#x} that is not outstanding"
        );
    }

    fn take_data(&mut self, header: &C2hData, data: &[u8], content: &Content) {
        let cid = header.command_id;
        let asked = self.asked.get_mut(&cid);
        let asked = asked.filter(|asked| !asked.is_empty());
        let Some(asked) = asked else {
            panic!("data of command {cid:#x}, which is not outstanding");
        };
        let due = asked.iter().position(|a| a.received == header.data_offset);
        // Of commands with the same identifier it is not known which one was answered so far.
        let unsure = asked.len() > 1;
        let index = due.unwrap_or(0);
        assert!(
            due.is_some() || unsure,
            "data of command {cid:#x}: {header:?}"
        );
        asked[index].received = header.data_offset + header.data_length;
        let command = asked[index].command;
        if header.progress == C2hProgress::LastAndSuccess {
            asked.remove(index);
        }
        let reads = self.is_io && command.opcode() == IoOpcode::READ.0;
        if reads && self.connects == 1 && !unsure {
            content.assert_possible(&command, header.data_offset, data);
        }
    }

    /// Commands that were not answered, but for those that wait for something to happen.
    pub(super) fn unanswered(&self) -> Vec<u16> {
        let event = AdminOpcode::ASYNC_EVENT_REQUEST.0;
        // Of a queue that was connected twice it is not known which kind it is.
        let is_admin = !self.is_io || self.connects > 1;
        let waits = |asked: &Asked| is_admin && asked.command.opcode() == event;
        let asked = self.asked.iter();
        let asked = asked.filter(|(cid, _)| !self.ambiguous.contains(cid));
        let asked = asked.filter(|(_, asked)| asked.iter().any(|asked| !waits(asked)));
        asked.map(|(&cid, _)| cid).collect()
    }
}
