//! A scripted host acts while devices have its writes: resets, shutdowns, aborts, and namespace
//! additions that are rolled back. Once the controller has reported the end of writes, none of them
//! may take effect, and every command is answered.

use super::super::feature::Feature;
use super::super::plan::ByHand;
use super::{Machine, Outcome};
use crate::by_hand::{BLOCKS, DELAY_MAX, QueueByHand, SUBSYSTEM, Seen};
use base::Nanos;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use target::{NamespaceOptions, Waiter};
use wire::fabrics::property::{Configuration, ControllerStatus};
use wire::fabrics::{Property, PropertyGet, PropertySet, PropertySize};
use wire::nvme::io::{DatasetRange, LbaControl};
use wire::nvme::{
    Abort, AdminCommand, Command, Completion, DatasetManagement, IoOpcode, LbaCommand,
};

/// Delay of the other cores after the core that opens a namespace first.
const OPENS_LATE: Nanos = Nanos::from_millis(5);

/// Number of commands sent meanwhile, and their interval.
const COMMANDS: usize = 16;
const SENDS_EVERY: Nanos = Nanos::from_micros(500);

/// Maximum time to wait for an answer: cores may be stalled.
pub(super) const PATIENCE: Nanos = Nanos::from_secs(10);

/// First and longest interval between checks of a connection.
pub(super) const LOOKS: [Nanos; 2] = [Nanos::from_micros(50), Nanos::from_millis(10)];

/// CSTS.SHST: the shutdown is complete.
const SHUTDOWN_COMPLETE: u8 = 2;

fn zeroes(nsid: u32, slba: u64) -> Command {
    let zeroes = LbaCommand {
        nsid,
        slba,
        blocks: 1,
        control: LbaControl(0),
        dataset_hints: 0,
    };
    zeroes.encode(IoOpcode::WRITE_ZEROES, 0)
}

impl Machine {
    /// Runs `act` of a scripted host at a target, if it can connect and no earlier act is in
    /// progress.
    pub(super) fn acts_by_hand(&mut self, target: usize, act: ByHand) {
        let Some(running) = self.running(target) else {
            return;
        };
        let mut controllers = running.snapshot().controllers.into_iter();
        if controllers.any(|controller| controller.nqn == SUBSYSTEM) {
            return;
        }
        // A stalled core answers late.
        let (now, stands) = (self.world.now(), self.cast.borrow().stands_until(target));
        self.pass(stands.max(now).since(now));
        if self.try_to_end(target, act).is_some() {
            self.count(act.name());
            let disk = &self.known[target].by_hand;
            let writes = disk.totals().writes;
            self.pass(Nanos(2 * DELAY_MAX.0));
            assert_eq!(
                disk.totals().writes,
                writes,
                "a write takes effect after the controller has reported the end of it: {act:?}"
            );
        }
    }

    /// Completes when the controller reports that its writes have ended; `None` if it does not, or
    /// the connection is lost.
    fn try_to_end(&mut self, target: usize, act: ByHand) -> Option<()> {
        let (mut admin, id) = self.connect_by_hand(target, None)?;
        self.configure(&mut admin, Configuration::ENABLE)?;
        let (mut queue, _) = self.connect_by_hand(target, Some(id))?;
        let lead = Nanos(self.prng.below(DELAY_MAX.0 / 8));
        if act == ByHand::Abort {
            let cid = self.deallocate(&mut queue)?;
            self.pass(lead);
            let abort = AdminCommand::Abort(Abort { sq_id: 1, cid }).encode(0);
            let answer = self.execute(&mut admin, abort, &[])?;
            let is_aborted = answer.status.is_success() && answer.dword0() & 1 == 0;
            return is_aborted.then_some(());
        }
        if act == ByHand::Undo {
            return self.add_in_vain(target, queue);
        }
        for slba in 0..8 {
            queue.send(zeroes(1, slba), &[])?;
        }
        self.pass(lead);
        let wanted = match act {
            ByHand::Reset => Configuration(0),
            _ => Configuration::ENABLE.with_shutdown(0b10),
        };
        self.configure(&mut admin, wanted)?;
        let until = self.world.now() + PATIENCE;
        while self.world.now() < until {
            let status = self.status(&mut admin)?;
            let is_over = match act {
                ByHand::Reset => !status.ready(),
                _ => status.shutdown() == SHUTDOWN_COMPLETE,
            };
            if is_over {
                return Some(());
            }
            self.pass(Nanos::from_micros(200));
        }
        None
    }

    /// Adds a namespace that one core opens and other cores cannot open, so that the addition is
    /// rolled back. Commands for it are sent before, during and after; each must be answered.
    fn add_in_vain(&mut self, target: usize, queue: QueueByHand) -> Option<()> {
        let cores = self.plan.target_cores;
        if cores < 2 || self.has(Feature::Silence) {
            return None;
        }
        let first = usize::try_from(self.prng.below(cores as u64)).expect("a few");
        let until = self.world.now() + OPENS_LATE;
        for core in (0..cores).filter(|&core| core != first) {
            self.cast.borrow_mut().pause_target(target, core, until);
        }
        let disk = self.known[target].by_hand.clone();
        disk.open_at_most(Some(1));
        let options = NamespaceOptions::new(2, Arc::new(disk.clone()), [0xB8; 16]);
        let queue = Rc::new(RefCell::new((queue, Some(Vec::new()))));
        let (world, cast, sends) = (self.world.clone(), Rc::clone(&self.cast), Rc::clone(&queue));
        let waiter: Waiter = Box::new(move |done, timeout| {
            let until = world.now() + Nanos::from(timeout);
            loop {
                let (queue, sent) = &mut *sends.borrow_mut();
                if let Some(known) = sent.as_mut().filter(|sent| sent.len() < COMMANDS) {
                    match queue.send(zeroes(2, 0), &[]) {
                        Some(cid) => known.push(cid),
                        None => *sent = None,
                    }
                }
                let next = until.min(world.now() + SENDS_EVERY);
                let outcome = world.run(&mut cast.borrow_mut().actors(), next, done);
                if outcome == Outcome::Done || next == until {
                    return;
                }
                world.wait_until(next);
            }
        });
        let added = self.change_by(target, waiter, |t| t.add_namespace(SUBSYSTEM, options));
        assert!(!added, "one core alone opens it");
        disk.open_at_most(None);
        let (queue, sent) = &mut *queue.borrow_mut();
        let mut sent = sent.take()?;
        while !sent.is_empty() {
            let cid = self.await_arrival(queue, |seen| match seen {
                Seen::Answer(completion) => Some(completion.cid),
                _ => None,
            });
            assert!(
                cid.is_some() || queue.has_ended(),
                "commands for a namespace of which the addition was undone are not answered: {sent:?}"
            );
            let cid = cid?;
            let place = sent.iter().position(|&known| known == cid);
            sent.swap_remove(place.expect("a command is answered once"));
        }
        Some(())
    }

    /// Sends a Dataset Management of all blocks, which the target splits into pieces. Returns its
    /// CID.
    fn deallocate(&self, queue: &mut QueueByHand) -> Option<u16> {
        let management = DatasetManagement {
            nsid: 1,
            ranges: 1,
            deallocate: true,
            integral_read: false,
            integral_write: false,
        };
        let range = DatasetRange {
            attributes: 0,
            blocks: BLOCKS,
            slba: 0,
        };
        let range = range.to_bytes();
        if (self.plan.limits.in_capsule_bytes as usize) < range.len() {
            return None;
        }
        queue.send(management.encode(0), &range)
    }

    /// Connects an admin queue, or an I/O queue of controller `cntlid`. Returns the queue and the
    /// controller's identifier.
    fn connect_by_hand(&self, target: usize, cntlid: Option<u16>) -> Option<(QueueByHand, u16)> {
        let mut queue = QueueByHand::dial(&self.world, self.known[target].address)?;
        self.begin(&mut queue)?;
        let of = cntlid.map(|cntlid| (cntlid, 1));
        let cid = queue.send_connect(SUBSYSTEM, SUBSYSTEM, of)?;
        let answer = self.answer(&mut queue, cid)?;
        let id = u16::try_from(answer.dword0() & 0xFFFF).expect("masked");
        answer.status.is_success().then_some((queue, id))
    }

    fn configure(&self, admin: &mut QueueByHand, wanted: Configuration) -> Option<()> {
        let set = PropertySet::configure(wanted).encode(0);
        let answer = self.execute(admin, set, &[])?;
        answer.status.is_success().then_some(())
    }

    fn status(&self, admin: &mut QueueByHand) -> Option<ControllerStatus> {
        let get = PropertyGet {
            size: PropertySize::Four,
            property: Property::CSTS,
        };
        let answer = self.execute(admin, get.encode(0), &[])?;
        Some(ControllerStatus(answer.dword0()))
    }

    pub(super) fn execute(
        &self,
        queue: &mut QueueByHand,
        command: Command,
        data: &[u8],
    ) -> Option<Completion> {
        let cid = queue.send(command, data)?;
        self.answer(queue, cid)
    }

    pub(super) fn answer(&self, queue: &mut QueueByHand, cid: u16) -> Option<Completion> {
        self.await_arrival(queue, |seen| match seen {
            Seen::Answer(completion) => Some(completion).filter(|answer| answer.cid == cid),
            _ => None,
        })
    }

    /// Runs all actors until the item has arrived; `None` if it does not.
    pub(super) fn await_arrival<T>(
        &self,
        queue: &mut QueueByHand,
        meant: impl Fn(Seen) -> Option<T>,
    ) -> Option<T> {
        let [mut step, longest] = LOOKS;
        let until = self.world.now() + PATIENCE;
        loop {
            match queue.look() {
                Seen::Ended => return None,
                Seen::Nothing if self.world.now() >= until => return None,
                Seen::Nothing => {
                    self.pass(step);
                    step = Nanos(2 * step.0).min(longest);
                }
                seen => {
                    if let Some(found) = meant(seen) {
                        return Some(found);
                    }
                }
            }
        }
    }
}
