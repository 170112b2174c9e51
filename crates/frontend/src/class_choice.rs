//! The rule that gives requests their class.

use std::str::FromStr;
use switch::Class;

/// The rule that gives a request its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassChoice {
    /// All requests have this class.
    Fixed(Class),
    /// The I/O priority of the thread that asks: real-time is `Latency`, everything else
    /// `Throughput` (`ionice -c 1`). A FUSE request names its thread, and a change counts within
    /// [`CLASS_AGE`](crate::fuse::limits::CLASS_AGE); a virtio-blk request carries the priority
    /// itself. Requests of the kernel's own threads, such as the write-back of a memory mapping,
    /// have the default class.
    ByIoPriority,
}

impl ClassChoice {
    /// The name of the rule: that of the class, or `auto`.
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

    /// Reads a class, or `auto`.
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
