//! Application steering in the model: the production
//! [`ApplicationSteering`](switch::ApplicationSteering) decides, and the model moves the threads.

use super::config::Hosting;
use super::event::Event;
use super::lane::Side;
use super::world::World;
use base::Time;
use base::units::CoreId;
use switch::application_steering::SteeredThread;
use switch::limits::LOAD_RESET;
use switch::{Class, CoreSet, PerClass};

impl World<'_> {
    /// The period of a side's application steering has ended.
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
            // Applications with their own lanes do not benefit.
            return;
        }
        let now = Time(self.now);
        let allowed = CoreSet::first(self.host_loads.len());
        let loads: Vec<_> = self
            .host_loads
            .iter()
            .map(|core| core.map(|load| load.bytes(now)))
            .collect();
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
                load_bytes: app.load.bytes(now),
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
        let allowed = CoreSet::first(self.target_engines.len());
        let first = self.target_engines.start;
        let mut loads = vec![PerClass::<u64>::default(); self.target_engines.len()];
        for end in self.ends.iter().filter(|end| end.side == Side::Target) {
            loads[end.engine - first][end.class] += end.demand.load_within(LOAD_RESET, now);
        }
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
                load_bytes: end.demand.load_within(LOAD_RESET, now),
            })
            .collect();
        for step in self.application_steering[1]
            .step(now, &loads, &threads)
            .to_vec()
        {
            let end = usize::try_from(step.id).expect("it was a place in the list");
            self.move_lane(end, first + step.to.0 as usize);
        }
    }
}

fn core_id(core: usize) -> CoreId {
    CoreId(u32::try_from(core).expect("bounded by the configuration"))
}
