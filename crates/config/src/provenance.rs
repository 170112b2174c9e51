//! Origin of a device model that this program measures: version, kernel, time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::device_model::Provenance;

/// Returns the provenance of a measurement made now, by this version, on this kernel.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "a model's file names the time of day of its measurement"
)]
pub fn here_and_now() -> Provenance {
    let kernel = rustix::system::uname();
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    Provenance {
        measured_at: since_epoch.ok().map(rfc3339),
        switchyard: Some(env!("CARGO_PKG_VERSION").to_owned()),
        kernel: Some(format!("Linux {}", kernel.release().to_string_lossy())),
        ..Provenance::default()
    }
}

const DAY_S: u64 = 86_400;

/// Returns a time, counted from 1970 on, as UTC text [RFC 3339 §5.6].
fn rfc3339(since_epoch: Duration) -> String {
    let (mut days, second) = (since_epoch.as_secs() / DAY_S, since_epoch.as_secs() % DAY_S);
    let mut year = 1970;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let day = days + 1;
    let micros = since_epoch.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_text_also_around_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_704_067_199, "2023-12-31T23:59:59.000000Z"),
            (1_735_603_200, "2024-12-31T00:00:00.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
    }
}
