//! The target's probe measures a device in virtual time, and the device's curve follows.

use base::{Nanos, Time};
use block::Device;
use block::device::Flash;
use qos::live::{LiveError, Observation};
use qos::{Declaration, Percentile, Slo, TokenPoolRules, TokenRate};
use reactor::{Core, Driver, PollPolicy, Service};
use sim::tenants::{Calibrated, calibrate};
use sim::{Actor, NetworkFaults, Outcome, SimDriver, World};
use std::sync::{Arc, LazyLock};
use target::probe::{Probe, ProbeError, ProbeOptions, ProbeWatch};
use target::{
    DeviceQos, Limits, NamespaceOptions, SubsystemOptions, Target, Tenancy, TenantOptions,
};

const PROFILE: &str = "A/8";
const SHARE_PERCENT: u32 = 40;
const LENGTH: Nanos = Nanos::from_millis(3_200);
const NQN: &str = "nqn.2026-11.io.switchyard:sim";

static KNOWN: LazyLock<Calibrated> =
    LazyLock::new(|| calibrate(PROFILE.parse().expect("a profile"), 1));

/// A device with its original model.
struct Bed {
    world: World,
    device: Arc<Flash>,
    qos: Arc<DeviceQos>,
    watch: Arc<ProbeWatch>,
}

impl Bed {
    fn new(seed: u64) -> Self {
        let profile = PROFILE.parse().expect("a profile");
        let Calibrated { costs, curve, .. } = KNOWN.clone();
        Self {
            world: World::new(seed, NetworkFaults::CALM),
            device: Arc::new(Flash::new(profile, 16 << 20, 4096).expect("a small device")),
            qos: DeviceQos::new("flash", TokenPoolRules::default(), costs, curve),
            watch: Arc::default(),
        }
    }

    fn probe(&self, seed: u64) -> Core<SimDriver, Probe> {
        let mut driver = self.world.driver();
        let channel = self.device.open(&mut driver).expect("opened");
        let options = ProbeOptions {
            share_percent: SHARE_PERCENT,
            length: LENGTH,
            seed,
        };
        let buffers = driver.buffers().clone();
        let watch = Arc::clone(&self.watch);
        let probe = Probe::new(&*self.device, channel, &buffers, &self.qos, options, watch);
        Core::new(driver, probe.expect("a probe"), PollPolicy::Never)
    }

    /// Runs the probe for `span`, or to its end.
    fn run(&self, core: &mut Core<SimDriver, Probe>, span: Nanos) {
        let until = self.world.now() + span;
        let outcome = self
            .world
            .run(&mut [core as &mut dyn Actor], until, || false);
        assert_ne!(outcome, Outcome::Done);
    }

    fn observe(&self, seed: u64) -> Result<Vec<Observation>, ProbeError> {
        let mut core = self.probe(seed);
        self.run(&mut core, Nanos::from_secs(60));
        assert!(core.service.finished());
        core.service.into_result()
    }

    fn p95(&self, rate: u64) -> Nanos {
        let (_, curve) = self.qos.model();
        let latency = curve.latency_at(Percentile::P95, TokenRate(rate));
        latency.expect("on the curve")
    }
}

#[test]
fn a_device_that_is_as_it_was_keeps_its_curve_and_no_more_than_the_share_is_spent() {
    for seed in 0..3 {
        let bed = Bed::new(seed);
        let begun = bed.world.now();
        let rate = bed.qos.plan().rate.0;
        let seen = bed.observe(seed).expect("nothing fails");
        let took = bed.world.now().since(begun);
        assert!(took < LENGTH + Nanos::from_millis(50), "it ends: {took}");
        let share = rate * u64::from(SHARE_PERCENT) / 100;
        let most = share * 1000 * LENGTH.0 / 1_000_000_000 + share + 1000;
        let spent = bed.watch.spent_milli();
        assert!(spent > most / 3 && spent <= most, "{spent} of {most}");
        // The loads were as intended: the highest in the middle, and the share.
        let highest = seen
            .iter()
            .map(|one| one.rate.0)
            .max()
            .expect("observations");
        assert!(
            highest > share * 8 / 10 && highest <= share * 101 / 100,
            "{highest} of {share}"
        );
        assert!(
            seen.iter()
                .all(|one| one.reads > 100 && one.read_permille == 1000)
        );
        let refit = bed.qos.refit(&seen).expect("a newer curve");
        assert!(refit.spread_permille < 100, "{}", refit.spread_permille);
        for point in KNOWN.curve.points() {
            let before = point.latency[Percentile::P95 as usize];
            let now = bed.p95(point.rate.0);
            assert!(now >= before, "reads alone promise nothing to a mix");
            assert!(now.0 <= before.0 * 12 / 10, "{now} was {before}");
        }
        assert!(bed.qos.unkept().is_empty());
    }
}

/// The device is a third as fast as at calibration: an SLO that fitted no longer fits, which is
/// reported, and the SLO stays registered.
#[test]
fn a_device_that_became_slow_is_known_to_be_and_whose_promise_that_breaks_is_told() {
    for seed in 0..3 {
        let bed = Bed::new(seed);
        let target = Target::new(Limits::default(), 1).expect("valid limits");
        promise(&bed, &target);
        let promised = bed.qos.plan();
        bed.device.timing().slow_down(300);
        let seen = bed.observe(seed).expect("nothing fails");
        let refit = bed.qos.refit(&seen).expect("a newer curve");
        let (before, now) = refit.highest;
        let before = before.expect("on the old curve");
        assert!(now.0 > before.0 * 3 / 2, "{now}, and it was {before}");
        assert!(bed.p95(refit.seen.1.0) >= now);
        let plan = bed.qos.plan();
        assert!(plan.rate < promised.rate, "{} tokens/s", plan.rate.0);
        assert_eq!(plan.reserved, promised.reserved, "it stays");
        let unkept = bed.qos.unkept();
        assert_eq!(unkept.len(), 1, "{unkept:?}");
        assert_eq!(unkept[0].0, "strict");
    }
}

/// Half of the observations are of a different device.
#[test]
fn a_device_that_changes_meanwhile_is_refused() {
    for seed in 0..3 {
        let bed = Bed::new(seed);
        let mut core = bed.probe(seed);
        bed.run(&mut core, Nanos(LENGTH.0 / 2));
        bed.device.timing().slow_down(250);
        bed.run(&mut core, Nanos::from_secs(60));
        let seen = core.service.into_result().expect("nothing fails");
        let error = bed.qos.refit(&seen).expect_err("a contradiction");
        assert!(matches!(error, LiveError::Noise { .. }), "{error}");
        assert_eq!(bed.qos.model().1, KNOWN.curve, "as it was");
    }
}

#[test]
fn a_probe_that_is_stopped_leaves_nothing_behind() {
    let bed = Bed::new(7);
    let mut core = bed.probe(7);
    bed.run(&mut core, Nanos(LENGTH.0 / 3));
    assert!(bed.watch.done_permille().abs_diff(333) < 20);
    bed.watch.stop();
    let stopped = bed.world.now();
    bed.run(&mut core, Nanos::from_secs(60));
    assert!(core.service.finished());
    assert!(bed.world.now() < stopped + Nanos::from_millis(50));
    let error = core.service.into_result().expect_err("stopped");
    assert!(matches!(error, ProbeError::Stopped), "{error}");
    // All of its places and its share are free again.
    let seen = bed.observe_again();
    assert_eq!(seen.len(), 16);
}

impl Bed {
    fn observe_again(mut self) -> Vec<Observation> {
        self.watch = Arc::default();
        self.observe(8).expect("nothing fails")
    }
}

#[test]
fn one_seed_is_one_observation() {
    let seen = |seed| Bed::new(3).observe(seed).expect("nothing fails");
    assert_eq!(seen(3), seen(3));
    assert_ne!(seen(3), seen(4));
}

/// Registers a tenant with an SLO that the device can currently meet.
fn promise(bed: &Bed, target: &Target) {
    let subsystem = SubsystemOptions::open_to_all(NQN);
    target.add_subsystem(subsystem).expect("a new one");
    let namespace = NamespaceOptions {
        qos: Some(Arc::clone(&bed.qos)),
        ..NamespaceOptions::new(1, Arc::clone(&bed.device) as Arc<dyn Device>, [1; 16])
    };
    target.add_namespace(NQN, namespace).expect("a new one");
    let slo = Slo {
        percentile: Percentile::P95,
        latency: Nanos::from_micros(500),
        iops: 36_000,
        read_permille: 1000,
        request_bytes: 4096,
    };
    let tenant = TenantOptions {
        name: "strict".to_owned(),
        hosts: vec!["nqn.2026-11.io.switchyard:host".to_owned()],
        declaration: Declaration::LatencyCritical(slo),
        ..TenantOptions::default()
    };
    let tenancy = Tenancy {
        tenants: vec![tenant],
        ..Tenancy::default()
    };
    target.set_tenants(&tenancy).expect("admitted");
    assert!(Time::ZERO < bed.world.now());
}
