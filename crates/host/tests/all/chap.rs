//! DH-HMAC-CHAP of the host, with a scripted controller.

use crate::peer::{Behaviour, Forge, NQN, Peer, builder};
use host::{AuthenticationError, ChapSecret, ConnectionError, HostBuilder, HostError, Subsystem};
use secure::chap::{Explanation, Failure, Group};
use secure::{ChapPolicy, Hash, HostKeys, KeyRing};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use testing::eventually;
use wire::fabrics::ConnectResponse;
use wire::nvme::Status;
use wire::tcp::PduType;

const HOST: &str = "nqn.2026-11.io.example:host";

fn secret(byte: u8) -> ChapSecret {
    ChapSecret::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

fn keys(policy: ChapPolicy) -> Arc<KeyRing> {
    let own = HostKeys {
        chap: vec![secret(1)],
        controller: Some(secret(2)),
        ..HostKeys::default()
    };
    Arc::new(KeyRing {
        hosts: [(HOST.to_owned(), own)].into(),
        policy,
        ..KeyRing::default()
    })
}

/// A controller that requires authentication.
fn required() -> Behaviour {
    Behaviour {
        authentication: ConnectResponse::AUTHENTICATION_REQUIRED,
        keys: Some(keys(ChapPolicy::default())),
        ..Behaviour::default()
    }
}

fn own() -> HostBuilder {
    builder().nqn(HOST).chap_secret(secret(1))
}

fn connect(peer: &Peer, builder: HostBuilder) -> Result<Subsystem, HostError> {
    let host = builder.build()?;
    host.connect(&peer.address.to_string(), NQN)
}

/// Returns why a host is not authenticated.
fn refused(behaviour: Behaviour, builder: HostBuilder) -> AuthenticationError {
    let peer = Peer::start(1 << 20, behaviour);
    let error = connect(&peer, builder).unwrap_err();
    let text = error.to_string();
    for byte in [1, 2, 9] {
        let shown = &secret(byte).to_text()[10..30];
        assert!(!text.contains(shown), "{text}");
    }
    assert_eq!(peer.seen.authenticated.load(Ordering::SeqCst), 0);
    match error {
        HostError::Connection(ConnectionError::Authentication { error, .. }) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn every_queue_authenticates_with_each_hash_function_and_group() {
    for (hashes, groups) in [
        (vec![Hash::Sha256], vec![Group::Null]),
        (vec![Hash::Sha384], vec![Group::Null]),
        (vec![Hash::Sha512], vec![Group::Ffdhe2048]),
        (vec![Hash::Sha256], vec![Group::Ffdhe8192]),
    ] {
        for mutual in [false, true] {
            for digests in [false, true] {
                let (hashes, groups) = (hashes.clone(), groups.clone());
                let behaviour = Behaviour {
                    keys: Some(keys(ChapPolicy { hashes, groups })),
                    ..required()
                };
                let peer = Peer::start(1 << 20, behaviour);
                let mut builder = own().digests(digests, digests).queues(2, 8);
                if mutual {
                    builder = builder.chap_controller_secret(secret(2));
                }
                let namespace = connect(&peer, builder).unwrap().namespace(1).unwrap();
                namespace.write(0, &[7; 4096]).unwrap();
                assert_eq!(peer.memory()[..4096], [7; 4096]);
                let seen = &peer.seen;
                for (what, count, all) in [
                    ("I/O queues", &seen.live_queues, 2),
                    ("queues authenticated", &seen.authenticated, 3),
                    ("connections", &seen.connections, 3),
                ] {
                    eventually(what, || count.load(Ordering::SeqCst) == all);
                }
            }
        }
    }
}

#[test]
fn a_lost_host_authenticates_anew() {
    let peer = Peer::start(1 << 20, required());
    let namespace = connect(&peer, own()).unwrap().namespace(1).unwrap();
    namespace.write(0, &[1; 512]).unwrap();
    assert_eq!(peer.seen.authenticated.load(Ordering::SeqCst), 2);
    peer.cut_all();
    namespace.write(512, &[2; 512]).unwrap();
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 2);
    assert_eq!(peer.seen.authenticated.load(Ordering::SeqCst), 4);
}

#[test]
fn a_live_host_authenticates_again_on_request() {
    let peer = Peer::start(1 << 20, required());
    let subsystem = connect(&peer, own()).unwrap();
    let namespace = subsystem.namespace(1).unwrap();
    for count in [3, 4] {
        subsystem.authenticate_again().unwrap();
        assert_eq!(peer.seen.authenticated.load(Ordering::SeqCst), count);
        namespace.write(0, &[1; 512]).unwrap();
    }
    // A refusal leaves the connection as it is.
    let peer = Peer::start(1 << 20, Behaviour::default());
    let subsystem = connect(&peer, own()).unwrap();
    let error = subsystem.authenticate_again().unwrap_err().to_string();
    assert!(error.contains("Authentication Send refused"), "{error}");
    subsystem.namespace(1).unwrap().write(0, &[1; 512]).unwrap();
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1);
    let without = connect(&peer, builder()).unwrap();
    let error = without.authenticate_again().unwrap_err().to_string();
    assert!(error.contains("needs a secret"), "{error}");
}

#[test]
fn without_a_requirement_only_a_controller_secret_makes_the_host_authenticate() {
    let free = Behaviour {
        authentication: 0,
        ..required()
    };
    let peer = Peer::start(1 << 20, free.clone());
    connect(&peer, own()).unwrap();
    assert_eq!(peer.seen.authenticated.load(Ordering::SeqCst), 0);
    let mutual = own().chap_controller_secret(secret(2));
    let namespace = connect(&peer, mutual.clone()).unwrap().namespace(1);
    namespace.unwrap().write(0, &[1; 512]).unwrap();
    assert_eq!(peer.seen.authenticated.load(Ordering::SeqCst), 2);
    // A controller without DH-HMAC-CHAP cannot prove itself.
    let unable = Behaviour { keys: None, ..free };
    let error = refused(unable, mutual);
    let AuthenticationError::Unproven { command, status } = error else {
        panic!("{error}");
    };
    assert_eq!(command, "Authentication Send");
    assert!(status.is(Status::INVALID_OPCODE), "{status}");
}

#[test]
fn a_host_without_a_secret_is_told_what_to_give() {
    let error = refused(required(), builder().nqn(HOST));
    assert_eq!(error, AuthenticationError::NoSecret);
    assert!(error.to_string().contains("--chap-secret FILE"), "{error}");
    let alone = builder().chap_controller_secret(secret(2)).build();
    let error = alone.unwrap_err().to_string();
    assert!(error.contains("give --chap-secret as well"), "{error}");
}

#[test]
fn a_secure_channel_is_refused() {
    let behaviour = Behaviour {
        authentication: ConnectResponse::SECURE_CHANNEL_REQUIRED
            | ConnectResponse::AUTHENTICATION_REQUIRED,
        ..required()
    };
    assert_eq!(
        refused(behaviour, own()),
        AuthenticationError::SecureChannel
    );
}

#[test]
fn failures_name_their_step_and_reason() {
    let step =
        |step, explanation| AuthenticationError::Failed(Failure::Refused { step, explanation });
    let wrong = builder().nqn(HOST).chap_secret(secret(9));
    let error = refused(required(), wrong);
    assert_eq!(error, step("Reply", Explanation::Failed));
    assert!(error.to_string().contains("another one"), "{error}");
    let policy = ChapPolicy {
        hashes: Vec::new(),
        ..ChapPolicy::default()
    };
    let no_hash = Behaviour {
        keys: Some(keys(policy)),
        ..required()
    };
    let error = refused(no_hash, own());
    assert_eq!(error, step("Negotiate", Explanation::HashNotUsable));
    let wrong = Behaviour {
        tamper: Some(|_| vec![0; 16]),
        ..required()
    };
    let error = refused(wrong, own());
    let payload = matches!(
        error,
        AuthenticationError::Failed(Failure::Payload(_) | Failure::Sequence { .. })
    );
    assert!(payload, "{error}");
}

#[test]
fn a_controller_that_cannot_prove_itself_is_told_and_left() {
    let peer = Peer::start(1 << 20, required());
    let error = connect(&peer, own().chap_controller_secret(secret(9))).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("the controller could not prove itself"),
        "{text}"
    );
    let failure = Failure::Refused {
        step: "Success1",
        explanation: Explanation::Failed,
    };
    eventually("the controller knows", || {
        peer.seen.failures.lock().unwrap()[..] == [failure]
    });
    assert_eq!(peer.seen.associations.load(Ordering::SeqCst), 1, "no retry");
}

/// A controller that says that all is well proves nothing.
#[test]
fn no_answer_but_the_proof_makes_a_mutual_connection_live() {
    fn without_proof(mut message: Vec<u8>) -> Vec<u8> {
        // DH-HMAC-CHAP_Success1 without R2.
        if message[..2] == [1, 3] {
            message[8] = 0;
        }
        message
    }
    let behaviour = Behaviour {
        tamper: Some(without_proof),
        ..required()
    };
    let error = refused(behaviour, own().chap_controller_secret(secret(2)));
    assert_eq!(error, AuthenticationError::Failed(Failure::WrongController));
}

#[test]
fn a_violation_during_the_exchange_is_named() {
    let offset_of_data = 12;
    let forge = Forge {
        connection: 0,
        pdu: PduType::C2hData.code(),
        edits: vec![(offset_of_data, vec![8])],
        reseal: false,
        before: Vec::new(),
    };
    let behaviour = Behaviour {
        forge: Some(forge),
        ..required()
    };
    let peer = Peer::start(1 << 20, behaviour);
    let error = connect(&peer, own()).unwrap_err().to_string();
    assert!(error.contains("protocol error"), "{error}");
    connect(&peer, own()).unwrap();
    assert_eq!(peer.seen.terminations.lock().unwrap().len(), 1);
}

/// Linux does that with a wrong secret, at times; so does a target that ends, so it is no refusal.
#[test]
fn a_connection_that_the_controller_closes_during_the_exchange_says_so() {
    let answers = [
        128, // ICResp
        24,  // to Connect
        24,  // to Authentication Send
    ];
    let behaviour = Behaviour {
        cut: Some((0, answers.iter().sum())),
        ..required()
    };
    let error = connect(&Peer::start(1 << 20, behaviour), own()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("during DH-HMAC-CHAP, instead of answering Authentication Receive"),
        "{text}"
    );
    assert!(matches!(error, HostError::Connection(error) if !error.is_permanent()));
}

#[test]
fn a_message_that_never_comes_ends_in_time() {
    let behaviour = Behaviour {
        tamper: Some(|_| Vec::new()),
        ..required()
    };
    let peer = Peer::start(1 << 20, behaviour);
    let error = connect(&peer, own().connect_timeout(Duration::from_millis(300))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("Authentication Receive within"), "{text}");
}
