//! Every field of every PDU that a target receives, with every kind of invalid value: the host
//! receives the specified error, with the offending header. Reserved fields are ignored. The
//! counterpart is `crates/host/tests/all/fields.rs`.

use crate::common::{BLOCK, Bed, Client, Dialect, io, pattern};
use std::io::{Read as _, Write as _};
use testing::fields::{
    Case, FIELD, LIMIT, PARAMETER, RANGE, Reaction, SEQUENCE, apply, byte, common_header, data_pdu,
    digests, half, word,
};
use wire::nvme::{IoOpcode, SglDescriptor, Status};
use wire::tcp::{H2cData, IcReq, PduHeader, PduType, Role, TermReq};

/// Data of the write that takes an R2T, in bytes.
const LENGTH: u32 = 32 * 1024;

use Reaction::{Answers, Closes, Ignores, Tells};

/// Returns cases for the common header of a PDU of which `plen` bytes are sent.
fn common(pdu: PduType, flags: u8, hlen: u8, plen: u32) -> Vec<Case> {
    let all = [plen - 1, plen + 1, plen + 4];
    let lengths = if pdu == PduType::CapsuleCmd {
        &[][..]
    } else {
        &all
    };
    common_header(pdu, flags, hlen, lengths, |other| match other {
        // Interpreted as these types, the bytes have other fields.
        PduType::CapsuleCmd | PduType::H2cData if pdu != PduType::IcReq => None,
        // The host has ended the connection, so it gets no answer.
        PduType::H2cTermReq => None,
        PduType::IcReq if pdu == PduType::IcReq => None,
        PduType::IcReq | PduType::CapsuleCmd | PduType::H2cData => Some(Tells(SEQUENCE, 0)),
        _ => Some(Tells(FIELD, 0)),
    })
}

/// `[NVMe-TCP 1.0 §3.6.2.2]`
fn ic_req() -> Vec<Case> {
    let pdu = PduType::IcReq;
    let mut cases = common(pdu, 0, 128, 128);
    let mut case = |what, edit, reaction| cases.push(Case::new(pdu, what, vec![edit], reaction));
    for offset in [1, 128, 255] {
        case("PDO, reserved", byte(3, offset), Ignores);
    }
    for version in [1, 0x100, 0xffff] {
        case("PFV", half(8, version), Tells(PARAMETER, 8));
    }
    for alignment in [32, 33, 255] {
        case("HPDA", byte(10, alignment), Tells(FIELD, 10));
    }
    for bits in [0x04, 0x80, 0xfc] {
        case("DGST, reserved bits", byte(11, bits), Ignores);
    }
    for count in [1, u32::MAX] {
        case("MAXR2T", word(12, count), Ignores);
    }
    for at in [16, 64, 127] {
        case("reserved", byte(at, 0xff), Ignores);
    }
    cases
}

/// A write of a block with its data in the capsule. `[NVMe-TCP 1.0 §3.6.2.6]`
fn capsule_cmd() -> Vec<Case> {
    let pdu = PduType::CapsuleCmd;
    let plen = 72 + BLOCK as u32;
    let mut cases = common(pdu, 0, 72, plen);
    cases.extend(digests(pdu, 0x03, 72));
    let mut case = |what, edit, reaction| cases.push(Case::new(pdu, what, vec![edit], reaction));
    for flag in [0x04, 0x08] {
        case("flag of other PDUs", byte(1, flag), Ignores);
    }
    case("DDGSTF", byte(1, 0x02), Tells(FIELD, 1));
    // Within the header, not a multiple of four, more padding than any alignment needs.
    for offset in [0, 8, 71, 73, 74, 200, 255] {
        case("PDO", byte(3, offset), Tells(FIELD, 3));
    }
    // Padding replaces data, so there is less data than the command states.
    let short = Answers(Status::DATA_SGL_LENGTH_INVALID);
    case("PDO that leaves less", byte(3, 76), short);
    case("PLEN without data", word(4, 72), short);
    for more in [16 * 1024 + 4, 1 << 20] {
        case("PLEN beyond IOCCSZ", word(4, 72 + more), Tells(FIELD, 4));
    }
    cases
}

/// All data of a write in one PDU. `[NVMe-TCP 1.0 §3.6.2.8]`
fn h2c_data() -> Vec<Case> {
    let pdu = PduType::H2cData;
    let (flags, plen) = (0x04, 24 + LENGTH);
    let mut cases = common(pdu, flags, 24, plen);
    cases.extend(digests(pdu, 0x07, 24));
    cases.extend(data_pdu(pdu, flags, LENGTH));
    let mut case = |what, edits, reaction| cases.push(Case::new(pdu, what, edits, reaction));
    case("SUCCESS, of C2HData", vec![byte(1, flags | 0x08)], Ignores);
    case("LAST_PDU missing", vec![byte(1, 0)], Tells(FIELD, 1));
    case("CCCID", vec![half(8, 0)], Tells(FIELD, 8));
    for tag in [0x3ff, 0x400, 0x7fff, 0xffff] {
        case("TTAG", vec![half(10, tag)], Tells(FIELD, 10));
    }
    let length = |length| vec![word(16, length), word(4, 24 + length)];
    for more in [4, 64 * 1024] {
        case(
            "DATAL beyond the R2T",
            length(LENGTH + more),
            Tells(RANGE, 0),
        );
    }
    for more in [(128 << 10) + 4, 1 << 20] {
        case("DATAL beyond MAXH2CDATA", length(more), Tells(LIMIT, 0));
    }
    case(
        "less than is due, and LAST_PDU",
        length(4096),
        Tells(FIELD, 1),
    );
    cases
}

/// The host ends the connection: a valid request gets no answer. `[NVMe-TCP 1.0 §3.6.2.4]`
fn h2c_term_req() -> Vec<Case> {
    let pdu = PduType::H2cTermReq;
    let mut cases = Vec::new();
    let mut case = |what, edit, reaction| cases.push(Case::new(pdu, what, vec![edit], reaction));
    case("HDGSTF", byte(1, 0x01), Tells(FIELD, 1));
    for flags in [0x02, 0x04, 0xf0] {
        case("flags, reserved", byte(1, flags), Closes);
    }
    for length in [0, 23, 25, 128] {
        case("HLEN", byte(2, length), Tells(FIELD, 2));
    }
    case("PDO, reserved", byte(3, 255), Closes);
    for length in [0, 23, 153, u32::MAX] {
        case("PLEN", word(4, length), Tells(FIELD, 4));
    }
    for status in [0, 7, 0xffff] {
        case("FES", half(8, status), Closes);
    }
    case("FEI", word(10, u32::MAX), Closes);
    case("reserved", byte(14, 0xff), Closes);
    cases
}

/// Returns the PDU of a case on a queue that is ready for it, and the length of its header.
fn prepare(case: &Case, queue: &mut Client) -> (Vec<u8>, usize) {
    match case.pdu {
        PduType::CapsuleCmd => {
            let mut command = io(IoOpcode::WRITE, 0, 1);
            command.set_cid(9);
            command.set_sgl(SglDescriptor::in_capsule(0, BLOCK as u32));
            (queue.session.capsule(&command, &pattern(1, BLOCK)), 72)
        }
        PduType::H2cData => {
            let mut command = io(IoOpcode::WRITE, 0, LENGTH / BLOCK as u32);
            command.set_cid(9);
            command.set_sgl(SglDescriptor::transport(LENGTH));
            queue.capsule(&command, &[]);
            let r2t = queue.r2t();
            assert_eq!((r2t.offset, r2t.length), (0, LENGTH));
            let data = H2cData {
                command_id: 9,
                transfer_tag: r2t.transfer_tag,
                data_offset: 0,
                data_length: LENGTH,
                last: true,
            };
            (
                queue.session.h2c_data(&data, &pattern(2, LENGTH as usize)),
                24,
            )
        }
        PduType::H2cTermReq => {
            let request = TermReq {
                status: FIELD,
                information: 4,
            };
            let mut bytes = [0; 152];
            let length = request.encode(Role::Host, &[0x5a; 24], &mut bytes);
            (bytes[..length].to_vec(), 24)
        }
        other => unreachable!("{other:?} is no PDU of a queue"),
    }
}

fn check(bed: &Bed, case: &Case) {
    let dialect = Dialect {
        header_digest: case.digests,
        data_digest: case.digests,
        ..Dialect::default()
    };
    let (_admin, mut queue) = bed.host_with(dialect);
    let (mut bytes, header) = prepare(case, &mut queue);
    case.apply(&mut bytes, header);
    // The target may stop reading in the middle.
    let _ = queue.stream.write_all(&bytes);
    let answer = queue.try_receive();
    let answer = answer.map(|pdu| (pdu.header, pdu.data));
    match (case.reaction, &answer) {
        (Tells(status, information), Some((PduHeader::C2hTermReq(request), data))) => {
            let told = (request.status, request.information);
            assert_eq!(told, (status, information), "{}", case.what);
            assert!(data.len() >= 8, "{}: {data:x?}", case.what);
            assert!(bytes.starts_with(data), "{}: {data:x?}", case.what);
        }
        (Closes, None) => {}
        (Answers(_) | Ignores, Some((PduHeader::CapsuleResp(response), _))) => {
            let status = match case.reaction {
                Answers(status) => status,
                _ => Status::SUCCESS,
            };
            let given = response.completion.status;
            assert!(given.is(status), "{}: {given}", case.what);
        }
        (expected, answer) => panic!("{}: {expected:?}, not {answer:?}", case.what),
    }
}

/// Sends the first PDU of a connection and checks the answer.
fn check_first(bed: &Bed, case: &Case) {
    let request = IcReq::PLAIN;
    let mut bytes = request.to_bytes();
    apply(&mut bytes, &case.edits);
    let mut stream = Client::raw(bed.address());
    stream.write_all(&bytes).expect("the target reads");
    let mut answer = vec![0; 24];
    stream.read_exact(&mut answer).expect("an answer");
    match case.reaction {
        Tells(status, information) => {
            assert_eq!(answer[0], PduType::C2hTermReq.code(), "{}", case.what);
            let told = (&answer[8..10], &answer[10..14]);
            let wanted = (&status.0.to_le_bytes()[..], &information.to_le_bytes()[..]);
            assert_eq!(told, wanted, "{}", case.what);
        }
        _ => assert_eq!(answer[0], PduType::IcResp.code(), "{}", case.what),
    }
}

#[test]
fn every_field_of_an_initialization_is_checked() {
    let bed = Bed::new();
    for case in ic_req() {
        check_first(&bed, &case);
    }
}

#[test]
fn every_field_of_a_capsule_is_checked() {
    let bed = Bed::new();
    for case in capsule_cmd() {
        check(&bed, &case);
    }
}

#[test]
fn every_field_of_a_data_pdu_is_checked() {
    let bed = Bed::new();
    for case in h2c_data() {
        check(&bed, &case);
    }
}

#[test]
fn every_field_of_a_termination_request_is_checked() {
    let bed = Bed::new();
    for case in h2c_term_req() {
        check(&bed, &case);
    }
}

/// Data with a wrong digest fails only its command, however it is transferred.
#[test]
fn a_wrong_data_digest_fails_the_command() {
    let bed = Bed::new();
    for pdu in [PduType::CapsuleCmd, PduType::H2cData] {
        let dialect = Dialect {
            data_digest: true,
            ..Dialect::default()
        };
        let (_admin, mut queue) = bed.host_with(dialect);
        let case = Case::new(pdu, "DDGST", Vec::new(), Ignores);
        let (mut bytes, _) = prepare(&case, &mut queue);
        *bytes.last_mut().expect("a digest") ^= 1;
        queue.send(&bytes);
        let status = queue.completion().status;
        assert!(
            status.is(Status::TRANSIENT_TRANSPORT_ERROR),
            "{pdu:?}: {status}"
        );
        assert!(!status.dnr(), "{pdu:?}: it may well succeed the next time");
        let (completion, data) = queue.read(0, 1);
        assert!(completion.status.is_success(), "{pdu:?}");
        assert_eq!(data, [0; BLOCK], "{pdu:?}: damaged data was written");
    }
}
