//! DH-HMAC-CHAP of queues.

use super::common::{Bed, Client, HOST, NQN, eventually, fabrics, io, namespace, ram, target_with};
use reactor::fill_random;
use secure::chap::{
    Explanation, Failure, Group, HostExchange, HostStep, Message, Names, Reply, Secret,
};
use secure::{ChapPolicy, Hash, HostKeys, KeyRing};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use switchyard_target::limits::GUESSES;
use switchyard_target::{
    Authentication, EventKind, Limits, RunningTarget, TargetOptions, Tenancy, TenantOptions,
};
use testing::Dialect;
use wire::fabrics::{AuthenticationTransfer, Connect, ConnectData, ConnectResponse, Property};
use wire::nvme::{AdminCommand, Command, FabricsType, IoOpcode, SglDescriptor, Status};
use wire::tcp::PduHeader;

const REQUIRED: u16 = ConnectResponse::AUTHENTICATION_REQUIRED;

/// Bytes that hosts allocate for a response.
const ALLOCATED: usize = 4096;

fn secret(first: u8) -> Secret {
    let bytes: Vec<u8> = (first..).take(32).collect();
    Secret::new(Some(Hash::Sha256), &bytes).expect("32 bytes")
}

fn ring(chap: Vec<Secret>, controller: Option<Secret>, policy: ChapPolicy) -> KeyRing {
    let keys = HostKeys {
        chap,
        controller,
        ..HostKeys::default()
    };
    KeyRing {
        hosts: BTreeMap::from([(HOST.to_owned(), keys)]),
        policy,
        ..KeyRing::default()
    }
}

fn names() -> Names {
    Names {
        hostnqn: HOST.to_owned(),
        subnqn: NQN.to_owned(),
    }
}

const CHAP: Authentication = Authentication {
    tls: false,
    chap: true,
};

/// The group without mathematics, for tests of everything else.
fn quick() -> ChapPolicy {
    ChapPolicy {
        groups: vec![Group::Null],
        ..ChapPolicy::default()
    }
}

/// A target whose host has the first secret.
fn bed() -> Bed {
    bed_with(Limits::default())
}

fn bed_with(limits: Limits) -> Bed {
    let bed = Bed::with(limits, 2);
    bed.handle().set_keys(ring(vec![secret(1)], None, quick()));
    bed
}

/// A queue whose Connect was answered.
struct Queue {
    client: Client,
    cntlid: u16,
    required: u16,
}

fn connected(bed: &Bed, connect: &Connect, cntlid: u16) -> Queue {
    let client = Client::dial(bed.address(), Dialect::default());
    connected_by(client, connect, cntlid).expect("Connect succeeds")
}

fn connected_by(mut client: Client, connect: &Connect, cntlid: u16) -> Result<Queue, Status> {
    let completion = client.connect(connect, &Client::connect_data(NQN, cntlid));
    if !completion.status.is_success() {
        return Err(completion.status);
    }
    let response = ConnectResponse::from_dword(completion.dword0());
    Ok(Queue {
        client,
        cntlid: response.cntlid,
        required: response.authentication,
    })
}

fn admin(bed: &Bed) -> Queue {
    let connect = Client::connect_command(0, 31, 0);
    connected(bed, &connect, ConnectData::CNTLID_DYNAMIC)
}

/// An admin queue whose host has authenticated, and enabled the controller.
fn authenticated(bed: &Bed) -> Queue {
    let mut admin = admin(bed);
    assert_eq!(admin.authenticate(secret(1), None), Ok(()));
    admin.enable();
    admin
}

fn io_queue(bed: &Bed, cntlid: u16) -> Queue {
    connected(bed, &Client::connect_command(1, 31, 0), cntlid)
}

impl Queue {
    fn send(&mut self, message: &[u8]) -> Status {
        let transfer = AuthenticationTransfer::message(message.len() as u32);
        let send = transfer.encode(FabricsType::AUTHENTICATION_SEND, 0);
        self.client.execute(send, message).status
    }

    fn receive(&mut self) -> Result<Vec<u8>, Status> {
        let (completion, data) = self.client.fetch(receive(ALLOCATED), ALLOCATED);
        if completion.status.is_success() {
            Ok(data)
        } else {
            Err(completion.status)
        }
    }

    fn authenticate(&mut self, own: Secret, controller: Option<Secret>) -> Result<(), Failure> {
        let (mut host, mut message) = HostExchange::begin(names(), own, controller, 7);
        loop {
            let status = self.send(&message);
            assert!(status.is_success(), "{status}");
            let answer = self.receive().expect("a response is due");
            let mut step = host.receive(&answer);
            if let HostStep::Compute(job) = step {
                step = host.computed(job.run(&mut fill_random));
            }
            match step {
                HostStep::Send(next) => message = next,
                HostStep::Authenticated(last) => {
                    if let Some(last) = last {
                        assert!(self.send(&last).is_success());
                    }
                    return Ok(());
                }
                HostStep::Failed(failure, last) => {
                    if let Some(last) = last {
                        self.send(&last);
                    }
                    return Err(failure);
                }
                HostStep::Compute(_) => panic!("a job after a job"),
            }
        }
    }

    fn enable(&mut self) {
        self.client.enable();
    }

    /// Begins an exchange, and returns the reply to its challenge.
    fn reply(&mut self) -> Vec<u8> {
        let (mut host, message) = HostExchange::begin(names(), secret(1), None, 7);
        assert!(self.send(&message).is_success());
        let HostStep::Compute(job) = host.receive(&self.receive().expect("a challenge")) else {
            panic!("a challenge")
        };
        match host.computed(job.run(&mut fill_random)) {
            HostStep::Send(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the reason of the failure that is due.
    fn refused(&mut self) -> Explanation {
        let answer = self.receive().expect("a failure is due");
        match Message::parse(&answer, None).expect("a message") {
            Message::Failure1 { explanation, .. } => explanation,
            other => panic!("{other:?}"),
        }
    }

    /// Checks that the target closes the connection.
    fn ends(mut self) {
        assert!(self.client.try_receive().is_none(), "the connection ends");
    }
}

/// The failure that a host with a wrong secret sees.
const WRONG: Failure = Failure::Refused {
    step: "Reply",
    explanation: Explanation::Failed,
};

fn receive(bytes: usize) -> Command {
    let transfer = AuthenticationTransfer::message(bytes as u32);
    transfer.encode(FabricsType::AUTHENTICATION_RECEIVE, 0)
}

/// A Negotiate of this host, with transaction 7.
fn negotiate() -> Vec<u8> {
    HostExchange::begin(names(), secret(1), None, 7).1
}

#[test]
fn a_host_with_a_secret_authenticates_each_queue() {
    let bed = bed();
    let mut admin = authenticated(&bed);
    assert_eq!(admin.required, REQUIRED);
    let mut io_queue = io_queue(&bed, admin.cntlid);
    assert_eq!(io_queue.required, REQUIRED);
    assert_eq!(io_queue.authenticate(secret(1), None), Ok(()));
    assert!(io_queue.client.read(0, 1).0.status.is_success());
    let identity = bed.handle().snapshot().controllers[0].identity;
    assert_eq!(identity.word(), "chap");
    let held = AdminCommand::KeepAlive.encode(0);
    assert!(admin.client.execute(held, &[]).status.is_success());
}

#[test]
fn every_hash_and_group_works() {
    let bed = Bed::new();
    let small = [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072];
    let large = [Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192];
    let small = Hash::ALL
        .into_iter()
        .flat_map(|hash| small.map(|group| (hash, group)));
    let all = small.chain(large.map(|group| (Hash::Sha256, group)));
    for (hash, group) in all {
        let policy = ChapPolicy {
            hashes: vec![hash],
            groups: vec![group],
        };
        bed.handle()
            .set_keys(ring(vec![secret(1)], Some(secret(9)), policy));
        let mut admin = admin(&bed);
        let result = admin.authenticate(secret(1), Some(secret(9)));
        assert_eq!(result, Ok(()), "{} {}", hash.name(), group.name());
        admin.enable();
    }
}

#[test]
fn a_host_that_refuses_the_controller_gets_none() {
    let bed = bed();
    bed.handle()
        .set_keys(ring(vec![secret(1)], Some(secret(8)), quick()));
    let mut queue = admin(&bed);
    let result = queue.authenticate(secret(1), Some(secret(9)));
    assert_eq!(result, Err(Failure::WrongController));
    queue.ends();
    bed.handle().set_keys(ring(vec![secret(1)], None, quick()));
    let mut queue = admin(&bed);
    let result = queue.authenticate(secret(1), Some(secret(9)));
    assert_eq!(result, Err(WRONG), "the controller has no secret");
    queue.ends();
}

#[test]
fn a_wrong_secret_ends_the_queue() {
    let bed = bed();
    let mut queue = admin(&bed);
    assert_eq!(queue.authenticate(secret(2), None), Err(WRONG));
    queue.ends();
    eventually("the controller ends", || {
        bed.handle().snapshot().controllers.is_empty()
    });
    let admin = authenticated(&bed);
    let mut queue = io_queue(&bed, admin.cntlid);
    assert_eq!(queue.authenticate(secret(2), None), Err(WRONG));
    queue.ends();
    let mut queue = io_queue(&bed, admin.cntlid);
    assert_eq!(queue.authenticate(secret(1), None), Ok(()));
    assert_eq!(bed.handle().snapshot().cores[0].authentication_failures, 2);
    let events = bed.handle().events(0);
    let EventKind::AuthenticationRefused(refused) = &events[0].kind else {
        panic!("{events:?}")
    };
    assert_eq!(refused.host.as_deref(), Some(HOST));
    assert!(refused.reason.contains("another secret"), "{refused:?}");
}

#[test]
fn a_host_without_a_secret_is_refused_where_one_is_required() {
    let bed = Bed::new();
    assert_eq!(admin(&bed).required, 0, "nothing is required");
    let handle = bed.handle();
    handle.set_authentication(NQN, CHAP).expect("it is there");
    let connect = Client::connect_command(0, 31, 0);
    let client = Client::dial(bed.address(), Dialect::default());
    let refused = connected_by(client, &connect, ConnectData::CNTLID_DYNAMIC);
    let status = refused.err().expect("no secret");
    assert!(status.is(Status::CONNECT_INVALID_HOST), "{status}");
    let events = handle.events(0);
    assert!(matches!(
        events[0].kind,
        EventKind::AuthenticationRefused(_)
    ));
    let keys = HostKeys {
        chap: vec![secret(1)],
        ..HostKeys::default()
    };
    handle.set_keys(KeyRing {
        any: keys,
        ..KeyRing::default()
    });
    assert_eq!(
        authenticated(&bed).required,
        REQUIRED,
        "a secret of any host"
    );
}

#[test]
fn nothing_is_executed_before() {
    let bed = bed();
    let mut admin = admin(&bed);
    let early = [
        fabrics(FabricsType::PROPERTY_GET),
        fabrics(FabricsType::PROPERTY_SET),
        AdminCommand::KeepAlive.encode(0),
    ];
    for command in early {
        let status = admin.client.execute(command, &[]).status;
        assert!(status.is(Status::AUTHENTICATION_REQUIRED), "{status}");
    }
    let connect = Client::connect_command(0, 31, 0);
    let data = Client::connect_data(NQN, ConnectData::CNTLID_DYNAMIC);
    let status = admin.client.connect(&connect, &data).status;
    assert!(status.is(Status::COMMAND_SEQUENCE_ERROR), "{status}");
    let client = Client::dial(bed.address(), Dialect::default());
    let queue = connected_by(client, &Client::connect_command(1, 31, 0), admin.cntlid);
    let status = queue.err().expect("the controller is not enabled");
    assert!(status.is(Status::COMMAND_SEQUENCE_ERROR), "{status}");
    assert_eq!(admin.authenticate(secret(1), None), Ok(()));
    admin.enable();
    let mut queue = io_queue(&bed, admin.cntlid);
    let (completion, _) = queue.client.read(0, 1);
    let status = completion.status;
    assert!(status.is(Status::AUTHENTICATION_REQUIRED), "{status}");
    let status = queue
        .client
        .execute(io(IoOpcode::WRITE_ZEROES, 0, 1), &[])
        .status;
    assert!(status.is(Status::AUTHENTICATION_REQUIRED), "{status}");
    // A claimed queue has no place yet.
    let mut other = io_queue(&bed, admin.cntlid);
    assert_eq!(other.authenticate(secret(1), None), Ok(()));
    let status = queue.send(&negotiate());
    assert!(status.is_success(), "{status}");
    drop(queue);
    assert!(other.client.read(0, 1).0.status.is_success());
}

#[test]
fn wrong_fields_are_refused() {
    let bed = bed();
    let mut queue = admin(&bed);
    let good = AuthenticationTransfer::message(8);
    let fields = [
        AuthenticationTransfer {
            protocol: 0xea,
            ..good
        },
        AuthenticationTransfer {
            specific: [0, 1],
            ..good
        },
        AuthenticationTransfer {
            specific: [1, 0],
            ..good
        },
        AuthenticationTransfer { length: 0, ..good },
    ];
    for wrong in fields {
        let send = wrong.encode(FabricsType::AUTHENTICATION_SEND, 0);
        let status = queue.client.execute(send, &[0; 8]).status;
        assert!(status.is(Status::INVALID_FIELD), "{wrong:?} {status}");
        let receive = wrong.encode(FabricsType::AUTHENTICATION_RECEIVE, 0);
        let status = queue.client.fetch(receive, 8).0.status;
        assert!(status.is(Status::INVALID_FIELD), "{wrong:?} {status}");
    }
    let mut queue = admin(&bed);
    let status = queue
        .client
        .execute(good.encode(FabricsType::AUTHENTICATION_SEND, 0), &[0; 9]);
    assert!(status.status.is(Status::DATA_SGL_LENGTH_INVALID));
    let status = queue.client.fetch(receive(9000), 9000).0.status;
    assert!(
        status.is(Status::INVALID_FIELD),
        "more than a response ever has: {status}"
    );
    assert!(
        queue
            .receive()
            .is_err_and(|status| status.is(Status::COMMAND_SEQUENCE_ERROR))
    );
    assert!(queue.send(&negotiate()).is_success());
    let status = queue.client.fetch(receive(20), 20).0.status;
    assert!(
        status.is(Status::INVALID_FIELD),
        "it does not fit: {status}"
    );
    assert_eq!(
        queue.authenticate(secret(1), None),
        Ok(()),
        "it begins anew"
    );
}

/// A message of more than the capsule's data comes by R2T.
#[test]
fn a_message_may_come_by_r2t() {
    let bed = bed();
    let mut queue = admin(&bed);
    let message = negotiate();
    let transfer = AuthenticationTransfer::message(message.len() as u32);
    let cid = queue.client.cid();
    let mut command = transfer.encode(FabricsType::AUTHENTICATION_SEND, cid);
    command.set_sgl(SglDescriptor::transport(message.len() as u32));
    queue.client.capsule(&command, &[]);
    assert!(queue.client.finish_write(&message).status.is_success());
    queue.receive().expect("a response is due");
}

/// A Reply to a challenge of the group NULL.
fn reply(response: Vec<u8>) -> Vec<u8> {
    let reply = Reply {
        transaction: 7,
        sequence: 0,
        response,
        challenge: None,
        public: Vec::new(),
    };
    Message::Reply(reply).encode()
}

#[test]
fn messages_out_of_order_end_the_queue() {
    let success = Message::Success2 { transaction: 7 }.encode();
    let long = reply(vec![5; 64]);
    let cases: [(&[&[u8]], Explanation); 5] = [
        (&[&long], Explanation::IncorrectMessage),
        (&[&success], Explanation::IncorrectMessage),
        (&[&negotiate(), &success], Explanation::IncorrectMessage),
        (&[&[1, 2, 3]], Explanation::IncorrectPayload),
        (&[&negotiate(), &long[..40]], Explanation::IncorrectPayload),
    ];
    let bed = bed();
    for (messages, expected) in cases {
        let mut queue = admin(&bed);
        let (last, before) = messages.split_last().expect("one at least");
        for message in before {
            assert!(queue.send(message).is_success());
            queue.receive().expect("a response is due");
        }
        assert!(queue.send(last).is_success());
        assert_eq!(queue.refused(), expected, "{messages:x?}");
        queue.ends();
    }
}

#[test]
fn a_reply_is_good_once() {
    let bed = bed();
    let mut queue = admin(&bed);
    let reply = queue.reply();
    assert!(queue.send(&reply).is_success());
    queue.receive().expect("a response is due");
    let mut other = admin(&bed);
    assert!(other.send(&negotiate()).is_success());
    other.receive().expect("a response is due");
    assert!(other.send(&reply).is_success());
    assert_eq!(other.refused(), Explanation::Failed);
    other.ends();
}

/// Without a proof a name uses up nothing that counts for the host or the tenant of that name.
#[test]
fn a_claimed_name_leaves_the_limits_of_its_host() {
    let bed = bed_with(Limits {
        controllers_per_host: 1,
        controllers_per_tenant: 1,
        connections_per_tenant: 2,
        ..Limits::default()
    });
    let tenants = vec![TenantOptions {
        name: "tenant".to_owned(),
        hosts: vec![HOST.to_owned()],
        ..TenantOptions::default()
    }];
    let tenancy = Tenancy {
        tenants,
        ..Tenancy::default()
    };
    bed.handle().set_tenants(&tenancy).expect("a tenant");
    let claimed: Vec<_> = (0..5).map(|_| admin(&bed)).collect();
    let own = authenticated(&bed);
    let claimed_queues: Vec<_> = (0..5).map(|_| io_queue(&bed, own.cntlid)).collect();
    let mut queue = io_queue(&bed, own.cntlid);
    assert_eq!(queue.authenticate(secret(1), None), Ok(()));
    assert!(queue.client.read(0, 1).0.status.is_success());
    // Another one of the host itself is one too many.
    let mut second = admin(&bed);
    let reply = second.reply();
    assert!(second.send(&reply).is_success());
    let status = second.receive().expect_err("there is one");
    assert!(status.is(Status::CONNECT_CONTROLLER_BUSY), "{status}");
    second.ends();
    drop((claimed, claimed_queues));
}

#[test]
fn a_host_may_authenticate_again() {
    let bed = bed();
    let mut admin = authenticated(&bed);
    let mut queue = io_queue(&bed, admin.cntlid);
    assert_eq!(queue.authenticate(secret(1), None), Ok(()));
    assert_eq!(admin.authenticate(secret(1), None), Ok(()));
    assert_eq!(queue.authenticate(secret(1), None), Ok(()));
    assert!(queue.client.read(0, 1).0.status.is_success());
    assert_eq!(admin.authenticate(secret(3), None), Err(WRONG));
    admin.ends();
    queue.ends();
    let admin = authenticated(&bed);
    let mut queue = io_queue(&bed, admin.cntlid);
    assert_eq!(queue.authenticate(secret(1), None), Ok(()));
    assert_eq!(queue.authenticate(secret(3), None), Err(WRONG));
    queue.ends();
    admin.ends();
}

/// As Linux does: it is out of order.
#[test]
fn a_reply_without_an_exchange_ends_the_association() {
    let bed = bed();
    let mut admin = authenticated(&bed);
    assert!(admin.send(&reply(vec![5; 64])).is_success());
    assert_eq!(admin.refused(), Explanation::IncorrectMessage);
    admin.ends();
}

#[test]
fn a_further_exchange_that_stalls_is_forgotten_unless_it_has_failed() {
    let bed = Bed::with(
        Limits {
            authentication_timeout: base::Nanos::from_millis(50),
            ..Limits::default()
        },
        2,
    );
    // Without a secret, it need not authenticate before.
    let mut admin = admin(&bed);
    admin.enable();
    bed.handle().set_keys(ring(vec![secret(1)], None, quick()));
    assert!(admin.send(&negotiate()).is_success());
    eventually("the challenge is forgotten", || {
        admin.receive() == Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr())
    });
    let held = AdminCommand::KeepAlive.encode(0);
    assert!(admin.client.execute(held, &[]).status.is_success());
    assert!(admin.send(&reply(vec![5; 64])).is_success());
    // It does not receive the failure.
    admin.ends();
}

#[test]
fn a_removed_secret_proves_nothing() {
    let bed = bed();
    let handle = bed.handle();
    let identity = || handle.snapshot().controllers[0].identity.word();
    let mut admin = authenticated(&bed);
    handle.set_keys(ring(vec![secret(2), secret(1)], None, quick()));
    assert_eq!(identity(), "chap", "both are valid");
    handle.set_keys(ring(vec![secret(2)], None, quick()));
    assert_eq!(identity(), "claimed");
    assert_eq!(admin.authenticate(secret(2), None), Ok(()));
    assert_eq!(identity(), "chap");
    handle.set_authentication(NQN, CHAP).expect("it is there");
    handle.set_keys(ring(vec![secret(2), secret(1)], None, quick()));
    let held = AdminCommand::KeepAlive.encode(0);
    assert!(admin.client.execute(held, &[]).status.is_success());
    handle.set_keys(ring(vec![secret(1)], None, quick()));
    admin.ends();
}

#[test]
fn a_guesser_has_ten_attempts_at_its_own_address() {
    let ram = ram(1 << 20);
    let namespaces = [namespace(1, Arc::clone(&ram) as Arc<dyn block::Device>)];
    let options = TargetOptions {
        listen: ["127.0.0.1:0", "[::1]:0"]
            .map(|address| address.parse::<std::net::SocketAddr>().unwrap().into())
            .into(),
        pin: false,
        ..TargetOptions::default()
    };
    let target = target_with(Limits::default(), 1, namespaces);
    let target = RunningTarget::start(target, &options).expect("a target on loopback");
    let bed = Bed { target, ram };
    bed.handle().set_keys(ring(vec![secret(1)], None, quick()));
    for _ in 0..GUESSES {
        assert_eq!(admin(&bed).authenticate(secret(2), None), Err(WRONG));
    }
    let mut right = admin(&bed);
    assert_eq!(right.authenticate(secret(1), None), Err(WRONG), "too late");
    let elsewhere = Client::dial(bed.target.addresses[1], Dialect::default());
    let connect = Client::connect_command(0, 31, 0);
    let right = connected_by(elsewhere, &connect, ConnectData::CNTLID_DYNAMIC);
    let mut right = right.expect("Connect succeeds");
    assert_eq!(right.authenticate(secret(1), None), Ok(()));
}

#[test]
fn a_host_that_stalls_is_ended() {
    let bed = bed_with(Limits {
        authentication_timeout: base::Nanos::from_millis(50),
        ..Limits::default()
    });
    let silent = admin(&bed);
    let mut halfway = admin(&bed);
    assert!(halfway.send(&negotiate()).is_success());
    silent.ends();
    halfway.ends();
    eventually("both are counted", || {
        bed.handle().snapshot().cores[0].authentication_timeouts == 2
    });
}

/// Commands before the authentication are limited in number.
#[test]
fn a_flood_of_early_commands_ends_the_connection() {
    let bed = bed();
    let mut queue = admin(&bed);
    let held = AdminCommand::KeepAlive.encode(0);
    let mut count = 0;
    loop {
        let cid = queue.client.cid();
        let mut command = held;
        command.set_cid(cid);
        queue.client.capsule(&command, &[]);
        match queue.client.receive().header {
            PduHeader::CapsuleResp(_) => count += 1,
            PduHeader::C2hTermReq(_) => break,
            other => panic!("{other:?}"),
        }
        assert!(count < 20, "no end");
    }
    queue.ends();
}

/// Another process knows by which secret a host has authenticated.
#[test]
fn a_proof_is_handed_over_and_ends_with_its_secret() {
    let bed = bed();
    bed.handle()
        .set_authentication(NQN, CHAP)
        .expect("it is there");
    let mut admin = authenticated(&bed);
    let handed = bed.handle().depart(Duration::from_secs(30));
    let handed = handed.expect("nothing is outstanding");
    bed.handle().take_over(handed).expect("the core answers");
    let queue = io_queue(&bed, admin.cntlid);
    assert_eq!(queue.required, REQUIRED);
    admin.client.property(Property::CSTS);
    bed.handle().set_keys(ring(vec![secret(2)], None, quick()));
    admin.client.closed();
}
