//! Asymmetric Namespace Access: states of groups of namespaces, and their log page (LID 0Ch).
//!
//! `[NVMe Base 2.0 §5.16.1.13, §8.1]`

use crate::bytes::{put_u32, u32_at};
use crate::layout::layout;

layout! {
    /// Header of the ANA log page; the group descriptors follow it.
    pub struct AnaLogHeader: 16 {
        /// Change Count: changes with every change of the page.
        change_count: u64 = 0,
        /// Number of ANA Group Descriptors.
        groups: u16 = 8,
    }
}

layout! {
    /// ANA Group Descriptor; its namespaces follow it, in ascending order.
    pub struct AnaGroupDescriptor: 32 {
        /// ANA Group ID, from 1.
        group: u32 = 0,
        /// Number of NSID Values; 0 if the host requested only the groups.
        nsids: u32 = 4,
        /// Change Count: changes with every change of the group.
        change_count: u64 = 8,
        /// Asymmetric Namespace Access State: see [`AnaState`].
        state: u8 = 16,
    }
}

/// State of a group's namespaces on this controller. `[NVMe Base 2.0 §8.1.3]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AnaState {
    /// Accessible, by the best path.
    Optimized = 0x01,
    /// Accessible, by a worse path.
    NonOptimized = 0x02,
    /// Not accessible at this time.
    Inaccessible = 0x03,
    /// Never accessible again.
    PersistentLoss = 0x04,
    /// Changing to another state.
    Change = 0x0f,
}

impl AnaState {
    /// Parses bits 3:0 of the byte; `None` for a reserved value.
    pub const fn parse(byte: u8) -> Option<Self> {
        Some(match byte & 0x0f {
            0x01 => Self::Optimized,
            0x02 => Self::NonOptimized,
            0x03 => Self::Inaccessible,
            0x04 => Self::PersistentLoss,
            0x0f => Self::Change,
            _ => return None,
        })
    }

    /// Returns true if I/O commands are executed in this state.
    pub const fn is_accessible(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
    }
}

impl core::fmt::Display for AnaState {
    /// The words of nvme-cli and of the Linux kernel.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent-loss",
            Self::Change => "change",
        })
    }
}

/// LSP of Get Log Page, bit 0, RGO: return only the groups, without their namespaces.
pub const ANA_GROUPS_ONLY: u8 = 1 << 0;

/// Bytes of a namespace in a group.
const NSID_BYTES: usize = 4;

/// Returns the bytes of a log page with this number of groups, and of namespaces in all of them.
pub const fn ana_log_bytes(groups: usize, nsids: usize) -> usize {
    let groups = groups.saturating_mul(AnaGroupDescriptor::SIZE);
    let nsids = nsids.saturating_mul(NSID_BYTES);
    AnaLogHeader::SIZE
        .saturating_add(groups)
        .saturating_add(nsids)
}

/// A group with its namespaces, as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnaGroup<'a> {
    /// ANA Group ID, from 1.
    pub group: u32,
    /// Changes with every change of the group.
    pub change_count: u64,
    /// Its state.
    pub state: AnaState,
    nsids: &'a [[u8; NSID_BYTES]],
}

impl<'a> AnaGroup<'a> {
    /// Returns its namespaces.
    pub fn nsids(&self) -> impl ExactSizeIterator<Item = u32> + Clone + use<'a> {
        self.nsids.iter().map(|bytes| u32_at(bytes, 0))
    }

    /// Splits the group at the start of `bytes` from the rest.
    fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), AnaLogError> {
        let head = AnaGroupDescriptor::parse_prefix(bytes).ok_or(AnaLogError::Short)?;
        let rest = &bytes[AnaGroupDescriptor::SIZE..];
        let size = (head.nsids as usize).checked_mul(NSID_BYTES);
        let parts = size.and_then(|size| rest.split_at_checked(size));
        let (nsids, rest) = parts.ok_or(AnaLogError::Short)?;
        let state = AnaState::parse(head.state).ok_or(AnaLogError::State(head.state))?;
        if head.group == 0 {
            return Err(AnaLogError::Group);
        }
        let group = Self {
            group: head.group,
            change_count: head.change_count,
            state,
            nsids: nsids.as_chunks().0,
        };
        Ok((group, rest))
    }
}

/// An invalid ANA log page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AnaLogError {
    /// It ends within a group.
    Short,
    /// The group identifier 0.
    Group,
    /// A reserved state: the byte.
    State(u8),
}

impl core::fmt::Display for AnaLogError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Short => f.write_str("the ANA log page is shorter than its groups"),
            Self::Group => f.write_str("the ANA log page has a group with identifier 0"),
            Self::State(state) => write!(f, "the ANA log page has the reserved state {state:#04x}"),
        }
    }
}

impl core::error::Error for AnaLogError {}

/// Parses a log page: its change count and groups. Bytes after the last group are ignored.
///
/// # Errors
///
/// The page is too short for a group, or a group is invalid.
pub fn parse_ana_log(
    bytes: &[u8],
) -> Result<(u64, impl Iterator<Item = AnaGroup<'_>> + Clone), AnaLogError> {
    let header = AnaLogHeader::parse_prefix(bytes).ok_or(AnaLogError::Short)?;
    let first = &bytes[AnaLogHeader::SIZE..];
    let mut rest = first;
    for _ in 0..header.groups {
        (_, rest) = AnaGroup::split(rest)?;
    }
    let mut rest = first;
    let groups = (0..header.groups).map(move |_| {
        let (group, after) = AnaGroup::split(rest).expect("every group was checked");
        rest = after;
        group
    });
    Ok((header.change_count, groups))
}

/// Encodes a group with its namespaces at the start of `out`, and returns its bytes. The number of
/// namespaces is that of `nsids`; with [`ANA_GROUPS_ONLY`], pass none. `None` if it does not fit.
pub fn encode_ana_group(
    group: u32,
    change_count: u64,
    state: AnaState,
    nsids: impl ExactSizeIterator<Item = u32>,
    out: &mut [u8],
) -> Option<usize> {
    let count = u32::try_from(nsids.len()).ok()?;
    let size = nsids.len().checked_mul(NSID_BYTES)?;
    let (head, rest) = out.split_at_mut_checked(AnaGroupDescriptor::SIZE)?;
    let places = rest.get_mut(..size)?;
    let descriptor = AnaGroupDescriptor {
        group,
        nsids: count,
        change_count,
        state: state as u8,
    };
    head.copy_from_slice(&descriptor.to_bytes());
    for (index, nsid) in nsids.enumerate() {
        put_u32(places, index * NSID_BYTES, nsid);
    }
    Some(AnaGroupDescriptor::SIZE + size)
}

#[cfg(test)]
mod tests;
