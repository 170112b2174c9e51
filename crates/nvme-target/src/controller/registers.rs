//! CC and CSTS: the state of a controller. `[NVMe Base 2.0 §3.1.3]`
//!
//! CC is the state that the host requests, CSTS the state of the controller:
//!
//! ```text
//!              CC.EN = 1
//!  Disabled ◄────────────► Ready ◄───── CC.EN = 0, then 1 ─────┐
//!   │    ▲     CC.EN = 0   │   ▲                               │
//!   │    │                 │   │ flush failed, or              │
//!   │    │ flush failed    │   │ CC.EN = 0, then 1             │
//!   │    └───────────┐     ▼   │           flushed             │
//!   └───────────► ShutdownOccurring ◄────────────────► ShutdownComplete
//!    CC.SHN = 01b                         CC.SHN = 01b
//! ```
//!
//! CC.SHN = 10b leads from every state to `ShutdownComplete`, without a flush. During and after a
//! shutdown, CC.EN = 0 clears only CSTS.RDY; CSTS.SHST is kept until CC.EN is set.
//!
//! CSTS reports the end of a reset or shutdown when no command of an I/O queue can change data any
//! more ([`settle`](Registers::settle)): from then on, a host may repeat its writes.

use serde::{Deserialize, Serialize};
use wire::fabrics::property::{Configuration, ControllerStatus};

/// CC.SHN of a normal shutdown.
const SHN_NORMAL: u8 = 0b01;

/// CC, for a process that takes the controller over.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Configuration")]
struct ConfigurationDword(u32);

/// CSTS, likewise.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ControllerStatus")]
struct StatusDword(u32);

/// CC and CSTS of a controller.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Registers {
    #[serde(with = "ConfigurationDword")]
    pub(super) configuration: Configuration,
    #[serde(with = "StatusDword")]
    pub(super) status: ControllerStatus,
    /// A shutdown waits for the flush of the volatile caches.
    flushes: bool,
}

base::named! {
    /// State of a controller, as CSTS shows it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum ControllerState {
        /// CSTS.RDY is 0, CSTS.SHST is 00b.
        Disabled = "disabled",
        /// CSTS.RDY is 1, and no shutdown was requested.
        Ready = "ready",
        /// CSTS.SHST is 01b: volatile caches are flushed.
        ShutdownOccurring = "shutdown occurring",
        /// CSTS.SHST is 10b.
        ShutdownComplete = "shutdown complete",
    }
}

impl ControllerState {
    /// Returns true if a controller may go from this state to `next`, which differs from it.
    const fn may_become(self, next: Self) -> bool {
        match next {
            Self::Disabled => matches!(self, Self::Ready | Self::ShutdownOccurring),
            Self::Ready | Self::ShutdownOccurring | Self::ShutdownComplete => true,
        }
    }
}

/// Events caused by a Property Set of CC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// CC.EN became 1.
    pub(super) enabled: bool,
    /// CC.EN became 0: a reset.
    pub(super) disabled: bool,
    /// A shutdown began.
    pub(super) shutdown: bool,
    /// The shutdown is a normal one, which flushes first.
    pub(super) flushes: bool,
}

impl Registers {
    /// Returns true while CSTS.RDY is 1.
    pub(crate) const fn is_ready(&self) -> bool {
        self.status.ready()
    }

    pub(crate) fn state(&self) -> ControllerState {
        let shutdown = self.status.shutdown();
        if shutdown == ControllerStatus::SHUTDOWN_OCCURRING.shutdown() {
            ControllerState::ShutdownOccurring
        } else if shutdown == ControllerStatus::SHUTDOWN_COMPLETE.shutdown() {
            ControllerState::ShutdownComplete
        } else if self.is_ready() {
            ControllerState::Ready
        } else {
            ControllerState::Disabled
        }
    }

    /// Returns true if no reset or shutdown is in progress.
    pub(crate) fn is_settled(&self) -> bool {
        let resets = !self.configuration.enabled() && self.is_ready();
        !resets && self.state() != ControllerState::ShutdownOccurring
    }

    /// Returns true while the controller executes admin commands: it is enabled and ready.
    pub(crate) const fn takes_commands(&self) -> bool {
        self.configuration.enabled() && self.is_ready()
    }

    /// Applies a new value of CC. A reset and a shutdown wait for [`settle`](Self::settle).
    pub(super) fn configure(&mut self, wanted: Configuration) -> Changes {
        let (before, was) = (self.state(), self.configuration);
        let mut changes = Changes {
            enabled: wanted.enabled() && !was.enabled(),
            disabled: !wanted.enabled() && was.enabled(),
            shutdown: wanted.shutdown() != 0 && was.shutdown() == 0,
            flushes: false,
        };
        if changes.shutdown {
            changes.flushes = wanted.shutdown() == SHN_NORMAL;
            self.flushes = changes.flushes;
            let state = ControllerStatus::SHUTDOWN_OCCURRING;
            self.status = self.status.with_shutdown(state);
        }
        if changes.enabled {
            self.status = ControllerStatus::READY;
            self.flushes = false;
        }
        self.configuration = wanted;
        assert!(!(changes.enabled && changes.disabled), "one or the other");
        self.moved(before);
        changes
    }

    /// Ends a reset, and a shutdown that waits for no flush, because no command of an I/O queue can
    /// change data any more.
    pub(super) fn settle(&mut self) {
        let before = self.state();
        if !self.configuration.enabled() {
            self.status = ControllerStatus(self.status.0 & !ControllerStatus::READY.0);
        }
        if before == ControllerState::ShutdownOccurring && !self.flushes {
            let complete = ControllerStatus::SHUTDOWN_COMPLETE;
            self.status = self.status.with_shutdown(complete);
        }
        self.moved(before);
    }

    /// Checks that a transition of CSTS is legal.
    fn moved(&self, before: ControllerState) {
        let state = self.state();
        assert!(
            before == state || before.may_become(state),
            "a controller goes from {} to {}",
            before.name(),
            state.name()
        );
        tracing::trace!(before = before.name(), state = state.name(), "controller");
    }

    /// Ends the flush of a normal shutdown, which [`settle`](Self::settle) then completes, unless
    /// the host has enabled the controller again. A failed flush ends the shutdown. Returns true if
    /// I/O queues may connect from now on; `None` if that does not change.
    pub(super) fn end_flush(&mut self, flushed: bool) -> Option<bool> {
        let before = self.state();
        if before != ControllerState::ShutdownOccurring {
            return None;
        }
        self.flushes = false;
        if flushed {
            return None;
        }
        self.status = self.status.with_shutdown(ControllerStatus::default());
        self.moved(before);
        self.configuration = self.configuration.with_shutdown(0);
        Some(self.configuration.enabled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled() -> Configuration {
        Configuration(1)
    }

    #[test]
    fn a_normal_shutdown_is_over_when_the_caches_are_flushed() {
        let mut registers = Registers::default();
        assert_eq!(registers.state(), ControllerState::Disabled);
        assert!(registers.configure(enabled()).enabled);
        assert_eq!(registers.state(), ControllerState::Ready);
        let changes = registers.configure(enabled().with_shutdown(SHN_NORMAL));
        assert!(changes.shutdown && changes.flushes);
        assert_eq!(registers.state(), ControllerState::ShutdownOccurring);
        registers.settle();
        assert_eq!(registers.state(), ControllerState::ShutdownOccurring);
        assert_eq!(registers.end_flush(true), None);
        registers.settle();
        assert_eq!(registers.state(), ControllerState::ShutdownComplete);
        assert!(registers.configure(Configuration(0)).disabled);
        registers.settle();
        assert!(!registers.is_ready());
        assert_eq!(registers.state(), ControllerState::ShutdownComplete);
        assert!(registers.configure(enabled()).enabled);
        assert_eq!(registers.state(), ControllerState::Ready);
    }

    #[test]
    fn a_controller_that_is_shut_down_is_enabled_before_it_is_disabled() {
        use ControllerState::{Disabled, Ready, ShutdownComplete, ShutdownOccurring};
        for state in [Ready, ShutdownOccurring, ShutdownComplete] {
            assert!(Disabled.may_become(state), "{}", state.name());
        }
        assert!(Ready.may_become(Disabled) && ShutdownOccurring.may_become(Disabled));
        assert!(!ShutdownComplete.may_become(Disabled));
    }

    #[test]
    fn a_reset_and_an_abrupt_shutdown_wait_until_no_command_can_change_data() {
        let mut registers = Registers::default();
        registers.configure(enabled());
        assert!(registers.configure(Configuration(0)).disabled);
        assert!(registers.is_ready() && !registers.takes_commands());
        registers.settle();
        assert_eq!(registers.state(), ControllerState::Disabled);
        registers.configure(enabled());
        let changes = registers.configure(enabled().with_shutdown(0b10));
        assert!(changes.shutdown && !changes.flushes);
        assert_eq!(registers.state(), ControllerState::ShutdownOccurring);
        registers.settle();
        assert_eq!(registers.state(), ControllerState::ShutdownComplete);
    }

    #[test]
    fn a_failed_flush_ends_the_shutdown_and_may_be_tried_again() {
        let mut registers = Registers::default();
        registers.configure(enabled());
        registers.configure(enabled().with_shutdown(SHN_NORMAL));
        assert_eq!(registers.end_flush(false), Some(true));
        assert_eq!(registers.state(), ControllerState::Ready);
        assert_eq!(registers.end_flush(true), None, "none is under way");
        assert!(
            registers
                .configure(enabled().with_shutdown(SHN_NORMAL))
                .flushes
        );
    }
}
