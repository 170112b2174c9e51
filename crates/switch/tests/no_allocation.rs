//! Decisions do not allocate: all memory is allocated when the switch is created.

#[cfg(test)]
mod tests {
    use base::units::CoreId;
    use base::{Nanos, Prng, Time};
    use switch::application_steering::SteeredThread;
    use switch::doorbell::{Decision, Urgency};
    use switch::load::ClassLoad;
    use switch::request_steering::{EgressLoad, Preference};
    use switch::{
        ApplicationSteering, Class, ClassScheduler, CoreSet, Doorbell, Knobs, PerClass,
        RequestSteering,
    };

    /// One core's decisions on a busy machine.
    struct Core {
        now: Time,
        prng: Prng,
        doorbell: Doorbell,
        steering: RequestSteering,
        applications: ApplicationSteering,
        scheduler: ClassScheduler,
        load: PerClass<ClassLoad>,
        egresses: Vec<Option<EgressLoad>>,
        loads: Vec<PerClass<u64>>,
        threads: Vec<SteeredThread>,
    }

    impl Core {
        fn new() -> Self {
            let mut knobs = Knobs::switchyard();
            knobs.request_steering.preference = Preference::NearlyFull { requests: 12 };
            let egress = |core: u64| EgressLoad {
                throughput_bytes: core * 300_000,
                latency_bytes: core % 2,
                waiting_requests: 15,
            };
            let thread = |id: u32| SteeredThread {
                id: u64::from(id),
                class: Class::ALL[id as usize % Class::COUNT],
                core: CoreId(id % 16),
                allowed: CoreSet::first(16),
                pinned_by_user: false,
                load_bytes: 4096,
            };
            Self {
                now: Time(1),
                prng: Prng::from_seed(1),
                doorbell: Doorbell::new(knobs.doorbell),
                steering: RequestSteering::new(knobs.request_steering, 16, 1),
                applications: ApplicationSteering::new(knobs.application_steering),
                scheduler: ClassScheduler::new(knobs.service()),
                load: PerClass::default(),
                egresses: (0..16).map(|core| Some(egress(core))).collect(),
                loads: (0..16)
                    .map(|core| PerClass::of([4096 * core, (core * 7 % 16) << 18]))
                    .collect(),
                threads: (0..500).map(thread).collect(),
            }
        }

        /// Makes all decisions for one request.
        fn decide(&mut self) {
            self.now = self.now + Nanos(self.prng.below(3_000));
            let class = Class::ALL[usize::from(self.prng.chance(1, 2))];
            let local = 15 - usize::from(self.prng.chance(1, 2)) * 15;
            self.steering.steer(class, local, &self.egresses[..]);
            self.load[class].sample(self.now, 65_536);
            let decision = self
                .doorbell
                .on_request(self.now, 72, 1, Urgency::of(class), 64);
            if let Decision::Ring(_) = decision {
                self.doorbell.rang();
            }
            self.doorbell.on_completion(self.now, 63);
            self.doorbell.on_timer(self.now);
            if let Some(grant) = self
                .scheduler
                .next(self.now, &PerClass::of([4096, 1 << 20]))
            {
                self.scheduler.served(self.now, grant.bytes);
            }
            self.applications.step(self.now, &self.loads, &self.threads);
        }
    }

    #[test]
    fn deciding_allocates_nothing() {
        let mut core = Core::new();
        let counted = allocation_counter::measure(|| {
            for _ in 0..50_000 {
                core.decide();
            }
        });
        assert_eq!(counted.count_total, 0);
        let moved = core.applications.counters().moved;
        assert!(
            core.steering.counters().steered > 0,
            "it had something to decide"
        );
        assert!(moved.iter().all(|(_, &threads)| threads > 0), "{moved:?}");
    }
}
