//! Presets: named sets of all knobs, for the default, the baselines, the ablation's steps, and the
//! paper's switch.

use super::{KnobError, Knobs};
use std::fmt;
use std::str::FromStr;

/// The steps of the paper's ablation; each includes those before it. `[blk-switch §5.4, Fig. 15]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ablation {
    /// "blk-switch-P-RS-AS": no mechanism.
    Nothing,
    /// "blk-switch-RS-AS": adds an egress and lane per class, and prioritised processing.
    Prioritisation,
    /// "blk-switch-AS": adds request steering.
    RequestSteering,
    /// "blk-switch": adds application steering.
    ApplicationSteering,
}

/// A named set of all knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// [`Knobs::switchyard`].
    Switchyard,
    /// [`Knobs::linux`].
    Linux,
    /// [`Knobs::nvme_tcp`].
    NvmeTcp,
    /// [`Knobs::poll`].
    Poll,
    /// [`Knobs::poll_with_priority`].
    PollWithPriority,
    /// [`Knobs::ablation`].
    Ablation(Ablation),
    /// [`Knobs::blk_switch_paper`].
    BlkSwitchPaper,
}

/// Presets and their names.
const PRESETS: [(Preset, &str); 10] = [
    (Preset::Switchyard, "switchyard"),
    (Preset::Linux, "linux"),
    (Preset::NvmeTcp, "nvme-tcp"),
    (Preset::Poll, "poll"),
    (Preset::PollWithPriority, "poll-priority"),
    (Preset::Ablation(Ablation::Nothing), "blk-switch-p-rs-as"),
    (
        Preset::Ablation(Ablation::Prioritisation),
        "blk-switch-rs-as",
    ),
    (Preset::Ablation(Ablation::RequestSteering), "blk-switch-as"),
    (
        Preset::Ablation(Ablation::ApplicationSteering),
        "blk-switch",
    ),
    (Preset::BlkSwitchPaper, "blk-switch-paper"),
];

impl Preset {
    /// All presets with their names.
    pub const ALL: &'static [(Self, &'static str)] = &PRESETS;

    /// The knobs of the preset.
    #[must_use]
    pub const fn knobs(self) -> Knobs {
        match self {
            Self::Switchyard => Knobs::switchyard(),
            Self::Linux => Knobs::linux(),
            Self::NvmeTcp => Knobs::nvme_tcp(),
            Self::Poll => Knobs::poll(),
            Self::PollWithPriority => Knobs::poll_with_priority(),
            Self::Ablation(step) => Knobs::ablation(step),
            Self::BlkSwitchPaper => Knobs::blk_switch_paper(),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PRESETS
            .iter()
            .find(|(preset, _)| preset == self)
            .map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for Preset {
    type Err = KnobError;

    /// Parses a name of [`Preset::ALL`], case-insensitive.
    fn from_str(word: &str) -> Result<Self, KnobError> {
        PRESETS
            .iter()
            .find(|(_, name)| word.eq_ignore_ascii_case(name))
            .map(|(preset, _)| *preset)
            .ok_or_else(|| KnobError::NoPreset {
                word: word.chars().take(32).collect(),
                expected: PRESETS.map(|(_, name)| name).join(", "),
            })
    }
}
