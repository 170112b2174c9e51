//! Seeds that have found bugs.

use super::Options;
use std::str::FromStr;

/// Returns the runs listed in `sim/seeds.txt`.
///
/// # Panics
/// If a line of it cannot be parsed.
#[must_use]
pub fn kept() -> Vec<Options> {
    let lines = include_str!("../../seeds.txt").lines();
    let lines = lines.map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(parse).collect()
}

fn parse(line: &str) -> Options {
    fn number<T: FromStr>(text: &str, line: &str) -> T {
        let number = text.parse().ok();
        number.unwrap_or_else(|| panic!("{text:?} is no number in {line:?}"))
    }
    let mut options = Options::default();
    let mut words = line.split_whitespace();
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        match name {
            "--seed" => options.seed = number(value, line),
            "--requests" => options.requests = Some(number(value, line)),
            "--without" => {
                let features = value.split(',').map(str::parse);
                let features: Result<_, String> = features.collect();
                options.without = features.unwrap_or_else(|error| panic!("{error} in {line:?}"));
            }
            _ => panic!("{name:?} is no argument in {line:?}"),
        }
    }
    options
}
