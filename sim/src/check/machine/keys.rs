//! Keys of hosts that change while they work, further authentications, and strangers who must not be
//! let in.

use super::super::plan::{KeyChange, Stranger};
use super::super::proofs::{self, KnownKeys, STRANGER};
use super::super::tenants::host_name;
use super::by_hand::{LOOKS, PATIENCE};
use super::{Machine, Outcome, SUBSYSTEM};
use crate::by_hand::{QueueByHand, Seen};
use base::Nanos;
use host::{Association, Phase};
use reactor::tls::{Handshake, Shaken};
use secure::{Psk, psk};
use std::sync::Arc;
use std::task::Poll;
use target::{ControllerSnapshot, TlsMode};
use wire::fabrics::{Property, PropertyGet, PropertySize};
use wire::nvme::{Command, IoOpcode, Status};

/// Longest time of an exchange before a change of its keys.
const EXCHANGE: Nanos = Nanos::from_millis(1);

/// Maximum time of a further authentication: cores may be stalled.
const AUTHENTICATES_WITHIN: Nanos = Nanos::from_secs(60);

impl Machine {
    fn set_keys(&mut self, target: usize, change: impl FnOnce(&mut KnownKeys)) {
        let keys = &mut self.known[target].keys;
        change(keys);
        if let Some(process) = &self.cast.borrow().targets[target] {
            process.shared.set_keys(keys.ring());
        }
    }

    /// Makes a target know none of a host's keys for a time, and then those whose bit is set.
    pub(super) fn change_keys(&mut self, (target, host): (usize, usize), change: KeyChange) {
        let KeyChange { unknown_for, known } = change;
        self.count("changed keys");
        let has_chap = self.plan.proofs.has_chap(host);
        let is_first = self.world.now() == self.begun;
        if !is_first {
            // The secret changes during the exchange.
            self.authenticate_again((target, host));
            let lead = Nanos(self.key_prng.below(EXCHANGE.0));
            self.pass(lead);
        }
        if unknown_for > Nanos::ZERO {
            let only_controller = self.plan.proofs.is_mutual(host) && self.key_prng.chance(1, 2);
            let wrong = self.keys[host].wrong(&mut self.key_prng, has_chap, only_controller);
            self.set_keys(target, |keys| keys.set(host, wrong));
            self.pass(unknown_for);
            self.check_unknown((target, host), is_first, only_controller);
        }
        let known = self.keys[host].known(known, has_chap);
        self.set_keys(target, |keys| keys.set(host, known));
    }

    /// Makes a host with a secret authenticate again at a target.
    pub(super) fn authenticate_again(&mut self, (target, host): (usize, usize)) {
        if self.plan.proofs.has_chap(host) {
            self.count("authentications again");
            let cast = self.cast.borrow();
            cast.hosts[host].associations()[target].request_authentication();
        }
    }

    /// Checks, after all faults have ended, that each connected host with a secret can authenticate
    /// again.
    pub(in crate::check) fn check_authentication(&self) {
        let cast = self.cast.borrow();
        let hosts = cast.hosts.iter().enumerate();
        let hosts = hosts.filter(|(host, _)| self.plan.proofs.has_chap(*host));
        let requests = hosts.flat_map(|(_, host)| {
            let associations = host.associations().into_iter();
            associations.map(|it| (Arc::clone(it), it.generation(), it.request_authentication()))
        });
        let requests: Vec<_> = requests.collect();
        drop(cast);
        let is_open = |(association, generation, number): &(Arc<Association>, u64, u64)| {
            let is_live =
                association.phase() == Phase::Live && association.generation() == *generation;
            let result = association.authentication(*number);
            assert!(
                !is_live || !matches!(result, Some(Err(_))),
                "a host with the right secret is not authenticated: {result:?}"
            );
            is_live && result.is_none()
        };
        let until = self.world.now() + AUTHENTICATES_WITHIN;
        let outcome = self.run_until(until, || !requests.iter().any(is_open));
        assert_eq!(
            outcome,
            Outcome::Done,
            "a host does not authenticate again: {}",
            self.standing()
        );
    }

    /// Checks a host whose keys its target does not know; `is_first`: since before it has connected.
    fn check_unknown(&self, (target, host): (usize, usize), is_first: bool, only_controller: bool) {
        let cast = self.cast.borrow();
        let process = cast.targets[target].as_ref();
        let controllers = process.map(|process| process.shared.snapshot().controllers);
        let mut controllers = controllers.into_iter().flatten();
        let is_its = |it: &ControllerSnapshot| it.host_nqn == host_name(host);
        let authenticated = controllers.any(|it| is_its(&it) && it.identity.chap);
        assert!(
            only_controller || !authenticated,
            "host {host} has authenticated with a wrong secret"
        );
        let proves = self.plan.proofs.has_tls(host) || self.plan.proofs.has_chap(host);
        if proves && is_first {
            let association = cast.hosts[host].associations()[target];
            assert_eq!(
                association.generation(),
                0,
                "host {host} has connected with wrong keys"
            );
        }
    }

    /// Lets a stranger try to use the name of a host at a target.
    ///
    /// # Panics
    /// If it is let in, or a controller does not show how its host has proved its name.
    pub(super) fn meets_stranger(&mut self, place: (usize, usize), stranger: Stranger) {
        let (target, host) = place;
        self.check_identities();
        // A stalled core answers late.
        let (now, stands) = (self.world.now(), self.cast.borrow().stands_until(target));
        self.pass(stands.max(now).since(now));
        let is_let_in = match stranger {
            Stranger::InClear => self.comes_in_clear(target, host),
            Stranger::OtherName => self.states_other_name(target, host),
            Stranger::OldKey => self.uses_old_key(target),
            Stranger::OtherQueue => self.wants_other_queue(target),
        };
        assert_ne!(is_let_in, Some(true), "a stranger is let in: {stranger:?}");
        if is_let_in.is_some() {
            self.count(stranger.name());
        }
    }

    fn check_identities(&self) {
        let cast = self.cast.borrow();
        for process in cast.targets.iter().flatten() {
            for ControllerSnapshot {
                host_nqn, identity, ..
            } in process.shared.snapshot().controllers
            {
                // A stranger has to authenticate after Connect, too.
                if self.plan.proofs.chap.is_some() && identity.is_none() {
                    continue;
                }
                let host = (0..self.plan.hosts).find(|&host| host_name(host) == host_nqn);
                let has_tls = host.is_some_and(|host| self.plan.proofs.has_tls(host));
                let has_chap = host.is_some_and(|host| self.plan.proofs.has_chap(host));
                assert!(
                    identity.tls == has_tls && (has_chap || !identity.chap),
                    "the identity of {host_nqn} is {identity}"
                );
            }
        }
    }

    fn comes_in_clear(&mut self, target: usize, host: usize) -> Option<bool> {
        let mut queue = QueueByHand::dial(&self.world, self.known[target].address)?;
        let is_ready = self.begin(&mut queue).is_some();
        if self.requires_tls() {
            return Some(is_ready);
        }
        if !is_ready || !(self.plan.proofs.authentication().tls || self.plan.proofs.has_chap(host))
        {
            return None;
        }
        self.connects_as(&mut queue, &host_name(host), None)
    }

    /// True if no connection without TLS is accepted.
    fn requires_tls(&self) -> bool {
        self.plan.proofs.mode() == TlsMode::Required
    }

    fn states_other_name(&mut self, target: usize, host: usize) -> Option<bool> {
        self.plan.proofs.tls.as_ref()?;
        let psk = self.stranger_psk(target);
        let mut queue = self.dial_with(target, &psk)?;
        self.begin(&mut queue)?;
        self.connects_as(&mut queue, &host_name(host), None)
    }

    fn uses_old_key(&mut self, target: usize) -> Option<bool> {
        self.plan.proofs.tls.as_ref()?;
        let psk = self.stranger_psk(target);
        self.set_keys(target, |keys| keys.set_stranger(None));
        Some(self.dial_with(target, &psk).is_some())
    }

    fn wants_other_queue(&mut self, target: usize) -> Option<bool> {
        if self.requires_tls() || self.plan.proofs.authentication().tls {
            return None;
        }
        let controllers = {
            let cast = self.cast.borrow();
            cast.targets[target].as_ref()?.shared.snapshot().controllers
        };
        let mut controllers = controllers.into_iter();
        let is_proven = |it: &ControllerSnapshot| it.identity.tls || it.identity.chap;
        let its = controllers.find(|it| it.nqn == SUBSYSTEM && is_proven(it))?;
        let is_free = |id: &u16| its.io_queues.iter().all(|queue| queue.qid != *id);
        let id = (1..=self.plan.limits.io_queues).find(is_free)?;
        let mut queue = QueueByHand::dial(&self.world, self.known[target].address)?;
        self.begin(&mut queue)?;
        self.connects_as(&mut queue, &its.host_nqn, Some((its.id, id)))
    }

    /// Gives the stranger a new key that the target knows.
    fn stranger_psk(&mut self, target: usize) -> Psk {
        let key = proofs::draw(&mut self.key_prng);
        let psk = psk::offers(&key, STRANGER, SUBSYSTEM).remove(0);
        self.set_keys(target, |keys| keys.set_stranger(Some(key)));
        psk
    }

    /// Sends Connect with the name of a host, and a command. Returns true if the target accepts both.
    fn connects_as(
        &self,
        queue: &mut QueueByHand,
        name: &str,
        of: Option<(u16, u16)>,
    ) -> Option<bool> {
        let cid = queue.send_connect(SUBSYSTEM, name, of)?;
        if !self.answer(queue, cid)?.status.is_success() {
            return Some(false);
        }
        let command = match of {
            None => PropertyGet {
                size: PropertySize::Four,
                property: Property::CSTS,
            }
            .encode(0),
            Some(_) => Command::new(IoOpcode::FLUSH.0, 0),
        };
        let answer = self.execute(queue, command, &[])?;
        Some(!answer.status.is(Status::AUTHENTICATION_REQUIRED))
    }

    /// Sends ICReq, and awaits the answer.
    pub(super) fn begin(&self, queue: &mut QueueByHand) -> Option<()> {
        queue.begin()?;
        self.await_arrival(queue, |seen| matches!(seen, Seen::Ready).then_some(()))
    }

    /// Makes a connection with TLS.
    fn dial_with(&self, target: usize, psk: &Psk) -> Option<QueueByHand> {
        let mut queue = QueueByHand::dial(&self.world, self.known[target].address)?;
        let mut handshake = Handshake::connect(psk).expect("a key");
        let [mut step, longest] = LOOKS;
        let until = self.world.now() + PATIENCE;
        loop {
            match queue.shake(&mut handshake) {
                Poll::Ready(Ok(Shaken::Secured(session))) => {
                    queue.secure(session);
                    return Some(queue);
                }
                Poll::Ready(_) => return None,
                Poll::Pending if self.world.now() >= until => return None,
                Poll::Pending => self.pass(step),
            }
            step = Nanos(2 * step.0).min(longest);
        }
    }
}
