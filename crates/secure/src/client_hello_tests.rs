use zeroize::Zeroizing;

use super::*;
use crate::hash::hex;
use crate::psk::Derivation;

/// What `openssl s_client` 3.0.19 sent with `-tls1_3 -psk_identity "NVMe0R01 …"` and the secret
/// `00 01 … 1f`: one record.
const OPENSSL: &str = "\
    160301011b0100011703030c1fb471c5a0ea453487fed6dda906f782e510db0056fe6c2ce311ed88cb62fc20743c4896\
    f83ecddd9bf3f1e839bc8c62e5d837b884711409820a91fdbdca6ebe0004130100ff010000ca000b000403000102000a\
    00040002001d002300000016000000170000000d000400020403002b0003020304002d00020101003300260024001d00\
    201042bb4b986f63dcf2f9ef848fc5ddb3b4058e0c85a33adb1067fe9d528a22340029006b004600404e564d65305230\
    31206e716e2e323032362d31312e696f2e6578616d706c653a686f7374206e716e2e323032362d31312e696f2e657861\
    6d706c653a6469736b00000000002120197808a9aba351e4007ae0c83819dd7a92462ebcfdd1b9fb1e6c8ac7cf3057bf";

/// The binder of [`two_offers`] for the secret `00 01 … 2f`, computed with Python's `hmac`.
const BINDER_384: &str = "cf5c60e5a5d374c5a5aedf88afeb07eb9b0404074b81129fdf461ecb816028bd\
                          18cbde321017524b929689062885cf11";

fn psk(hash: Hash) -> Psk {
    Psk {
        identity: String::new(),
        hash,
        version: 0,
        derivation: Derivation::Specified,
        secret: Zeroizing::new((0..).take(hash.bytes()).collect()),
    }
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    let [low, high] = u16::try_from(bytes.len()).unwrap().to_le_bytes();
    [&[high, low], bytes].concat()
}

/// A message that offers two PSKs, for SHA-256 and SHA-384.
fn two_offers() -> Vec<u8> {
    let identity = |text: &[u8]| [&with_length(text)[..], &[0; 4]].concat();
    let identities = [identity(b"x"), identity(b"NVMe1R02 h s d")].concat();
    let mut binders = vec![32];
    binders.extend([0; 32]);
    binders.push(48);
    binders.extend(hex(BINDER_384));
    let psks = [with_length(&identities), with_length(&binders)].concat();
    let extensions = [
        &[0, 43][..],
        &with_length(&[2, 3, 4]),
        &[0, 45],
        &with_length(&[1, 1]),
        &[0, 41],
        &with_length(&psks),
    ]
    .concat();
    let random: Vec<u8> = (0..32).collect();
    let body = [
        &[3, 3][..],
        &random,
        &[0, 0, 2, 0x13, 0x02, 1, 0],
        &with_length(&extensions),
    ]
    .concat();
    [&[1, 0], &with_length(&body)[..]].concat()
}

/// The message in records of at most `length` bytes.
fn records(message: &[u8], length: usize) -> Vec<u8> {
    let parts = message.chunks(length);
    parts
        .flat_map(|part| [&[22, 3, 1], &with_length(part)[..]].concat())
        .collect()
}

#[test]
fn the_binder_of_openssl_matches_its_secret_alone() {
    let hello = ClientHello::parse(&hex(OPENSSL)).unwrap();
    assert!(hello.is_tls13);
    assert!(hello.offers_suite(Hash::Sha256));
    assert!(!hello.offers_suite(Hash::Sha384));
    let [offer] = &hello.offers[..] else {
        panic!("one offer");
    };
    let identity = b"NVMe0R01 nqn.2026-11.io.example:host nqn.2026-11.io.example:disk";
    assert_eq!(offer.identity, identity);
    assert!(hello.binder_matches(offer, &psk(Hash::Sha256)));
    assert!(!hello.binder_matches(offer, &psk(Hash::Sha384)));
    let mut wrong = psk(Hash::Sha256);
    wrong.secret[31] ^= 1;
    assert!(!hello.binder_matches(offer, &wrong));
    // Each bit of the message counts.
    let mut bytes = hex(OPENSSL);
    bytes[20] ^= 1;
    let hello = ClientHello::parse(&bytes).unwrap();
    assert!(!hello.binder_matches(&hello.offers[0], &psk(Hash::Sha256)));
}

#[test]
fn several_offers_in_records_of_any_length() {
    let message = two_offers();
    for length in [1, 2, 3, 4, 5, 50, 100, 16384] {
        let hello = ClientHello::parse(&records(&message, length)).unwrap();
        assert_eq!(hello.suites, [0x1302]);
        let [first, second] = &hello.offers[..] else {
            panic!("two offers");
        };
        assert!(!hello.binder_matches(first, &psk(Hash::Sha256)));
        assert!(hello.binder_matches(second, &psk(Hash::Sha384)));
    }
}

/// `[RFC 8448 §4]`: the binder of a resumption, whose label is another.
#[test]
fn the_binder_of_the_rfc() {
    let binder = binder(
        Hash::Sha256,
        &hex("4ecd0eb6ec3b4d87f5d6028f922ca4c5851a277fd41311c9e62d2c9492e1c4f3"),
        "res binder",
        &hex("63224b2e4573f2d3454ca84b9d009a04f6be9e05711a8396473aefa01e924a14"),
    );
    let expected = hex("3add4fb2d8fdf822a0ca3cf7678ef5e88dae990141c5924d57bb6fa31b9e5f9d");
    assert_eq!(binder, expected);
}

#[test]
fn each_beginning_is_incomplete() {
    for bytes in [hex(OPENSSL), records(&two_offers(), 40)] {
        for end in 0..bytes.len() {
            let error = ClientHello::parse(&bytes[..end]).unwrap_err();
            assert_eq!(error, ClientHelloError::Incomplete, "{end} bytes");
        }
        let longer = [&bytes[..], &[20, 3, 3, 0, 1, 1]].concat();
        ClientHello::parse(&longer).expect("bytes after it do not count");
    }
}

#[test]
fn other_protocols_are_known_by_their_first_bytes() {
    // ICReq of NVMe/TCP, HTTP, SSH, and a PDU type that equals a handshake record's.
    let pdu: &[u8] = &[0, 0, 128, 0, 128];
    for bytes in [pdu, b"GET / HTTP/1.1", b"SSH-2.0", &[22, 0]] {
        assert_eq!(ClientHello::parse(bytes), Err(ClientHelloError::NotTls));
    }
}

#[test]
fn malformed_messages_are_refused() {
    let malformed = |bytes: &[u8]| match ClientHello::parse(bytes) {
        Err(ClientHelloError::Malformed(part)) => part,
        other => panic!("{other:?}"),
    };
    let message = two_offers();
    let changed = |at: usize, byte: u8| {
        let mut message = message.clone();
        message[at] = byte;
        records(&message, 16384)
    };
    assert_eq!(malformed(&[22, 3, 1, 0, 0]), "the length of a record");
    assert_eq!(malformed(&[22, 3, 1, 0x40, 1]), "the length of a record");
    assert_eq!(malformed(&changed(0, 2)), "another handshake message");
    assert_eq!(malformed(&changed(38, 255)), "its session identifier");
    assert_eq!(malformed(&changed(40, 1)), "its cipher suites");
    let end = message.len();
    // The last binder is shorter than it says, or an unpaired one.
    assert_eq!(malformed(&changed(end - 49, 47)), "its PSKs");
    assert_eq!(malformed(&changed(end - 49, 200)), "its PSKs");
    // Another kind of record in the midst of the message.
    let two = [&records(&message[..50], 50)[..], &[23, 3, 3, 0, 1, 0]].concat();
    assert_eq!(malformed(&two), "another record amid it");
    assert_eq!(
        ClientHello::parse(&changed(1, 1)),
        Err(ClientHelloError::TooLong)
    );
    // An extension after the PSKs.
    let mut late = message.clone();
    late.extend([0, 0, 0, 0]);
    late[3] += 4;
    let extensions = 4 + 2 + 32 + 1 + 4 + 2;
    late[extensions + 1] += 4;
    assert_eq!(
        malformed(&records(&late, 16384)),
        "an extension after its PSKs"
    );
}

#[test]
fn a_hello_of_tls_1_2_has_no_offers() {
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2f, 1, 0]].concat();
    let message = [&[1, 0], &with_length(&body)[..]].concat();
    let hello = ClientHello::parse(&records(&message, 16384)).unwrap();
    assert!(!hello.is_tls13 && hello.offers.is_empty());
}

#[test]
fn any_bytes_are_judged_without_a_panic() {
    let mut random = 1_u64;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(random >> 33).unwrap()
    };
    for bytes in [hex(OPENSSL), records(&two_offers(), 60)] {
        for _ in 0..20_000 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + next() % 3 {
                let at = next() % bytes.len();
                bytes[at] = u8::try_from(next() % 256).unwrap();
            }
            if let Ok(hello) = ClientHello::parse(&bytes) {
                for offer in &hello.offers {
                    let _ = hello.binder_matches(offer, &psk(Hash::Sha256));
                }
            }
        }
    }
}
