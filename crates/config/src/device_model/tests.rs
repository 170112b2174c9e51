//! What is written is read again, and what is wrong is named.

use super::*;
use qos::cost::DeviceLoad;
use qos::units;

fn model() -> DeviceModel {
    let point = |rate, micros: u64| Point {
        rate: TokenRate(rate),
        latency: [1, 2, 3, 4].map(|times| Nanos::from_micros(times * micros)),
    };
    DeviceModel {
        provenance: Provenance {
            device: "flash:A/8:1G \"the first\"".to_owned(),
            measured_at: Some("2026-11-05T10:00:00Z".to_owned()),
            switchyard: Some("0.1.0".to_owned()),
            kernel: None,
            command: Some("switchyard calibrate flash:A/8:1G".to_owned()),
            write_price_measured: true,
            spread_permille: Some(31),
            live: Some(Live {
                share_percent: 10,
                from: TokenRate(2_000),
                to: TokenRate(11_000),
            }),
        },
        prices: PriceList::new(Price::milli(10_125).unwrap(), Price::milli(487).unwrap()),
        curve: Curve::new(vec![point(10_000, 110), point(52_500, 500)]).unwrap(),
    }
}

fn problems(text: &str) -> Vec<String> {
    let error = DeviceModel::parse(text).unwrap_err();
    error.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn a_model_comes_back() {
    let model = model();
    let text = model.to_toml();
    assert_eq!(DeviceModel::parse(&text).unwrap(), model, "{text}");
    let mut dear = model;
    let price = Price::milli(77).unwrap();
    dear.prices.others.insert(PricedOperation::Flush, price);
    assert_eq!(DeviceModel::parse(&dear.to_toml()).unwrap(), dear);
}

#[test]
fn prices_become_costs() {
    let mut model = model();
    let prices = &mut model.prices;
    prices
        .others
        .insert(PricedOperation::Flush, Price::milli(77).unwrap());
    prices
        .others
        .insert(PricedOperation::Compare, Price::milli(3_000).unwrap());
    let costs = DeviceModel::parse(&model.to_toml()).unwrap().prices.costs();
    let milli = |load, operation| costs.prices(load).cost(operation, units(4096)).0 / 1_000_000;
    assert_eq!(milli(DeviceLoad::Mixed, PricedOperation::Read), 1000);
    assert_eq!(milli(DeviceLoad::Mixed, PricedOperation::Write), 10_125);
    assert_eq!(milli(DeviceLoad::Mixed, PricedOperation::Compare), 3_000);
    assert_eq!(milli(DeviceLoad::ReadOnly, PricedOperation::Read), 487);
    assert_eq!(milli(DeviceLoad::ReadOnly, PricedOperation::Write), 10_125);
    for load in [DeviceLoad::Mixed, DeviceLoad::ReadOnly] {
        assert_eq!(milli(load, PricedOperation::Flush), 77);
    }
    let plain = PriceList::new(Price::milli(10_000).unwrap(), Price::milli(500).unwrap());
    let (write, read) = (Price::milli(10_000).unwrap(), Price::milli(500).unwrap());
    assert_eq!(plain.costs(), CostModel::new(write, read));
}

/// What is replaced by what, at which key, and a word of what is said.
const WRONG: [(&str, &str, &str, &str); 8] = [
    (
        "version = 1",
        "version = 2",
        "version",
        "this program reads 1",
    ),
    (
        "read_millitokens = 1000",
        "read_millitokens = 900",
        "read_millitokens = 1000",
        "by definition",
    ),
    (
        "write_millitokens = 10125",
        "write_millitokens = 0",
        "write_millitokens",
        "out of range",
    ),
    (
        "write_millitokens = 10125",
        "write_millitokens = 1.5",
        "write_millitokens",
        "an integer",
    ),
    (
        "read_millitokens = 487",
        "raed_millitokens = 487",
        "read_millitokens = 487",
        "did you mean",
    ),
    (
        "tokens_per_second = 52500",
        "tokens_per_second = 10000",
        "tokens_per_second = 52500",
        "is not higher than",
    ),
    (
        "p95_ns = 1000000",
        "p95_ns = 1",
        "[[curve]]\ntokens_per_second = 52500",
        "a latency of zero",
    ),
    ("device = ", "devise = ", "device = ", "did you mean"),
];

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let text = model().to_toml();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        problems(&text.replacen(from, to, 1))
    };
    let line = |key: &str| {
        let before = text.split(key).next().unwrap();
        format!(
            "line {}: ",
            before.lines().count() + usize::from(before.ends_with('\n'))
        )
    };
    for (from, to, at, says) in WRONG {
        let problems = with(from, to);
        let at = line(at);
        let told = |problem: &&String| problem.starts_with(&at) && problem.contains(says);
        assert!(
            problems.iter().any(|problem| told(&problem)),
            "{to}: {at}{problems:?}"
        );
    }
    let nothing = problems("version = 1");
    for key in [
        "provenance: is missing",
        "prices: is missing",
        "curve: is missing",
    ] {
        assert!(
            nothing.iter().any(|problem| problem.contains(key)),
            "{nothing:?}"
        );
    }
    let no_points =
        text.split("[[curve]]")
            .next()
            .unwrap()
            .replacen("version", "curve = []\nversion", 1);
    assert!(problems(&no_points)[0].contains("the curve has 0 points"));
}

#[test]
fn a_file_is_named() {
    let missing = DeviceModel::load(Path::new("/nonexistent/model.toml")).unwrap_err();
    let text = missing.to_string();
    assert!(
        text.starts_with("/nonexistent/model.toml: cannot be read"),
        "{text}"
    );
    assert!(text.contains("switchyard calibrate"), "{text}");
}
