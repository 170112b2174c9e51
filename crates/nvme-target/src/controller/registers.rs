//! CC and CSTS: the state of a controller. `[NVMe Base 2.0 §3.1.3]`
//!
//! CC is what the host asks for, CSTS what the controller is:
//!
//! ```text
//!              CC.EN = 1                    CC.SHN = 01b, 10b
//!  Disabled ──────────────► Ready ─────────────────┐
//!     ▲ ▲                    │ ▲                   ▼
//!     │ └──── CC.EN = 0 ─────┘ └── flush failed ── ShutdownOccurring ──► ShutdownComplete
//!     │                                            (01b alone)  flushed       │
//!     └─────────────────────────── CC.EN = 0 ──────────────────────────────────┘
//! ```
//!
//! A disabled controller may be shut down as well; CSTS.SHST stays as it is until CC.EN is set.

use wire::fabrics::property::{Configuration, ControllerStatus};

/// CC.SHN of a normal shutdown.
const SHN_NORMAL: u8 = 0b01;

/// CC and CSTS of a controller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers {
    pub(super) configuration: Configuration,
    pub(super) status: ControllerStatus,
}

/// State of a controller, as CSTS shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerState {
    /// CSTS.RDY is 0.
    Disabled,
    /// CSTS.RDY is 1, and no shutdown was asked for.
    Ready,
    /// CSTS.SHST is 01b: volatile caches are flushed.
    ShutdownOccurring,
    /// CSTS.SHST is 10b.
    ShutdownComplete,
}

impl ControllerState {
    /// Returns the state's name in traces.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Ready => "ready",
            Self::ShutdownOccurring => "shutdown occurring",
            Self::ShutdownComplete => "shutdown complete",
        }
    }
}

/// Events that a Property Set of CC comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// CC.EN became 1.
    pub(super) enabled: bool,
    /// CC.EN became 0: a reset.
    pub(super) disabled: bool,
    /// A shutdown began.
    pub(super) shutdown: bool,
    /// That is a normal one, which flushes first.
    pub(super) flushes: bool,
}

impl Registers {
    /// Returns true while CSTS.RDY is 1.
    pub(crate) const fn is_ready(&self) -> bool {
        self.status.ready()
    }

    /// Returns the state.
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

    /// Takes a new value of CC.
    pub(super) fn configure(&mut self, wanted: Configuration) -> Changes {
        let was = self.configuration;
        let mut changes = Changes {
            enabled: wanted.enabled() && !was.enabled(),
            disabled: !wanted.enabled() && was.enabled(),
            shutdown: wanted.shutdown() != 0 && was.shutdown() == 0,
            flushes: false,
        };
        if changes.shutdown {
            changes.flushes = wanted.shutdown() == SHN_NORMAL;
            let state = if changes.flushes {
                ControllerStatus::SHUTDOWN_OCCURRING
            } else {
                ControllerStatus::SHUTDOWN_COMPLETE
            };
            self.status = self.status.with_shutdown(state);
        }
        if changes.enabled {
            self.status = ControllerStatus::READY;
        }
        if changes.disabled {
            self.status = ControllerStatus(self.status.0 & !ControllerStatus::READY.0);
        }
        self.configuration = wanted;
        debug_assert!(!(changes.enabled && changes.disabled), "one or the other");
        tracing::trace!(state = self.state().name(), "a controller's CC is set");
        changes
    }

    /// Ends a normal shutdown, unless the host has enabled the controller again meanwhile. Returns
    /// true if I/O queues may connect from now on; `None` where that stays as it is.
    pub(super) fn end_shutdown(&mut self, flushed: bool) -> Option<bool> {
        if self.state() != ControllerState::ShutdownOccurring {
            return None;
        }
        if flushed {
            let complete = ControllerStatus::SHUTDOWN_COMPLETE;
            self.status = self.status.with_shutdown(complete);
            return None;
        }
        self.status = self.status.with_shutdown(ControllerStatus::default());
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
        assert_eq!(registers.end_shutdown(true), None);
        assert_eq!(registers.state(), ControllerState::ShutdownComplete);
        assert!(registers.configure(Configuration(0)).disabled);
        assert!(!registers.is_ready());
    }

    #[test]
    fn a_failed_flush_ends_the_shutdown_and_may_be_tried_again() {
        let mut registers = Registers::default();
        registers.configure(enabled());
        registers.configure(enabled().with_shutdown(SHN_NORMAL));
        assert_eq!(registers.end_shutdown(false), Some(true));
        assert_eq!(registers.state(), ControllerState::Ready);
        assert_eq!(registers.end_shutdown(true), None, "none is under way");
        assert!(
            registers
                .configure(enabled().with_shutdown(SHN_NORMAL))
                .flushes
        );
    }
}
