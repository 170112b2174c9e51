//! Application steering in the model: the production
//! [`ApplicationSteering`](switch::ApplicationSteering) decides, and its threads are moved here.

use super::config::Hosting;
use super::event::Event;
use super::lane::Side;
use super::world::World;
use base::Time;
use base::units::CoreId;
use switch::application_steering::SteeredThread;
use switch::{Class, CoreSet};

impl World<'_> {
    /// The period of a side's application steering is over.
    pub(super) fn on_steer(&mut self, side: Side) {
        if self.closing {
            return;
        }
        match side {
            Side::Host => self.steer_applications(),
            Side::Target => self.steer_lanes(),
        }
        let rules = self.knobs.application_steering;
        self.calendar
            .push(self.now + rules.period.0, Event::Steer { side });
    }

    fn steer_applications(&mut self) {
        if self.config.hosting == Hosting::Inline {
            // Applications with lanes of their own have nothing to gain.
            return;
        }
        let now = Time(self.now);
        let allowed = CoreSet::first(self.host_loads.len());
        let loads: Vec<_> = self.host_loads.iter().map(|load| load.all(now)).collect();
        let threads: Vec<_> = self
            .apps
            .iter()
            .zip(0_u64..)
            .map(|(app, id)| SteeredThread {
                id,
                class: app.class,
                core: core_id(self.host_index(self.threads[app.thread].core)),
                allowed,
                pinned_by_user: false,
                load_bytes: app.load.value(),
            })
            .collect();
        for step in self.application_steering[0]
            .step(now, &loads, &threads)
            .to_vec()
        {
            let to = self.host_cores.start + step.to.0 as usize;
            let app = usize::try_from(step.id).expect("it was a place in the list");
            let thread = self.apps[app].thread;
            if self.apps[app].class == Class::Latency {
                let from = self.host_index(self.threads[thread].core);
                self.latency_apps[from] -= 1;
                self.latency_apps[step.to.0 as usize] += 1;
            }
            self.migrate(thread, to);
        }
    }

    fn steer_lanes(&mut self) {
        let now = Time(self.now);
        let allowed = CoreSet::first(self.target_loads.len());
        let loads: Vec<_> = self.target_loads.iter().map(|load| load.all(now)).collect();
        let first = self.target_engines.start;
        let threads: Vec<_> = self
            .ends
            .iter()
            .zip(0_u64..)
            .filter(|(end, _)| end.side == Side::Target)
            .map(|(end, id)| SteeredThread {
                id,
                class: end.class,
                core: core_id(end.engine - first),
                allowed,
                pinned_by_user: false,
                load_bytes: end.load.value(),
            })
            .collect();
        for step in self.application_steering[1]
            .step(now, &loads, &threads)
            .to_vec()
        {
            let end = usize::try_from(step.id).expect("it was a place in the list");
            let bytes = self.ends[end].outstanding_bytes;
            let class = self.ends[end].class;
            let (from, to) = (step.from.0 as usize, step.to.0 as usize);
            self.target_outstanding[from][class] -= bytes;
            self.target_outstanding[to][class] += bytes;
            self.move_lane(end, first + to);
        }
    }

    /// A command has come to the target, or its answer is about to leave.
    pub(super) fn sample_target(&mut self, end: usize, request: usize, came: bool) {
        let bytes = u64::from(self.requests[request].bytes);
        let it = &mut self.ends[end];
        let core = it.engine - self.target_engines.start;
        let outstanding = &mut self.target_outstanding[core][it.class];
        if came {
            *outstanding += bytes;
            it.outstanding_bytes += bytes;
        } else {
            *outstanding -= bytes;
            it.outstanding_bytes -= bytes;
        }
        let outstanding = *outstanding;
        it.load.add(it.outstanding_bytes);
        self.target_loads[core].sample(Time(self.now), it.class, outstanding);
    }
}

fn core_id(core: usize) -> CoreId {
    CoreId(u32::try_from(core).expect("bounded by the configuration"))
}
