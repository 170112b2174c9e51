//! Every field of every PDU that a host receives, with every kind of invalid value: the host sends
//! the termination request that the specification requires, with the invalid header, and repeats
//! the request on the next connection. Reserved fields are ignored.

use crate::peer;
use crate::peer::{Behaviour, Forge, NQN, Peer};
use base::Prng;
use host::{ConnectionError, Host, HostError};
use std::sync::atomic::Ordering;
use std::time::Duration;
use testing::fields::{
    Case, Edit, FIELD, PARAMETER, RANGE, Reaction, SEQUENCE, apply, byte, common_header, data_pdu,
    digests, half, word,
};
use wire::tcp::FatalErrorStatus as Fes;
use wire::tcp::{PduType, Role, TermReq};

/// Size of each request in bytes.
const LENGTH: u32 = 16 * 1024;

use Reaction::{Closes, Ignores, Tells};

fn forge(case: &Case, connection: usize) -> Forge {
    Forge {
        connection,
        pdu: case.pdu.code(),
        edits: case.edits.clone(),
        reseal: case.reseal,
        before: case.before.clone(),
    }
}

/// Cases of the common header of a PDU with these flags, header length and total length.
fn common(pdu: PduType, flags: u8, hlen: u8, plen: u32) -> Vec<Case> {
    let lengths = [plen - 1, plen + 1, plen + 4];
    common_header(pdu, flags, hlen, &lengths, |other| match other {
        PduType::IcResp if pdu != PduType::IcResp => Some(Tells(SEQUENCE, 0)),
        // PDU types that a controller may send have their own fields.
        PduType::CapsuleResp | PduType::C2hData | PduType::R2t | PduType::C2hTermReq => None,
        PduType::IcResp => None,
        _ => Some(Tells(FIELD, 0)),
    })
}

/// `[§3.6.2.7]`
fn capsule_resp() -> Vec<Case> {
    let pdu = PduType::CapsuleResp;
    let mut cases = common(pdu, 0, 24, 24);
    cases.extend(digests(pdu, 0x01, 24));
    let mut case = |what, edit, reaction| cases.push(Case::new(pdu, what, vec![edit], reaction));
    for flag in [0x02, 0x04, 0x08] {
        case("flag of other PDUs", byte(1, flag), Ignores);
    }
    for offset in [1, 24, 255] {
        case("PDO, reserved", byte(3, offset), Ignores);
    }
    case("result", word(8, u32::MAX), Ignores);
    case("result", word(12, u32::MAX), Ignores);
    case("SQHD without flow control", half(16, 0xffff), Ignores);
    case("SQID, reserved", half(18, 7), Ignores);
    for identifier in [0x7fff, 0xffff] {
        case("command identifier", half(20, identifier), Tells(FIELD, 20));
    }
    case("phase tag, reserved", half(22, 1), Ignores);
    cases
}

/// `[§3.6.2.9]`
fn c2h_data() -> Vec<Case> {
    let pdu = PduType::C2hData;
    let (flags, plen) = (0x0c, 24 + LENGTH);
    let mut cases = common(pdu, flags, 24, plen);
    cases.extend(digests(pdu, 0x0f, 24));
    cases.extend(data_pdu(pdu, flags, LENGTH));
    let mut case = |what, edits, reaction| cases.push(Case::new(pdu, what, edits, reaction));
    case(
        "SUCCESS without LAST_PDU",
        vec![byte(1, 0x08)],
        Tells(FIELD, 1),
    );
    case("reserved", vec![half(10, 0xffff)], Ignores);
    for length in [LENGTH + 4, 1 << 20, (1 << 20) + 4, 1 << 30] {
        let edits = vec![word(16, length), word(4, 24 + length)];
        case("DATAL beyond the command", edits, Tells(RANGE, 0));
    }
    case("DATAL of 4 GiB", vec![word(16, u32::MAX)], Tells(RANGE, 0));
    // The flags end the transfer when half of it has arrived.
    let short = LENGTH / 2;
    let edits = vec![word(16, short), word(4, 24 + short)];
    case("SUCCESS too early", edits, Tells(FIELD, 1));
    cases
}

/// `[§3.6.2.10]`
fn r2t() -> Vec<Case> {
    let pdu = PduType::R2t;
    let mut cases = common(pdu, 0, 24, 24);
    cases.extend(digests(pdu, 0x01, 24));
    let mut case = |what, edits, reaction| cases.push(Case::new(pdu, what, edits, reaction));
    for flag in [0x02, 0x04, 0x08] {
        case("flag of other PDUs", vec![byte(1, flag)], Ignores);
    }
    for offset in [1, 24, 255] {
        case("PDO, reserved", vec![byte(3, offset)], Ignores);
    }
    for identifier in [0x7fff, 0xffff] {
        case("CCCID", vec![half(8, identifier)], Tells(FIELD, 8));
    }
    for tag in [0, 0xffff] {
        case("TTAG, the controller's own", vec![half(10, tag)], Ignores);
    }
    for offset in [1, 4, LENGTH, u32::MAX - LENGTH + 1, u32::MAX] {
        case("R2TO", vec![word(12, offset)], Tells(RANGE, 0));
    }
    for length in [0, LENGTH + 1, LENGTH + 4, u32::MAX] {
        case("R2TL", vec![word(16, length)], Tells(RANGE, 0));
    }
    let around = vec![word(12, 4), word(16, u32::MAX - 3)];
    case("R2TO and R2TL around 4 GiB", around, Tells(RANGE, 0));
    case("reserved", vec![word(20, u32::MAX)], Ignores);
    cases
}

/// `[§3.6.2.3]`
fn ic_resp() -> Vec<Case> {
    let pdu = PduType::IcResp;
    let mut cases = common(pdu, 0, 128, 128);
    let mut case = |what, edit, reaction| cases.push(Case::new(pdu, what, vec![edit], reaction));
    for code in [0x03, 0x05, 0x07, 0x09] {
        let reaction = if code == 0x03 {
            // As a termination request it has an invalid header length.
            Tells(FIELD, 2)
        } else {
            Tells(SEQUENCE, 0)
        };
        case("PDU-type", byte(0, code), reaction);
    }
    for offset in [1, 128, 255] {
        case("PDO, reserved", byte(3, offset), Ignores);
    }
    for version in [1, 0x0100, 0xffff] {
        case("PFV", half(8, version), Tells(PARAMETER, 8));
    }
    for alignment in [32, 33, 255] {
        case("CPDA", byte(10, alignment), Tells(FIELD, 10));
    }
    for digests in [1, 2, 3] {
        case(
            "DGST that was not offered",
            byte(11, digests),
            Tells(FIELD, 11),
        );
    }
    for bit in [0x04, 0x80] {
        case("DGST, reserved bit", byte(11, bit), Ignores);
    }
    for bytes in [0, 1, 4095, 4097, 4098, u32::MAX] {
        case("MAXH2CDATA", word(12, bytes), Tells(FIELD, 12));
    }
    case("reserved", word(16, u32::MAX), Ignores);
    case("reserved", word(124, u32::MAX), Ignores);
    cases
}

/// `[§3.6.2.5]`
fn c2h_term_req() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |what: &str, status, information, edits: Vec<Edit>, reaction| {
        let request = TermReq {
            status: Fes(status),
            information,
        };
        let mut out = [0; 152];
        let size = request.encode(Role::Controller, &[0; 72], &mut out);
        apply(&mut out, &edits);
        let what = format!("{what} {status:#x} {information:#x} {edits:?}");
        cases.push(Case {
            what: format!("C2HTermReq: {what}"),
            before: out[..size].to_vec(),
            ..Case::new(PduType::CapsuleResp, "", Vec::new(), reaction)
        });
    };
    for status in [0, 1, 2, 3, 4, 5, 6, 7, 0xffff] {
        for information in [0, 8, u32::MAX] {
            case("FES and FEI", status, information, Vec::new(), Closes);
        }
    }
    for bit in [0x02, 0x04, 0x08, 0x10, 0x80] {
        case("flag, reserved", 1, 0, vec![byte(1, bit)], Closes);
    }
    case("PDO, reserved", 1, 0, vec![byte(3, 255)], Closes);
    case(
        "reserved",
        1,
        0,
        vec![half(14, 0xffff), word(20, 7)],
        Closes,
    );
    case("HDGSTF", 1, 0, vec![byte(1, 1)], Tells(FIELD, 1));
    for length in [0, 23, 25, 255] {
        case("HLEN", 1, 0, vec![byte(2, length)], Tells(FIELD, 2));
    }
    for length in [0, 23, 153, u32::MAX] {
        case("PLEN", 1, 0, vec![word(4, length)], Tells(FIELD, 4));
    }
    cases
}

fn host(digests: bool) -> Host {
    Host::builder()
        .digests(digests, digests)
        .reconnect_delay(Duration::from_millis(1), Duration::from_millis(20))
        .build()
        .unwrap()
}

/// Checks that the host sent at most one termination request, with the header that was sent.
fn check(case: &Case, peer: &Peer) {
    let seen: Vec<_> = peer.seen.terminations.lock().unwrap().clone();
    let Tells(status, information) = case.reaction else {
        assert_eq!(seen, [], "{}", case.what);
        return;
    };
    let expected = TermReq {
        status,
        information,
    };
    assert_eq!(seen, [expected], "{}", case.what);
    let complaint = peer.seen.complaint.lock().unwrap().clone();
    let forged = peer.seen.forged.lock().unwrap().clone();
    assert!(complaint.len() >= 8, "{}: {complaint:?}", case.what);
    let sent = &forged[..complaint.len().min(forged.len())];
    assert_eq!(complaint, sent, "{}", case.what);
}

/// Plays the cases on the first I/O queue, where a request makes the controller send such a PDU.
fn play(cases: &[Case]) {
    let hosts = [host(false), host(true)];
    for case in cases {
        let behaviour = Behaviour {
            success_flag: case.pdu == PduType::C2hData,
            ..Behaviour::default()
        };
        let peer = Peer::start(1 << 20, behaviour);
        let host = &hosts[usize::from(case.digests)];
        let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
        let namespace = subsystem.namespace(1).unwrap();
        let data = [7; LENGTH as usize];
        namespace.write(0, &data).unwrap();
        peer.change(|behaviour| behaviour.forge = Some(forge(case, 1)));
        let mut back = data;
        match case.pdu {
            PduType::C2hData => namespace.read(0, &mut back).unwrap(),
            PduType::R2t => namespace.write(LENGTH.into(), &data).unwrap(),
            _ => namespace.flush().unwrap(),
        }
        assert_eq!(back, data, "{}", case.what);
        if case.pdu == PduType::R2t {
            let written = &peer.memory()[LENGTH as usize..][..LENGTH as usize];
            assert_eq!(written, data, "{}", case.what);
        }
        let associations = 1 + usize::from(case.reaction != Ignores);
        let seen = peer.seen.associations.load(Ordering::SeqCst);
        assert_eq!(seen, associations, "{}", case.what);
        check(case, &peer);
    }
}

#[test]
fn every_field_of_a_completion() {
    play(&capsule_resp());
}

#[test]
fn every_field_of_data() {
    play(&c2h_data());
}

#[test]
fn every_field_of_a_ready_to_transfer() {
    play(&r2t());
}

#[test]
fn every_field_of_a_termination_request() {
    play(&c2h_term_req());
}

/// The first PDU of the admin queue: without it there is no association, and the connecting caller
/// receives the error.
#[test]
fn every_field_of_the_answer_to_the_first_pdu() {
    let host = host(false);
    for case in ic_resp() {
        let behaviour = Behaviour {
            forge: Some(forge(&case, 0)),
            ..Behaviour::default()
        };
        let peer = Peer::start(1 << 20, behaviour);
        match (host.connect(&peer.address.to_string(), NQN), case.reaction) {
            (Ok(_), Ignores) => {}
            (Err(HostError::Connection(error)), Tells(..)) => {
                let by_controller = matches!(error, ConnectionError::Protocol { .. });
                assert!(by_controller, "{}: {error}", case.what);
            }
            (other, _) => panic!("{}: {other:?}", case.what),
        }
        check(&case, &peer);
    }
}

/// A write that is acknowledged before the controller has all its data, or has requested it, is not
/// successful.
#[test]
fn success_without_the_data_is_no_success() {
    let write = |offset, length| peer::Mischief::SuccessAfter { offset, length };
    for mischief in [write(0, 0), write(0, LENGTH / 2)] {
        let peer = Peer::start(1 << 20, Behaviour::default());
        let host = host(false);
        let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
        let namespace = subsystem.namespace(1).unwrap();
        peer.change(|behaviour| behaviour.mischief = Some(mischief));
        namespace.write(0, &[7; LENGTH as usize]).unwrap();
        assert_eq!(peer.memory()[..LENGTH as usize], [7; LENGTH as usize]);
        let expected = TermReq {
            status: FIELD,
            information: 22,
        };
        assert_eq!(*peer.seen.terminations.lock().unwrap(), [expected]);
    }
}

/// Arbitrary bytes in any header, several at once: whatever a controller sends, the host continues
/// on this connection or the next, and the data is right.
#[test]
fn no_header_stops_the_host_or_changes_data() {
    let hosts = [host(false), host(true)];
    let data = [7; LENGTH as usize];
    for seed in 0..300 {
        let mut random = Prng::from_seed(seed);
        let digests = random.chance(1, 3);
        let kinds = [PduType::CapsuleResp, PduType::C2hData, PduType::R2t];
        let pdu = kinds[random.below(3) as usize];
        let edits = 1 + random.below(3);
        let edits = (0..edits).map(|_| {
            // The status of a completion, at the end, is excluded because the host must accept it.
            // Fields that end a transfer early or reduce R2TL are excluded because the host would
            // wait for the remainder.
            let mut at = random.below(22) as usize;
            if (pdu == PduType::C2hData && at == 1) || (pdu == PduType::R2t && at == 17) {
                at = 0;
            }
            let value = random.next_u64() as u8;
            byte(
                at,
                if random.chance(1, 3) {
                    value & 0x0f
                } else {
                    value
                },
            )
        });
        let case = Case {
            digests,
            ..Case::new(pdu, "any", edits.collect(), Closes)
        };
        let behaviour = Behaviour {
            success_flag: pdu == PduType::C2hData,
            ..Behaviour::default()
        };
        let peer = Peer::start(1 << 16, behaviour);
        let host = &hosts[usize::from(digests)];
        let subsystem = host.connect(&peer.address.to_string(), NQN).unwrap();
        let namespace = subsystem.namespace(1).unwrap();
        namespace.write(0, &data).unwrap();
        peer.change(|behaviour| behaviour.forge = Some(forge(&case, 1)));
        let mut back = [0; LENGTH as usize];
        let what = format!("seed {seed}, {}", case.what);
        for _ in 0..2 {
            namespace.write(LENGTH.into(), &data).expect(&what);
            namespace.read(LENGTH.into(), &mut back).expect(&what);
            assert!(back == data, "{what}");
        }
        let seen = peer.seen.associations.load(Ordering::SeqCst);
        assert!(seen <= 2, "{what}: {seen} associations");
    }
}
