//! The machine on which a report was measured.

use serde::{Deserialize, Serialize};
use std::fs;

/// The properties of the machine that influence performance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that the kernel runs on.
    pub cores: usize,
    /// The processor's name.
    pub model_name: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Default TCP congestion control.
    pub congestion_control: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

impl Machine {
    /// This machine; unknown properties are "unknown" or 0.
    #[must_use]
    pub fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        let first = |path: &str| {
            let text = read(path).trim().to_owned();
            if text.is_empty() { unknown() } else { text }
        };
        let processors = read("/proc/cpuinfo");
        let cores = processors
            .lines()
            .filter(|line| line.starts_with("processor"))
            .count();
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            cores: if cores > 0 { cores } else { available() },
            model_name: field(&processors, "model name").map_or_else(unknown, str::to_owned),
            kernel: first("/proc/sys/kernel/osrelease"),
            congestion_control: first("/proc/sys/net/ipv4/tcp_congestion_control"),
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal")
                .and_then(|value| value.strip_suffix(" kB")?.trim().parse::<u64>().ok())
                .map_or(0, |kibibytes| kibibytes * 1024),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            cores,
            model_name,
            kernel,
            congestion_control,
            memory_bytes,
        } = self;
        let gibibytes = memory_bytes.div_ceil(1 << 30);
        write!(
            f,
            "{cores} cores of {model_name}, {gibibytes} GiB, Linux {kernel}, {congestion_control}"
        )
    }
}

/// Returns the value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 1\nmodel name\t: A processor\nMemTotal:       1024 kB\n";
        assert_eq!(field(text, "model name"), Some("A processor"));
        assert_eq!(field(text, "MemTotal"), Some("1024 kB"));
        assert_eq!(field(text, "bogus"), None);
        assert!(Machine::look().cores > 0);
    }
}
