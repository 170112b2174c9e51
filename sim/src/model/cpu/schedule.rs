//! The kernel's scheduler: wakes threads, gives them cores, and takes cores from them.

use super::super::caches::Habit;
use super::super::event::Event;
use super::super::world::World;
use super::{KEPT_NS, Role, SETTLE_NS, ThreadState, ThreadStep, WEIGHT_NORMAL};
use base::Time;
use reactor::{IdlePolicy, Wait};

impl World<'_> {
    /// Makes a sleeping thread ready. A waker on another core pays for the call, which interrupts
    /// that core if it sleeps or is busy; if that core polls, the call costs as much as a switch.
    /// On the same core the call is part of the switch. A thread that polls is not woken.
    pub(in crate::model) fn wake(&mut self, thread: usize) {
        if self.threads[thread].state != ThreadState::Asleep {
            return;
        }
        if self.looks(thread) {
            self.enqueue(thread);
            return;
        }
        let core = self.threads[thread].core;
        let (it, costs) = (&self.cores[core], &self.costs.core);
        let polls = it.current.is_none() && self.now <= it.poll_until.max(it.awake_until);
        let price = if self.sleeps(core) {
            costs.wake_call_ns
        } else if polls || it.waking {
            costs.context_switch_ns
        } else {
            costs.wake_busy_call_ns
        };
        self.threads[thread].woken = true;
        self.enqueue(thread);
        if let Some(waker) = self.executing.filter(|&waker| waker != core) {
            self.cores[waker].debt += price;
        }
    }

    /// Returns true if a thread without work polls, or has yielded during its poll and is ready: it
    /// finds work by itself when it has its core.
    fn looks(&self, thread: usize) -> bool {
        self.now < self.threads[thread].polls_until
    }

    /// Notifies a dataplane loop of work: wakes it, unless it finds the work at its next poll.
    pub(in crate::model) fn notify(&mut self, engine: usize) {
        let thread = self.engines[engine].thread;
        let core = self.threads[thread].core;
        match self.threads[thread].state {
            ThreadState::Asleep => {
                self.wake(thread);
            }
            ThreadState::Running if self.executing != Some(core) => self.end_poll(core, self.now),
            ThreadState::Ready | ThreadState::Running => {}
        }
    }

    /// Ends the poll of the core's current thread at `at`.
    fn end_poll(&mut self, core: usize, at: u64) {
        let turn_ns = self.costs.stack.turn_ns;
        let it = &mut self.cores[core];
        let end = at + turn_ns;
        if it.step == ThreadStep::Poll && it.current.is_some() && end < it.step_end {
            it.step_end = end;
            it.generation = it.generation.wrapping_add(1);
            let generation = it.generation;
            self.calendar.push(end, Event::Step { core, generation });
        }
    }

    fn enqueue(&mut self, thread: usize) {
        let slice = self.costs.core.slice_ns;
        let core = self.threads[thread].core;
        self.account(core);
        let (it, now) = (&mut self.cores[core], self.now);
        let looks = now < self.threads[thread].polls_until;
        let woken = &mut self.threads[thread];
        woken.state = ThreadState::Ready;
        woken.vruntime = woken.vruntime.max(it.vruntime.saturating_sub(slice));
        woken.ready_at = now;
        woken.polls_until = 0;
        if looks && it.current.is_some() {
            // It yielded to the running thread.
            woken.yielded = Some(woken.slept_at.max(it.on_cpu_since));
        }
        it.ready.push(thread);
        if self.executing == Some(core) {
            return;
        }
        let Some(current) = it.current else {
            if !it.waking {
                it.waking = true;
                self.found_work(core);
                let at = now + self.wake_delay(core);
                self.calendar.push(at, Event::Dispatch { core });
            }
            return;
        };
        if self.executing.is_some() && !looks {
            // From another core: this core learns of it by an interrupt.
            woken.ready_at += self.costs.core.wake_busy_ns;
        }
        let at = woken.ready_at;
        if at > now || self.outranks(thread, current) {
            self.calendar.push(at, Event::Reschedule { core });
        }
        let kept_until = self.cores[core].on_cpu_since + self.keeps_ns(thread);
        self.end_poll(core, at.max(kept_until));
    }

    /// Notes that an idle core has work: its idle policy adapts.
    fn found_work(&mut self, core: usize) {
        let (now, it) = (Time(self.now), &mut self.cores[core]);
        let wait = if self.now <= it.poll_until {
            Wait::No
        } else {
            Wait::Until(Time::NEVER)
        };
        // It polled before, and had its core to itself.
        it.idle.yielded(now, now, || false);
        it.idle.observe(now, wait, true);
    }

    /// Returns true if a thread runs and has work.
    pub(in crate::model) fn works(&self, thread: usize) -> bool {
        let it = &self.cores[self.threads[thread].core];
        it.current == Some(thread) && it.step != ThreadStep::Poll
    }

    /// Returns true if a core has no work and does not poll.
    fn sleeps(&self, core: usize) -> bool {
        let it = &self.cores[core];
        let awake_until = it.poll_until.max(it.awake_until).max(it.kept_until);
        it.current.is_none() && !it.waking && self.now > awake_until
    }

    /// Returns the time from the wake-up of an idle core to the first instruction of a thread.
    fn wake_delay(&mut self, core: usize) -> u64 {
        let it = &self.cores[core];
        if self.now <= it.poll_until.max(it.awake_until) {
            self.costs.stack.turn_ns
        } else if self.now <= it.kept_until {
            self.costs.core.wake_busy_ns
        } else {
            self.random.between_p50_and_p99(
                self.costs.core.wake_idle_p50_ns,
                self.costs.core.wake_idle_p99_ns,
            )
        }
    }

    /// Notes that a timer of a dataplane loop on this core is due: if the loop was idle, its idle
    /// policy learns that it did not poll for the timer.
    pub(in crate::model) fn falls_due(&mut self, core: usize) {
        let it = &mut self.cores[core];
        if it.current.is_none() {
            it.idle.decide(Time(self.now), Time(self.now));
        }
    }

    /// Runs kernel work for the network on this core; returns its end time.
    pub(in crate::model) fn softirq(&mut self, core: usize, cost: u64) -> u64 {
        let idle = self.cores[core].current.is_none() && !self.cores[core].waking;
        let delay = if idle { self.wake_delay(core) } else { 0 };
        let it = &mut self.cores[core];
        let start = self.now.max(it.softirq_until) + delay;
        let end = start + cost;
        it.softirq_until = end;
        if it.current.is_some() {
            it.step_end = it.step_end.saturating_add(cost);
        } else {
            it.awake_until = it.awake_until.max(end + SETTLE_NS);
            it.idle_ns = it.idle_ns.saturating_sub(cost);
        }
        end
    }

    /// Returns true if a ready thread precedes the running thread.
    fn outranks(&self, ready: usize, running: usize) -> bool {
        let (new, old) = (&self.threads[ready], &self.threads[running]);
        let had = self.now - self.cores[old.core].on_cpu_since;
        had >= self.keeps_ns(ready) && new.vruntime < old.vruntime
    }

    /// Returns the time for which a fair thread keeps its core when `ready` wants it.
    fn keeps_ns(&self, ready: usize) -> u64 {
        let core = &self.costs.core;
        if self.threads[ready].woken {
            core.keep_ns
        } else {
            core.slice_ns
        }
    }

    /// Adds the current thread's run time.
    fn account(&mut self, core: usize) {
        let it = &mut self.cores[core];
        if let Some(current) = it.current {
            let thread = &mut self.threads[current];
            thread.vruntime += (self.now - it.accounted) * WEIGHT_NORMAL / thread.weight;
            it.vruntime = it.vruntime.max(thread.vruntime);
        }
        it.accounted = self.now;
    }

    /// An idle core has woken.
    pub(in crate::model) fn on_dispatch(&mut self, core: usize) {
        let it = &mut self.cores[core];
        it.waking = false;
        it.idle_ns += it.idle_stretch(self.now);
        it.idle_since = self.now;
        it.accounted = self.now;
        self.schedule(core);
    }

    /// A thread that precedes the running thread may have become ready.
    pub(in crate::model) fn on_reschedule(&mut self, core: usize) {
        self.account(core);
        let Some(best) = self.best_ready(core) else {
            return;
        };
        let Some(current) = self.cores[core].current else {
            if !self.cores[core].waking {
                self.found_work(core);
                self.on_dispatch(core);
            }
            return;
        };
        let best = self.cores[core].ready[best];
        if !self.outranks(best, current) || self.cores[core].step.is_call() {
            return;
        }
        let it = &mut self.cores[core];
        let left = it.step_end.saturating_sub(self.now);
        let thread = &mut self.threads[current];
        thread.suspended = (it.step != ThreadStep::Poll).then_some((it.step, left));
        thread.state = ThreadState::Ready;
        it.current = None;
        it.generation = it.generation.wrapping_add(1);
        if thread.core == core {
            // The interrupted thread stays the first of its priority.
            it.ready.insert(0, current);
        } else {
            self.enqueue(current);
        }
        self.schedule(core);
    }

    /// A step may have ended.
    pub(in crate::model) fn on_step(&mut self, core: usize, generation: u32) {
        let it = &self.cores[core];
        let Some(thread) = it.current.filter(|_| generation == it.generation) else {
            return;
        };
        if self.now < it.step_end {
            // Interrupts extended it.
            let end = it.step_end;
            self.calendar.push(end, Event::Step { core, generation });
            return;
        }
        self.account(core);
        let step = self.cores[core].step;
        self.executing = Some(core);
        self.finish(thread, step);
        if self.threads[thread].core != core {
            // The thread was steered to another core meanwhile.
            self.cores[core].current = None;
            self.cores[core].idle_since = self.now;
            self.executing = None;
            self.enqueue(thread);
        } else {
            self.yield_core(core, thread);
        }
        self.schedule(core);
        self.executing = None;
    }

    /// A dataplane loop, or an application that waits for its own lane, yields its core to threads
    /// of the same priority as often as the production idle policy does; otherwise they would
    /// alternate in whole slices.
    fn yield_core(&mut self, core: usize, thread: usize) {
        let now = Time(self.now);
        let Some(engine) = self.awaited(thread) else {
            return;
        };
        let sends = !self.engines[engine].sending.is_empty();
        if sends || !self.cores[core].idle.should_yield(now, true) {
            return;
        }
        let ready = self.cores[core].ready.iter();
        let others = ready.map(|&other| &self.threads[other]);
        let others = others.filter(|other| other.ready_at <= self.now);
        let Some(first) = others.map(|other| other.vruntime).min() else {
            self.cores[core].idle.yielded(now, now, || false);
            return;
        };
        let it = &mut self.threads[thread];
        it.state = ThreadState::Ready;
        it.vruntime = it.vruntime.max(first + 1);
        it.yielded = Some(self.now);
        self.cores[core].current = None;
        self.cores[core].ready.push(thread);
    }

    /// Returns the dataplane loop that a thread serves while it has no work: its own, or that of
    /// the lane in which an application has requests.
    fn awaited(&self, thread: usize) -> Option<usize> {
        match self.threads[thread].role {
            Role::Engine(engine) => Some(engine),
            Role::App(app) if self.apps[app].direct_outstanding == 0 => None,
            Role::App(app) => self.apps[app].engine,
        }
    }

    /// A thread has no work: if it waits for a loop, it polls or sleeps according to the production
    /// idle policy.
    fn fall_asleep(&mut self, core: usize, thread: usize) {
        let now = Time(self.now);
        let polls = self.awaited(thread).is_some()
            && self.cores[core].idle.decide(now, Time::NEVER) == Wait::No;
        let it = &mut self.threads[thread];
        it.state = ThreadState::Asleep;
        it.slept_at = self.now;
        it.polls_until = if polls {
            self.now + IdlePolicy::POLL_WINDOW.0
        } else {
            0
        };
        self.cores[core].current = None;
    }

    /// A thread has its core back: after a yield, the idle policy learns its duration.
    fn got_back(&mut self, core: usize, thread: usize) {
        if let Some(since) = self.threads[thread].yielded.take() {
            let (now, idle) = (Time(self.now), &mut self.cores[core].idle);
            idle.yielded(Time(since), now, || true);
            idle.observe(now, Wait::No, true);
        }
    }

    /// Returns the list position of the first in priority among the threads that the core knows to
    /// be ready.
    fn best_ready(&self, core: usize) -> Option<usize> {
        let ready = &self.cores[core].ready;
        let mut best: Option<usize> = None;
        for (place, &thread) in ready.iter().enumerate() {
            if self.threads[thread].ready_at > self.now {
                continue;
            }
            let better = best.is_none_or(|best| {
                let (new, old) = (&self.threads[thread], &self.threads[ready[best]]);
                new.vruntime < old.vruntime
            });
            if better {
                best = Some(place);
            }
        }
        best
    }

    /// Returns the thread that runs next on a core between two steps.
    fn pick(&mut self, core: usize) -> Option<usize> {
        let current = self.cores[core].current;
        let Some(best) = self.best_ready(core) else {
            return current;
        };
        let candidate = self.cores[core].ready[best];
        if let Some(current) = current {
            if !self.outranks(candidate, current) {
                return Some(current);
            }
            self.threads[current].state = ThreadState::Ready;
            self.cores[core].ready.push(current);
        }
        self.cores[core].ready.remove(best);
        self.threads[candidate].state = ThreadState::Running;
        self.threads[candidate].woken = false;
        self.cores[core].current = Some(candidate);
        Some(candidate)
    }

    /// Gives the core to its next thread.
    fn schedule(&mut self, core: usize) {
        let nested = self.executing.replace(core);
        loop {
            let Some(thread) = self.pick(core) else {
                let it = &mut self.cores[core];
                it.idle_since = self.now;
                it.poll_until = match it.idle.decide(Time(self.now), Time::NEVER) {
                    Wait::No => self.now + IdlePolicy::POLL_WINDOW.0,
                    Wait::Until(_) => self.now,
                };
                if it.keeps {
                    it.kept_until = it.poll_until + KEPT_NS;
                }
                break;
            };
            let it = &mut self.cores[core];
            if it.last != Some(thread) {
                it.last = Some(thread);
                it.on_cpu_since = self.now;
                let costs = &self.costs.core;
                it.debt +=
                    costs.context_switch_ns + it.caches.follow(Habit::Switch, costs.switch_cold_ns);
            }
            self.got_back(core, thread);
            let suspended = self.threads[thread].suspended.take();
            if let Some((step, cost)) = suspended.or_else(|| self.next_step(thread)) {
                self.begin(core, step, cost);
                break;
            }
            self.fall_asleep(core, thread);
        }
        self.executing = nested;
    }

    fn begin(&mut self, core: usize, step: ThreadStep, cost: u64) {
        let slice_ns = self.costs.core.slice_ns;
        let it = &mut self.cores[core];
        let mut end = if step == ThreadStep::Poll {
            if !it.ready.is_empty() {
                // A thread that keeps the core after a slice is checked again after its next slice.
                let slice_over = it.on_cpu_since + slice_ns;
                let next_look = self.now + slice_ns;
                let look = if slice_over > self.now {
                    slice_over
                } else {
                    next_look
                };
                look.max(self.now + cost)
            } else {
                u64::MAX
            }
        } else {
            let cost = cost + std::mem::take(&mut it.debt);
            self.now + self.random.around(cost)
        };
        while end != u64::MAX && it.next_noise_at < end {
            let noises = it.noise_at.iter_mut().zip(&self.costs.core.noise);
            for (at, noise) in noises {
                if *at >= end {
                    continue;
                }
                // Noise while the core was idle or polled delayed no step.
                if *at >= self.now {
                    end += noise.length_ns;
                }
                *at = (*at).max(self.now) + self.random.exponential(noise.period_ns).max(1);
            }
            it.next_noise_at = it.noise_at.iter().copied().min().unwrap_or(u64::MAX);
        }
        it.step = match step {
            ThreadStep::Send { packet, last } if self.wires.is_none() => {
                let overlap_ns = if last {
                    self.costs.socket.overlap_ns
                } else {
                    0
                };
                let overlap = overlap_ns.min(end - self.now);
                let left = Event::Left { core, packet };
                self.calendar.push(end - overlap, left);
                ThreadStep::Return
            }
            step => step,
        };
        it.step_end = end;
        it.accounted = self.now;
        it.generation = it.generation.wrapping_add(1);
        let generation = it.generation;
        if end != u64::MAX {
            self.calendar.push(end, Event::Step { core, generation });
        }
    }

    /// Moves a thread to another core.
    pub(in crate::model) fn migrate(&mut self, thread: usize, to: usize) {
        let from = std::mem::replace(&mut self.threads[thread].core, to);
        if from != to && self.threads[thread].state == ThreadState::Ready {
            self.cores[from].ready.retain(|&ready| ready != thread);
            self.enqueue(thread);
        }
    }

    /// Resets the measured idle time.
    pub(in crate::model) fn reset_idle(&mut self) {
        for core in &mut self.cores {
            core.idle_ns = 0;
            core.idle_since = self.now;
        }
    }
}
