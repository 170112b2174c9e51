use super::*;

fn all() -> Vec<(Message, Option<Hash>)> {
    let mut all = vec![
        (
            Message::Negotiate(Negotiate {
                transaction: 0x1234,
                secure_channel: 0,
                hashes: Hash::ALL.to_vec(),
                groups: Group::ALL.to_vec(),
            }),
            None,
        ),
        (Message::Success2 { transaction: 1 }, None),
        (
            Message::Failure1 {
                transaction: 2,
                explanation: Explanation::Other(99),
            },
            None,
        ),
    ];
    for explanation in Explanation::KNOWN {
        let transaction = 3;
        let message = Message::Failure2 {
            transaction,
            explanation,
        };
        all.push((message, None));
    }
    for hash in Hash::ALL {
        for group in Group::ALL {
            let public = vec![5; group.bytes()];
            let challenge = Challenge {
                transaction: 4,
                hash,
                group,
                sequence: 0xdead_beef,
                challenge: vec![6; hash.bytes()],
                public: public.clone(),
            };
            all.push((Message::Challenge(challenge), None));
            for challenge in [None, Some(vec![7; hash.bytes()])] {
                let reply = Reply {
                    transaction: 8,
                    sequence: 9,
                    response: vec![10; hash.bytes()],
                    challenge: challenge.clone(),
                    public: public.clone(),
                };
                all.push((Message::Reply(reply), Some(hash)));
                let success = Message::Success1 {
                    transaction: 11,
                    hash_bytes: hash.bytes(),
                    response: challenge,
                };
                all.push((success, None));
            }
        }
    }
    all
}

#[test]
fn messages_are_read_as_they_were_written() {
    for (message, hash) in all() {
        let bytes = message.encode();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(Message::parse(&bytes, hash), Ok(message.clone()));
        // Each part is needed, except that a response which is not valid may be left out.
        let optional = match &message {
            Message::Success1 {
                response: None,
                hash_bytes,
                ..
            } => *hash_bytes,
            _ => 0,
        };
        for end in 0..bytes.len() - optional {
            let short = Message::parse(&bytes[..end], hash);
            assert!(short.is_err(), "{message:?} of {end} bytes");
        }
    }
}

/// The layouts of Linux' `nvmf_auth_dhchap_*` structures.
#[test]
fn fields_are_where_the_specification_has_them() {
    let negotiate = all()[0].0.encode();
    assert_eq!(negotiate.len(), 72);
    assert_eq!(negotiate[..8], [0, 0, 0, 0, 0x34, 0x12, 0, 1]);
    assert_eq!(negotiate[8..16], [1, 0, 3, 6, 1, 2, 3, 0]);
    assert_eq!(negotiate[42..49], [0, 1, 2, 3, 4, 5, 0]);
    let challenge = Message::Challenge(Challenge {
        transaction: 0x0201,
        hash: Hash::Sha384,
        group: Group::Ffdhe3072,
        sequence: 0x0403_0201,
        challenge: vec![0xcc; 48],
        public: vec![0xdd; 384],
    });
    let bytes = challenge.encode();
    let head = [1, 1, 0, 0, 1, 2, 48, 0, 2, 2, 0x80, 1, 1, 2, 3, 4];
    assert_eq!(bytes[..16], head);
    assert_eq!(
        (bytes[63], bytes[64], bytes.len()),
        (0xcc, 0xdd, 16 + 48 + 384)
    );
    let reply = Message::Reply(Reply {
        transaction: 0x0201,
        sequence: 0x0403_0201,
        response: vec![0xaa; 32],
        challenge: Some(vec![0xbb; 32]),
        public: Vec::new(),
    });
    let bytes = reply.encode();
    let head = [1, 2, 0, 0, 1, 2, 32, 0, 1, 0, 0, 0, 1, 2, 3, 4];
    assert_eq!(bytes[..16], head);
    assert_eq!((bytes[47], bytes[48], bytes.len()), (0xaa, 0xbb, 16 + 64));
    let success = Message::Success1 {
        transaction: 0x0201,
        hash_bytes: 32,
        response: None,
    };
    assert_eq!(
        success.encode()[..16],
        [1, 3, 0, 0, 1, 2, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    let failure = Message::Failure1 {
        transaction: 0x0201,
        explanation: Explanation::GroupNotUsable,
    };
    assert_eq!(failure.encode(), [0, 0xf1, 0, 0, 1, 2, 1, 5]);
}

#[test]
fn wrong_fields_are_named() {
    let parts = |bytes: &[u8], hash| match Message::parse(bytes, hash) {
        Err(error) => (error.explanation, error.part),
        Ok(message) => panic!("{message:?}"),
    };
    let negotiate = all()[0].0.encode();
    let changed = |bytes: &[u8], at: usize, byte: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = byte;
        bytes
    };
    let payload = Explanation::IncorrectPayload;
    for (at, byte, explanation, part) in [
        (
            1,
            9,
            Explanation::IncorrectMessage,
            "not a message of this step",
        ),
        (
            0,
            2,
            Explanation::IncorrectMessage,
            "not a message of this step",
        ),
        (7, 0, payload, "its number of protocols"),
        (7, 2, payload, "its number of protocols"),
        (
            8,
            2,
            Explanation::ProtocolNotUsable,
            "DH-HMAC-CHAP is not among its protocols",
        ),
        (10, 0, payload, "its number of hash functions or groups"),
        (10, 31, payload, "its number of hash functions or groups"),
        (11, 31, payload, "its number of hash functions or groups"),
    ] {
        assert_eq!(
            parts(&changed(&negotiate, at, byte), None),
            (explanation, part)
        );
    }
    // Unknown functions and groups are not offers.
    let unknown = Message::parse(&changed(&negotiate, 12, 77), None);
    let Ok(Message::Negotiate(unknown)) = unknown else {
        panic!("{unknown:?}");
    };
    assert_eq!(unknown.hashes, [Hash::Sha384, Hash::Sha512]);
    for (message, hash) in all() {
        let bytes = message.encode();
        match message {
            Message::Challenge(_) => {
                assert_eq!(parts(&changed(&bytes, 6, 33), None).1, "its hash length");
                let hash = parts(&changed(&bytes, 8, 4), None).0;
                assert_eq!(hash, Explanation::HashNotUsable);
                let group = parts(&changed(&bytes, 9, 6), None).0;
                assert_eq!(group, Explanation::GroupNotUsable);
                let long = parts(&changed(&bytes, 11, 0x80), None).1;
                assert_eq!(long, "its public value");
            }
            Message::Reply(_) => {
                assert_eq!(parts(&bytes, None).0, Explanation::IncorrectMessage);
                assert_eq!(parts(&changed(&bytes, 6, 33), hash).1, "its hash length");
                let flag = parts(&changed(&bytes, 8, 2), hash).1;
                assert_eq!(flag, "its flag of a valid value");
            }
            Message::Failure1 { .. } => {
                assert_eq!(parts(&changed(&bytes, 6, 2), None).1, "its reason code");
            }
            _ => {}
        }
    }
}
