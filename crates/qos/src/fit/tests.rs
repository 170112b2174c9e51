//! Devices of known weights, measured with varying noise.

use super::*;
use base::Prng;
use proptest::prelude::*;

const SHARES: [u16; 6] = [1000, 990, 950, 900, 750, 500];
/// Loads, as fractions of the device's limit.
const LOADS: [f64; 14] = [
    0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97, 0.99,
];

/// A device with these weights: its latency grows without bound towards a token rate.
#[derive(Clone, Copy, Debug)]
struct Synthetic {
    write: f64,
    read_only: f64,
    limit: f64,
    /// Maximum relative error of each number.
    noise: f64,
}

impl Synthetic {
    fn measure(self, kinds: &[Kind], seed: u64) -> Vec<Measurement> {
        let mut prng = Prng::from_seed(seed);
        let mut off = |value: f64| {
            let random = prng.below(2001) as f64 / 1000.0 - 1.0;
            value * (random * self.noise).exp()
        };
        let mut measured = Vec::new();
        for &kind in kinds {
            let weight = kind.weight(self.write, self.read_only);
            // Noise of a load as a whole, which more points of the load do not reduce.
            let scale = off(1.0);
            for load in LOADS {
                let iops = (self.limit * load / weight * scale) as u64;
                let p50 = off(100_000.0 / (1.0 - load));
                measured.push(Measurement {
                    kind,
                    offered: iops,
                    achieved: iops,
                    latency: [1.0, 2.0, 3.0, 5.0].map(|times| Nanos((p50 * times) as u64)),
                });
            }
        }
        measured
    }
}

const DEVICE: Synthetic = Synthetic {
    write: 10.0,
    read_only: 0.5,
    limit: 500_000.0,
    noise: 0.0,
};

fn shares(shares: &[u16]) -> Vec<Kind> {
    shares.iter().map(|&share| Kind::unit(share)).collect()
}

fn near(price: Price, expected: f64, part: f64) -> bool {
    (tokens(price) / expected - 1.0).abs() <= part
}

#[test]
fn exact_measurements_give_the_weights_back() {
    let measured = DEVICE.measure(&shares(&SHARES), 1);
    let fit = fit(&measured, Known::default()).unwrap();
    assert!(near(fit.write, 10.0, 0.005), "{:?}", fit.write);
    assert!(
        near(fit.read_only_read, 0.5, 0.005),
        "{:?}",
        fit.read_only_read
    );
    assert!(fit.spread_permille <= Some(5), "{:?}", fit.spread_permille);
    let (least, most) = fit.write_range.unwrap();
    assert!(least <= fit.write && fit.write <= most);
    assert!(
        near(least, 10.0, 0.01) && near(most, 10.0, 0.01),
        "{least:?} {most:?}"
    );
    // Half of its limit doubles the latency: four times 100 µs at p95.
    let latency = fit
        .curve
        .latency_at(Percentile::P95, TokenRate(250_000))
        .unwrap();
    assert!((390..=420).contains(&latency.as_micros()), "{latency}");
    assert_eq!(fit.costs(), CostModel::new(fit.write, fit.read_only_read));
}

/// Every measured load meets the curve's latency.
#[test]
fn the_curve_is_above_every_load() {
    let noisy = Synthetic {
        noise: 0.04,
        ..DEVICE
    };
    let measured = noisy.measure(&shares(&SHARES), 3);
    let fit = fit(&measured, Known::default()).unwrap();
    for point in measured {
        let rate = point.kind.tokens_per_second(point.achieved as f64, &fit);
        let rate = TokenRate(rate.ceil() as u64 + 1);
        for (percentile, measured) in Percentile::ALL.into_iter().zip(point.latency) {
            if let Some(latency) = fit.curve.latency_at(percentile, rate) {
                assert!(
                    latency >= measured,
                    "{percentile} {latency} at {rate}: {point:?}"
                );
            }
        }
    }
}

#[test]
fn sizes_are_compared_with_the_rule() {
    let mut kinds = shares(&SHARES);
    for request_bytes in [1024, 32 << 10] {
        kinds.push(Kind {
            request_bytes,
            read_permille: 1000,
        });
    }
    let fit = fit(&DEVICE.measure(&kinds, 1), Known::default()).unwrap();
    let found: Vec<_> = fit
        .sizes
        .iter()
        .map(|size| (size.kind.request_bytes, size.units))
        .collect();
    assert_eq!(found, [(1024, 1), (32 << 10, 8)]);
    for size in fit.sizes {
        let expected = size.units * 1000;
        assert!(
            size.measured_milli.abs_diff(expected) <= expected / 100,
            "{size:?}"
        );
    }
}

#[test]
fn a_given_price_is_kept() {
    let price = |milli| Some(Price::milli(milli).unwrap());
    let reads = DEVICE.measure(&shares(&[1000]), 1);
    assert_eq!(
        fit(&reads, Known::default()),
        Err(FitError::WriteUnknown(0))
    );
    let known = Known {
        write: price(12_000),
        read_only_read: None,
    };
    let one = fit(&reads, known).unwrap();
    assert_eq!(
        (one.write.as_milli(), one.read_only_read),
        (12_000, Price::READ)
    );
    assert_eq!((one.write_range, one.spread_permille), (None, None));
    let known = Known {
        read_only_read: price(500),
        ..known
    };
    let half = fit(&reads, known).unwrap();
    let capacity = |fit: &Fit| fit.curve.capacity().0;
    assert!(
        (capacity(&half) * 2).abs_diff(capacity(&one)) <= 2,
        "half the price, half the tokens"
    );
    // A price that measurements contradict is not returned.
    let mixed = DEVICE.measure(&shares(&SHARES), 1);
    let wrong = Known {
        write: price(30_000),
        read_only_read: None,
    };
    assert!(matches!(
        fit(&mixed, wrong),
        Err(FitError::Noise {
            write_milli: 30_000,
            ..
        })
    ));
}

#[test]
fn noise_is_refused() {
    let noisy = Synthetic {
        noise: 0.7,
        ..DEVICE
    };
    for seed in 1..20 {
        let refused = fit(&noisy.measure(&shares(&SHARES), seed), Known::default()).unwrap_err();
        let expected = matches!(refused, FitError::Noise { .. } | FitError::Price { .. });
        assert!(expected, "{seed}: {refused}");
    }
    let error = fit(&noisy.measure(&shares(&SHARES), 2), Known::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("measure for longer"), "{error}");
}

#[test]
fn too_little_is_refused() {
    assert_eq!(fit(&[], Known::default()), Err(FitError::Nothing));
    let two = DEVICE.measure(&shares(&[1000, 900, 500]), 1);
    assert_eq!(fit(&two, Known::default()), Err(FitError::WriteUnknown(2)));
    let three = DEVICE.measure(&shares(&[950, 900, 500]), 1);
    let fitted = fit(&three, Known::default()).unwrap();
    assert_eq!(
        fitted.read_only_read,
        Price::READ,
        "nothing says that it is less"
    );
    // One load whose rate was not raised enough.
    let mut short = DEVICE.measure(&shares(&SHARES), 1);
    short.retain(|point| {
        point.kind != Kind::unit(900) || point.latency[1] < Nanos::from_micros(600)
    });
    let error = fit(&short, Known::default()).unwrap_err();
    let FitError::NoKnee { kind, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(kind, Kind::unit(900));
    assert!(
        error.to_string().starts_with("90 % reads of 4096 bytes: "),
        "{error}"
    );
    assert_eq!(Kind::unit(995).to_string(), "99.5 % reads of 4096 bytes");
}

/// Beyond its limit a device completes no more, in any order that noise gives.
#[test]
fn an_overload_ends_a_line() {
    let mut measured = DEVICE.measure(&shares(&SHARES), 1);
    for share in SHARES {
        let of_share = |point: &&Measurement| point.kind == Kind::unit(share);
        let last = measured.iter().rfind(of_share);
        let last = *last.unwrap();
        let overload = Measurement {
            offered: last.offered * 2,
            achieved: last.achieved - 1,
            latency: [Nanos::from_secs(1); Percentile::COUNT],
            ..last
        };
        assert!(last.sustained() && !overload.sustained());
        measured.push(overload);
    }
    let fit = fit(&measured, Known::default()).unwrap();
    assert!(near(fit.write, 10.0, 0.01), "{:?}", fit.write);
}

proptest! {
    #[test]
    fn any_weights_are_recovered(
        write in 1.5f64..60.0,
        read_only in 0.2f64..1.2,
        limit in 20_000.0f64..5_000_000.0,
        seed in any::<u64>(),
    ) {
        let device = Synthetic { write, read_only, limit, noise: 0.01 };
        let fit = fit(&device.measure(&shares(&SHARES), seed), Known::default()).unwrap();
        prop_assert!(near(fit.write, write, 0.08), "{:?}, not {write}", fit.write);
        prop_assert!(near(fit.read_only_read, read_only, 0.06), "{:?}, not {read_only}", fit.read_only_read);
        prop_assert!(fit.spread_permille < Some(100), "{:?}", fit.spread_permille);
    }
}
