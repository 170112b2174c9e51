//! Calibration recovers the emulator's own prices, and refuses what is no device.

use super::*;
use base::Nanos;
use block::device::Ram;
use block::device::flash::Profile;
use qos::Percentile;
use qos::cost::Price;
use qos::fit::FitError;
use std::sync::Arc;
use std::time::Duration;

/// Requests of each load: enough for a p95 within a few hundredths.
const REQUESTS: u64 = 20_000;

fn emulated(profile: &str, seed: u64) -> Emulated {
    let profile: Profile = profile.parse().unwrap();
    Emulated::new(profile, 1 << 30, REQUESTS, seed)
}

fn run(plan: &Plan, probe: &mut dyn Probe) -> Result<Calibration> {
    let stop = AtomicBool::new(false);
    calibrate(plan, Known::default(), probe, &stop, &mut |_| {})
}

fn off(price: Price, expected: f64) -> f64 {
    (f64::from(price.as_milli()) / 1e3 / expected - 1.0).abs()
}

/// The emulator's parts fix the cost of a write (`Parts::work`). On A, read-only reads cost half,
/// by the time that its dies take for them. Calibration knows neither.
#[test]
fn the_emulators_prices_are_recovered() {
    let devices = [("A", 10.0, 0.5), ("B", 20.0, 1.0), ("C", 16.0, 1.0)];
    for (profile, write, read_only) in devices {
        for (seed, quick) in [(1, false), (2, true)] {
            let calibration = run(&Plan::new(true, 512, quick), &mut emulated(profile, seed));
            let calibration = calibration.unwrap();
            println!("{profile}, seed {seed}:\n{calibration}");
            let fit = &calibration.fit;
            assert!(off(fit.write, write) < 0.1, "{profile}: {:?}", fit.write);
            let alone = fit.read_only_read;
            assert!(off(alone, read_only) < 0.1, "{profile}: {alone:?}");
            assert!(
                fit.spread_permille < Some(50),
                "{profile}: {:?}",
                fit.spread_permille
            );
            let large = fit.sizes.iter().find(|size| size.units == 8);
            assert_eq!(large.is_none(), quick);
            if let Some(size) = large {
                assert!(
                    size.measured_milli.abs_diff(8_000) < 1_000,
                    "{profile}: {size:?}"
                );
            }
        }
    }
}

/// The rates that admission uses are the paper's for device A, and an eighth of them for an eighth
/// of the device.
#[test]
fn the_curve_is_the_devices() {
    for (profile, parts) in [("A", 1), ("A/8", 8)] {
        let calibration = run(&Plan::new(true, 512, true), &mut emulated(profile, 1)).unwrap();
        let rate = calibration
            .fit
            .curve
            .rate_for(Percentile::P95, Nanos::from_micros(500));
        let rate = rate.unwrap().0 * parts;
        assert!(
            (380_000..460_000).contains(&rate),
            "{profile}: {rate} tokens/s"
        );
    }
}

#[test]
fn the_same_seed_measures_the_same() {
    let plan = Plan::new(true, 512, true);
    let by_seed = |seed| run(&plan, &mut emulated("C", seed)).unwrap();
    assert_eq!(by_seed(1), by_seed(1));
    assert_ne!(by_seed(1).measured, by_seed(2).measured);
}

#[test]
fn a_calibration_that_is_stopped_has_no_model() {
    let stop = AtomicBool::new(false);
    let mut loads = 0;
    let error = calibrate(
        &Plan::new(true, 512, true),
        Known::default(),
        &mut emulated("A/8", 1),
        &stop,
        &mut |_| {
            loads += 1;
            stop.store(loads == 5, Ordering::Relaxed);
        },
    );
    assert!(error.unwrap_err().to_string().contains("interrupted"));
    assert_eq!(loads, 5, "the load that was cut short is the last one");
}

/// A probe that computes its measurements by a formula.
struct Formula<F>(F);

impl<F: FnMut(Kind, u64) -> (u64, u64)> Probe for Formula<F> {
    fn measure(&mut self, kind: Kind, iops: u64) -> Result<Measurement> {
        let (achieved, micros) = (self.0)(kind, iops);
        Ok(Measurement {
            kind,
            offered: iops,
            achieved,
            latency: [Nanos::from_micros(micros); Percentile::COUNT],
        })
    }
}

fn refused(probe: &mut dyn Probe) -> FitError {
    let error = run(&Plan::new(true, 512, true), probe).unwrap_err();
    error
        .downcast_ref::<FitError>()
        .unwrap_or_else(|| panic!("{error:#}"))
        .clone()
}

/// A device with a fixed rate, whatever the requested rate, has a knee. A device whose limit does
/// not depend on the share of reads has no write price.
#[test]
fn what_is_no_device_is_refused() {
    let mut never_late = Formula(|_, iops: u64| (iops, 100));
    assert!(matches!(refused(&mut never_late), FitError::NoKnee { .. }));
    let mut number = 0;
    let mut noise = Formula(|kind: Kind, iops: u64| {
        number = (number * 7 + 3) % 11;
        let limit = 30_000 + u64::from(kind.read_permille % 7) * 50_000;
        (
            iops.min(limit),
            if iops > limit { 100_000 } else { 100 + number },
        )
    });
    let refused = refused(&mut noise);
    assert!(matches!(refused, FitError::Noise { .. }), "{refused}");
}

/// A device slower than the first guess gets less load.
#[test]
fn a_slow_device_is_found() {
    let mut least = u64::MAX;
    let mut disk = Formula(|kind: Kind, iops: u64| {
        least = least.min(iops);
        let limit = if kind.read_permille == 1000 { 180 } else { 120 };
        (
            iops.min(limit),
            if iops > limit {
                900_000
            } else {
                9_000 + 100 * iops
            },
        )
    });
    // The prices do not matter here, only that the calibration ends.
    let _ = run(&Plan::new(true, 512, true), &mut disk);
    assert_eq!(least, 10);
    let mut dead = Formula(|_, _| (1, 1_000));
    let error = run(&Plan::new(true, 512, true), &mut dead)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("does not sustain the lowest rate of 10 requests"),
        "{error}"
    );
}

fn on_ram(writes: bool, stop: &AtomicBool) -> OnDevice<'_> {
    let options = OnDeviceOptions {
        measured: Duration::from_millis(30),
        threads: 1,
        queues: 1,
        writes,
        precondition: writes.then_some(Duration::ZERO),
        seed: 1,
    };
    let ram = Arc::new(Ram::new(8 << 20, 512).unwrap());
    OnDevice::prepare(ram, options, stop).unwrap()
}

#[test]
fn the_load_generator_measures_reads_beside_writes() {
    let stop = AtomicBool::new(false);
    let measured = on_ram(true, &stop).measure(Kind::unit(500), 1_000).unwrap();
    assert_eq!((measured.kind, measured.offered), (Kind::unit(500), 1_000));
    assert!(
        measured.achieved > 0 && measured.latency[0] > Nanos::ZERO,
        "{measured:?}"
    );
    assert!(measured.latency.is_sorted());
}

#[test]
fn nothing_is_written_where_that_is_not_allowed() {
    let stop = AtomicBool::new(false);
    let mut probe = on_ram(false, &stop);
    probe.measure(Kind::unit(1000), 1_000).unwrap();
    let error = probe
        .measure(Kind::unit(990), 1_000)
        .unwrap_err()
        .to_string();
    assert!(error.contains("no permission to write"), "{error}");
}

#[test]
fn a_calibration_is_told_as_table_and_json() {
    let calibration = run(&Plan::new(true, 512, true), &mut emulated("A/8", 1)).unwrap();
    let text = calibration.to_string();
    for says in [
        "cost of a 4 KiB write: ",
        "spread of token rates at equal p95: ",
        "50 % reads of 4096 bytes",
        " at 500 µs",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let json = serde_json::to_value(&calibration).unwrap();
    let loads = json["measured"].as_array().unwrap();
    assert_eq!(loads.len(), calibration.measured.len());
    assert!(json["write_tokens"].as_f64() > Some(9.0));
    let compared = json["compared_us"].as_array().unwrap();
    assert_eq!(compared.len(), calibration.fit.latencies.len());
}
