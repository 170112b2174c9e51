use super::*;
use crate::hash::hex;

/// The client's application secret of RFC 8448 §3.
const SECRET: &str = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";

fn pair(suite: Suite) -> (Sealer, Opener) {
    let secret = vec![7; suite.secret_bytes()];
    (
        Sealer::new(suite, &secret, 0),
        Opener::new(suite, &secret, 0),
    )
}

fn sealed(sealer: &mut Sealer, data: &[u8]) -> Vec<u8> {
    let mut record = vec![0; OVERHEAD_BYTES + data.len()];
    record[HEADER_BYTES..][..data.len()].copy_from_slice(data);
    sealer.seal(&mut record);
    record
}

/// Seals any content, as a peer may.
fn sealed_as(sealer: &mut Sealer, content: u8, data: &[u8]) -> Vec<u8> {
    let mut record = vec![0; OVERHEAD_BYTES + data.len()];
    record[HEADER_BYTES..][..data.len()].copy_from_slice(data);
    sealer.seal_as(content, &mut record);
    record
}

#[test]
fn a_record_is_that_of_rfc_8448() {
    let data: Vec<u8> = (0..50).collect();
    let expected = hex(
        "17 03 03 00 43 a2 3f 70 54 b6 2c 94 d0 af fa fe 82 28 ba 55 cb ef ac ea 42 f9 14 aa 66 bc \
         ab 3f 2b 98 19 a8 a5 b4 6b 39 5b d5 4a 9a 20 44 1e 2b 62 97 4e 1f 5a 62 92 a2 97 70 14 bd \
         1e 3d ea e6 3a ee bb 21 69 49 15 e4",
    );
    let suite = Suite::Aes128GcmSha256;
    let mut record = sealed(&mut Sealer::new(suite, &hex(SECRET), 0), &data);
    assert_eq!(record, expected);
    let opened = Opener::new(suite, &hex(SECRET), 0).open(&mut record);
    assert_eq!(opened, Ok(Opened::Data(5..55)));
    assert_eq!(record[5..55], data);
}

#[test]
fn data_of_every_length_come_back_and_keys_change_on_the_way() {
    for suite in [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384] {
        let (mut sealer, mut opener) = pair(suite);
        for len in [0, 1, 15, 16, 17, 4096, DATA_MAX] {
            let data: Vec<u8> = (0..len).map(|at: usize| at.to_le_bytes()[0]).collect();
            let mut record = sealed(&mut sealer, &data);
            assert_eq!(record_bytes(&record[..5]), Ok(Some(record.len())));
            let Ok(Opened::Data(range)) = opener.open(&mut record) else {
                panic!("it is data");
            };
            assert!(record[range] == data);
            let mut update = [0; MESSAGE_MAX];
            let len = sealer.update(&mut update);
            assert_eq!(opener.open(&mut update[..len]), Ok(Opened::Message));
            assert_eq!((sealer.records(), opener.records()), (0, 0));
            assert!(!opener.take_update_asked());
        }
        assert_eq!(opener.updates(), 7);
    }
}

#[test]
fn what_was_changed_repeated_or_left_out_is_refused() {
    let (mut sealer, _) = pair(Suite::Aes128GcmSha256);
    let records = [sealed(&mut sealer, b"one"), sealed(&mut sealer, b"two")];
    for at in 0..records[0].len() {
        let mut record = records[0].clone();
        record[at] ^= 1;
        let (_, mut opener) = pair(Suite::Aes128GcmSha256);
        assert_eq!(opener.open(&mut record), Err(RecordError::Forged), "{at}");
    }
    let (_, mut opener) = pair(Suite::Aes128GcmSha256);
    opener
        .open(&mut records[0].clone())
        .expect("as it was sealed");
    let again = opener.open(&mut records[0].clone());
    assert_eq!(again, Err(RecordError::Forged));
    let (_, mut opener) = pair(Suite::Aes128GcmSha256);
    let skipped = opener.open(&mut records[1].clone());
    assert_eq!(skipped, Err(RecordError::Forged));
}

#[test]
fn padding_is_removed_and_more_than_16_kib_are_refused() {
    let (mut sealer, mut opener) = pair(Suite::Aes128GcmSha256);
    // Padding follows the content type: what is sealed as type 0 is padding.
    let mut padded = sealed_as(&mut sealer, 0, b"data\x17\0\0\0");
    assert_eq!(opener.open(&mut padded), Ok(Opened::Data(5..9)));
    let mut nothing = sealed_as(&mut sealer, 0, &[0; 9]);
    assert_eq!(opener.open(&mut nothing), Err(RecordError::Unexpected));
}

#[test]
fn messages_after_the_handshake_are_handled_or_refused() {
    type Case = (u8, &'static [u8], Result<Opened, RecordError>);
    let cases: [Case; 14] = [
        (22, &[4, 0, 0, 3, 1, 2, 3], Ok(Opened::Message)),
        (
            22,
            &[4, 0, 0, 3, 1, 2, 3, 24, 0, 0, 1, 0],
            Ok(Opened::Message),
        ),
        (22, &[24, 0, 0, 1, 1], Ok(Opened::Message)),
        (22, &[24, 0, 0, 1, 2], Err(RecordError::Malformed)),
        (22, &[24, 0, 0, 1, 0, 4], Err(RecordError::Malformed)),
        (22, &[24, 0, 0, 2, 0, 0], Err(RecordError::Unexpected)),
        (22, &[1, 0, 0, 0], Err(RecordError::Unexpected)),
        (22, &[], Err(RecordError::Unexpected)),
        (21, &[1, 0], Ok(Opened::End)),
        (21, &[1, 90], Ok(Opened::Message)),
        (21, &[2, 40], Err(RecordError::Alert(Alert(40)))),
        (21, &[2], Err(RecordError::Malformed)),
        (20, &[1], Err(RecordError::Unexpected)),
        (99, &[1], Err(RecordError::Unexpected)),
    ];
    for (content, message, expected) in cases {
        let (mut sealer, mut opener) = pair(Suite::Aes128GcmSha256);
        let mut record = sealed_as(&mut sealer, content, message);
        assert_eq!(opener.open(&mut record), expected, "{content} {message:?}");
    }
    let (mut sealer, mut opener) = pair(Suite::Aes128GcmSha256);
    // A ticket across three records; data may not divide it.
    for part in [&[4, 0][..], &[0, 4, 1], &[2, 3, 4]] {
        let mut record = sealed_as(&mut sealer, 22, part);
        assert_eq!(opener.open(&mut record), Ok(Opened::Message));
    }
    let mut begun = sealed_as(&mut sealer, 22, &[4, 0]);
    assert_eq!(opener.open(&mut begun), Ok(Opened::Message));
    let mut data = sealed(&mut sealer, b"data");
    assert_eq!(opener.open(&mut data), Err(RecordError::Unexpected));
}

#[test]
fn a_peer_that_asks_for_new_keys_gets_them_once() {
    let (mut sealer, mut opener) = pair(Suite::Aes256GcmSha384);
    for _ in 0..3 {
        let mut update = sealed_as(&mut sealer, 22, &[24, 0, 0, 1, 1]);
        sealer.keys.update();
        assert_eq!(opener.open(&mut update), Ok(Opened::Message));
    }
    assert!(opener.take_update_asked() && !opener.take_update_asked());
}

#[test]
fn headers_are_judged_before_the_record_arrives() {
    type Case = (&'static [u8], Result<Option<usize>, RecordError>);
    let cases: [Case; 8] = [
        (&[23, 3, 3, 0], Ok(None)),
        (&[23, 3, 3, 0, 17], Ok(Some(22))),
        (&[23, 3, 3, 0, 16], Err(RecordError::Malformed)),
        (&[23, 3, 3, 0x41, 0], Ok(Some(5 + 0x4100))),
        (&[23, 3, 3, 0x41, 1], Err(RecordError::TooLong)),
        (&[22, 3, 3, 0, 17], Err(RecordError::Unexpected)),
        (&[23, 2, 3, 0, 17], Err(RecordError::Unexpected)),
        (&[21, 3, 3, 0, 2], Ok(Some(7))),
    ];
    for (header, expected) in cases {
        assert_eq!(record_bytes(header), expected, "{header:?}");
    }
    let (_, mut opener) = pair(Suite::Aes128GcmSha256);
    let mut alert = Alert::DECRYPT_ERROR.in_clear();
    let told = Err(RecordError::Alert(Alert::DECRYPT_ERROR));
    assert_eq!(opener.open(&mut alert), told);
}

/// Each KeyUpdate derives a key, which costs a core as much as hundreds of records.
#[test]
fn keys_that_change_without_data_end_the_connection() {
    let (mut sealer, mut opener) = pair(Suite::Aes128GcmSha256);
    let update = |sealer: &mut Sealer, opener: &mut Opener| {
        let mut record = [0; MESSAGE_MAX];
        let len = sealer.update(&mut record);
        opener.open(&mut record[..len])
    };
    for _ in 0..UPDATES_FREE {
        assert_eq!(update(&mut sealer, &mut opener), Ok(Opened::Message));
    }
    for _ in 0..UPDATE_RECORDS {
        let mut record = sealed(&mut sealer, &[1]);
        assert_eq!(opener.open(&mut record), Ok(Opened::Data(5..6)));
    }
    assert_eq!(update(&mut sealer, &mut opener), Ok(Opened::Message));
    let last = update(&mut sealer, &mut opener);
    assert_eq!(last, Err(RecordError::Updates));
}

/// The successor answers a request for new keys that its predecessor has received, and a ticket may
/// lie across the hand-over.
#[test]
fn requests_and_parts_of_messages_are_handed_over() {
    for suite in [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384] {
        let (mut sealer, mut opener) = pair(suite);
        let mut update = sealed_as(&mut sealer, 22, &[24, 0, 0, 1, 1]);
        sealer.keys.update();
        assert_eq!(opener.open(&mut update), Ok(Opened::Message));
        let parts = [&[4, 0][..], &[0, 4, 1], &[2, 3, 4], &[24, 0, 0], &[1, 0]];
        for part in parts {
            let state = pack(&sealer, &opener, 0);
            (sealer, opener) = unpack(&mut Fields(&state)).expect("a state");
            let mut record = sealed_as(&mut sealer, 22, part);
            assert_eq!(opener.open(&mut record), Ok(Opened::Message));
        }
        assert!(opener.take_update_asked() && opener.updates() == 2);
    }
}
