//! NVMe Qualified Names. `[NVMe Base 2.0 §4.5]`

use crate::limits::{NQN_BYTES_MAX, NQN_FIELD_BYTES};

/// The name of every discovery subsystem. `[NVMe Base 2.0 §4.5]`
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Prefix of a name with a UUID.
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// A qualified name: 1 to 223 bytes of text, stored inline so that copying and comparing does not
/// allocate.
#[derive(Clone, Copy)]
pub struct Nqn {
    bytes: [u8; NQN_BYTES_MAX],
    length: u8,
}

/// Why a text is not a qualified name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NqnError {
    /// The name is empty.
    #[error("the name is empty; a name looks like nqn.2026-11.io.example:disk1")]
    Empty,
    /// Too long, or without a terminating zero.
    #[error("the name is longer than {NQN_BYTES_MAX} bytes")]
    TooLong,
    /// The name is not UTF-8, or contains control characters.
    #[error("the name is not plain UTF-8 text")]
    NotText,
    /// The name has neither of the two forms.
    #[error(
        "the name is neither of the form nqn.2026-11.io.example:disk1 (year, month, reversed \
         domain) nor nqn.2014-08.org.nvmexpress:uuid: with a UUID"
    )]
    Malformed,
}

impl Nqn {
    /// Creates a name in one of the two forms of the specification.
    ///
    /// # Errors
    ///
    /// Why the name is invalid.
    pub fn new(text: &str) -> Result<Self, NqnError> {
        let name = Self::lenient(text)?;
        if is_well_formed(text) {
            Ok(name)
        } else {
            Err(NqnError::Malformed)
        }
    }

    /// Parses a name from a 256-byte field, padded with zeroes, as in Connect and the discovery log
    /// page. Its form is not checked: a target compares names only, and ordinary hosts accept names
    /// of any form from users.
    ///
    /// # Errors
    ///
    /// Why the field is invalid.
    pub fn from_field(field: &[u8; NQN_FIELD_BYTES]) -> Result<Self, NqnError> {
        let length = field
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(NqnError::TooLong)?;
        let text = core::str::from_utf8(&field[..length]).map_err(|_| NqnError::NotText)?;
        Self::lenient(text)
    }

    /// Creates a name of unchecked form: 1 to 223 bytes of text without control characters.
    ///
    /// # Errors
    ///
    /// Why the name is invalid.
    pub fn lenient(text: &str) -> Result<Self, NqnError> {
        if text.is_empty() {
            return Err(NqnError::Empty);
        }
        if text.len() > NQN_BYTES_MAX {
            return Err(NqnError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(NqnError::NotText);
        }
        let mut bytes = [0; NQN_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let length = u8::try_from(text.len()).expect("at most 223");
        Ok(Self { bytes, length })
    }

    /// The well-known name of discovery subsystems.
    pub fn discovery() -> Self {
        Self::new(DISCOVERY_NQN).expect("the well-known name is a name")
    }

    /// Returns true for the well-known name of discovery subsystems.
    pub fn is_discovery(&self) -> bool {
        self.as_str() == DISCOVERY_NQN
    }

    /// Returns true if the name has one of the two forms of the specification.
    pub fn is_well_formed(&self) -> bool {
        is_well_formed(self.as_str())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).expect("checked when the name was made")
    }

    /// Returns the text, padded with zeroes.
    pub fn to_field(&self) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        field[..NQN_BYTES_MAX].copy_from_slice(&self.bytes);
        field
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl PartialEq for Nqn {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Nqn {}

impl PartialOrd for Nqn {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Nqn {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl core::hash::Hash for Nqn {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl core::fmt::Debug for Nqn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Nqn({:?})", self.as_str())
    }
}

impl core::fmt::Display for Nqn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.as_str())
    }
}

impl core::str::FromStr for Nqn {
    type Err = NqnError;

    fn from_str(text: &str) -> Result<Self, NqnError> {
        Self::new(text)
    }
}

/// `nqn.yyyy-mm.reversed.domain`, optionally with `:` and any text; a UUID after the prefix of the
/// standard's own domain.
fn is_well_formed(text: &str) -> bool {
    if let Some(uuid) = text.strip_prefix(UUID_PREFIX) {
        return is_uuid(uuid);
    }
    let Some(rest) = text.strip_prefix("nqn.") else {
        return false;
    };
    let Some((date, name)) = rest.split_once('.') else {
        return false;
    };
    let (domain, suffix) = match name.split_once(':') {
        Some((domain, suffix)) => (domain, Some(suffix)),
        None => (name, None),
    };
    is_year_and_month(date) && domain.split('.').all(is_domain_label) && suffix != Some("")
}

fn is_year_and_month(text: &str) -> bool {
    let Some((year, month)) = text.split_once('-') else {
        return false;
    };
    year.len() == 4
        && year.bytes().all(|byte| byte.is_ascii_digit())
        && month.len() == 2
        && matches!(month.parse(), Ok(1..=12_u8))
}

fn is_domain_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests;
