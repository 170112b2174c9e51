//! An update that cannot reach all cores reaches none.

use super::message::Update;
use super::*;
use crate::association::{Association, NamespacesFound};
use crate::info::Parameters;
use crate::info::{ControllerInfo, NamespaceInfo};
use crate::options::{ConnectOptions, HostIdentity, parse_nqn};
use crate::recovery::epoch::{Epoch, Phase};
use reactor::limits::MAILBOX_CAPACITY;
use reactor::{Mailbox, Region, Wake};
use wire::nvme::IdentifyController;

#[derive(Debug)]
struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

/// A switchboard whose two cores are not run, and their mailboxes.
fn board() -> (Switchboard, Vec<Mailbox<DataplaneMessage>>) {
    let options = SwitchboardOptions {
        cores: vec![CoreId(0), CoreId(1)],
        knobs: Knobs::switchyard(),
    };
    let mut mailboxes = Vec::new();
    let board = Switchboard::run_by(&options, |_| {
        let mailbox = Mailbox::new(Arc::new(Nobody));
        let sender = mailbox.sender();
        mailboxes.push(mailbox);
        Ok(sender)
    });
    (board.unwrap(), mailboxes)
}

/// Fills every mailbox, and then empties the first.
fn fill_the_second(board: &Switchboard, mailboxes: &mut [Mailbox<DataplaneMessage>]) {
    while board.set_knobs(&Knobs::switchyard()).is_ok() {}
    let emptied = std::iter::from_fn(|| mailboxes[0].pop()).count();
    assert_eq!(emptied, MAILBOX_CAPACITY);
}

/// Takes the messages to a core that releases every controller at once.
fn told(mailbox: &mut Mailbox<DataplaneMessage>) -> Vec<String> {
    told_to(mailbox, &mut Vec::new())
}

/// Takes the messages to a core that has lanes to the controllers in `known`.
fn told_to(
    mailbox: &mut Mailbox<DataplaneMessage>,
    known: &mut Vec<Arc<ingress::TargetNumber>>,
) -> Vec<String> {
    let notes = std::iter::from_fn(|| mailbox.pop()).map(|DataplaneMessage(note)| match note {
        Update::Target(number, _) => {
            let note = format!("target {}", number.0);
            known.push(number);
            note
        }
        Update::Namespace {
            target, namespace, ..
        } => format!("namespace {target}.{namespace}"),
        Update::Join(number, _) => format!("join {number}"),
        Update::Leave(number) => format!("leave {number}"),
        Update::Knobs(_) => "knobs".to_owned(),
        Update::Close => "close".to_owned(),
    });
    notes.filter(|note| note != "knobs").collect()
}

fn namespaces() -> [RemoteNamespace; 2] {
    let subsystem = parse_nqn("nqn.2026-11.io.switchyard:default").unwrap();
    let host = HostIdentity::generate();
    let options = ConnectOptions::new(([127, 0, 0, 1], 1).into(), subsystem, host);
    let association = Association::new(options);
    let info = |nsid| NamespaceInfo::plain(nsid, 8);
    let parameters = Parameters {
        io_queues: 4,
        ..Parameters::default()
    };
    let identify = IdentifyController::default();
    association.learn_controller(ControllerInfo::from_identify(&identify), parameters);
    association.learn_namespaces(NamespacesFound {
        found: vec![info(1), info(2)],
        ..NamespacesFound::default()
    });
    association.set_epoch(Epoch {
        generation: 1,
        phase: Phase::Live,
    });
    [1, 2].map(|nsid| RemoteNamespace::new(&association, nsid).unwrap())
}

fn submitter() -> Arc<ingress::Submitter> {
    let region = Region::new(4096).unwrap();
    Arc::new(ingress::Submitter::new(1, region, Arc::new(Nobody)))
}

fn submitter_to(target: &Arc<ingress::TargetNumber>) -> Arc<ingress::Submitter> {
    let region = Region::new(4096).unwrap();
    let submitter = ingress::Submitter::new(1, region, Arc::new(Nobody));
    Arc::new(submitter.with_target(target))
}

#[test]
fn what_one_core_cannot_be_told_no_core_is_told() {
    let (board, mut mailboxes) = board();
    fill_the_second(&board, &mut mailboxes);
    let [one, two] = namespaces();
    let (early, late) = (submitter(), submitter());
    for _ in 0..2 {
        board.namespace(&one).unwrap_err();
        board.inner.join(&early).unwrap_err();
        board.set_knobs(&Knobs::linux()).unwrap_err();
        assert_eq!(board.knobs(), Knobs::switchyard());
        assert!(mailboxes[0].pop().is_none(), "the first core has room");
        assert_eq!(Arc::strong_count(&early), 1, "nobody knows it");
    }

    mailboxes[1].pop().unwrap();
    board.namespace(&one).unwrap_err();
    // There was room for the message of the controller, not for that of its namespace.
    let mut known = Vec::new();
    for mailbox in &mut mailboxes {
        assert_eq!(told_to(mailbox, &mut known), ["target 0"]);
    }
    for (namespace, number) in [(&two, 0), (&one, 1), (&two, 0)] {
        let (target, switched) = board.inner.register(namespace).unwrap();
        assert_eq!((target.0, switched), (0, number));
    }
    assert_eq!(board.inner.join(&late).unwrap(), 0);
    assert_eq!(board.inner.join(&early).unwrap(), 1);
    let all = ["namespace 0.0", "namespace 0.1", "join 0", "join 1"];
    assert_eq!(told(&mut mailboxes[0]), all);
    assert_eq!(told(&mut mailboxes[1]), all);
}

/// Closed controllers do not count against the 64 of a switchboard.
#[test]
fn a_controller_is_forgotten_when_nobody_needs_its_number() {
    let (board, mut mailboxes) = board();
    let mut add = |namespace: &RemoteNamespace| {
        let device = board.namespace(namespace).unwrap();
        let [first, second] = &mut mailboxes[..] else {
            panic!("two cores")
        };
        let notes = told(first);
        assert_eq!(notes, told(second));
        (device, notes)
    };
    for _ in 0..2 * limits::TARGETS_MAX {
        let [one, _] = namespaces();
        let (_, notes) = add(&one);
        assert_eq!(notes, ["target 0", "namespace 0.0"]);
    }
    let [held, _] = namespaces();
    let (device, _) = add(&held);
    let [other, _] = namespaces();
    let (other, notes) = add(&other);
    assert_eq!(notes, ["target 1", "namespace 1.0"], "number 0 is in use");
    // Its submitter has requests in flight while a core knows it.
    let (number, _) = board.inner.register(&held).unwrap();
    let waits = submitter_to(&number);
    drop((device, number));
    assert_eq!(board.inner.join(&waits).unwrap(), 0);
    assert_eq!(
        add(&namespaces()[0]).1,
        ["join 0", "target 2", "namespace 2.0"]
    );
    board.inner.leave(0);
    drop(waits);
    assert_eq!(
        add(&namespaces()[0]).1,
        ["leave 0", "target 0", "namespace 0.0"]
    );
    drop(other);
}

#[test]
fn who_leaves_while_a_core_cannot_be_told_leaves_later() {
    let (board, mut mailboxes) = board();
    let gone = submitter();
    let number = board.inner.join(&gone).unwrap();
    fill_the_second(&board, &mut mailboxes);
    board.inner.leave(number);
    assert!(mailboxes[0].pop().is_none());
    assert_eq!(told(&mut mailboxes[1]), ["join 0"]);
    drop(gone);
    // The cores are notified of it first, and its number is free once they have released it.
    assert_eq!(board.inner.join(&submitter()).unwrap(), 0);
    for mailbox in &mut mailboxes {
        assert_eq!(told(mailbox), ["leave 0", "join 0"]);
    }
}

#[test]
fn a_broken_switchboard_makes_nothing_known_and_enters_nothing() {
    let (board, mut mailboxes) = board();
    let [one, _] = namespaces();
    drop(board.inner.health.serve());
    for _ in 0..2 {
        board.namespace(&one).unwrap_err();
        board.inner.join(&submitter()).unwrap_err();
        board.set_knobs(&Knobs::linux()).unwrap_err();
    }
    assert!(mailboxes.iter_mut().all(|mailbox| told(mailbox).is_empty()));
    drop(board);
    for mailbox in &mut mailboxes {
        assert_eq!(told(mailbox), ["close"], "whoever still listens ends");
    }
}
