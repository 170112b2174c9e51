//! Stages of an I/O command, and the time stamps of one.

use base::{Nanos, Time};
use serde::{Deserialize, Serialize};
use wire::nvme::Status;

base::named! {
    /// A stage of an I/O command in the target.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Stage {
        /// The core was busy: from the receipt of the capsule until the command began.
        Core = "core",
        /// The command's data was arriving from the host.
        Transfer = "transfer",
        /// No buffer was free for the command's data, or a share of the buffers was used up.
        Buffer = "buffer",
        /// The namespace was paused by a change.
        Pause = "pause",
        /// The tenant had no tokens for the command.
        Tokens = "tokens",
        /// The device executed the command, or the command waited for room in the device's queue.
        Device = "device",
        /// The response, with its data, waited for the socket or was sent.
        Send = "send",
    }
}

/// The time of a command in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Time from the receipt of the capsule until the command entered the stage for the first time.
    pub after_ns: u64,
    /// Time in the stage; all times, if the command entered it several times.
    pub ns: u64,
}

/// A stage that the command was never in.
const NEVER: u64 = u64::MAX;

/// A command of a trace: its identity, and the time in each stage. The stages add up to the time
/// from `began` to the last stamp.
#[derive(Clone, Debug)]
pub(crate) struct Stamps {
    /// Receipt of the capsule.
    pub(crate) began: Time,
    /// Time of the last stamp.
    at: Time,
    /// Nanoseconds from `began` to the first time in each stage.
    after: [u64; Stage::COUNT],
    /// Nanoseconds in each stage.
    took: [u64; Stage::COUNT],
    pub(crate) opcode: u8,
    pub(crate) cid: u16,
    pub(crate) nsid: u32,
    /// First block; `None` for a command without a contiguous range of blocks.
    pub(crate) slba: Option<u64>,
    /// Bytes of the range.
    pub(crate) bytes: u64,
    pub(crate) status: Status,
}

impl Stamps {
    /// Creates the stamps of a command that was received at `began`.
    pub(crate) const fn new(began: Time) -> Self {
        Self {
            began,
            at: began,
            after: [NEVER; Stage::COUNT],
            took: [0; Stage::COUNT],
            opcode: 0,
            cid: 0,
            nsid: 0,
            slba: None,
            bytes: 0,
            status: Status::SUCCESS,
        }
    }

    /// Charges the time since the last stamp to a stage; an earlier time than the last stamp counts
    /// as the same.
    pub(crate) fn charge(&mut self, stage: Stage, now: Time) {
        let span = now.since(self.at).0;
        if span == 0 {
            return;
        }
        let (after, took) = (
            &mut self.after[stage.index()],
            &mut self.took[stage.index()],
        );
        *after = (*after).min(self.at.since(self.began).0);
        *took += span;
        self.at = now;
    }

    /// Returns the time from the receipt to the last stamp.
    pub(crate) const fn total(&self) -> Nanos {
        self.at.since(self.began)
    }

    /// Returns the stages that the command was in, by their first times. Allocates.
    pub(crate) fn stages(&self) -> Vec<StageTime> {
        let stages = Stage::ALL.into_iter().map(|stage| StageTime {
            stage,
            after_ns: self.after[stage.index()],
            ns: self.took[stage.index()],
        });
        let mut stages: Vec<_> = stages.filter(|it| it.after_ns != NEVER).collect();
        stages.sort_by_key(|it| it.after_ns);
        stages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_in_order_of_their_first_times() {
        let mut stamps = Stamps::new(Time(1_000));
        for (stage, now) in [
            (Stage::Core, 1_000),
            (Stage::Tokens, 1_500),
            (Stage::Device, 1_700),
            (Stage::Tokens, 2_000),
            // A stamp of an earlier turn.
            (Stage::Device, 1_900),
            (Stage::Send, 2_100),
        ] {
            stamps.charge(stage, Time(now));
        }
        let stages: Vec<_> = stamps
            .stages()
            .iter()
            .map(|it| (it.stage, it.after_ns, it.ns))
            .collect();
        let expected = [
            (Stage::Tokens, 0, 800),
            (Stage::Device, 500, 200),
            (Stage::Send, 1_000, 100),
        ];
        assert_eq!(stages, expected);
        assert_eq!(stamps.total(), Nanos(1_100));
    }
}
