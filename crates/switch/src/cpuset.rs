//! A set of cores, such as those on which a thread may run.
//!
//! One bit per core, up to [`CORES_MAX`], like the kernel's affinity masks; a value without
//! pointers, so that a table of threads is one piece of memory. Text form as in the kernel:
//! `0-3,8`.

use crate::limits::CORES_MAX;
use base::units::CoreId;
use std::fmt;
use std::str::FromStr;

const WORDS: usize = CORES_MAX / 64;

/// A set of cores `0..CORES_MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoreSet {
    words: [u64; WORDS],
}

/// The text is not a set of cores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreSetError {
    /// The text is neither a number nor a range.
    #[error("{part:?} is neither a core nor a range: write cores as `0-3,8`")]
    NotACore {
        /// The invalid part, cut to its first 32 characters.
        part: String,
    },
    /// A core number beyond the largest mask.
    #[error("core {core} is too high: the highest is {}", CORES_MAX - 1)]
    TooHigh {
        /// The core number.
        core: u32,
    },
    /// A descending range, such as `8-3`.
    #[error("the range {first}-{last} is backwards: write `{last}-{first}`")]
    Backwards {
        /// Its first core.
        first: u32,
        /// Its last core.
        last: u32,
    },
}

impl CoreSet {
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// The first `count` cores, at most [`CORES_MAX`].
    #[must_use]
    pub fn first(count: usize) -> Self {
        (0..count.min(CORES_MAX))
            .filter_map(|core| u32::try_from(core).ok())
            .map(CoreId)
            .collect()
    }

    /// Adds a core; returns false and changes nothing if it is [`CORES_MAX`] or higher.
    pub fn insert(&mut self, core: CoreId) -> bool {
        place(core)
            .map(|(word, bit)| self.words[word] |= bit)
            .is_some()
    }

    /// Removes a core.
    pub fn remove(&mut self, core: CoreId) {
        if let Some((word, bit)) = place(core) {
            self.words[word] &= !bit;
        }
    }

    /// Returns true if the core is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, core: CoreId) -> bool {
        place(core).is_some_and(|(word, bit)| self.words[word] & bit != 0)
    }

    /// Returns the number of cores in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// Iterates over the cores in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CoreId> + '_ {
        (0_u32..).zip(&self.words).flat_map(|(index, &word)| Bits {
            word,
            first: index * 64,
        })
    }
}

/// Word index and bit of a core.
#[inline]
fn place(core: CoreId) -> Option<(usize, u64)> {
    let index = usize::try_from(core.0).ok()?;
    (index < CORES_MAX).then(|| (index / 64, 1 << (index % 64)))
}

/// The remaining cores of one word.
struct Bits {
    word: u64,
    first: u32,
}

impl Iterator for Bits {
    type Item = CoreId;

    fn next(&mut self) -> Option<CoreId> {
        if self.word == 0 {
            return None;
        }
        let lowest = self.word.trailing_zeros();
        self.word &= self.word - 1;
        Some(CoreId(self.first + lowest))
    }
}

impl FromIterator<CoreId> for CoreSet {
    /// Ignores cores that are [`CORES_MAX`] or higher.
    fn from_iter<I: IntoIterator<Item = CoreId>>(cores: I) -> Self {
        let mut set = Self::EMPTY;
        for core in cores {
            set.insert(core);
        }
        set
    }
}

impl fmt::Display for CoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cores = self.iter().map(|core| core.0).peekable();
        let mut separator = "";
        while let Some(first) = cores.next() {
            let mut last = first;
            while cores.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CoreSet {
    type Err = CoreSetError;

    /// Parses cores and ranges separated by commas; the empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, CoreSetError> {
        let mut set = Self::EMPTY;
        for part in text.split(',').map(str::trim) {
            if part.is_empty() && text.trim().is_empty() {
                break;
            }
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (core(part, first)?, core(part, last)?),
                None => (core(part, part)?, core(part, part)?),
            };
            if first > last {
                return Err(CoreSetError::Backwards { first, last });
            }
            set = (first..=last).map(CoreId).chain(set.iter()).collect();
        }
        Ok(set)
    }
}

/// Parses the core number in `part`.
fn core(part: &str, number: &str) -> Result<u32, CoreSetError> {
    let number = number.trim();
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(CoreSetError::NotACore {
            part: part.chars().take(32).collect(),
        });
    }
    // Only digits, so a number that does not fit is too high.
    let core = number.parse().unwrap_or(u32::MAX);
    if place(CoreId(core)).is_none() {
        return Err(CoreSetError::TooHigh { core });
    }
    Ok(core)
}

const _: () = assert!(CORES_MAX.is_multiple_of(64));

#[cfg(test)]
mod tests {
    use super::*;
    use base::Prng;

    #[test]
    fn it_is_written_as_it_is_read() {
        for (text, written) in [
            ("", ""),
            ("0", "0"),
            ("0-3,8", "0-3,8"),
            (" 8 , 1,0 - 1", "0-1,8"),
            ("63-64,1023", "63-64,1023"),
            ("0-1023", "0-1023"),
        ] {
            let set: CoreSet = text.parse().unwrap();
            assert_eq!(set.to_string(), written);
            assert_eq!(written.parse(), Ok(set));
        }
    }

    #[test]
    fn what_it_can_not_read_it_explains() {
        let error = |text: &str| text.parse::<CoreSet>().unwrap_err();
        for text in ["a", "1,,2", "1-", "-", "0x1", "1-2-3", "+1", ","] {
            assert!(
                matches!(error(text), CoreSetError::NotACore { .. }),
                "{text}"
            );
        }
        assert_eq!(error("1024"), CoreSetError::TooHigh { core: 1024 });
        assert_eq!(
            error("0-99999999999"),
            CoreSetError::TooHigh { core: u32::MAX }
        );
        assert_eq!(
            error("8-3").to_string(),
            "the range 8-3 is backwards: write `3-8`"
        );
    }

    #[test]
    fn it_is_a_set() {
        let mut prng = Prng::from_seed(9);
        let (mut set, mut model) = (CoreSet::EMPTY, std::collections::BTreeSet::new());
        for _ in 0..5_000 {
            let core = CoreId(u32::try_from(prng.below(1_100)).unwrap());
            if prng.chance(2, 3) {
                assert_eq!(set.insert(core), core.0 < 1024);
                if core.0 < 1024 {
                    model.insert(core);
                }
            } else {
                set.remove(core);
                model.remove(&core);
            }
            assert_eq!(set.contains(core), model.contains(&core));
        }
        assert_eq!((set.len(), set.is_empty()), (model.len(), false));
        assert!(set.iter().eq(model.iter().copied()));
        assert_eq!(CoreSet::first(usize::MAX).len(), CORES_MAX);
    }
}
