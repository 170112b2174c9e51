//! The costs of a machine for all actions of the model: one number each, from a file.
//!
//! `lab sim calibrate` measures most of them and writes the file; the built-in file is such a
//! measurement. Times are whole nanoseconds and costs per byte are in picoseconds, so that a run
//! needs no floating point.

use super::config::{OutOfRange, within};
use serde::{Deserialize, Serialize};

/// The costs of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Description of their origin.
    #[serde(default)]
    pub origin: String,
    /// Cores and the kernel's scheduler.
    pub core: CoreCosts,
    /// The stack's own work.
    pub stack: StackCosts,
    /// Sockets and TCP.
    pub socket: SocketCosts,
}

/// Cores and the kernel's scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreCosts {
    /// Switching from one thread to another on the same core.
    pub context_switch_ns: u64,
    /// Additional cost of a switch if bulk was moved since the last switch.
    pub switch_cold_ns: u64,
    /// The waker's cost of making a thread ready on another core that sleeps.
    pub wake_call_ns: u64,
    /// The waker's cost if that core is busy, and is interrupted.
    pub wake_busy_call_ns: u64,
    /// Time until a busy core notices that another core made a thread of higher priority ready.
    pub wake_busy_ns: u64,
    /// Time until a sleeping core runs the thread that was made ready: median.
    pub wake_idle_p50_ns: u64,
    /// Time until a sleeping core runs the thread that was made ready: 99th percentile.
    pub wake_idle_p99_ns: u64,
    /// Setting a timer and being interrupted by it.
    pub timer_ns: u64,
    /// Time for which a fair thread keeps a core that another fair thread wants.
    pub slice_ns: u64,
    /// Time for which it keeps the core if the other thread was woken and has had less run time:
    /// some kernels switch immediately.
    pub keep_ns: u64,
    /// Other interruptions of a core by length: at most [`NOISES_MAX`] kinds.
    pub noise: Vec<Noise>,
}

/// A periodic interruption of a core: a tick of the kernel, the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Mean time between two interruptions, which are independent of each other.
    pub period_ns: u64,
    /// Length of each interruption.
    pub length_ns: u64,
}

/// Maximum kinds of noise: each is checked at every step of a core.
pub const NOISES_MAX: usize = 16;

/// The stack's own work, on the host unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackCosts {
    /// The application's part of a request: issuing it and processing its completion.
    pub app_request_ns: u64,
    /// Handing a request or a completion from one thread to another.
    pub hand_over_ns: u64,
    /// From the ingress through the egress to PDUs.
    pub submit_ns: u64,
    /// From received bytes to a completion.
    pub complete_ns: u64,
    /// Choosing the core through which a request leaves.
    pub steer_ns: u64,
    /// The target's part: from a command to its answer, including a RAM device.
    pub target_request_ns: u64,
    /// A turn of a dataplane loop without requests: reading the clock and polling a socket.
    pub turn_ns: u64,
}

/// Sockets and TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketCosts {
    /// A send, of any size.
    pub send_call_ns: u64,
    /// Per request or answer in a send.
    pub send_message_ns: u64,
    /// Per byte of a send: the copy, and the path to the link.
    pub send_byte_ps: u64,
    /// The receiving half of the kernel, per packet of at most 64 KiB. Paid by the sender's core on
    /// loopback, by the receiver's on a network.
    pub packet_ns: u64,
    /// The receiving half of the kernel, per byte.
    pub packet_byte_ps: u64,
    /// Additional cost of a send while the receiver is active on another core: the kernel's locks
    /// and memory move between the cores.
    pub contended_ns: u64,
    /// Final part of a loopback send that the receiver need not wait for: it has its bytes while
    /// the sender's call is still returning.
    pub overlap_ns: u64,
    /// A receive, of any size.
    pub receive_call_ns: u64,
    /// Per byte of a receive: the copy.
    pub receive_byte_ps: u64,
    /// Additional cost of a send if bulk was moved on its core since the last send: the caches hold
    /// other data.
    pub send_cold_ns: u64,
    /// The same for a receive.
    pub receive_cold_ns: u64,
}

/// An invalid costs file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostsError {
    /// A syntax error.
    #[error("not a costs file as `lab sim calibrate` writes it: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A number outside its range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// Too many kinds of noise.
    #[error("core.noise has {count} kinds: it can have {NOISES_MAX}; leave out the rarest")]
    TooManyNoises {
        /// Their number.
        count: usize,
    },
    /// Noise leaves too little time of a core.
    #[error("core.noise takes {permille} ‰ of a core: it can be 900; measure again")]
    NoiseTakesAll {
        /// Its share of a core's time, in thousandths.
        permille: u64,
    },
}

/// Maximum share of noise in a core's time, in thousandths.
const NOISE_PERMILLE_MAX: u64 = 900;

/// The built-in file.
const SHIPPED: &str = include_str!("../../costs/default.toml");

/// Maximum duration of a single step: ten times a scheduler's slice.
const SPAN_NS_MAX: u64 = 100_000_000;

/// Maximum period of a noise: one interruption per hour is no noise in a run.
const NOISE_PERIOD_NS_MAX: u64 = 3_600_000_000_000;

/// Maximum cost per byte: 100 ns is 10 MB/s, slower than any machine of interest.
const BYTE_PS_MAX: u64 = 100_000;

impl Costs {
    /// The built-in costs.
    ///
    /// # Panics
    /// Never: a test reads the file.
    #[must_use]
    pub fn shipped() -> Self {
        Self::from_toml(SHIPPED).expect("the shipped costs are tested")
    }

    /// Parses and checks a costs file.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn from_toml(text: &str) -> Result<Self, CostsError> {
        let costs: Self = toml::from_str(text)?;
        costs.validate()?;
        Ok(costs)
    }

    /// Formats a costs file.
    ///
    /// # Panics
    /// Never: every field is a number or a string.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("numbers and a text")
    }

    /// Checks the costs.
    ///
    /// # Errors
    /// The first value outside its range.
    pub fn validate(&self) -> Result<(), CostsError> {
        let (core, stack, socket) = (&self.core, &self.stack, &self.socket);
        let spans = [
            ("core.context_switch_ns", core.context_switch_ns, 0),
            ("core.switch_cold_ns", core.switch_cold_ns, 0),
            ("core.wake_call_ns", core.wake_call_ns, 0),
            ("core.wake_busy_call_ns", core.wake_busy_call_ns, 0),
            ("core.wake_busy_ns", core.wake_busy_ns, 0),
            ("core.wake_idle_p50_ns", core.wake_idle_p50_ns, 0),
            (
                "core.wake_idle_p99_ns",
                core.wake_idle_p99_ns,
                core.wake_idle_p50_ns,
            ),
            ("core.timer_ns", core.timer_ns, 0),
            ("core.slice_ns", core.slice_ns, 10_000),
            ("core.keep_ns", core.keep_ns, 0),
            ("stack.app_request_ns", stack.app_request_ns, 1),
            ("stack.hand_over_ns", stack.hand_over_ns, 0),
            ("stack.submit_ns", stack.submit_ns, 1),
            ("stack.complete_ns", stack.complete_ns, 1),
            ("stack.steer_ns", stack.steer_ns, 0),
            ("stack.target_request_ns", stack.target_request_ns, 1),
            ("stack.turn_ns", stack.turn_ns, 1),
            ("socket.send_call_ns", socket.send_call_ns, 1),
            ("socket.send_message_ns", socket.send_message_ns, 0),
            ("socket.packet_ns", socket.packet_ns, 0),
            ("socket.contended_ns", socket.contended_ns, 0),
            ("socket.overlap_ns", socket.overlap_ns, 0),
            ("socket.receive_call_ns", socket.receive_call_ns, 1),
            ("socket.send_cold_ns", socket.send_cold_ns, 0),
            ("socket.receive_cold_ns", socket.receive_cold_ns, 0),
        ];
        for (name, value, min) in spans {
            within(name, value, min, SPAN_NS_MAX)?;
        }
        core.validate_noise()?;
        let by_byte = [
            ("socket.send_byte_ps", socket.send_byte_ps),
            ("socket.packet_byte_ps", socket.packet_byte_ps),
            ("socket.receive_byte_ps", socket.receive_byte_ps),
        ];
        for (name, value) in by_byte {
            within(name, value, 0, BYTE_PS_MAX)?;
        }
        Ok(())
    }
}

impl CoreCosts {
    /// Checks the number of kinds of noise, and their share of a core's time.
    fn validate_noise(&self) -> Result<(), CostsError> {
        let count = self.noise.len();
        if count > NOISES_MAX {
            return Err(CostsError::TooManyNoises { count });
        }
        let mut permille = 0;
        for noise in &self.noise {
            let (period_ns, length_ns) = (noise.period_ns, noise.length_ns);
            within(
                "core.noise.period_ns",
                period_ns,
                1_000,
                NOISE_PERIOD_NS_MAX,
            )?;
            within("core.noise.length_ns", length_ns, 0, SPAN_NS_MAX)?;
            permille += length_ns * 1_000 / period_ns;
        }
        if permille > NOISE_PERMILLE_MAX {
            return Err(CostsError::NoiseTakesAll { permille });
        }
        Ok(())
    }
}

/// Returns the cost of `bytes` at `byte_ps` picoseconds each, in nanoseconds.
#[inline]
pub(crate) const fn for_bytes(bytes: u64, byte_ps: u64) -> u64 {
    bytes.saturating_mul(byte_ps) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_costs_are_valid_and_survive_their_own_file() {
        let costs = Costs::shipped();
        assert_eq!(Costs::from_toml(&costs.to_toml()).unwrap(), costs);
    }

    #[test]
    fn what_no_machine_has_is_refused_by_name() {
        let mut costs = Costs::shipped();
        costs.core.slice_ns = 0;
        let error = Costs::from_toml(&costs.to_toml()).unwrap_err();
        assert!(error.to_string().contains("core.slice_ns is 0"), "{error}");
        let noise = |noise: Vec<Noise>| {
            let mut costs = Costs::shipped();
            costs.core.noise = noise;
            costs.validate().unwrap_err().to_string()
        };
        let kind = |period_ns, length_ns| Noise {
            period_ns,
            length_ns,
        };
        let error = noise(vec![kind(10_000, 9_500)]);
        assert!(error.contains("takes 950 ‰ of a core"), "{error}");
        let error = noise(vec![kind(1_000_000, 1_000); NOISES_MAX + 1]);
        assert!(error.contains("has 17 kinds"), "{error}");
        let error = noise(vec![kind(0, 0)]);
        assert!(error.contains("core.noise.period_ns is 0"), "{error}");
        assert!(matches!(
            Costs::from_toml("x = 1"),
            Err(CostsError::Syntax(_))
        ));
    }
}
