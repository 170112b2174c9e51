//! The fuzz targets, which the ordinary test `fuzz_smoke` runs on random bytes: one function per
//! target, which takes any bytes and panics at a failure.

#![allow(
    dead_code,
    reason = "each of the programs that share this file uses a part of it"
)]

pub(crate) mod pretty;

use pretty::{Queue, line};
use testing::IoCommand;
use wire::fabrics::{ConnectData, DiscoveryLogEntry, DiscoveryLogHeader, FabricsCommand};
use wire::nvme::ana::{AnaGroupDescriptor, encode_ana_group, parse_ana_log};
use wire::nvme::feature::HostBehavior;
use wire::nvme::identify_controller::NvmIdentifyController;
use wire::nvme::identify_lists::{
    encode_controller_list, encode_namespace_descriptors, encode_namespace_list,
    parse_command_sets, parse_controller_list, parse_namespace_descriptors, parse_namespace_list,
};
use wire::nvme::identify_namespace::{IndependentIdentifyNamespace, NvmIdentifyNamespace};
use wire::nvme::log_page::{
    ChangedNamespaces, EffectsLog, ErrorEntry, FirmwareSlotLog, SmartLog, SupportedFeatures,
    SupportedLogPages,
};
use wire::nvme::reservation::{
    AcquireData, RegisterData, RegisteredController, ReleaseData, ReservationAcquire,
    ReservationLog, ReservationRegister, ReservationRelease, ReservationReport, ReservationStatus,
};
use wire::nvme::{
    AdminCommand, AsyncEvent, Command, Completion, ExtentsCommand, IdentifyController,
    IdentifyNamespace, Nqn,
};
use wire::tcp::limits::PREFIX_BYTES_MAX;
use wire::tcp::{
    DataAlignment, Event, Framer, FramerLimits, FramingError, PduFormat, PduHeader, Role,
};

/// A PDU as returned by a framer, for any cuts of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    /// The header.
    pub(crate) header: PduHeader,
    /// The received part of the payload.
    pub(crate) data: Vec<u8>,
    /// The result of the digest check, after the payload was complete.
    pub(crate) digest_ok: Option<bool>,
}

/// The result of a stream: PDUs, and the error that ended it, if any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Outcome {
    /// The PDUs; the last may be incomplete.
    pub(crate) pdus: Vec<Received>,
    /// The error.
    pub(crate) error: Option<FramingError>,
}

/// Configuration of a framer under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Role of the receiving end.
    pub(crate) role: Role,
    /// Format after the first PDU.
    pub(crate) format: PduFormat,
    /// The limits.
    pub(crate) limits: FramerLimits,
}

impl Setup {
    fn framer(&self) -> Framer {
        Framer::new(self.role, self.limits)
    }
}

/// Runs `stream` through a framer in pieces: each number is the length of one piece, the rest is
/// the last piece. With `external`, outstanding payload is received outside the framer.
pub(crate) fn run(setup: &Setup, stream: &[u8], pieces: &[usize], external: bool) -> Outcome {
    let mut framer = setup.framer();
    let mut outcome = Outcome::default();
    let mut rest = stream;
    let mut lengths = pieces.iter().copied();
    loop {
        let length = lengths.next().unwrap_or(rest.len()).min(rest.len());
        let (mut piece, after) = rest.split_at(length);
        rest = after;
        if external && let Some(remaining) = framer.data_remaining() {
            let taken = piece.len().min(remaining as usize);
            let (direct, after) = piece.split_at(taken);
            framer.advance_external(direct);
            outcome
                .pdus
                .last_mut()
                .expect("a payload has a header")
                .data
                .extend(direct);
            piece = after;
        }
        loop {
            match framer.next(&mut piece) {
                Ok(Some(event)) => note(&mut outcome, &mut framer, setup, event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(framer.next(&mut piece), Err(error), "an error stays");
                    assert!(framer.offending_header().len() <= 128);
                    assert!(!framer.offending_header().is_empty());
                    let mut out = [0; 152];
                    assert!(framer.encode_term_req(&error, &mut out) <= 152);
                    outcome.error = Some(error);
                    return outcome;
                }
            }
        }
        assert!(
            piece.is_empty(),
            "a framer that wants more has taken all there was"
        );
        if rest.is_empty() {
            return outcome;
        }
    }
}

fn note(outcome: &mut Outcome, framer: &mut Framer, setup: &Setup, event: Event<'_>) {
    match event {
        Event::Pdu {
            header,
            data,
            digest_ok,
        } => {
            assert_ne!(data.map(<[u8]>::len), Some(0), "data is not empty");
            let data = data.unwrap_or_default().to_vec();
            outcome.pdus.push(Received {
                header,
                data,
                digest_ok: Some(digest_ok),
            });
            if matches!(header, PduHeader::IcReq(_) | PduHeader::IcResp(_)) {
                framer.set_digests(setup.format.header_digest, setup.format.data_digest);
                framer.set_alignment(setup.format.alignment);
            }
        }
        Event::DataBegin {
            header,
            data_length,
        } => {
            assert!(data_length > 0);
            outcome.pdus.push(Received {
                header,
                data: Vec::new(),
                digest_ok: None,
            });
        }
        Event::DataChunk(chunk) => {
            assert!(!chunk.is_empty());
            outcome
                .pdus
                .last_mut()
                .expect("a chunk has a header")
                .data
                .extend(chunk);
        }
        Event::DataEnd { digest_ok } => {
            outcome
                .pdus
                .last_mut()
                .expect("an end has a header")
                .digest_ok = Some(digest_ok);
        }
    }
}

/// Encodes a PDU like its sender; `data` is the payload or the offending header.
pub(crate) fn encode_pdu(header: &PduHeader, data: &[u8], format: &PduFormat) -> Vec<u8> {
    let mut out = [0xaa; PREFIX_BYTES_MAX];
    let length = u32::try_from(data.len()).expect("a test has less than 4 GiB");
    let prefix = match header {
        PduHeader::CapsuleCmd(pdu) => pdu.encode(format, length, &mut out),
        PduHeader::CapsuleResp(pdu) => pdu.encode(format, &mut out),
        PduHeader::H2cData(pdu) => pdu.encode(format, &mut out),
        PduHeader::C2hData(pdu) => pdu.encode(format, &mut out),
        PduHeader::R2t(pdu) => pdu.encode(format, &mut out),
        PduHeader::IcReq(pdu) => return pdu.to_bytes().to_vec(),
        PduHeader::IcResp(pdu) => return pdu.to_bytes().to_vec(),
        PduHeader::H2cTermReq(pdu) | PduHeader::C2hTermReq(pdu) => {
            let role = match header {
                PduHeader::H2cTermReq(_) => Role::Host,
                _ => Role::Controller,
            };
            let mut out = [0; 152];
            let length = pdu.encode(role, data, &mut out);
            return out[..length].to_vec();
        }
    };
    let mut bytes = out[..prefix].to_vec();
    if !data.is_empty() {
        bytes.extend(data);
        if format.data_digest {
            bytes.extend(wire::tcp::digest::digest_bytes(data));
        }
    }
    bytes
}

/// Takes a setup and cuts off the front of the input; the rest is the stream.
///
/// If bit 7 of the first byte is set, the stream begins in the middle of a connection: an
/// initialization is inserted before it, so that the fuzzer need not find one.
fn framer_input(role: Role, input: &[u8]) -> Option<(Setup, Vec<usize>, Vec<u8>)> {
    let (control, input) = input.split_first_chunk::<8>()?;
    let format = PduFormat {
        header_digest: control[0] & 1 != 0,
        data_digest: control[0] & 2 != 0,
        alignment: DataAlignment::from_code(control[1] & 31)?,
    };
    let limits = FramerLimits {
        capsule_data_bytes: 8192,
        data_pdu_bytes: 65_536,
    };
    let setup = Setup {
        role,
        format,
        limits,
    };
    let mut stream = Vec::new();
    if control[0] & 0x80 != 0 {
        stream.extend(initialization(role));
    }
    stream.extend(input);
    let cuts = control[2..].iter().map(|cut| usize::from(*cut)).collect();
    Some((setup, cuts, stream))
}

/// The first PDU that the end in `role` receives.
pub(crate) fn initialization(role: Role) -> Vec<u8> {
    let plain = DataAlignment::DWORD;
    let header = match role {
        Role::Controller => PduHeader::IcReq(wire::tcp::IcReq {
            host_alignment: plain,
            header_digest: false,
            data_digest: false,
            max_r2t: 0,
        }),
        Role::Host => PduHeader::IcResp(wire::tcp::IcResp {
            controller_alignment: plain,
            header_digest: false,
            data_digest: false,
            max_h2c_data: 131_072,
        }),
    };
    encode_pdu(&header, &[], &PduFormat::PLAIN)
}

/// Any stream gives the same PDUs for any cuts, without a panic; accepted PDUs can be encoded and
/// parsed again.
pub(crate) fn framer(role: Role, input: &[u8]) {
    let Some((setup, cuts, stream)) = framer_input(role, input) else {
        return;
    };
    let whole = run(&setup, &stream, &[], false);
    assert_eq!(whole, run(&setup, &stream, &cuts, false), "cut at {cuts:?}");
    assert_eq!(
        whole,
        run(&setup, &stream, &cuts, true),
        "external, cut at {cuts:?}"
    );
    let bytewise = vec![1; stream.len()];
    assert_eq!(
        whole,
        run(&setup, &stream, &bytewise, false),
        "byte by byte"
    );
    for pdu in &whole.pdus {
        let _ = line(&pdu.header, Queue::Admin).to_string();
        let _ = line(&pdu.header, Queue::Io).to_string();
        if pdu.digest_ok == Some(true) {
            again(&setup, pdu);
        }
    }
}

/// PDUs accepted by a framer are the same after encoding and parsing.
fn again(setup: &Setup, pdu: &Received) {
    let is_first = matches!(pdu.header, PduHeader::IcReq(_) | PduHeader::IcResp(_));
    let mut stream = if is_first {
        Vec::new()
    } else {
        initialization(setup.role)
    };
    stream.extend(encode_pdu(&pdu.header, &pdu.data, &setup.format));
    let outcome = run(setup, &stream, &[], false);
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.pdus.last(), Some(pdu));
}

/// Parses any 64 bytes as a command of every kind, and any 16 as a completion.
pub(crate) fn command(input: &[u8]) {
    if let Some(bytes) = input.first_chunk::<64>() {
        let command = Command::from_bytes(*bytes);
        let cid = command.cid();
        let _ = command.data_pointer();
        let _ = format!("{command:?}");
        if let Ok(parsed) = IoCommand::parse(&command) {
            assert_eq!(IoCommand::parse(&parsed.encode(cid)), Ok(parsed));
            if let IoCommand::ReadExtents(extents) | IoCommand::WriteExtents(extents) = parsed {
                table(&extents, &input[64..]);
            }
        }
        if let Ok(parsed) = AdminCommand::parse(&command) {
            assert_eq!(AdminCommand::parse(&parsed.encode(cid)), Ok(parsed));
        }
        if let Some(parsed) = ReservationRegister::parse(&command) {
            let again = parsed.encode(command.nsid(), cid);
            assert_eq!(ReservationRegister::parse(&again), Some(parsed));
        }
        if let Some(parsed) = ReservationAcquire::parse(&command) {
            let again = parsed.encode(command.nsid(), cid);
            assert_eq!(ReservationAcquire::parse(&again), Some(parsed));
        }
        if let Some(parsed) = ReservationRelease::parse(&command) {
            let again = parsed.encode(command.nsid(), cid);
            assert_eq!(ReservationRelease::parse(&again), Some(parsed));
        }
        let report = ReservationReport::parse(&command);
        let again = report.encode(command.nsid(), cid);
        assert_eq!(ReservationReport::parse(&again), report);
        if let Ok(parsed) = FabricsCommand::parse(&command) {
            assert_eq!(FabricsCommand::parse(&parsed.encode(cid)), Ok(parsed));
        }
    }
    if let Some(bytes) = input.first_chunk::<16>() {
        let completion = Completion::parse(bytes);
        let mut expected = *bytes;
        expected[14] &= !1;
        assert_eq!(
            completion.to_bytes(),
            expected,
            "all but the phase tag comes back"
        );
        let _ = completion.status.to_string();
        let event = AsyncEvent::from_dword(completion.dword0());
        assert_eq!(AsyncEvent::from_dword(event.to_dword()), event);
        let _ = event.to_string();
    }
}

/// An accepted table of extents is the same after encoding.
fn table(command: &ExtentsCommand, data: &[u8]) {
    if let Ok(entries) = command.parse_table(data) {
        let table: Vec<u8> = entries.flat_map(|entry| entry.to_bytes()).collect();
        assert!(data.ends_with(&table));
        assert_eq!(command.parse_table(&table).map(drop), Ok(()));
    }
}

macro_rules! check_structures {
    ($input:expr, $($name:ident),+) => {$(
        let mut raw = [0; $name::SIZE];
        fill(&mut raw, $input);
        let value = $name::parse(&raw);
        assert_eq!($name::parse(&value.to_bytes()), value);
        assert_eq!($name::parse(&value.to_bytes()).to_bytes(), value.to_bytes());
    )+};
}

/// Repeats `input` until `raw` is full.
fn fill(raw: &mut [u8], input: &[u8]) {
    for (place, byte) in raw.iter_mut().zip(input.iter().cycle()) {
        *place = *byte;
    }
}

/// Parses any bytes as every data structure.
pub(crate) fn structure(input: &[u8]) {
    check_structures!(
        input,
        IdentifyController,
        NvmIdentifyController,
        IdentifyNamespace,
        NvmIdentifyNamespace,
        IndependentIdentifyNamespace,
        SupportedFeatures,
        SupportedLogPages,
        ErrorEntry,
        SmartLog,
        FirmwareSlotLog,
        ChangedNamespaces,
        EffectsLog,
        AcquireData,
        RegisterData,
        RegisteredController,
        ReleaseData,
        ReservationLog,
        ReservationStatus,
        HostBehavior,
        ConnectData,
        DiscoveryLogHeader,
        DiscoveryLogEntry
    );
    ana_log(input);
    let mut page = [0; 4096];
    fill(&mut page, input);
    let namespace = IdentifyNamespace::parse(&page);
    let _ = namespace.block_bytes();
    let controller = IdentifyController::parse(&page);
    let _ = (
        controller.in_capsule_data_bytes(),
        controller.max_transfer_bytes(4096),
    );
    lists(&page);
    let mut raw = [0; 1024];
    fill(&mut raw, input);
    let entry = DiscoveryLogEntry::parse(&raw);
    let _ = (entry.socket_address(), entry.subnqn());
    let data = ConnectData::parse(&raw);
    if let Ok(name) = data.subnqn() {
        assert_eq!(Nqn::from_field(&name.to_field()), Ok(name));
    }
    let _ = data.hostnqn();
}

/// Parses any bytes as an ANA log page: each accepted group is the same after encoding.
fn ana_log(input: &[u8]) {
    let Ok((_, groups)) = parse_ana_log(input) else {
        return;
    };
    for group in groups {
        let mut out = vec![0; AnaGroupDescriptor::SIZE + 4 * group.nsids().len()];
        let (id, changes) = (group.group, group.change_count);
        encode_ana_group(id, changes, group.state, group.nsids(), &mut out).expect("it fits");
        let head = AnaGroupDescriptor::parse_prefix(&out).expect("a descriptor");
        assert_eq!((head.group, head.nsids as usize), (id, group.nsids().len()));
    }
}

/// Parses any page as every list of Identify.
fn lists(page: &[u8; 4096]) {
    let mut out = [0; 4096];
    let nsids: Vec<_> = parse_namespace_list(page).collect();
    encode_namespace_list(nsids.iter().copied(), &mut out);
    assert!(parse_namespace_list(&out).eq(nsids));
    let cntlids: Vec<_> = parse_controller_list(page).collect();
    encode_controller_list(cntlids.iter().copied(), &mut out);
    assert!(parse_controller_list(&out).eq(cntlids));
    let ids: Vec<_> = parse_namespace_descriptors(page).collect();
    encode_namespace_descriptors(ids.iter().copied(), &mut out);
    assert!(parse_namespace_descriptors(&out).eq(ids));
    let _ = parse_command_sets(page).count();
}
