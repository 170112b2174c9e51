//! Value types of the command line that loads and measuring commands share.

use std::str::FromStr;
use std::time::Duration;

/// Highest processor number plus one.
const CORES_MAX: u32 = 1024;

/// A list of processors in ascending order: "0", "0,2", "0-3,6".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<u32>);

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "use CPU numbers such as 0, 0-3 or 0,2".to_owned();
        let mut cores = Vec::new();
        for item in text.split(',') {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let number = |text: &str| text.parse::<u32>().ok().filter(|&core| core < CORES_MAX);
            let (first, last) = (
                number(first).ok_or_else(form)?,
                number(last).ok_or_else(form)?,
            );
            if first > last {
                return Err(form());
            }
            cores.extend(first..=last);
        }
        let count = cores.len();
        cores.sort_unstable();
        cores.dedup();
        if cores.len() < count {
            return Err("a CPU is given twice; use each once".to_owned());
        }
        Ok(Self(cores))
    }
}

/// Reads a duration in seconds with a fraction.
///
/// # Errors
/// The accepted form.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|s| s.is_finite() && (0.0..=1e6).contains(s));
    let seconds = seconds.ok_or_else(|| "use seconds, such as 10 or 0.5".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads a duration in seconds for which something is measured.
///
/// # Errors
/// The accepted form; 0, which measures nothing.
pub fn measured_seconds(text: &str) -> Result<Duration, String> {
    let measured = Some(seconds(text)?).filter(|measured| !measured.is_zero());
    measured.ok_or_else(|| "use at least 0.1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_and_refused() {
        assert_eq!("0-2,5".parse(), Ok(Cores(vec![0, 1, 2, 5])));
        for bad in ["", "a", "3-1", "1,1", "0-2,2", "-1", "1024"] {
            assert!(bad.parse::<Cores>().is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_are_finite_and_positive() {
        for bad in ["-1", "nan", "x", "inf", "1e7"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        measured_seconds("0").unwrap_err();
        assert_eq!(measured_seconds("0.5"), seconds("0.5"));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
    }
}
