//! Knob changes of a host and its targets while requests are outstanding.

use crate::world::{Actor, World};
use base::{Nanos, Prng, Time};
use host::Switchboard;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use switch::Knobs;
use switch::knobs::{KnobRange, Preset};
use target::{Change, Target};

/// Numbers of knob changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Changes on the host.
    pub host: u64,
    /// Changes on a target.
    pub targets: u64,
}

/// Changes knobs at random times, until stopped.
#[derive(Debug)]
pub struct KnobChanger {
    world: World,
    prng: Prng,
    board: Switchboard,
    /// Each target, with the change that its cores are applying.
    targets: Vec<(Arc<Target>, Option<Change>)>,
    host: Knobs,
    every: Nanos,
    next: Time,
    turns: Rc<Cell<Turns>>,
    over: Rc<Cell<bool>>,
}

impl KnobChanger {
    /// Changes the knobs of `board` and `targets`, at intervals of `every` on average. Counts
    /// changes in `turns`, and ends when `over` is set.
    #[must_use]
    pub fn new(
        world: &World,
        board: Switchboard,
        targets: &[Arc<Target>],
        every: Nanos,
        seed: u64,
        turns: Rc<Cell<Turns>>,
        over: Rc<Cell<bool>>,
    ) -> Self {
        Self {
            world: world.clone(),
            prng: Prng::from_seed(seed),
            board,
            targets: targets.iter().map(|t| (Arc::clone(t), None)).collect(),
            host: Knobs::default(),
            every,
            next: world.now(),
            turns,
            over,
        }
    }

    fn turn_host(&mut self) {
        self.host = random_position(&mut self.prng, &self.host);
        self.board
            .set_knobs(&self.host)
            .expect("the position is valid, and every core runs");
        let mut turns = self.turns.get();
        turns.host += 1;
        self.turns.set(turns);
    }

    fn turn_target(&mut self) {
        let chosen = self.prng.below(self.targets.len() as u64);
        let chosen = usize::try_from(chosen).expect("a few");
        let (target, change) = &mut self.targets[chosen];
        if change
            .as_ref()
            .is_some_and(|change| change.poll().is_none())
        {
            return;
        }
        let knobs = random_position(&mut self.prng, &target.knobs());
        *change = Some(target.begin_knobs(knobs).expect("the position is valid"));
        let mut turns = self.turns.get();
        turns.targets += 1;
        self.turns.set(turns);
    }
}

impl Actor for KnobChanger {
    fn turn(&mut self) {
        let now = self.world.now();
        if now < self.next || self.over.get() {
            return;
        }
        self.next = now + Nanos(1 + self.prng.below(2 * self.every.0));
        if self.prng.chance(1, 2) {
            self.turn_host();
        } else {
            self.turn_target();
        }
    }

    fn acts_at(&self) -> Time {
        if self.over.get() {
            Time::NEVER
        } else {
            self.next
        }
    }
}

/// Draws a setting of all knobs: a preset or `now`, with up to three knobs changed.
#[must_use]
pub fn random_position(prng: &mut Prng, now: &Knobs) -> Knobs {
    let pick = |prng: &mut Prng, count: usize| {
        usize::try_from(prng.below(count as u64)).expect("below a usize")
    };
    let mut knobs = if prng.chance(1, 2) {
        Preset::ALL[pick(prng, Preset::ALL.len())].0.knobs()
    } else {
        *now
    };
    for _ in 0..prng.below(4) {
        let entries: Vec<_> = knobs.entries().collect();
        let knob = entries[pick(prng, entries.len())].knob;
        let value = match knob.range {
            KnobRange::Switch => ["on", "off"][pick(prng, 2)].to_owned(),
            KnobRange::Words(words) => words[pick(prng, words.len())].to_owned(),
            KnobRange::Number(min, max) => between(prng, min, max).to_string(),
            KnobRange::Time(min, max) => {
                between(prng, min.0.div_ceil(1_000), max.0 / 1_000).to_string()
            }
        };
        let mut turned = knobs;
        // Some values exclude each other.
        if turned.change([(knob.key, value.as_str())]).is_ok() {
            knobs = turned;
        }
    }
    knobs
}

/// A random number within these bounds: small numbers as often as large ones.
fn between(prng: &mut Prng, min: u64, max: u64) -> u64 {
    let span = max.saturating_sub(min);
    let bits = u64::from(u64::BITS - span.leading_zeros());
    let below = 1_u64.checked_shl(u32::try_from(prng.below(bits + 1)).expect("at most 64"));
    min + prng.below(below.unwrap_or(u64::MAX)).min(span)
}
