//! The costs of a machine for everything that the model does: one number each, from a file.
//!
//! `lab sim calibrate` measures most of them and writes the file; the file that is shipped
//! is such a measurement. Spans are whole nanoseconds, and costs by the byte are in
//! picoseconds, so that a run needs no floats.

use super::config::{OutOfRange, within};
use serde::{Deserialize, Serialize};

/// The costs of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Their origin, for people.
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
    /// From one thread to another on the same core.
    pub context_switch_ns: u64,
    /// The additional cost of that if bulk was moved since the last one.
    pub switch_cold_ns: u64,
    /// The waker's cost of making a thread ready on another core that sleeps.
    pub wake_call_ns: u64,
    /// The same where that core is busy, and is interrupted.
    pub wake_busy_call_ns: u64,
    /// Until a busy core notices that another one made a better thread ready.
    pub wake_busy_ns: u64,
    /// Until a core that sleeps runs the thread that was made ready: the median.
    pub wake_idle_p50_ns: u64,
    /// The same, the 99th percentile.
    pub wake_idle_p99_ns: u64,
    /// To set a timer and to be interrupted by it.
    pub timer_ns: u64,
    /// The time for which a fair thread keeps a core that another fair one wants.
    pub slice_ns: u64,
    /// The same where the other one is woken and has had less of the core: some kernels let it
    /// have the core at once.
    pub keep_ns: u64,
    /// Other interruptions of a core, by their length: at most [`NOISES_MAX`] kinds.
    pub noise: Vec<Noise>,
}

/// Something that takes a core now and then: a tick of the kernel, the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// The mean time between two moments that it does; they come independently of each other.
    pub period_ns: u64,
    /// Its length each time.
    pub length_ns: u64,
}

/// Kinds of noise at most: each is looked at with every step of a core.
pub const NOISES_MAX: usize = 16;

/// The stack's own work, on the host unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackCosts {
    /// The application's part of a request: to make it and to take its completion.
    pub app_request_ns: u64,
    /// To hand a request or a completion from one thread to another.
    pub hand_over_ns: u64,
    /// From the ingress through the egress to bytes.
    pub submit_ns: u64,
    /// From bytes to a completion.
    pub complete_ns: u64,
    /// To choose the core by which a request leaves.
    pub steer_ns: u64,
    /// The target's part: from a command to its answer, a device of memory included.
    pub target_request_ns: u64,
    /// A turn of a dataplane's loop, beside what it finds: a look at the clock and at a socket.
    pub turn_ns: u64,
}

/// Sockets and TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketCosts {
    /// A send, whatever its size.
    pub send_call_ns: u64,
    /// For each request or answer in a send.
    pub send_message_ns: u64,
    /// For each byte of a send: the copy, and the way to the link.
    pub send_byte_ps: u64,
    /// The receiving half of the kernel, for each packet of at most 64 KiB. On loopback the
    /// sender's core pays it, on a network the receiver's.
    pub packet_ns: u64,
    /// The same, for each byte.
    pub packet_byte_ps: u64,
    /// The additional cost of a send while the receiver is at work on another core: the kernel's
    /// locks and memory go from one to the other.
    pub contended_ns: u64,
    /// Of a send that the loopback delivers, so much at its end the receiver need not wait for: it
    /// has its bytes, and the sender's call is still returning.
    pub overlap_ns: u64,
    /// A receive, whatever its size.
    pub receive_call_ns: u64,
    /// For each byte of a receive: the copy.
    pub receive_byte_ps: u64,
    /// The additional cost of a send if bulk was moved on its core since the last one: other bytes
    /// are in the caches.
    pub send_cold_ns: u64,
    /// The same of a receive.
    pub receive_cold_ns: u64,
}

/// A costs file that can not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostsError {
    /// It is no such file.
    #[error("not a costs file as `lab sim calibrate` writes it: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A number that no machine has.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// More kinds of noise than a model looks at.
    #[error("core.noise has {count} kinds: it can have {NOISES_MAX}; leave out the rarest")]
    TooManyNoises {
        /// So many.
        count: usize,
    },
    /// Interruptions that leave nothing of a core.
    #[error("core.noise takes {permille} ‰ of a core: it can be 900; measure again")]
    NoiseTakesAll {
        /// The share.
        permille: u64,
    },
}

/// Of a core's time, noise takes this much at most.
const NOISE_PERMILLE_MAX: u64 = 900;

/// The file that is shipped.
const SHIPPED: &str = include_str!("../../costs/default.toml");

/// No single step takes longer than this: ten times a scheduler's slice.
const SPAN_NS_MAX: u64 = 100_000_000;

/// The longest period of a noise: an interruption once in an hour is no noise of a run.
const NOISE_PERIOD_NS_MAX: u64 = 3_600_000_000_000;

/// 100 ns a byte is 10 MB/s: slower than anything worth a model.
const BYTE_PS_MAX: u64 = 100_000;

impl Costs {
    /// Those that come with the program.
    ///
    /// # Panics
    /// Never: a test reads the file.
    #[must_use]
    pub fn shipped() -> Self {
        Self::from_toml(SHIPPED).expect("the shipped costs are tested")
    }

    /// Reads and checks a costs file's text.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn from_toml(text: &str) -> Result<Self, CostsError> {
        let costs: Self = toml::from_str(text)?;
        costs.validate()?;
        Ok(costs)
    }

    /// The text of a costs file.
    ///
    /// # Panics
    /// Never: every field is a number or a text.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("numbers and a text")
    }

    /// Checks that a machine can be like this.
    ///
    /// # Errors
    /// The first number that none has.
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
    /// Checks that the disturbances are few, and leave something of a core.
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

/// Returns the cost of so many bytes at so many picoseconds each.
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
