//! Requests and completions of applications on their way to and from the dataplane.

use super::super::config::Hosting;
use super::super::cpu::ThreadStep;
use super::super::event::Event;
use super::super::lane::{Request, Stage};
use super::super::world::World;
use super::Way;
use base::{Nanos, Time};
use switch::request_steering::Loads;
use switch::{Class, PerClass};

/// The egress queues to one target, in the form that request steering uses.
struct Egresses<'a> {
    bytes: &'a [u64],
    latency: &'a [PerClass<u64>],
}

impl Loads for Egresses<'_> {
    fn cores(&self) -> usize {
        self.bytes.len()
    }

    fn throughput_bytes(&self, core: usize) -> Option<u64> {
        Some(self.bytes[core])
    }

    fn latency_bytes(&self, core: usize) -> u64 {
        self.latency[core][Class::Latency]
    }

    fn waiting_requests(&self, _core: usize) -> u32 {
        0
    }
}

impl World<'_> {
    /// Starts an application: issues its first requests.
    pub(in crate::model) fn on_start(&mut self, app: usize) {
        if let Some(interval) = self.apps[app].interval {
            self.calendar
                .push(self.now + interval, Event::Intended { app });
        } else {
            self.prompt(app);
        }
    }

    /// Lets an application issue requests: immediately, or when its thread has the core.
    fn prompt(&mut self, app: usize) {
        if self.config.hosting == Hosting::Inline {
            self.issue(app, Way::Direct);
        } else {
            self.wake(self.apps[app].thread);
        }
    }

    /// An open loop's request is due.
    pub(in crate::model) fn on_intended(&mut self, app: usize) {
        if self.closing {
            return;
        }
        self.apps[app].intended.push_back(self.now);
        let interval = self.apps[app].interval.expect("an open loop");
        self.calendar
            .push(self.now + interval, Event::Intended { app });
        self.prompt(app);
    }

    /// Returns the next step of an application and its cost.
    pub(in crate::model) fn app_step(&mut self, number: usize) -> Option<(ThreadStep, u64)> {
        let app = &self.apps[number];
        let completions = app.completed.len();
        let makes = if app.interval.is_some() {
            app.intended.len()
        } else {
            app.depth as usize - app.outstanding as usize + completions
        };
        if completions == 0 && (makes == 0 || self.closing) {
            return None;
        }
        let stack = &self.costs.stack;
        let way = self.way_of(number);
        let make_ns = match way {
            Way::Direct => stack.submit_ns,
            Way::Ingress
                if self.knobs.request_steering.enabled && app.class.properties().steered =>
            {
                stack.hand_over_ns + stack.steer_ns
            }
            Way::Ingress => stack.hand_over_ns,
        };
        let cost = completions as u64 * (stack.app_request_ns / 2 + stack.hand_over_ns)
            + makes as u64 * (stack.app_request_ns / 2 + make_ns);
        Some((ThreadStep::App { completions, way }, cost.max(1)))
    }

    /// Returns the way of an application's requests now: its own lane while few such applications
    /// are on its core and no `Throughput` requests are outstanding there.
    fn way_of(&self, number: usize) -> Way {
        let app = &self.apps[number];
        let core = self.host_index(self.threads[app.thread].core);
        let few = self.latency_apps[core] <= self.knobs.direct_submitters;
        let mut targets = self.egress_bytes.iter();
        if app.engine.is_some() && few && targets.all(|egresses| egresses[core] == 0) {
            Way::Direct
        } else {
            Way::Ingress
        }
    }

    /// Applies the effect of an application's step.
    pub(in crate::model) fn app_finish(&mut self, number: usize, completions: usize, way: Way) {
        for index in 0..completions {
            let request = self.apps[number].completed[index];
            self.take(request);
        }
        self.apps[number].completed.drain(..completions);
        self.issue(number, way);
    }

    /// An application processes the completion of a request.
    fn take(&mut self, request: usize) {
        self.advance(request, Stage::Completed, Stage::Free);
        let it = &self.requests[request];
        let (app, class, bytes) = (it.app, it.class, it.bytes);
        self.apps[app].outstanding -= 1;
        self.account_request(class, bytes, it.since);
        self.spare_requests.push(request);
    }

    /// Delivers a completion to its application, which is notified of it immediately or later.
    pub(in crate::model) fn complete(&mut self, request: usize, near: bool) {
        let it = &self.requests[request];
        let (number, bytes) = (it.app, u64::from(it.bytes));
        let (class, egress, way) = (it.class, it.egress, it.way);
        if class.properties().steered {
            self.egress_bytes[self.apps[number].target][egress] -= bytes;
        }
        self.host_outstanding[egress][class] -= bytes;
        let app = &mut self.apps[number];
        app.outstanding_bytes -= bytes;
        if self.config.hosting == Hosting::Inline {
            self.take(request);
            self.issue(number, Way::Direct);
            return;
        }
        if way == Way::Direct {
            // Its own thread received it, and issues the next request after it has processed all
            // completions.
            app.direct_outstanding -= 1;
            self.take(request);
            return;
        }
        app.completed.push(request);
        let under_way = u64::from(app.outstanding) - app.completed.len() as u64;
        let most = if near {
            self.knobs.completion_hold
        } else {
            Nanos::ZERO
        };
        let holds = app.unnotified.until() != Time::NEVER;
        if app
            .unnotified
            .completed(Time(self.now), class, under_way, most)
        {
            self.tell(number);
        } else if !holds {
            let until = app.unnotified.until().0;
            self.calendar.push(until, Event::Tell { app: number });
        }
    }

    /// The hold of completions may have expired.
    pub(in crate::model) fn on_tell(&mut self, number: usize) {
        if self.apps[number].unnotified.is_due(Time(self.now)) {
            self.tell(number);
        }
    }

    fn tell(&mut self, number: usize) {
        let app = &mut self.apps[number];
        app.unnotified.notified();
        let thread = app.thread;
        self.wake(thread);
    }

    /// Issues requests up to the application's depth.
    fn issue(&mut self, number: usize, way: Way) {
        loop {
            if self.closing {
                return;
            }
            let app = &mut self.apps[number];
            let since = if app.interval.is_some() {
                let Some(since) = app.intended.pop_front() else {
                    return;
                };
                since
            } else if app.outstanding < app.depth {
                self.now
            } else {
                return;
            };
            app.outstanding += 1;
            app.outstanding_bytes += u64::from(app.bytes);
            app.load.sample(Time(self.now), app.outstanding_bytes);
            self.make(number, since, way);
        }
    }

    fn make(&mut self, number: usize, since: u64, way: Way) {
        let app = &self.apps[number];
        let (class, bytes, target) = (app.class, app.bytes, app.target);
        let write = self.random.permille(app.write_permille);
        let origin = self.host_index(self.threads[app.thread].core);
        let egress = if way == Way::Direct {
            origin
        } else {
            let egresses = Egresses {
                bytes: &self.egress_bytes[target],
                latency: &self.host_outstanding,
            };
            self.steering[origin].steer(class, origin, &egresses)
        };
        let engine = match way {
            Way::Direct => app.engine.expect("it has lanes of its own"),
            Way::Ingress => egress,
        };
        if class.properties().steered {
            self.egress_bytes[target][egress] += u64::from(bytes);
        }
        let outstanding = &mut self.host_outstanding[egress][class];
        *outstanding += u64::from(bytes);
        self.host_loads[egress][class].sample(Time(self.now), *outstanding);
        let request = Request {
            stage: Stage::Ingress,
            app: number,
            class,
            bytes,
            write,
            since,
            egress,
            way,
            quanta_before: 0,
        };
        let key = if let Some(spare) = self.spare_requests.pop() {
            self.requests[spare] = request;
            spare
        } else {
            self.requests.push(request);
            self.requests.len() - 1
        };
        self.issued += 1;
        if way == Way::Direct && self.config.hosting == Hosting::Worker {
            self.apps[number].direct_outstanding += 1;
            self.direct += 1;
            let end = self.lane_of(engine, target, class);
            self.put(end, key, Stage::Ingress, Stage::Egress);
        } else {
            self.hand_in(engine, key);
        }
    }
}
