//! Application steering on the host: every 10 ms, threads that opted in move to a better core.
//! `[blk-switch §3.3, Algorithm 2]`
//!
//! A thread opts in when it opens a channel of a [`steered`](super::SwitchedNamespace::steered)
//! namespace. It is moved within the cores of the switchboard that it could run on then, and its
//! affinity is restored when the channel is dropped. A thread that may run on only one core was
//! pinned by its user and stays. Owned by the switchboard; sleeps while no thread has opted in.

use super::request_steering::LoadTable;
use super::request_steering::SharedLoad;
use base::Time;
use base::units::CoreId;
use reactor::clock::monotonic;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use switch::application_steering::{ApplicationSteeringRules, SteeredThread};
use switch::{ApplicationSteering, Class, CoreSet, PerClass};

/// A thread that may be moved, with the values that it publishes.
#[derive(Debug)]
pub(super) struct SteeredMember {
    class: Class,
    /// Its load; written only by the thread.
    load: SharedLoad,
    /// Number of the core on which it last ran, as it observed.
    core: AtomicU64,
}

impl SteeredMember {
    /// Samples its load with a request that it submitted; `outstanding_bytes` are now outstanding.
    #[inline]
    pub(super) fn note_request(&self, now: Time, outstanding_bytes: u64) {
        self.load.sample(now, outstanding_bytes);
    }

    pub(super) fn note_core(&self, core: CoreId) {
        self.core.store(u64::from(core.0), Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Member {
    steered: Arc<SteeredMember>,
    thread: Pid,
    /// CPU affinity when it opted in.
    before: CpuSet,
    allowed: CoreSet,
    pinned: bool,
    moved: bool,
}

impl Member {
    /// Restores the CPU affinity of a thread that was moved.
    fn let_go(&mut self) {
        if std::mem::take(&mut self.moved) {
            // Fails if the thread has ended, which is harmless.
            let _ = sched_setaffinity(Some(self.thread), &self.before);
        }
    }
}

#[derive(Debug)]
struct Members {
    list: Vec<(u64, Member)>,
    next: u64,
    rules: ApplicationSteeringRules,
    moved: PerClass<u64>,
}

#[derive(Debug)]
struct SteeringState {
    members: Mutex<Members>,
    changed: Condvar,
    over: AtomicBool,
    cores: Vec<CoreId>,
    loads: Arc<LoadTable>,
}

impl SteeringState {
    fn members(&self) -> MutexGuard<'_, Members> {
        // Each change of the list is complete, so poisoning does no harm.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that runs application steering.
#[derive(Debug)]
pub(super) struct SteeringThread {
    shared: Arc<SteeringState>,
    thread: Option<JoinHandle<()>>,
}

/// A thread's registration; ends when dropped.
#[derive(Debug)]
pub(super) struct Registration {
    shared: Arc<SteeringState>,
    number: u64,
    pub(super) steered: Arc<SteeredMember>,
}

impl SteeringThread {
    /// Starts the thread; none with a single core, because there is nothing to steer.
    pub(super) fn start(
        cores: &[CoreId],
        loads: Arc<LoadTable>,
        rules: ApplicationSteeringRules,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(SteeringState {
            members: Mutex::new(Members {
                list: Vec::new(),
                next: 0,
                rules,
                moved: PerClass::default(),
            }),
            changed: Condvar::new(),
            over: AtomicBool::new(false),
            cores: cores.to_vec(),
            loads,
        });
        let thread = if cores.len() > 1 {
            let shared = Arc::clone(&shared);
            let run = move || steer(&shared);
            let thread = std::thread::Builder::new().name("switch-steer".into());
            Some(thread.spawn(run)?)
        } else {
            None
        };
        Ok(Self { shared, thread })
    }

    /// Registers the calling thread to be moved.
    pub(super) fn join(&self, class: Class) -> Option<Registration> {
        let before = sched_getaffinity(None).ok()?;
        let mut allowed = CoreSet::EMPTY;
        for &core in &self.shared.cores {
            if before.is_set(core.0 as usize) {
                allowed.insert(core);
            }
        }
        let steered = Arc::new(SteeredMember {
            class,
            load: SharedLoad::default(),
            core: AtomicU64::new(u64::from(self.shared.cores.first()?.0)),
        });
        let mut members = self.shared.members();
        let number = members.next;
        members.next += 1;
        let member = Member {
            steered: Arc::clone(&steered),
            thread: gettid(),
            pinned: before.count() == 1,
            before,
            allowed,
            moved: false,
        };
        members.list.push((number, member));
        drop(members);
        self.shared.changed.notify_one();
        Some(Registration {
            shared: Arc::clone(&self.shared),
            number,
            steered,
        })
    }

    /// Sets the rules from the next step on.
    pub(super) fn reconfigure(&self, rules: ApplicationSteeringRules) {
        self.shared.members().rules = rules;
        self.shared.changed.notify_one();
    }

    /// Returns the number of moves so far, by class.
    pub(super) fn moved(&self) -> PerClass<u64> {
        self.shared.members().moved
    }
}

impl Drop for SteeringThread {
    fn drop(&mut self) {
        let members = self.shared.members();
        self.shared.over.store(true, Ordering::Relaxed);
        drop(members);
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut members = self.shared.members();
        let place = members.list.iter().position(|(n, _)| *n == self.number);
        if let Some(place) = place {
            let (_, mut member) = members.list.swap_remove(place);
            member.let_go();
        }
    }
}

/// Runs steps until it is stopped.
fn steer(shared: &SteeringState) {
    let mut members = shared.members();
    let mut steering = ApplicationSteering::new(members.rules);
    while !shared.over.load(Ordering::Relaxed) {
        if members.list.is_empty() || !members.rules.enabled {
            for (_, member) in &mut members.list {
                member.let_go();
            }
            // Until a thread opts in, or the rules are enabled.
            let waited = shared.changed.wait(members);
            members = waited.unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        steering.reconfigure(members.rules);
        step(shared, &mut members, &mut steering, monotonic());
        let period = Duration::from(members.rules.period);
        let waited = shared.changed.wait_timeout(members, period);
        members = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// One step: samples the loads and moves threads accordingly.
fn step(
    shared: &SteeringState,
    members: &mut Members,
    steering: &mut ApplicationSteering,
    now: Time,
) {
    let highest = shared.cores.iter().map(|core| core.0).max().unwrap_or(0);
    let mut loads = vec![PerClass::<u64>::default(); highest as usize + 1];
    for (place, core) in shared.cores.iter().enumerate() {
        loads[core.0 as usize] = shared.loads.averages(place, now);
    }
    let threads: Vec<_> = members
        .list
        .iter()
        .map(|(number, member)| {
            let core = member.steered.core.load(Ordering::Relaxed);
            SteeredThread {
                id: *number,
                class: member.steered.class,
                core: CoreId(u32::try_from(core).unwrap_or(0)),
                allowed: member.allowed,
                pinned_by_user: member.pinned,
                load_bytes: member.steered.load.bytes(now),
            }
        })
        .collect();
    for change in steering.step(now, &loads, &threads) {
        let member = members.list.iter_mut().find(|(n, _)| *n == change.id);
        let Some((_, member)) = member else { continue };
        let mut set = CpuSet::new();
        set.set(change.to.0 as usize);
        // It may have ended meanwhile, or its cpuset may have shrunk: then it stays on its core.
        if sched_setaffinity(Some(member.thread), &set).is_ok() {
            member.moved = true;
            member.steered.note_core(change.to);
            let class = member.steered.class;
            members.moved[class] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switch::Knobs;

    fn rules() -> ApplicationSteeringRules {
        Knobs::switchyard().application_steering
    }

    #[test]
    fn a_thread_leaves_the_core_of_a_latency_load_and_gets_its_cores_back() {
        let before = sched_getaffinity(None).unwrap();
        let cores: Vec<_> = (0..CpuSet::MAX_CPU)
            .filter(|&core| before.is_set(core))
            .map(|core| CoreId(u32::try_from(core).unwrap()))
            .collect();
        if cores.len() < 2 {
            block::skipped("this test needs two cores");
            return;
        }
        let loads = Arc::new(LoadTable::new(cores.len()));
        let steering = SteeringThread::start(&cores, Arc::clone(&loads), rules()).unwrap();
        let registration = steering.join(Class::Throughput).unwrap();
        registration.steered.note_core(cores[0]);
        // Requests that come and go, so that the loads stay constant.
        let work = || {
            let now = monotonic();
            for (class, bytes) in [(Class::Latency, 4_096), (Class::Throughput, 1 << 20)] {
                loads.note_came(0, 0, class, bytes, now);
                loads.note_over(0, 0, class, bytes);
            }
            registration.steered.note_request(now, 1 << 20);
            std::thread::yield_now();
        };
        while steering.moved()[Class::Throughput] == 0 {
            work();
        }
        let now = sched_getaffinity(None).unwrap();
        assert_eq!(now.count(), 1);
        assert!(!now.is_set(cores[0].0 as usize));
        // With the rules off, it returns from the core to which it was moved.
        let off = ApplicationSteeringRules {
            enabled: false,
            ..rules()
        };
        steering.reconfigure(off);
        while sched_getaffinity(None).unwrap() != before {
            std::thread::yield_now();
        }
        let moved = steering.moved()[Class::Throughput];
        steering.reconfigure(rules());
        registration.steered.note_core(cores[0]);
        while steering.moved()[Class::Throughput] == moved {
            work();
        }
        drop(registration);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
