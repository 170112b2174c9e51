//! Every transition of the framer's states: accepted and refused PDUs.

use super::*;
use crate::nvme::{Command, Completion, Status};
use crate::tcp::header::{LAST_PDU, PduFormat, SUCCESS};
use crate::tcp::term_req::FatalErrorStatus;

const LIMITS: FramerLimits = FramerLimits {
    capsule_data_bytes: 8192,
    data_pdu_bytes: 4096,
};

const IC_RESP: IcResp = IcResp {
    controller_alignment: DataAlignment::DWORD,
    header_digest: false,
    data_digest: false,
    max_h2c_data: 4096,
};

const HEADER_DIGEST: PduFormat = PduFormat {
    header_digest: true,
    data_digest: false,
    alignment: DataAlignment::DWORD,
};

/// A framer of an initialized connection.
fn framer(role: Role, format: PduFormat) -> Framer {
    let mut framer = Framer::new(role, LIMITS);
    let first = match role {
        Role::Controller => IcReq::PLAIN.to_bytes(),
        Role::Host => IC_RESP.to_bytes(),
    };
    assert!(matches!(
        framer.next(&mut &first[..]),
        Ok(Some(Event::Pdu { .. }))
    ));
    framer.set_digests(format.header_digest, format.data_digest);
    framer.set_alignment(format.alignment);
    framer
}

fn error(framer: &mut Framer, mut input: &[u8]) -> FramingError {
    match framer.next(&mut input) {
        Err(error) => error,
        other => panic!("accepted: {other:?}"),
    }
}

/// FES and FEI of the termination request.
fn told(error: &FramingError) -> (FatalErrorStatus, u32) {
    (error.status(), error.information())
}

fn read_capsule() -> [u8; 72] {
    let mut out = [0; 72];
    CapsuleCmd {
        command: Command::new(2, 7),
    }
    .encode(&PduFormat::PLAIN, 0, &mut out);
    out
}

fn h2c_header(data_length: u32) -> [u8; 24] {
    let mut out = [0; 24];
    let pdu = H2cData {
        command_id: 1,
        transfer_tag: 2,
        data_offset: 0,
        data_length,
        last: true,
    };
    pdu.encode(&PduFormat::PLAIN, &mut out);
    out
}

#[test]
fn a_header_in_pieces_is_one_event() {
    let mut framer = framer(Role::Controller, PduFormat::PLAIN);
    let capsule = read_capsule();
    let (mut first, mut second) = capsule.split_at(71);
    assert_eq!(framer.next(&mut first), Ok(None));
    assert!(first.is_empty());
    assert!(!framer.is_between_pdus());
    let Ok(Some(Event::Pdu {
        header: PduHeader::CapsuleCmd(pdu),
        data,
        digest_ok,
    })) = framer.next(&mut second)
    else {
        panic!("a capsule was complete");
    };
    assert_eq!(pdu.command.cid(), 7);
    assert_eq!(data, None);
    assert!(digest_ok);
    assert!(framer.is_between_pdus());
    assert_eq!(framer.next(&mut second), Ok(None));
}

#[test]
fn a_payload_may_be_received_past_the_framer() {
    let mut framer = framer(
        Role::Controller,
        PduFormat {
            data_digest: true,
            ..PduFormat::PLAIN
        },
    );
    let payload = [0x5a; 1000];
    let mut out = [0; 24];
    let pdu = H2cData {
        command_id: 1,
        transfer_tag: 2,
        data_offset: 0,
        data_length: 1000,
        last: true,
    };
    let format = PduFormat {
        data_digest: true,
        ..PduFormat::PLAIN
    };
    assert_eq!(pdu.encode(&format, &mut out), 24);
    assert_eq!(framer.data_remaining(), None);
    let begin = framer.next(&mut &out[..]);
    assert_eq!(
        begin,
        Ok(Some(Event::DataBegin {
            header: PduHeader::H2cData(pdu),
            data_length: 1000
        }))
    );
    assert_eq!(framer.data_remaining(), Some(1000));
    framer.advance_external(&payload[..400]);
    assert_eq!(framer.data_remaining(), Some(600));
    let chunk = framer.next(&mut &payload[400..500]);
    assert_eq!(chunk, Ok(Some(Event::DataChunk(&payload[400..500]))));
    framer.advance_external(&payload[500..]);
    assert_eq!(framer.data_remaining(), None);
    assert_eq!(
        framer.next(&mut &[][..]),
        Ok(None),
        "the digest is still to come"
    );
    let mut digest = &digest::digest_bytes(&payload)[..];
    assert_eq!(
        framer.next(&mut digest),
        Ok(Some(Event::DataEnd { digest_ok: true }))
    );
}

#[test]
fn the_end_of_a_payload_needs_no_input() {
    let mut framer = framer(Role::Controller, PduFormat::PLAIN);
    let header = h2c_header(4);
    assert!(matches!(
        framer.next(&mut &header[..]),
        Ok(Some(Event::DataBegin { .. }))
    ));
    framer.advance_external(&[1, 2, 3, 4]);
    assert_eq!(
        framer.next(&mut &[][..]),
        Ok(Some(Event::DataEnd { digest_ok: true }))
    );
    assert!(framer.is_between_pdus());
}

#[test]
fn a_wrong_data_digest_does_not_end_the_stream() {
    let format = PduFormat {
        data_digest: true,
        ..PduFormat::PLAIN
    };
    let mut framer = framer(Role::Controller, format);
    let mut stream = [0; 24 + 8 + 4 + 72];
    let pdu = H2cData {
        command_id: 1,
        transfer_tag: 2,
        data_offset: 0,
        data_length: 8,
        last: true,
    };
    pdu.encode(&format, &mut stream);
    stream[36..].copy_from_slice(&read_capsule());
    let mut input = &stream[..];
    let first = framer.next(&mut input);
    assert!(matches!(
        first,
        Ok(Some(Event::Pdu {
            digest_ok: false,
            data: Some(_),
            ..
        }))
    ));
    let second = framer.next(&mut input);
    assert!(matches!(
        second,
        Ok(Some(Event::Pdu {
            digest_ok: true,
            data: None,
            ..
        }))
    ));
}

#[test]
fn the_first_pdu_initializes_and_no_other_does() {
    let mut fresh = Framer::new(Role::Controller, LIMITS);
    let refused = error(&mut fresh, &read_capsule());
    assert_eq!(told(&refused), (FatalErrorStatus::PDU_SEQUENCE_ERROR, 0));
    assert_eq!(fresh.offending_header(), read_capsule());
    let refused = error(
        &mut framer(Role::Controller, PduFormat::PLAIN),
        &IcReq::PLAIN.to_bytes(),
    );
    assert_eq!(told(&refused), (FatalErrorStatus::PDU_SEQUENCE_ERROR, 0));
    let mut out = [0; 152];
    let term = TermReq {
        status: FatalErrorStatus::UNSUPPORTED_PARAMETER,
        information: 8,
    };
    let length = term.encode(Role::Controller, &IcReq::PLAIN.to_bytes(), &mut out);
    let mut fresh = Framer::new(Role::Host, LIMITS);
    let refusal = fresh.next(&mut &out[..length]);
    assert_eq!(
        refusal,
        Ok(Some(Event::Pdu {
            header: PduHeader::C2hTermReq(term),
            data: Some(&IcReq::PLAIN.to_bytes()),
            digest_ok: true
        })),
        "a controller may answer an initialization with a termination"
    );
}

#[test]
fn each_end_receives_only_what_the_other_may_send() {
    for code in 0..=255_u8 {
        for role in [Role::Controller, Role::Host] {
            let legal: &[u8] = match role {
                Role::Controller => &[0x00, 0x02, 0x04, 0x06],
                Role::Host => &[0x01, 0x03, 0x05, 0x07, 0x09],
            };
            let mut framer = framer(role, PduFormat::PLAIN);
            let refused = error(&mut framer, &[code, 0, 0, 0, 0, 0, 0, 0]);
            let unexpected = refused == FramingError::UnexpectedType { code };
            assert_eq!(
                unexpected,
                !legal.contains(&code),
                "type {code:#04x} at {role:?}"
            );
            if unexpected {
                assert_eq!(
                    told(&refused),
                    (FatalErrorStatus::INVALID_PDU_HEADER_FIELD, 0)
                );
            }
        }
    }
}

/// One field of a valid CapsuleCmd at a time gets an invalid value.
#[test]
fn a_bad_field_is_named_by_its_offset() {
    let cases: [(usize, u8, u32); 4] = [
        (1, 1, 1),  // HDGSTF without header digests
        (2, 24, 2), // HLEN of another type
        (4, 71, 4), // PLEN inside the header
        (4, 76, 3), // PLEN with data, and PDO 0
    ];
    for (place, value, offset) in cases {
        let mut capsule = read_capsule();
        capsule[place] = value;
        let mut framer = framer(Role::Controller, PduFormat::PLAIN);
        let refused = error(&mut framer, &capsule);
        let expected = (FatalErrorStatus::INVALID_PDU_HEADER_FIELD, offset);
        assert_eq!(told(&refused), expected, "byte {place} is {value}");
        assert_eq!(framer.offending_header(), capsule);
    }
}

/// PDO: after the header, aligned, with at most 127 bytes of padding, and data before the end.
#[test]
fn data_starts_where_it_may() {
    let alignment = DataAlignment::from_code(3).unwrap();
    let format = PduFormat {
        alignment,
        ..PduFormat::PLAIN
    };
    for pdo in 0..=255_u8 {
        let mut capsule = read_capsule();
        capsule[3] = pdo;
        capsule[4..8].copy_from_slice(&300_u32.to_le_bytes());
        let legal = pdo >= 72 && pdo.is_multiple_of(16) && pdo - 72 <= 127;
        let mut framer = framer(Role::Controller, format);
        match framer.next(&mut &capsule[..]) {
            Ok(Some(Event::DataBegin { data_length, .. })) => {
                assert!(legal, "PDO {pdo} was accepted");
                assert_eq!(data_length, 300 - u32::from(pdo));
            }
            Err(refused) => {
                assert!(!legal, "PDO {pdo} was refused: {refused}");
                assert_eq!(refused.information(), 3);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_header_digest_is_checked_before_the_header_is_believed() {
    let mut out = [0; 76];
    CapsuleCmd {
        command: Command::new(2, 7),
    }
    .encode(&HEADER_DIGEST, 0, &mut out);
    let mut good = framer(Role::Controller, HEADER_DIGEST);
    assert!(matches!(
        good.next(&mut &out[..]),
        Ok(Some(Event::Pdu { .. }))
    ));
    out[4] ^= 1; // PLEN, which would be refused by itself
    let received = u32::from_le_bytes(out[72..].try_into().unwrap());
    let refused = error(&mut framer(Role::Controller, HEADER_DIGEST), &out);
    assert_eq!(
        told(&refused),
        (FatalErrorStatus::HEADER_DIGEST_ERROR, received)
    );
    let refused = error(
        &mut framer(Role::Controller, HEADER_DIGEST),
        &read_capsule(),
    );
    assert_eq!(refused, FramingError::DigestFlags { flags: 0 });
}

#[test]
fn data_is_limited() {
    let too_long = h2c_header(4100);
    let refused = error(&mut framer(Role::Controller, PduFormat::PLAIN), &too_long);
    assert_eq!(
        told(&refused),
        (FatalErrorStatus::DATA_TRANSFER_LIMIT_EXCEEDED, 0)
    );
    let mut to_host = too_long;
    to_host[0] = PduType::C2hData.code();
    let refused = error(&mut framer(Role::Host, PduFormat::PLAIN), &to_host);
    assert_eq!(
        told(&refused),
        (FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE, 0)
    );
    let refused = error(
        &mut framer(Role::Controller, PduFormat::PLAIN),
        &h2c_header(0),
    );
    assert_eq!(
        told(&refused),
        (FatalErrorStatus::INVALID_PDU_HEADER_FIELD, 16)
    );
    let mut other_length = h2c_header(8);
    other_length[16] = 4;
    let refused = error(
        &mut framer(Role::Controller, PduFormat::PLAIN),
        &other_length,
    );
    assert_eq!(refused, FramingError::PduLength { plen: 32 });
    let mut capsule = [0; 72];
    let pdu = CapsuleCmd {
        command: Command::new(1, 1),
    };
    pdu.encode(&PduFormat::PLAIN, 8193, &mut capsule);
    let refused = error(&mut framer(Role::Controller, PduFormat::PLAIN), &capsule);
    assert_eq!(
        told(&refused),
        (FatalErrorStatus::INVALID_PDU_HEADER_FIELD, 4)
    );
}

#[test]
fn success_needs_the_last_pdu() {
    let mut pdu = h2c_header(4);
    pdu[0] = PduType::C2hData.code();
    pdu[1] = SUCCESS;
    let refused = error(&mut framer(Role::Host, PduFormat::PLAIN), &pdu);
    assert_eq!(refused, FramingError::InvalidField { offset: 1 });
    pdu[1] |= LAST_PDU;
    let accepted = framer(Role::Host, PduFormat::PLAIN)
        .next(&mut &pdu[..])
        .unwrap();
    assert!(matches!(accepted, Some(Event::DataBegin { .. })));
}

#[test]
fn initialization_is_checked_field_by_field() {
    let unsupported = FatalErrorStatus::UNSUPPORTED_PARAMETER;
    let invalid = FatalErrorStatus::INVALID_PDU_HEADER_FIELD;
    for (place, value, expected) in [(8, 1, (unsupported, 8)), (10, 32, (invalid, 10))] {
        let mut request = IcReq::PLAIN.to_bytes();
        request[place] = value;
        let refused = error(&mut Framer::new(Role::Controller, LIMITS), &request);
        assert_eq!(told(&refused), expected);
        let mut response = IC_RESP.to_bytes();
        response[place] = value;
        let refused = error(&mut Framer::new(Role::Host, LIMITS), &response);
        assert_eq!(told(&refused), expected);
    }
    for max_h2c_data in [0_u32, 4092, 4098] {
        let mut response = IC_RESP.to_bytes();
        response[12..16].copy_from_slice(&max_h2c_data.to_le_bytes());
        let refused = error(&mut Framer::new(Role::Host, LIMITS), &response);
        assert_eq!(told(&refused), (invalid, 12));
    }
}

#[test]
fn a_termination_tells_what_was_wrong() {
    let mut framer = framer(Role::Host, PduFormat::PLAIN);
    let mut response = [0; 24];
    let completion = Completion::new(1, 0, Status::SUCCESS);
    CapsuleResp { completion }.encode(&PduFormat::PLAIN, &mut response);
    response[4] = 25;
    let refused = error(&mut framer, &response);
    let mut out = [0; 152];
    let length = framer.encode_term_req(&refused, &mut out);
    assert_eq!(length, 48);
    assert_eq!(out[..12], [2, 0, 24, 0, 48, 0, 0, 0, 1, 0, 4, 0]);
    assert_eq!(out[24..48], response);
    assert_eq!(
        framer.next(&mut &response[..]),
        Err(refused),
        "an error stays"
    );
    let mut too_long = out;
    too_long[4..8].copy_from_slice(&153_u32.to_le_bytes());
    let refused = error(
        &mut self::framer(Role::Controller, PduFormat::PLAIN),
        &too_long,
    );
    assert_eq!(refused, FramingError::PduLength { plen: 153 });
}
