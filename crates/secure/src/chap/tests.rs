//! Exchanges between both ends, vectors, and peers that break the rules.

use super::*;
use crate::hash::hex;
use crate::{ChapPolicy, HostKeys, KeyRing};
use std::collections::BTreeMap;
use std::sync::Arc;

const HOST: &str = "nqn.2026-11.io.example:host";
const DISK: &str = "nqn.2026-11.io.example:disk";

fn names() -> Names {
    Names {
        hostnqn: HOST.to_owned(),
        subnqn: DISK.to_owned(),
    }
}

fn secret(first: u8, hash: Option<Hash>) -> Secret {
    let length = hash.map_or(32, Hash::bytes);
    let bytes: Vec<u8> = (first..).take(length).collect();
    Secret::new(hash, &bytes).unwrap()
}

/// Random bytes from a seed.
fn random(seed: u64) -> impl FnMut(&mut [u8]) {
    let mut state = seed;
    move |bytes: &mut [u8]| {
        for byte in bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = state.to_le_bytes()[7];
        }
    }
}

fn ring(chap: Vec<Secret>, controller: Option<Secret>, policy: ChapPolicy) -> Arc<KeyRing> {
    let keys = HostKeys {
        chap,
        controller,
        ..HostKeys::default()
    };
    Arc::new(KeyRing {
        hosts: BTreeMap::from([(HOST.to_owned(), keys)]),
        policy,
        ..KeyRing::default()
    })
}

/// Runs an exchange to its end. Returns the results of host and controller.
fn exchange(
    ring: Arc<KeyRing>,
    own: Secret,
    controller: Option<Secret>,
) -> (Result<(), Failure>, Result<(), Failure>) {
    let (mut ours, mut theirs) = (random(1), random(2));
    let mut target = ControllerExchange::new(names(), ring);
    let (mut host, mut message) = HostExchange::begin(names(), own, controller, 7);
    loop {
        match target.receive(&message) {
            Progress::Compute(job) => {
                assert!(matches!(
                    target.computed(job.run(&mut theirs)),
                    Progress::Continue
                ));
            }
            Progress::Continue => {}
            Progress::Authenticated => return (Ok(()), Ok(())),
            Progress::Failed(failure) => panic!("{failure}"),
        }
        let (answer, progress) = target.response().expect("it is due");
        let mut step = host.receive(&answer);
        if let HostStep::Compute(job) = step {
            step = host.computed(job.run(&mut ours));
        }
        match (step, progress) {
            (HostStep::Send(next), Progress::Continue) => message = next,
            (HostStep::Authenticated(None), Progress::Authenticated) => return (Ok(()), Ok(())),
            (HostStep::Authenticated(Some(next)), Progress::Continue) => message = next,
            (HostStep::Failed(host, Some(last)), _) => {
                let Progress::Failed(refused) = target.receive(&last) else {
                    panic!("it is told");
                };
                return (Err(host), Err(refused));
            }
            (HostStep::Failed(host, None), Progress::Failed(target)) => {
                return (Err(host), Err(target));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_hash_and_group_authenticates_one_way_and_mutually() {
    for hash in Hash::ALL {
        for group in Group::ALL {
            let policy = ChapPolicy {
                hashes: vec![hash],
                groups: vec![group],
            };
            for controller in [None, Some(secret(100, Some(hash)))] {
                let own = secret(0, Some(Hash::Sha256));
                let ring = ring(vec![own.clone()], controller.clone(), policy.clone());
                let results = exchange(ring, own, controller);
                assert_eq!(results, (Ok(()), Ok(())), "{hash:?} {group:?}");
            }
        }
    }
}

#[test]
fn old_and_new_secret_are_valid_at_once() {
    let (old, new) = (secret(0, None), secret(50, Some(Hash::Sha512)));
    let both = ring(vec![new.clone(), old.clone()], None, ChapPolicy::default());
    for own in [&old, &new] {
        let results = exchange(Arc::clone(&both), own.clone(), None);
        assert_eq!(results, (Ok(()), Ok(())));
    }
    let only_new = ring(vec![new], None, ChapPolicy::default());
    let (host, target) = exchange(only_new, old, None);
    assert_eq!(target, Err(Failure::WrongSecret));
    let explanation = Explanation::Failed;
    let step = "Reply";
    assert_eq!(host, Err(Failure::Refused { step, explanation }));
}

#[test]
fn each_refusal_is_named_at_both_ends() {
    let own = || secret(0, None);
    let failed = |ring, controller| {
        let (host, target) = exchange(ring, own(), controller);
        (host.unwrap_err(), target.unwrap_err())
    };
    let refused = |step, explanation| Failure::Refused { step, explanation };
    let all = ChapPolicy::default;
    // No secret for this host, and none for any.
    let (host, target) = failed(ring(Vec::new(), None, all()), None);
    assert_eq!(target, Failure::NoSecret);
    assert_eq!(host, refused("Reply", Explanation::Failed));
    // The controller has no secret of its own, or another one.
    let (_, target) = failed(ring(vec![own()], None, all()), Some(secret(9, None)));
    assert_eq!(target, Failure::NoControllerSecret);
    let other = ring(vec![own()], Some(secret(8, None)), all());
    let (host, target) = failed(other, Some(secret(9, None)));
    assert_eq!(host, Failure::WrongController);
    assert_eq!(target, refused("Success1", Explanation::Failed));
    // Nothing in common.
    let no_hash = ChapPolicy {
        hashes: Vec::new(),
        ..all()
    };
    let (host, target) = failed(ring(vec![own()], None, no_hash), None);
    assert_eq!(target, Failure::NoHash);
    assert_eq!(host, refused("Negotiate", Explanation::HashNotUsable));
    let no_group = ChapPolicy {
        groups: Vec::new(),
        ..all()
    };
    let (host, target) = failed(ring(vec![own()], None, no_group), None);
    assert_eq!(target, Failure::NoGroup);
    assert_eq!(host, refused("Negotiate", Explanation::GroupNotUsable));
}

#[test]
fn a_secret_of_any_host_is_valid_for_hosts_without_their_own() {
    let any = HostKeys {
        chap: vec![secret(0, None)],
        ..HostKeys::default()
    };
    let ring = Arc::new(KeyRing {
        any,
        ..KeyRing::default()
    });
    assert_eq!(exchange(ring, secret(0, None), None), (Ok(()), Ok(())));
}

/// Computed with Python's `hmac`.
#[test]
fn responses_are_those_of_the_specification() {
    let (host, controller) = (
        secret(0, Some(Hash::Sha256)),
        secret(100, Some(Hash::Sha384)),
    );
    let terms = Terms {
        hash: Hash::Sha384,
        transaction: 0x0506,
        sequence: 0x0102_0304,
    };
    let response = host_response(terms, &host, &[0xc1; 48], &names());
    assert_eq!(
        *response,
        hex(
            "98b17294a7723bba40b4b36d7595a96b3db72d76f11fed5721214dc85cd298723b378aaf23534d3b4ff94fc74ba472ad"
        )
    );
    let challenge = augmented(Hash::Sha384, &[0x5a; 256], &[0xc1; 48]);
    let response = host_response(terms, &host, &challenge, &names());
    assert_eq!(
        *response,
        hex(
            "336c6fe276b9593e8a7a2be4fb4e20c7c9d00ccffe2c0399a2c19ccd2e2e00cb17f1e76bde9ae4c90bc321deb15282ef"
        )
    );
    let terms = Terms {
        sequence: 0x1112_1314,
        ..terms
    };
    let response = controller_response(terms, &controller, &[0xc2; 48], &names());
    assert_eq!(
        *response,
        hex(
            "4c42eacf0f2da21bbc903d05837e93b5f4abf5c401d8df48552615b67300b67ba7b76b080b00b26f3430eb877e8eda45"
        )
    );
}

/// The steps of a hostile host: it is never authenticated without its secret, whatever it sends.
#[test]
fn messages_in_any_order_and_any_bytes_authenticate_nobody() {
    let ring = ring(
        vec![secret(0, None)],
        Some(secret(1, None)),
        ChapPolicy {
            groups: vec![Group::Null],
            ..ChapPolicy::default()
        },
    );
    let mut bytes = random(3);
    let mut number = move |below: usize| {
        let mut number = [0; 4];
        bytes(&mut number);
        u32::from_le_bytes(number) as usize % below
    };
    for run in 0..2000 {
        let mut target = ControllerExchange::new(names(), Arc::clone(&ring));
        let mut jobs = random(run);
        let (_, negotiate) = HostExchange::begin(names(), secret(2, None), None, 7);
        for _ in 0..12 {
            let reply = Message::Reply(Reply {
                transaction: 7,
                sequence: 0,
                response: vec![0; 64],
                challenge: (number(2) == 0).then(|| vec![0; 64]),
                public: Vec::new(),
            });
            let mut message = match number(6) {
                0 | 1 => negotiate.clone(),
                2 => reply.encode(),
                3 => Message::Success2 { transaction: 7 }.encode(),
                4 => Message::Success1 {
                    transaction: 7,
                    hash_bytes: 64,
                    response: None,
                }
                .encode(),
                _ => Message::Failure2 {
                    transaction: 7,
                    explanation: Explanation::Failed,
                }
                .encode(),
            };
            if number(3) == 0 {
                let at = number(message.len());
                message[at] = u8::try_from(number(256)).unwrap();
            }
            if number(5) == 0 {
                message.truncate(number(message.len()));
            }
            let mut progress = target.receive(&message);
            if let Progress::Compute(job) = progress {
                progress = target.computed(job.run(&mut jobs));
            }
            assert!(!matches!(progress, Progress::Authenticated), "run {run}");
            if number(2) == 0
                && let Some((_, progress)) = target.response()
            {
                assert!(!matches!(progress, Progress::Authenticated), "run {run}");
            }
        }
    }
}

#[test]
fn a_host_accepts_no_success_before_its_proof_and_no_other_transaction() {
    let (mut host, _) = HostExchange::begin(names(), secret(0, None), None, 7);
    let success = |transaction| Message::Success1 {
        transaction,
        hash_bytes: 64,
        response: None,
    };
    let HostStep::Failed(Failure::Sequence { got, expected }, Some(_)) =
        host.receive(&success(7).encode())
    else {
        panic!("it was not asked");
    };
    assert_eq!((got, expected), ("Success1", "Challenge"));
    let (mut host, _) = HostExchange::begin(names(), secret(0, None), None, 7);
    let step = host.receive(&success(8).encode());
    assert!(matches!(
        step,
        HostStep::Failed(Failure::Payload(_), Some(_))
    ));
}

#[test]
fn a_reply_repeated_in_the_next_exchange_is_wrong() {
    let ring = ring(vec![secret(0, None)], None, ChapPolicy::default());
    let mut target = ControllerExchange::new(names(), ring);
    let (mut ours, mut theirs) = (random(1), random(2));
    let mut run = |target: &mut ControllerExchange, message: &[u8]| {
        if let Progress::Compute(job) = target.receive(message) {
            target.computed(job.run(&mut theirs));
        }
        target.response().expect("it is due")
    };
    let (mut host, negotiate) = HostExchange::begin(names(), secret(0, None), None, 7);
    let (challenge, _) = run(&mut target, &negotiate);
    let HostStep::Compute(job) = host.receive(&challenge) else {
        panic!("a challenge");
    };
    let HostStep::Send(reply) = host.computed(job.run(&mut ours)) else {
        panic!("a reply");
    };
    assert!(matches!(
        run(&mut target, &reply).1,
        Progress::Authenticated
    ));
    run(&mut target, &negotiate);
    let (_, progress) = run(&mut target, &reply);
    assert!(matches!(progress, Progress::Failed(Failure::WrongSecret)));
}
