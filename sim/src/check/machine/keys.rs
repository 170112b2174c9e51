//! Keys of hosts that change while they work, and strangers who must not be let in.

use super::super::plan::{KeyChange, Stranger};
use super::super::tenants::host_name;
use super::super::tls::{self, KnownKeys, STRANGER};
use super::by_hand::{LOOKS, PATIENCE};
use super::{Machine, SUBSYSTEM};
use crate::by_hand::{QueueByHand, Seen};
use base::Nanos;
use reactor::tls::{Handshake, Shaken};
use secure::{Psk, psk};
use std::task::Poll;
use target::{ControllerSnapshot, TlsMode};

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
        if unknown_for > Nanos::ZERO {
            let wrong = self.key_prng.chance(1, 2);
            let wrong = wrong.then(|| tls::draw(&mut self.key_prng));
            self.set_keys(target, |keys| keys.set(host, wrong.into_iter().collect()));
            self.pass(unknown_for);
        }
        let own = self.keys.of(host).iter().enumerate();
        let known = own.filter(|(index, _)| known & 1 << index != 0);
        let known = known.map(|(_, key)| key.clone()).collect();
        self.set_keys(target, |keys| keys.set(host, known));
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
        let Some(tls) = &self.plan.tls else { return };
        let cast = self.cast.borrow();
        for process in cast.targets.iter().flatten() {
            for ControllerSnapshot {
                host_nqn, identity, ..
            } in process.shared.snapshot().controllers
            {
                let host = (0..self.plan.hosts).find(|&host| host_name(host) == host_nqn);
                let proves = host.is_some_and(|host| tls.hosts[host]);
                assert_eq!(identity.tls, proves, "the identity of {host_nqn}");
            }
        }
    }

    fn comes_in_clear(&mut self, target: usize, host: usize) -> Option<bool> {
        let tls = self.plan.tls.as_ref()?;
        let (required, authentication) = (tls.mode == TlsMode::Required, tls.authentication);
        let mut queue = QueueByHand::dial(&self.world, self.known[target].address)?;
        let is_ready = self.begin(&mut queue).is_some();
        if required {
            return Some(is_ready);
        }
        if !is_ready || !authentication.tls {
            return None;
        }
        self.connects_as(&mut queue, &host_name(host), None)
    }

    fn states_other_name(&mut self, target: usize, host: usize) -> Option<bool> {
        let psk = self.stranger_psk(target);
        let mut queue = self.dial_with(target, &psk)?;
        self.begin(&mut queue)?;
        self.connects_as(&mut queue, &host_name(host), None)
    }

    fn uses_old_key(&mut self, target: usize) -> Option<bool> {
        let psk = self.stranger_psk(target);
        self.set_keys(target, |keys| keys.set_stranger(None));
        Some(self.dial_with(target, &psk).is_some())
    }

    fn wants_other_queue(&mut self, target: usize) -> Option<bool> {
        let tls = self.plan.tls.as_ref()?;
        if tls.mode == TlsMode::Required || tls.authentication.tls {
            return None;
        }
        let controllers = {
            let cast = self.cast.borrow();
            cast.targets[target].as_ref()?.shared.snapshot().controllers
        };
        let mut controllers = controllers.into_iter();
        let its = controllers.find(|it| it.nqn == SUBSYSTEM && it.identity.tls)?;
        let is_free = |id: &u16| its.io_queues.iter().all(|queue| queue.qid != *id);
        let id = (1..=self.plan.limits.io_queues).find(is_free)?;
        let mut queue = QueueByHand::dial(&self.world, self.known[target].address)?;
        self.begin(&mut queue)?;
        self.connects_as(&mut queue, &its.host_nqn, Some((its.id, id)))
    }

    /// Gives the stranger a new key that the target knows.
    fn stranger_psk(&mut self, target: usize) -> Psk {
        let key = tls::draw(&mut self.key_prng);
        let psk = psk::offers(&key, STRANGER, SUBSYSTEM).remove(0);
        self.set_keys(target, |keys| keys.set_stranger(Some(key)));
        psk
    }

    /// Sends Connect with the name of a host. Returns true if the target accepts it.
    fn connects_as(
        &self,
        queue: &mut QueueByHand,
        name: &str,
        of: Option<(u16, u16)>,
    ) -> Option<bool> {
        let cid = queue.send_connect(SUBSYSTEM, name, of)?;
        let answer = self.answer(queue, cid)?;
        Some(answer.status.is_success())
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
