//! Text sets knobs like fields do, and every value survives formatting and parsing.

use super::*;
use crate::class::Class;
use crate::class_scheduler::Window;
use crate::doorbell::Mode;
use crate::knobs::{Ablation, Lanes, Polling};
use crate::request_steering::Preference;
use proptest::prelude::*;

#[test]
fn keys_are_distinct_words_and_name_their_unit() {
    for (index, knob) in Knob::ALL.iter().enumerate() {
        let word = knob
            .key
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(word, "{}", knob.key);
        assert!(!knob.meaning.is_empty());
        let twice = Knob::ALL[..index].iter().any(|other| other.key == knob.key);
        assert!(!twice, "{}", knob.key);
        let time = matches!(knob.range, KnobRange::Time(..));
        assert_eq!(knob.key.ends_with("_us"), time, "{}", knob.key);
    }
}

#[test]
fn every_knob_counts_in_some_preset_or_says_what_it_needs() {
    for knob in Knob::ALL {
        let counts = |(preset, _): &(Preset, _)| knob.get(&preset.knobs()).is_some();
        let somewhere = Preset::ALL.iter().any(counts);
        assert!(
            somewhere || knob.with.is_some() || knob.key == "floor_window_bytes",
            "{}",
            knob.key
        );
    }
}

#[test]
fn a_knob_that_was_removed_says_so() {
    let mut knobs = Knobs::switchyard();
    let error = knobs.set("threads", "per-class").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the switch parameter threads was removed: omit it: each core of a switchboard has one \
         thread for all classes"
    );
    assert_eq!(error.knob(), Some("threads"));
    let error = knobs.set("latency_threads", "best").unwrap_err();
    assert!(error.to_string().contains("default or nice"), "{error}");
    assert_eq!(knobs, Knobs::switchyard());
}

#[test]
fn a_knob_is_turned_by_text() {
    let mut knobs = Knobs::switchyard();
    for (key, text) in [
        ("lanes", "shared"),
        ("prioritisation", "off"),
        ("polling", "Always"),
        ("request_steering", "false"),
        ("request_steering_preference", "nearly-full"),
        ("request_steering_nearly_full_requests", "7"),
        ("application_steering_period_us", "20000"),
        ("doorbell", "fixed"),
        ("doorbell_delay_us", "100"),
        ("doorbell_requests", "8"),
        ("caravan", "off"),
        ("floor_throughput_permille", "50"),
        ("floor_window_bytes", "65536"),
    ] {
        knobs
            .set(key, text)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!((knobs.lanes, knobs.prioritisation), (Lanes::Shared, false));
    assert_eq!(knobs.polling, Polling::Always);
    assert!(!knobs.request_steering.enabled && !knobs.caravan.enabled);
    let preference = Preference::NearlyFull { requests: 7 };
    assert_eq!(knobs.request_steering.preference, preference);
    assert_eq!(knobs.application_steering.period, Nanos::from_millis(20));
    let Mode::Fixed { fill, delay } = knobs.doorbell else {
        panic!("{:?}", knobs.doorbell);
    };
    assert_eq!((fill.requests, delay), (8, Nanos::from_micros(100)));
    assert_eq!(knobs.floor_permille[Class::Throughput], 50);
    assert_eq!(knobs.floor_window, Window::Bytes(65_536));

    assert_eq!(knobs.text("caravan").as_deref(), Ok("off"));
    assert_eq!(knobs.text("doorbell_delay_us").as_deref(), Ok("100"));
    let error = knobs.text("doorbell_max_hold_us").unwrap_err().to_string();
    assert!(error.contains("only with doorbell=adaptive"), "{error}");
    let error = knobs.text("doorbel").unwrap_err().to_string();
    assert!(error.contains("use one of lanes, "), "{error}");
}

#[test]
fn what_cannot_be_turned_is_said_and_changes_nothing() {
    let before = Knobs::linux();
    for (changes, expected) in [
        (
            &[("doorbel", "fixed")][..],
            "unknown switch parameter \"doorbel\": use one of lanes, ",
        ),
        (
            &[("doorbell", "sometimes")],
            "invalid value \"sometimes\" of doorbell: use immediate or ",
        ),
        (
            &[("caravan", "1")],
            "invalid value \"1\" of caravan: use on or off",
        ),
        (
            &[("quantum_bytes", "64k")],
            "invalid value \"64k\" of quantum_bytes: use 4096 to ",
        ),
        (
            &[("quantum_bytes", "1")],
            "quantum_bytes is 1: use 4096 to ",
        ),
        (
            &[("doorbell_delay_us", "24")],
            "doorbell_delay_us is 24: use at least 25µs",
        ),
        (
            &[("doorbell_delay_us", "99999999999999999")],
            "invalid value \"99999999999999999\" of doorbell_delay_us: use ",
        ),
        (
            &[("doorbell_max_hold_us", "30")],
            "doorbell_max_hold_us has an effect only with doorbell=adap",
        ),
        (
            &[("request_steering_nearly_full_requests", "1")],
            "request_steering_nearly_full_requests has an effect only with request_steering_preference=",
        ),
        (
            &[("caravan", "on"), ("caravan", "on")],
            "caravan is set twice",
        ),
        (
            &[("floor_window_us", "1000"), ("floor_window_bytes", "4096")],
            "floor_window_us is set",
        ),
        (
            &[
                ("floor_latency_permille", "400"),
                ("floor_throughput_permille", "400"),
            ],
            "the floors of all classes add up to 800 thousandths: use at most 500 in total",
        ),
    ] {
        let mut knobs = before;
        let error = knobs
            .change(changes.iter().copied())
            .expect_err(expected)
            .to_string();
        assert!(
            error.starts_with(expected),
            "{error:?} should begin with {expected:?}"
        );
        assert_eq!(knobs, before, "{expected}");
    }
}

#[test]
fn the_order_of_changes_does_not_matter() {
    let changes = [
        ("doorbell_delay_us", "60"),
        ("doorbell_requests", "4"),
        ("doorbell", "fixed"),
    ];
    let mut forwards = Knobs::switchyard();
    forwards.change(changes).expect("valid");
    let mut backwards = Knobs::switchyard();
    backwards.change(changes.into_iter().rev()).expect("valid");
    assert_eq!(forwards, backwards);
    assert_eq!(forwards.doorbell.bound(), Nanos::from_micros(60));
}

#[test]
fn a_position_is_told_by_the_nearest_preset() {
    assert_eq!(Knobs::switchyard().nearest_preset(), Preset::Switchyard);
    assert_eq!(
        Knobs::ablation(Ablation::Nothing).nearest_preset(),
        Preset::Linux
    );
    let mut knobs = Knobs::nvme_tcp();
    knobs.quantum_bytes = 4096;
    assert_eq!(knobs.nearest_preset(), Preset::NvmeTcp);
    let keys: Vec<_> = knobs
        .differences(&Knobs::nvme_tcp())
        .map(|e| e.knob.key)
        .collect();
    assert_eq!(keys, ["quantum_bytes"]);
}

/// Any set of knobs that text can express.
fn any_knobs() -> impl Strategy<Value = Knobs> {
    let turn = (0..Knob::ALL.len(), any::<u64>());
    (0..Preset::ALL.len(), prop::collection::vec(turn, 0..12)).prop_map(|(preset, turns)| {
        let mut knobs = Preset::ALL[preset].0.knobs();
        for (index, random) in turns {
            let knob = &Knob::ALL[index];
            let text = match knob.range {
                KnobRange::Switch => ["on", "off"][usize::from(random & 1 == 1)].to_owned(),
                KnobRange::Words(words) => {
                    words[usize::from(random.to_le_bytes()[0]) % words.len()].to_owned()
                }
                KnobRange::Number(min, max) => (min + random % (max - min + 1)).to_string(),
                KnobRange::Time(min, max) => ((min.0 + random % (max.0 - min.0 + 1)) / 1000)
                    .max(min.0.div_ceil(1000))
                    .to_string(),
            };
            let mut turned = knobs;
            // A knob without effect at present, or with too large a floor, stays unchanged.
            if turned.set(knob.key, &text).is_ok() && turned.validate().is_ok() {
                knobs = turned;
            }
        }
        knobs
    })
}

proptest! {
    #[test]
    fn every_position_can_be_told_and_made_again(knobs in any_knobs(), other in any_knobs()) {
        let preset = knobs.nearest_preset();
        for base in [preset.knobs(), other] {
            let told: Vec<_> = knobs.differences(&base).map(|e| (e.knob.key, e.text())).collect();
            let mut again = base;
            let changes = told.iter().map(|(key, text)| (*key, text.as_str()));
            prop_assert_eq!(again.change(changes), Ok(()));
            prop_assert_eq!(again, knobs);
        }
    }
}
