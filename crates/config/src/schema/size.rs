//! An amount of bytes as people write it: `1G`, `512M`, `4096`.

use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of bytes, with binary multiples (`1K` is 1,024 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    /// The amount in bytes.
    pub bytes: u64,
}

/// The reason for which a text is not a [`Size`]; with the beginning of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It does not have the form of one.
    #[error(
        "\"{0}\" is not a size; write a whole number of bytes, or one with K, M, G or T, like \"512M\" or \"1G\""
    )]
    Form(String),
    /// It is an amount that no [`Size`] can be.
    #[error("\"{0}\" is too large; write less than 16384P")]
    TooLarge(String),
}

/// The suffixes, largest first, and the power of two that each stands for.
const UNITS: [(char, u32); 5] = [('P', 50), ('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl Size {
    /// An amount of `bytes`.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self { bytes }
    }
}

impl FromStr for Size {
    type Err = SizeError;

    /// Reads `4096`, `4K`, `4k`, `4KiB`, `4 KiB` (all the same), up to `P`.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let given = || text.chars().take(40).collect();
        let error = || SizeError::Form(given());
        let too_large = || SizeError::TooLarge(given());
        let trimmed = text.trim();
        let digits_end = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '_')
            .unwrap_or(trimmed.len());
        let (digits, suffix) = trimmed.split_at(digits_end);
        let number = digits.replace('_', "").parse::<u64>();
        let number = number.map_err(|why| match why.kind() {
            IntErrorKind::PosOverflow => too_large(),
            _ => error(),
        })?;
        let shift = match suffix.trim().to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            unit => {
                let letter = unit.chars().next().ok_or_else(error)?;
                let rest = &unit[letter.len_utf8()..];
                if !rest.is_empty() && rest != "IB" {
                    return Err(error());
                }
                UNITS
                    .iter()
                    .find(|(known, _)| *known == letter)
                    .map(|(_, shift)| *shift)
                    .ok_or_else(error)?
            }
        };
        let bytes = number.checked_mul(1 << shift).ok_or_else(too_large)?;
        Ok(Self { bytes })
    }
}

impl fmt::Display for Size {
    /// The shortest exact form: `1G`, `1536M`, `1000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, shift) in UNITS {
            if self.bytes != 0 && self.bytes.trailing_zeros() >= shift {
                return write!(f, "{}{letter}", self.bytes >> shift);
            }
        }
        write!(f, "{}", self.bytes)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"1G\", \"512M\" or 4096")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size { bytes })
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(Size::from_bytes)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4_096),
            ("4_096", 4_096),
            ("4k", 4_096),
            ("4 KiB", 4_096),
            ("512M", 512 << 20),
            (" 1G ", 1 << 30),
            ("2TiB", 2 << 40),
            ("512B", 512),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size { bytes }), "{text}");
        }
        for text in ["", "G", "1.5G", "-1", "1X", "1GB", "1 G i B", "1é"] {
            let error = text.parse::<Size>().expect_err(text);
            assert!(error.to_string().contains("is not a size"), "{text}");
        }
        for text in ["99999999999P", "16384P", "18446744073709551616"] {
            let error = text.parse::<Size>().expect_err(text).to_string();
            assert!(error.contains("is too large"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(bytes: u64) {
            let size = Size { bytes };
            prop_assert_eq!(size.to_string().parse::<Size>(), Ok(size));
        }
    }
}
