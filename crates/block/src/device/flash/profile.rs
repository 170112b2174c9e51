//! The parts of an emulated device, by the name of its profile.
//!
//! `A`, `B` and `C` behave as the three devices of `[ReFlex Fig. 3]`: a write costs as much as 10,
//! 20 and 16 reads, and A serves a read-only load at twice the rate. A is the device of Fig. 1: 420
//! K tokens/s at a p95 of 500 µs, 570 K at 2 ms, about 1 M reads/s. Values that the paper does not
//! state (the rates of B and C) are typical of devices of their time. `A/8` has an eighth of A's
//! dies: the same latencies at an eighth of the rate, for machines that cannot reach more.
//! `dram-ssd` is the memory-backed device of `[Yu §4]`: 7 µs for 4 KiB, 700 MB/s.

use base::Nanos;
use std::fmt;
use std::str::FromStr;

/// An emulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    family: Family,
    divisor: u32,
    extra: ExtraDelay,
}

/// Service time in addition to the profile: F and C of the sensitivity study, in whole
/// microseconds. `[Yu §6.6]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraDelay {
    /// For each command (F).
    pub command: Nanos,
    /// For each page of 4 KiB that a command transfers (C).
    pub page: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    A,
    B,
    C,
    DramSsd,
}

/// The parts of a device, and the time that each takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Number of dies, which work independently.
    pub dies: u32,
    /// Number of channels, each of which serves the same number of dies.
    pub channels: u32,
    /// Transfer of a page over its channel.
    pub transfer: Nanos,
    /// Read of a page from a die while the device also programs, or did recently. Longer work (a
    /// program, an erase) is suspended after this time to let reads through.
    pub read: Nanos,
    /// The same while the device only reads.
    pub read_alone: Nanos,
    /// Programming a page.
    pub program: Nanos,
    /// Pages that garbage collection reads and programs again for each page written, in
    /// thousandths: the result of random writes on a full device.
    pub moved_permille: u64,
    /// Erasing a block.
    pub erase: Nanos,
    /// Pages in a block.
    pub block_pages: u64,
    /// Pages in the write buffer, which survives a power loss. 0: none; a write then ends when it
    /// is programmed.
    pub buffer_pages: u32,
    /// Storing a write in the buffer.
    pub buffered: Nanos,
    /// Time of the controller for each command; commands overlap.
    pub command: Nanos,
    /// The device executes one command at a time: no parts of two commands overlap, and only
    /// `command` and `transfer` apply.
    pub serial: bool,
}

const A: Parts = Parts {
    dies: 64,
    channels: 16,
    transfer: Nanos::from_micros(5),
    read: Nanos::from_micros(100),
    // Slightly more than half, because shorter reads also queue less: so the curves meet.
    read_alone: Nanos::from_micros(53),
    program: Nanos::from_micros(200),
    moved_permille: 2_400,
    erase: Nanos::from_micros(5_120),
    block_pages: 64,
    buffer_pages: 512,
    buffered: Nanos::from_micros(8),
    command: Nanos::from_micros(8),
    serial: false,
};

const B: Parts = Parts {
    dies: 32,
    channels: 8,
    read: Nanos::from_micros(115),
    read_alone: Nanos::from_micros(115),
    program: Nanos::from_micros(230),
    moved_permille: 5_700,
    erase: Nanos::from_micros(6_624),
    buffer_pages: 256,
    ..A
};

const C: Parts = Parts {
    dies: 48,
    channels: 12,
    read: Nanos::from_micros(90),
    read_alone: Nanos::from_micros(90),
    program: Nanos::from_micros(180),
    moved_permille: 4_400,
    erase: Nanos::from_micros(4_608),
    buffer_pages: 384,
    ..A
};

/// 4 KiB take 5.851 µs at 700 MB/s; the remainder of 7 µs is the command's. There is one table of
/// extents and one register that reports the completion of a command. `[Yu §5.2]`
const DRAM_SSD: Parts = Parts {
    dies: 1,
    channels: 1,
    transfer: Nanos(5_851),
    read: Nanos::ZERO,
    read_alone: Nanos::ZERO,
    program: Nanos::ZERO,
    moved_permille: 0,
    erase: Nanos::ZERO,
    block_pages: 1,
    buffer_pages: 0,
    buffered: Nanos::ZERO,
    command: Nanos(1_149),
    serial: true,
};

impl Profile {
    /// Returns the parts of the profile.
    #[must_use]
    pub const fn parts(&self) -> Parts {
        let whole = self.family.parts();
        Parts {
            dies: whole.dies / self.divisor,
            channels: whole.channels.div_ceil(self.divisor),
            buffer_pages: whole.buffer_pages / self.divisor,
            command: Nanos(whole.command.0 + self.extra.command.0),
            transfer: Nanos(whole.transfer.0 + self.extra.page.0),
            ..whole
        }
    }
}

impl Parts {
    /// Returns the time for which dies work per page written, including garbage collection.
    #[must_use]
    pub const fn work(&self) -> Nanos {
        let moved = (self.read.0 + self.program.0) * self.moved_permille / 1000;
        Nanos(self.program.0 + moved + self.erase.0 / self.block_pages)
    }
}

impl Family {
    const fn parts(self) -> Parts {
        match self {
            Self::A => A,
            Self::B => B,
            Self::C => C,
            Self::DramSsd => DRAM_SSD,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.family {
            Family::A => "A",
            Family::B => "B",
            Family::C => "C",
            Family::DramSsd => "dram-ssd",
        })?;
        if self.divisor > 1 {
            write!(f, "/{}", self.divisor)?;
        }
        let ExtraDelay { command, page } = self.extra;
        if self.extra != ExtraDelay::default() {
            write!(f, "+{}us", command.0 / 1000)?;
        }
        if page > Nanos::ZERO {
            write!(f, "+{}us", page.0 / 1000)?;
        }
        Ok(())
    }
}

/// An invalid profile name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The unknown device.
    #[error("unknown flash profile {0:?}; use A, B, C (or a fraction such as A/8) or dram-ssd")]
    Unknown(String),
    /// An invalid divisor of a device.
    #[error("{divisor:?} does not divide the {dies} dies of {family}; use a divisor of {dies}")]
    Divisor {
        /// The whole device.
        family: Profile,
        /// Its dies.
        dies: u32,
        /// The divisor.
        divisor: String,
    },
    /// The extra delay.
    #[error(
        "invalid delay {0:?}; use microseconds per command and per 4 KiB page, up to 1000000us, \
         such as dram-ssd+5us or dram-ssd+5us+20us"
    )]
    Delay(String),
}

/// Parses the extra delay after a profile's name: `5us`, `5us+20us`.
fn extra_delay(text: &str) -> Result<ExtraDelay, ProfileError> {
    let micros = |text: &str| {
        let number = text.strip_suffix("us")?.parse().ok();
        number.filter(|&micros: &u64| micros <= 1_000_000)
    };
    let wrong = || ProfileError::Delay(text.to_owned());
    let (command, page) = text.split_once('+').unwrap_or((text, "0us"));
    Ok(ExtraDelay {
        command: Nanos::from_micros(micros(command).ok_or_else(wrong)?),
        page: Nanos::from_micros(micros(page).ok_or_else(wrong)?),
    })
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(name: &str) -> Result<Self, ProfileError> {
        let (name, extra) = match name.split_once('+') {
            Some((name, extra)) => (name, extra_delay(extra)?),
            None => (name, ExtraDelay::default()),
        };
        let (family, divisor) = match name.split_once('/') {
            Some((family, divisor)) => (family, Some(divisor)),
            None => (name, None),
        };
        let family = match family {
            "A" | "a" => Family::A,
            "B" | "b" => Family::B,
            "C" | "c" => Family::C,
            "dram-ssd" => Family::DramSsd,
            _ => return Err(ProfileError::Unknown(name.to_owned())),
        };
        let Some(divisor) = divisor else {
            return Ok(Self {
                family,
                divisor: 1,
                extra,
            });
        };
        let dies = family.parts().dies;
        let number = divisor.parse().ok();
        let number = number.filter(|&number| number > 0 && dies.is_multiple_of(number));
        let divisor = number.ok_or_else(|| ProfileError::Divisor {
            family: Self {
                family,
                divisor: 1,
                extra: ExtraDelay::default(),
            },
            dies,
            divisor: divisor.to_owned(),
        })?;
        Ok(Self {
            family,
            divisor,
            extra,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in [
            "A",
            "B",
            "C",
            "A/8",
            "A/64",
            "B/32",
            "C/48",
            "C/3",
            "dram-ssd",
            "dram-ssd+5us",
            "dram-ssd+0us+20us",
            "A/8+100us+1us",
        ] {
            let profile: Profile = name.parse().unwrap();
            assert_eq!(profile.to_string(), name);
            let parts = profile.parts();
            assert!(parts.dies > 0 && parts.channels > 0, "{parts:?}");
        }
        let eighth: Profile = "a/8".parse().unwrap();
        assert_eq!((eighth.parts().dies, eighth.parts().channels), (8, 2));
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "D",
            "A/",
            "A/0",
            "A/3",
            "A/-1",
            "A/128",
            "A/8/2",
            "dram-ssd/2",
            "/8",
            "dram-ssd+",
            "dram-ssd+5",
            "dram-ssd+5us+",
            "dram-ssd+5us+1us+1us",
            "dram-ssd+1000001us",
        ] {
            let error = name.parse::<Profile>().unwrap_err();
            let error = error.to_string();
            assert!(error.contains("use "), "{error}");
        }
        let error = "A/3".parse::<Profile>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"3\" does not divide the 64 dies of A; use a divisor of 64"
        );
    }

    /// The parts add up to the paper's measurements.
    #[test]
    fn a_write_works_as_long_as_the_paper_says() {
        for (parts, cost) in [(A, 10), (B, 20), (C, 16)] {
            assert_eq!(parts.work(), Nanos(parts.read.0 * cost));
        }
    }
}
