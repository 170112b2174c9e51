//! The handshake, byte by byte, including bytes that no client sends.

use super::export::Export;
use super::negotiation::{Encryption, HandshakeStep, Negotiation};
use super::protocol::{Form, NBD_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, Reader, Writer};
use super::protocol::{RequestHeader, option, reply};
use base::Prng;
use block::Device;
use block::device::Ram;
use std::sync::Arc;
use switch::Class;

fn exports() -> Arc<[Export]> {
    let device: Arc<dyn Device> = Arc::new(Ram::new(1 << 20, 4096).expect("memory"));
    let export = |name, class| Export {
        name,
        description: "a test's".to_owned(),
        class,
        rules: crate::class_rules::SizeRules::default(),
        device: Arc::clone(&device),
        read_only: false,
    };
    [
        export("", Class::Throughput),
        export("latency", Class::Latency),
    ]
    .into()
}

/// A handshake after its greeting.
fn greeted() -> Negotiation {
    let mut output = Writer::default();
    let mut negotiation = Negotiation::new(exports(), Encryption::Unavailable, &mut output);
    let mut greeting = Reader::new(&output.0);
    assert_eq!(greeting.u64(), Some(NBD_MAGIC));
    assert_eq!(greeting.u64(), Some(OPTION_MAGIC));
    assert_eq!(greeting.u16(), Some(3));
    let step = negotiation.step(&[0, 0, 0, 3], &mut output);
    assert_eq!(step, (4, HandshakeStep::More));
    negotiation
}

fn option_bytes(number: u32, data: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u64(OPTION_MAGIC).u32(number);
    let len = u32::try_from(data.len()).expect("short");
    writer.u32(len).bytes(data);
    writer.0
}

/// The reply types to an option, and the step.
fn answers(negotiation: &mut Negotiation, number: u32, data: &[u8]) -> (Vec<u32>, HandshakeStep) {
    let mut output = Writer::default();
    let bytes = option_bytes(number, data);
    let (taken, step) = negotiation.step(&bytes, &mut output);
    assert_eq!(taken, bytes.len());
    let mut reader = Reader::new(&output.0);
    let mut kinds = Vec::new();
    while !reader.is_empty() {
        assert_eq!(reader.u64(), Some(OPTION_REPLY_MAGIC));
        assert_eq!(reader.u32(), Some(number));
        kinds.push(reader.u32().expect("a type"));
        reader.string().expect("data");
    }
    (kinds, step)
}

fn go(name: &[u8]) -> Vec<u8> {
    let mut data = Writer::default();
    data.u32(u32::try_from(name.len()).expect("short"));
    data.bytes(name).u16(0);
    data.0
}

#[test]
fn a_client_gets_the_export_that_it_names() {
    let mut negotiation = greeted();
    let (kinds, _) = answers(&mut negotiation, option::LIST, &[]);
    assert_eq!(kinds, [reply::SERVER, reply::SERVER, reply::ACK]);
    let (kinds, step) = answers(&mut negotiation, option::GO, &go(b"none"));
    assert_eq!(
        (kinds, step),
        (vec![reply::ERR_UNKNOWN], HandshakeStep::More)
    );
    let (kinds, step) = answers(&mut negotiation, option::GO, &go(b"latency"));
    assert_eq!(kinds, [reply::INFO, reply::INFO, reply::ACK]);
    let HandshakeStep::Begin(session) = step else {
        panic!("{step:?}")
    };
    assert_eq!((session.export, session.form), (1, Form::Simple));
}

#[test]
fn contexts_need_structured_replies_and_belong_to_their_export() {
    let mut query = Writer::default();
    query.u32(0).u32(1).u32(15).bytes(b"base:allocation");
    let mut negotiation = greeted();
    let (kinds, _) = answers(&mut negotiation, option::SET_META_CONTEXT, &query.0);
    assert_eq!(kinds, [reply::ERR_INVALID]);
    let (kinds, _) = answers(&mut negotiation, option::STRUCTURED_REPLY, &[]);
    assert_eq!(kinds, [reply::ACK]);
    let (kinds, _) = answers(&mut negotiation, option::SET_META_CONTEXT, &query.0);
    assert_eq!(kinds, [reply::META_CONTEXT, reply::ACK]);
    let (_, step) = answers(&mut negotiation, option::GO, &go(b"latency"));
    assert!(
        matches!(step, HandshakeStep::Begin(session) if !session.allocation),
        "it was chosen for the other export"
    );
}

#[test]
fn unknown_options_are_refused_and_the_client_goes_on() {
    let mut negotiation = greeted();
    for number in [0, 5, 12, 77, u32::MAX] {
        let (kinds, step) = answers(&mut negotiation, number, b"whatever");
        assert_eq!((kinds, step), (vec![reply::ERR_UNSUP], HandshakeStep::More));
    }
    for malformed in [&[][..], &[0, 0, 0, 9, 1], &[0xff; 6], &[0, 0, 0, 0, 0, 9]] {
        let (kinds, _) = answers(&mut negotiation, option::GO, malformed);
        assert_eq!(kinds, [reply::ERR_INVALID]);
    }
}

#[test]
fn nonsense_closes_the_connection() {
    let mut output = Writer::default();
    for flags in [[0, 0, 0, 0], [0, 0, 0, 7], [0xff; 4]] {
        let mut negotiation = Negotiation::new(exports(), Encryption::Unavailable, &mut output);
        assert_eq!(
            negotiation.step(&flags, &mut output).1,
            HandshakeStep::Close
        );
    }
    let mut too_long = Writer::default();
    too_long.u64(OPTION_MAGIC).u32(option::GO).u32(1 << 20);
    assert_eq!(
        greeted().step(&too_long.0, &mut output).1,
        HandshakeStep::Close
    );
    assert_eq!(
        greeted().step(&[7; 16], &mut output).1,
        HandshakeStep::Close
    );
    // A client cannot negotiate for ever.
    let mut negotiation = greeted();
    let list = option_bytes(option::LIST, &[]);
    let steps = (0..10_000).map(|_| negotiation.step(&list, &mut output).1);
    let steps: Vec<_> = steps
        .take_while(|step| *step != HandshakeStep::Close)
        .collect();
    assert!(steps.len() < 1000, "{}", steps.len());
}

/// Splitting the input into pieces must not change its effect.
#[test]
fn pieces_make_no_difference() {
    let mut bytes = vec![0, 0, 0, 3];
    bytes.extend(option_bytes(option::EXTENDED_HEADERS, &[]));
    bytes.extend(option_bytes(option::LIST, &[]));
    bytes.extend(option_bytes(option::GO, &go(b"")));
    let run = |piece: usize| {
        let mut output = Writer::default();
        let mut negotiation = Negotiation::new(exports(), Encryption::Unavailable, &mut output);
        let (mut buffer, mut last) = (Vec::new(), HandshakeStep::More);
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            loop {
                let (taken, step) = negotiation.step(&buffer, &mut output);
                buffer.drain(..taken);
                last = step;
                if taken == 0 || step != HandshakeStep::More {
                    break;
                }
            }
        }
        assert!(matches!(last, HandshakeStep::Begin(session) if session.form == Form::Extended));
        output.0
    };
    let whole = run(bytes.len());
    for piece in [1, 3, 16, 17] {
        assert_eq!(run(piece), whole);
    }
}

#[test]
fn random_bytes_are_survived() {
    let mut random = Prng::from_seed(3);
    for _ in 0..20_000 {
        let mut negotiation = greeted();
        let number = u32::try_from(random.below(13)).expect("small");
        let mut data = vec![0; usize::try_from(random.below(64)).expect("small")];
        random.fill(&mut data);
        if random.chance(1, 2) {
            // Small numbers are more often valid lengths.
            data.iter_mut().for_each(|byte| *byte %= 5);
        }
        let mut bytes = option_bytes(number, &data);
        let cut = usize::try_from(random.below(bytes.len() as u64 + 1)).expect("small");
        bytes.truncate(cut);
        let mut output = Writer::default();
        let (taken, step) = negotiation.step(&bytes, &mut output);
        assert!(taken <= bytes.len() && output.0.len() < 2048);
        assert!(taken > 0 || step == HandshakeStep::More);
    }
    for form in [Form::Simple, Form::Structured, Form::Extended] {
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        assert_eq!(RequestHeader::decode(form, &bytes), None);
    }
}
