//! Checks the PDUs that hosts and targets send each other, and panics at a violation of the rules
//! that no answer shows: identifiers, transfers, offsets, queue heads. `[NVMe-TCP 1.0 §3.3]`
//!
//! It sees the bytes that an end sends, in the order of sending, whether or not they arrive. An
//! answer is sent before its receiver acts on it, so a command that has ended here has ended for
//! both ends.

mod challenges;
mod records;

pub(crate) use challenges::Challenges;
use records::{HANDSHAKE, Records};
use std::collections::BTreeMap;
use testing::IoCommand;
use wire::fabrics::{Connect, FabricsCommand};
use wire::nvme::sgl::DataPointer;
use wire::nvme::{Command, Completion, FabricsType, IoOpcode, Status};
use wire::tcp::c2h_data::C2hProgress;
use wire::tcp::framer::{Framer, FramerLimits, Role};
use wire::tcp::{C2hData, Event, H2cData, IcReq, IcResp, PduHeader, R2t};

/// Above any negotiated limit; the negotiated limits are checked here.
const LIMITS: FramerLimits = FramerLimits {
    capsule_data_bytes: 1 << 20,
    data_pdu_bytes: 1 << 24,
};

/// Transfer direction of a command: bits 1:0 of its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    None,
    Out,
    In,
}

/// An outstanding command.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Its position among the commands of the queue, from 1.
    number: u64,
    opcode: u8,
    /// It is Authentication Receive.
    is_message: bool,
    direction: Direction,
    /// Bytes of data outside the capsule; for a command over extents, the maximum.
    bytes: u32,
    /// Blocks of this data in a command over extents, which does not state the block size.
    blocks: u32,
    /// Bytes of this data requested with R2Ts, or sent to the host.
    moved: u32,
    /// Unfulfilled R2Ts.
    transfers: u32,
    /// The last C2HData was sent.
    last: bool,
}

/// Possible block sizes.
const BLOCK_BYTES: [u32; 2] = [512, 4096];

impl Asked {
    fn new(command: &Command, number: u64) -> Self {
        let kind = if command.is_fabrics() {
            command.fabrics_type().0
        } else {
            command.opcode()
        };
        let mut asked = Self {
            number,
            opcode: command.opcode(),
            is_message: command.is_fabrics()
                && command.fabrics_type() == FabricsType::AUTHENTICATION_RECEIVE,
            direction: match kind & 3 {
                1 => Direction::Out,
                2 => Direction::In,
                _ => Direction::None,
            },
            bytes: match command.data_pointer() {
                Ok(DataPointer::Transport { length }) => length,
                _ => 0,
            },
            blocks: 0,
            moved: 0,
            transfers: 0,
            last: false,
        };
        if let Ok(IoCommand::ReadExtents(extents) | IoCommand::WriteExtents(extents)) =
            IoCommand::parse(command)
        {
            let capsule = command.data_pointer().map_or(0, |data| data.length());
            assert!(
                capsule as usize >= extents.table_bytes(),
                "{command:?} has no table"
            );
            if asked.opcode == IoOpcode::READ_EXTENTS.0 {
                asked.direction = Direction::In;
            }
            if capsule as usize == extents.table_bytes() {
                asked.blocks = extents.blocks;
                asked.bytes = extents.blocks * 4096;
            }
        }
        asked
    }

    /// Returns true if a target may answer it with Command Interrupted: too many commands over
    /// extents are outstanding. No other command is refused for lack of memory: Linux retries five
    /// times, then reports EREMOTEIO.
    fn may_be_interrupted(&self) -> bool {
        let extents = [IoOpcode::READ_EXTENTS.0, IoOpcode::WRITE_EXTENTS.0];
        extents.contains(&self.opcode)
    }

    /// Returns true if all data was transferred.
    fn is_whole(&self) -> bool {
        if self.blocks == 0 {
            return self.moved == self.bytes;
        }
        let lengths = BLOCK_BYTES.iter();
        lengths
            .map(|bytes| self.blocks * bytes)
            .any(|bytes| bytes == self.moved)
    }
}

/// An unfulfilled R2T.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    cid: u16,
    /// The next byte.
    offset: u32,
    left: u32,
    /// Its command was answered meanwhile, which the host may not have seen yet.
    over: bool,
}

/// The submission queue, after Connect was sent.
#[derive(Clone, Copy, Debug)]
struct Queue {
    entries: u32,
    flow_control: bool,
    /// Commands sent.
    sent: u64,
    /// Of these, commands that the target has reported as read (SQHD).
    read: u64,
}

/// A connection that is checked.
#[derive(Debug)]
pub(crate) struct Wiretap {
    from_host: Option<Framer>,
    from_target: Option<Framer>,
    /// Maximum outstanding R2Ts per command.
    transfers_max: u32,
    /// Maximum bytes of one H2CData.
    data_max: u32,
    queue: Option<Queue>,
    /// The command whose data is being sent: by the target, and by the host.
    data_of: [Option<u16>; 2],
    /// Data of the current Authentication Receive.
    message: Vec<u8>,
    challenges: Challenges,
    commands: BTreeMap<u16, Asked>,
    /// Unfulfilled R2Ts by TTAG.
    transfers: BTreeMap<u16, Transfer>,
    /// Nothing was sent yet.
    is_new: bool,
    /// With TLS, its records.
    records: Option<Records>,
}

impl Wiretap {
    /// A new connection.
    pub(crate) const fn new(challenges: Challenges) -> Self {
        Self {
            from_host: Some(Framer::new(Role::Controller, LIMITS)),
            from_target: Some(Framer::new(Role::Host, LIMITS)),
            transfers_max: 1,
            data_max: 0,
            queue: None,
            data_of: [None; 2],
            message: Vec::new(),
            challenges,
            commands: BTreeMap::new(),
            transfers: BTreeMap::new(),
            is_new: true,
            records: None,
        }
    }

    /// Checks bytes that one end sends.
    ///
    /// # Panics
    /// If they violate the protocol.
    pub(crate) fn sends(&mut self, by_host: bool, bytes: &[u8]) {
        let is_new = std::mem::take(&mut self.is_new);
        if is_new && bytes.first() == Some(&HANDSHAKE) {
            self.records = Some(Records::default());
        }
        match &mut self.records {
            Some(records) => records.sends(by_host, bytes),
            None => self.pdus(by_host, bytes),
        }
    }

    /// Checks records with these bytes, which one end is about to send.
    ///
    /// # Panics
    /// If the bytes violate the protocol, or the records do not protect them.
    pub(crate) fn seals(&mut self, by_host: bool, bytes: &[u8], sealed: &[u8]) {
        let records = self.records.as_mut();
        let records = records.expect("a handshake comes before the first record");
        records.seals(bytes, sealed);
        self.pdus(by_host, bytes);
    }

    fn pdus(&mut self, by_host: bool, mut bytes: &[u8]) {
        loop {
            let framer = if by_host {
                &mut self.from_host
            } else {
                &mut self.from_target
            };
            // Bytes after a termination request are ignored.
            let Some(framer) = framer else { return };
            let event = framer.next(&mut bytes);
            match event.expect("an end sends what is well formed") {
                None => return,
                Some(Event::Pdu {
                    header, digest_ok, ..
                }) => {
                    assert!(digest_ok, "a data digest is wrong: {header:?}");
                    self.pdu(&header);
                }
                Some(Event::DataBegin { header, .. }) => {
                    self.data_of[usize::from(by_host)] = match &header {
                        PduHeader::CapsuleCmd(capsule) => Some(capsule.command.cid()),
                        PduHeader::H2cData(data) => Some(data.command_id),
                        PduHeader::C2hData(data) => Some(data.command_id),
                        _ => None,
                    };
                    self.pdu(&header);
                }
                Some(Event::DataChunk(bytes)) => {
                    if !by_host && self.is_message() {
                        self.message.extend_from_slice(bytes);
                    }
                }
                // If a command was answered before all of its data was sent, the remaining data
                // belongs to the application again, and is not checked.
                Some(Event::DataEnd { digest_ok }) => {
                    let data_of = self.data_of[usize::from(by_host)];
                    let counts = data_of.is_some_and(|cid| self.commands.contains_key(&cid));
                    assert!(
                        digest_ok || !counts,
                        "the data digest of command {data_of:?} is wrong"
                    );
                    if !by_host {
                        self.challenges.note(&std::mem::take(&mut self.message));
                    }
                }
            }
        }
    }

    fn pdu(&mut self, header: &PduHeader) {
        match header {
            PduHeader::IcReq(request) => self.requested(request),
            PduHeader::IcResp(response) => self.agreed(response),
            PduHeader::CapsuleCmd(capsule) => self.command(&capsule.command),
            PduHeader::CapsuleResp(capsule) => self.response(&capsule.completion),
            PduHeader::H2cData(data) => self.data_out(data),
            PduHeader::C2hData(data) => self.data_in(data),
            PduHeader::R2t(r2t) => self.ready(r2t),
            PduHeader::H2cTermReq(_) => self.from_host = None,
            PduHeader::C2hTermReq(_) => self.from_target = None,
        }
    }

    /// Returns true if the target is sending a message of DH-HMAC-CHAP.
    fn is_message(&self) -> bool {
        let asked = self.data_of[0].and_then(|cid| self.commands.get(&cid));
        asked.is_some_and(|asked| asked.is_message)
    }

    fn requested(&mut self, request: &IcReq) {
        self.transfers_max = request.max_r2t.saturating_add(1);
        if let Some(framer) = &mut self.from_target {
            framer.set_alignment(request.host_alignment);
        }
    }

    fn agreed(&mut self, response: &IcResp) {
        self.data_max = response.max_h2c_data;
        let framers = [&mut self.from_host, &mut self.from_target];
        for framer in framers.into_iter().flatten() {
            framer.set_digests(response.header_digest, response.data_digest);
        }
        if let Some(framer) = &mut self.from_host {
            framer.set_alignment(response.controller_alignment);
        }
    }

    fn command(&mut self, command: &Command) {
        if let (None, Ok(FabricsCommand::Connect(connect))) =
            (self.queue, FabricsCommand::parse(command))
        {
            self.queue = Some(Queue::new(&connect));
        }
        let queue = self.queue.as_mut().expect("Connect comes first");
        queue.sent += 1;
        let (number, entries) = (queue.sent, queue.entries);
        let asked = Asked::new(command, number);
        let other = self.commands.insert(command.cid(), asked);
        assert!(
            other.is_none(),
            "identifier {:#x} of {command:?} is in use: {other:?}",
            command.cid()
        );
        assert!(
            self.commands.len() < entries as usize,
            "more commands than a queue of {entries} entries holds"
        );
    }

    fn response(&mut self, completion: &Completion) {
        let cid = completion.cid;
        let queue = self.queue.as_mut().expect("Connect comes first");
        queue.advance(completion);
        let asked = self.commands.remove(&cid);
        let asked = asked.unwrap_or_else(|| panic!("{completion:?} answers nothing"));
        assert!(
            !queue.flow_control || queue.read >= asked.number,
            "{completion:?} answers {asked:?}, and says that {} commands were read",
            queue.read
        );
        assert!(
            !completion.status.is(Status::COMMAND_INTERRUPTED) || asked.may_be_interrupted(),
            "{completion:?} answers {asked:?}, which waits where buffers are in use"
        );
        let advises = asked.opcode == IoOpcode::DATASET_MANAGEMENT.0;
        if completion.status.is_success() && asked.direction != Direction::None && !advises {
            let done = asked.is_whole() && asked.transfers == 0;
            assert!(done, "{completion:?} says that {asked:?} is done");
        }
        for transfer in self.transfers.values_mut().filter(|t| t.cid == cid) {
            transfer.over = true;
        }
    }

    fn ready(&mut self, r2t: &R2t) {
        let asked = self.commands.get_mut(&r2t.command_id);
        let asked = asked.unwrap_or_else(|| panic!("{r2t:?} is for no command"));
        assert_eq!(asked.direction, Direction::Out, "{r2t:?} for {asked:?}");
        assert_eq!(r2t.offset, asked.moved, "{r2t:?} leaves a hole: {asked:?}");
        asked.moved += r2t.length;
        let fits = r2t.length > 0 && asked.moved <= asked.bytes;
        assert!(fits, "{r2t:?} asks for more than there is: {asked:?}");
        asked.transfers += 1;
        assert!(
            asked.transfers <= self.transfers_max,
            "{r2t:?} is one too many: {} are allowed",
            self.transfers_max
        );
        let transfer = Transfer {
            cid: r2t.command_id,
            offset: r2t.offset,
            left: r2t.length,
            over: false,
        };
        let other = self.transfers.insert(r2t.transfer_tag, transfer);
        assert!(
            other.is_none_or(|other| other.over),
            "the tag of {r2t:?} is in use: {other:?}"
        );
    }

    fn data_out(&mut self, data: &H2cData) {
        let transfer = self.transfers.get_mut(&data.transfer_tag);
        let transfer = transfer.unwrap_or_else(|| panic!("nobody asked for {data:?}"));
        let next = transfer.cid == data.command_id && transfer.offset == data.data_offset;
        let fits = data.data_length <= transfer.left.min(self.data_max);
        assert!(next && fits, "{data:?} does not go on with {transfer:?}");
        transfer.offset += data.data_length;
        transfer.left -= data.data_length;
        let (over, left) = (transfer.over, transfer.left);
        assert_eq!(data.last, left == 0, "{data:?} with {left} bytes left");
        if left == 0 {
            self.transfers.remove(&data.transfer_tag);
            if !over && let Some(asked) = self.commands.get_mut(&data.command_id) {
                asked.transfers -= 1;
            }
        }
    }

    fn data_in(&mut self, data: &C2hData) {
        let asked = self.commands.get_mut(&data.command_id);
        let asked = asked.unwrap_or_else(|| panic!("{data:?} is for no command"));
        assert_eq!(asked.direction, Direction::In, "{data:?} for {asked:?}");
        assert!(!asked.last, "{data:?} comes after the last");
        assert_eq!(data.data_offset, asked.moved, "{data:?} leaves a hole");
        asked.moved += data.data_length;
        assert!(
            asked.moved <= asked.bytes,
            "{data:?} is more than {asked:?}"
        );
        asked.last = data.progress != C2hProgress::More;
        if data.progress == C2hProgress::LastAndSuccess {
            let queue = self.queue.as_ref().expect("Connect comes first");
            assert!(!queue.flow_control, "{data:?} hides the queue's head");
            assert!(asked.is_whole(), "{data:?} is not all of {asked:?}");
            self.commands.remove(&data.command_id);
        }
    }
}

impl Queue {
    fn new(connect: &Connect) -> Self {
        Self {
            entries: u32::from(connect.sq_size) + 1,
            flow_control: !connect.attributes.disables_sq_flow_control(),
            sent: 0,
            read: 0,
        }
    }

    /// Checks the submission queue head that the target reports.
    fn advance(&mut self, completion: &Completion) {
        if !self.flow_control {
            return;
        }
        let head = u32::from(completion.sq_head);
        assert!(head < self.entries, "{completion:?} is beyond the queue");
        let before = self.read % u64::from(self.entries);
        let entries = u64::from(self.entries);
        self.read += (u64::from(head) + entries - before) % entries;
        assert!(
            self.read <= self.sent,
            "{completion:?} says that {} commands were read; {} were sent",
            self.read,
            self.sent
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fabrics::connect::ConnectAttributes;
    use wire::nvme::sgl::SglDescriptor;
    use wire::tcp::{CapsuleCmd, CapsuleResp, PduFormat};

    /// Encodes a PDU with the production code.
    fn bytes(encode: impl FnOnce(&PduFormat, &mut [u8]) -> usize) -> Vec<u8> {
        let mut out = [0; 256];
        let length = encode(&PduFormat::default(), &mut out);
        out[..length].to_vec()
    }

    fn send(tap: &mut Wiretap, command: Command) {
        let capsule = CapsuleCmd { command };
        tap.sends(true, &bytes(|format, out| capsule.encode(format, 0, out)));
    }

    fn answer(tap: &mut Wiretap, cid: u16, head: u16) {
        answer_with(tap, cid, head, Status::SUCCESS);
    }

    fn answer_with(tap: &mut Wiretap, cid: u16, head: u16, status: Status) {
        let completion = Completion::new(cid, head, status);
        let capsule = CapsuleResp { completion };
        tap.sends(false, &bytes(|format, out| capsule.encode(format, out)));
    }

    fn ask(tap: &mut Wiretap, command_id: u16, transfer_tag: u16, offset: u32, length: u32) {
        let r2t = R2t {
            command_id,
            transfer_tag,
            offset,
            length,
        };
        tap.sends(false, &bytes(|format, out| r2t.encode(format, out)));
    }

    fn write(cid: u16) -> Command {
        let mut write = Command::new(IoOpcode::WRITE.0, cid);
        write.set_sgl(SglDescriptor::transport(8192));
        write
    }

    /// A queue of eight entries with up to two R2Ts per command.
    fn connected() -> Wiretap {
        let mut tap = Wiretap::new(Challenges::default());
        let request = IcReq {
            host_alignment: wire::tcp::DataAlignment::DWORD,
            header_digest: false,
            data_digest: false,
            max_r2t: 1,
        };
        tap.sends(true, &request.to_bytes());
        let response = IcResp {
            controller_alignment: wire::tcp::DataAlignment::DWORD,
            header_digest: false,
            data_digest: false,
            max_h2c_data: 4096,
        };
        tap.sends(false, &response.to_bytes());
        let connect = Connect {
            record_format: 0,
            queue_id: 1,
            sq_size: 7,
            attributes: ConnectAttributes::default(),
            keep_alive_timeout_ms: 0,
        };
        send(&mut tap, connect.encode(0));
        tap.commands.clear();
        tap
    }

    fn panics(what: impl FnOnce(&mut Wiretap)) -> bool {
        let mut tap = connected();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| what(&mut tap))).is_err()
    }

    #[test]
    fn what_breaks_a_rule_is_caught_and_nothing_else() {
        let good = |tap: &mut Wiretap| {
            send(tap, write(1));
            send(tap, Command::new(IoOpcode::FLUSH.0, 2));
            answer(tap, 2, 3);
            ask(tap, 1, 5, 0, 4096);
            ask(tap, 1, 6, 4096, 4096);
            send(tap, Command::new(IoOpcode::READ_EXTENTS.0, 3));
            answer_with(tap, 3, 4, Status::COMMAND_INTERRUPTED);
        };
        assert!(!panics(good));
        let breaches: [fn(&mut Wiretap); 9] = [
            |tap| {
                send(tap, write(1));
                answer_with(tap, 1, 2, Status::COMMAND_INTERRUPTED.with_crd(1));
            },
            |tap| (send(tap, write(1)), send(tap, write(1))).0,
            |tap| ask(tap, 1, 5, 0, 4096),
            |tap| (send(tap, write(1)), ask(tap, 1, 5, 0, 9000)).0,
            |tap| (send(tap, write(1)), ask(tap, 1, 5, 4096, 4096)).0,
            |tap| {
                send(tap, write(1));
                ask(tap, 1, 5, 0, 4096);
                ask(tap, 1, 5, 4096, 4096);
            },
            |tap| (send(tap, write(1)), answer(tap, 1, 2)).0,
            |tap| {
                send(tap, Command::new(IoOpcode::FLUSH.0, 2));
                answer(tap, 2, 4);
            },
            |tap| {
                send(tap, Command::new(IoOpcode::FLUSH.0, 2));
                answer(tap, 2, 1);
            },
        ];
        for (number, breach) in breaches.into_iter().enumerate() {
            assert!(panics(breach), "{number}");
        }
    }
}
