//! The rule that gives requests their class.

use std::str::FromStr;
use switch::Class;

/// The rule that gives a request its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassChoice {
    /// All requests have this class.
    Fixed(Class),
    /// The I/O priority of the submitting thread: real-time is `Latency`, everything else
    /// `Throughput` (`ionice -c 1`). A FUSE request identifies its thread, and a change applies
    /// within [`CLASS_AGE`](crate::fuse::limits::CLASS_AGE). A virtio-blk request carries the
    /// priority itself. Requests of kernel threads, such as write-back of a memory mapping, have
    /// the default class.
    ByIoPriority,
}

impl ClassChoice {
    /// The name of the rule: the class name, or `auto`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed(class) => class.properties().name,
            Self::ByIoPriority => "auto",
        }
    }
}

impl FromStr for ClassChoice {
    type Err = String;

    /// Parses a class name, or `auto`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::ByIoPriority);
        }
        let class = text.parse::<Class>();
        class
            .map(Self::Fixed)
            .map_err(|error| format!("{error}, or auto"))
    }
}
