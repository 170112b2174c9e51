//! The class of a request: its goal, and how the switch may therefore treat it.
//!
//! Everything that depends on the class is in one table ([`Properties`]): a new class is a new line
//! there, without a `match` elsewhere. A value per class is stored in a [`PerClass`]. Used by every
//! module that orders, holds or moves requests. Invariant: this module never assigns a class; the
//! application, its tenant or the lane does.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::str::FromStr;

/// The class of a request, in service order. `[blk-switch §3.1]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Low latency: small requests, few in flight (the papers' L-app).
    Latency = 0,
    /// High throughput: tolerates waiting (the papers' T-app).
    Throughput = 1,
}

/// The placement of a class's threads by application steering. `[blk-switch §3.3]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Together on few cores, while their load there is small.
    Gather,
    /// Away from gathering threads, evenly over the other cores.
    Spread,
}

/// Properties of a class: how the switch may treat its requests. One line of the table per class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Name in text form.
    pub name: &'static str,
    /// Letter used by the papers; accepted wherever the name is.
    pub letter: &'static str,
    /// A doorbell may hold its requests.
    pub may_wait: bool,
    /// Request steering may send its requests through another core.
    pub steered: bool,
    /// Placement of its threads by application steering.
    pub placement: Placement,
    /// Rank in service order: 0 is first. Equal to the class's index.
    pub rank: u8,
    /// Value of CATTR bits 1:0 for a lane of this class. `[NVMe Base 2.0 §6.3]`
    pub wire_priority: u8,
    /// The corresponding Linux I/O priority class (`IOPRIO_CLASS_*`); `None` if only the default
    /// maps to this class.
    pub io_priority_class: Option<u8>,
}

/// The table, by [`Class::index`].
const PROPERTIES: [Properties; Class::COUNT] = [
    Properties {
        name: "latency",
        letter: "L",
        may_wait: false,
        steered: false,
        placement: Placement::Gather,
        rank: 0,
        wire_priority: 0b00,
        io_priority_class: Some(1),
    },
    Properties {
        name: "throughput",
        letter: "T",
        may_wait: true,
        steered: true,
        placement: Placement::Spread,
        rank: 1,
        wire_priority: 0b11,
        io_priority_class: None,
    },
];

/// The class of each value of CATTR bits 1:0: 00 urgent, 01 high, 10 medium, 11 low. This host
/// sends only 00 and 11; for other hosts, the upper half is `Latency`.
const OF_WIRE_PRIORITY: [Class; 4] = [
    Class::Latency,
    Class::Latency,
    Class::Throughput,
    Class::Throughput,
];

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 2;

    /// All classes, in service order.
    pub const ALL: [Self; Self::COUNT] = [Self::Latency, Self::Throughput];

    /// Class of a request without an assigned class: no request has priority by default.
    pub const DEFAULT: Self = Self::Throughput;

    /// Index into a dense table: `0..COUNT`, in service order.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The properties of the class.
    #[inline]
    #[must_use]
    pub const fn properties(self) -> &'static Properties {
        &PROPERTIES[self.index()]
    }

    /// Returns the class for a thread's I/O priority from `ioprio_get`: real-time (1 in bits 15:13)
    /// is `Latency`, every other value, including unknown ones, is `Throughput`. `[blk-switch §3,
    /// ionice]`
    #[must_use]
    pub fn from_io_priority(value: u16) -> Self {
        const CLASS_SHIFT: u32 = 13;
        let wanted = value >> CLASS_SHIFT;
        Self::ALL
            .into_iter()
            .find(|class| class.properties().io_priority_class.map(u16::from) == Some(wanted))
            .unwrap_or(Self::DEFAULT)
    }

    /// Returns the class of a lane from the CATTR of its Connect command. Only bits 1:0 count: 00
    /// (urgent) and 01 (high) are `Latency`, 10 (medium) and 11 (low) are `Throughput`. Ordinary
    /// hosts send 00, so call this only if both ends announced the extension. `[NVMe Base 2.0
    /// §6.3]`
    #[must_use]
    pub const fn from_connect_attributes(cattr: u8) -> Self {
        OF_WIRE_PRIORITY[(cattr & 0b11) as usize]
    }

    /// Returns CATTR bits 1:0 for a lane of this class; the other bits are zero.
    #[must_use]
    pub const fn wire_priority(self) -> u8 {
        self.properties().wire_priority
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.properties().name)
    }
}

/// The word is not a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no class: say `latency` (or `L`), or `throughput` (or `T`)")]
pub struct ClassError {
    /// The word, cut to its first 32 characters.
    pub word: String,
}

impl FromStr for Class {
    type Err = ClassError;

    /// Parses a name or letter of the table, case-insensitive.
    fn from_str(word: &str) -> Result<Self, ClassError> {
        let named = |class: &Self| {
            let Properties { name, letter, .. } = class.properties();
            word.eq_ignore_ascii_case(name) || word.eq_ignore_ascii_case(letter)
        };
        Self::ALL.into_iter().find(named).ok_or_else(|| ClassError {
            word: word.chars().take(32).collect(),
        })
    }
}

/// One `T` per class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PerClass<T>([T; Class::COUNT]);

impl<T> PerClass<T> {
    /// Creates a value per class, in the order of [`Class::ALL`].
    #[must_use]
    pub const fn of(values: [T; Class::COUNT]) -> Self {
        Self(values)
    }

    /// Creates a value per class by calling `make` for each.
    #[must_use]
    pub fn from_fn(mut make: impl FnMut(Class) -> T) -> Self {
        Self(std::array::from_fn(|index| make(Class::ALL[index])))
    }

    /// Iterates over classes and values, in service order.
    pub fn iter(&self) -> impl Iterator<Item = (Class, &T)> {
        Class::ALL.into_iter().zip(self.0.iter())
    }

    /// Iterates over classes and mutable values, in service order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Class, &mut T)> {
        Class::ALL.into_iter().zip(self.0.iter_mut())
    }

    /// Applies `change` to each value.
    #[must_use]
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> PerClass<U> {
        PerClass(self.0.map(change))
    }
}

impl<T> Index<Class> for PerClass<T> {
    type Output = T;
    #[inline]
    fn index(&self, class: Class) -> &T {
        &self.0[class.index()]
    }
}

impl<T> IndexMut<Class> for PerClass<T> {
    #[inline]
    fn index_mut(&mut self, class: Class) -> &mut T {
        &mut self.0[class.index()]
    }
}

// The table is in service order, and each class survives encoding to CATTR and decoding.
const _: () = {
    let mut index = 0;
    while index < Class::COUNT {
        let class = Class::ALL[index];
        assert!(class.index() == index);
        assert!(class.properties().rank as usize == index);
        let back = Class::from_connect_attributes(class.wire_priority());
        assert!(back.index() == index);
        index += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_is_latency_and_everything_else_is_throughput() {
        for value in 0..=u16::MAX {
            let real_time = value >> 13 == 1;
            let expected = if real_time {
                Class::Latency
            } else {
                Class::Throughput
            };
            assert_eq!(Class::from_io_priority(value), expected, "{value:#06x}");
        }
    }

    #[test]
    fn the_wire_says_what_the_table_says_whatever_the_other_bits() {
        for cattr in 0..=u8::MAX {
            let expected = if cattr & 0b10 == 0 {
                Class::Latency
            } else {
                Class::Throughput
            };
            assert_eq!(Class::from_connect_attributes(cattr), expected);
        }
        assert_eq!(Class::Latency.wire_priority(), 0b00);
        assert_eq!(Class::Throughput.wire_priority(), 0b11);
    }

    #[test]
    fn names_and_letters_are_read_and_other_words_are_explained() {
        for class in Class::ALL {
            assert_eq!(class.to_string().parse(), Ok(class));
            assert_eq!(class.properties().letter.to_lowercase().parse(), Ok(class));
        }
        let error = "fast".parse::<Class>().expect_err("no such class");
        assert!(error.to_string().contains("`latency`"), "{error}");
    }

    #[test]
    fn per_class_keeps_each_its_own() {
        let mut counts = PerClass::from_fn(Class::index);
        counts[Class::Latency] += 7;
        for (_, count) in counts.iter_mut() {
            *count += 1;
        }
        let seen: Vec<_> = counts
            .map(|count| count * 2)
            .iter()
            .map(|(c, n)| (c, *n))
            .collect();
        assert_eq!(seen, [(Class::Latency, 16), (Class::Throughput, 4)]);
    }
}
