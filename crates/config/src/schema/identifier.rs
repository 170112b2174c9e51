//! The identifiers of a namespace, and names of subsystems and hosts.

use std::fmt;
use std::str::FromStr;

use super::as_text;
use crate::limits::NQN_BYTES_MAX;

/// The name of every discovery subsystem [NVMe Base 2.0 §4.5].
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// The reason for which a text is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write {expected}")]
pub struct IdentifierError {
    expected: &'static str,
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $groups:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// The bytes, in the order in which they are written and sent.
            pub bytes: [u8; $bytes],
        }

        impl $name {
            /// The form of a legal text.
            pub const EXPECTED: &'static str = $expected;
        }

        impl FromStr for $name {
            type Err = IdentifierError;

            fn from_str(text: &str) -> Result<Self, IdentifierError> {
                let mut bytes = [0; $bytes];
                if read_hex(text, &mut bytes).is_none() || bytes == [0; $bytes] {
                    return Err(IdentifierError { expected: $expected });
                }
                Ok(Self { bytes })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let dashes: &[usize] = &$groups;
                for (index, byte) in self.bytes.iter().enumerate() {
                    if dashes.contains(&index) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }

        as_text!($name);
    };
}

identifier!(
    /// A namespace's UUID [NVMe Base 2.0 §4.4.1].
    Uuid, 16, [4, 6, 8, 10],
    "a UUID that is not all zeroes, like \"6ba7b810-9dad-41d1-80b4-00c04fd430c8\""
);
identifier!(
    /// A namespace's globally unique identifier [NVMe Base 2.0 §4.4.1].
    Nguid, 16, [],
    "32 hexadecimal digits that are not all zeroes"
);
identifier!(
    /// A namespace's IEEE extended unique identifier [NVMe Base 2.0 §4.4.1].
    Eui64, 8, [],
    "16 hexadecimal digits that are not all zeroes"
);

/// Reads hexadecimal digits, two a byte; dashes may stand between bytes.
fn read_hex(text: &str, out: &mut [u8]) -> Option<()> {
    let mut digits = text.chars();
    for byte in out.iter_mut() {
        let mut high = digits.next()?;
        if high == '-' {
            high = digits.next()?;
        }
        let value = high.to_digit(16)? * 16 + digits.next()?.to_digit(16)?;
        *byte = u8::try_from(value).expect("two hexadecimal digits fit a byte");
    }
    digits.next().is_none().then_some(())
}

impl Uuid {
    /// The UUID of a namespace that was given none, computed from what names the namespace and what
    /// names the `content` of its device (version 8, RFC 9562): the same after every restart, as
    /// long as the content is the same.
    #[must_use]
    pub fn derived(nqn: &str, serial: &str, nsid: u32, content: &str) -> Self {
        let mut bytes = [0; 16];
        for (half, salt) in bytes.chunks_exact_mut(8).zip(["uuid-high", "uuid-low"]) {
            let text = format!("{salt}\0{nqn}\0{serial}\0{nsid}\0{content}");
            half.copy_from_slice(&hash(text.as_bytes()).to_le_bytes());
        }
        bytes[6] = (bytes[6] & 0x0F) | 0x80;
        bytes[8] = (bytes[8] & 0x3F) | 0x80;
        Self { bytes }
    }
}

/// The serial number of a subsystem that was given none: the same after every restart.
#[must_use]
pub fn derived_serial(nqn: &str) -> String {
    format!("SY{:016X}", hash(nqn.as_bytes()))
}

/// FNV-1a, then the finaliser of SplitMix64 so that every input bit reaches every output bit.
/// Identifies, and protects nothing.
fn hash(bytes: &[u8]) -> u64 {
    let mut state = 0xCBF2_9CE4_8422_2325_u64;
    for &byte in bytes {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

/// Returns true if `name` has the form of an NVMe Qualified Name. Some hosts and targets use
/// others.
#[must_use]
pub fn is_qualified(name: &str) -> bool {
    name.starts_with("nqn.")
}

/// Checks that `nqn` is a well-formed NVMe Qualified Name [NVMe Base 2.0 §4.5], or a name that does
/// not claim to be one ([`is_qualified`]).
///
/// # Errors
/// What is wrong with it, to be read after the name.
pub fn check_nqn(nqn: &str) -> Result<(), String> {
    if nqn.is_empty() {
        return Err("is empty".to_owned());
    }
    if nqn.len() > NQN_BYTES_MAX {
        return Err(format!(
            "has {} bytes, a name has at most {NQN_BYTES_MAX}",
            nqn.len()
        ));
    }
    if nqn.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("contains white space or control characters".to_owned());
    }
    let Some(rest) = nqn.strip_prefix("nqn.") else {
        return Ok(());
    };
    let (date, domain_and_name) = rest.split_once('.').unwrap_or((rest, ""));
    let date_is_good = date.len() == 7
        && date.bytes().enumerate().all(|(index, byte)| match index {
            4 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
        && matches!(
            &date[5..],
            "01" | "02" | "03" | "04" | "05" | "06" | "07" | "08" | "09" | "10" | "11" | "12"
        );
    if !date_is_good {
        return Err("has no date (year-month) after \"nqn.\"".to_owned());
    }
    let (domain, name) = match domain_and_name.split_once(':') {
        Some((domain, name)) => (domain, Some(name)),
        None => (domain_and_name, None),
    };
    let domain_is_good = !domain.is_empty()
        && domain.split('.').all(|label| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        });
    if !domain_is_good {
        return Err("has no reversed domain name after its date".to_owned());
    }
    if name == Some("") {
        return Err("has nothing after its colon".to_owned());
    }
    Ok(())
}

/// The form of a legal name.
pub const NQN_EXPECTED: &str = "write a name like \"nqn.2026-11.com.example:disks\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass_and_bad_ones_say_why() {
        for good in [
            DISCOVERY_NQN,
            "nqn.2026-11.io.switchyard:default",
            "nqn.2014-08.org.nvmexpress:uuid:6ba7b810-9dad-41d1-80b4-00c04fd430c8",
            "nqn.2020-01.com.example:a/b:c é",
            "blktests-subsystem-1",
        ]
        .iter()
        .map(|name| name.replace(' ', "_"))
        {
            assert_eq!(check_nqn(&good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", "is empty"),
            ("a disk", "white space"),
            ("nqn.2026-13.com.example:a", "has no date"),
            ("nqn.202611.com.example", "has no date"),
            ("nqn.2026-1é.com.example", "has no date"),
            ("nqn.2026-11", "has no reversed domain"),
            ("nqn.2026-11.:a", "has no reversed domain"),
            ("nqn.2026-11.com..example:a", "has no reversed domain"),
            ("nqn.2026-11.com.example:", "nothing after its colon"),
            ("nqn.2026-11.com.example:a b", "white space"),
            ("nqn.2026-11.com.example:a\u{0}", "control characters"),
            (
                &format!("nqn.2026-11.com.example:{}", "x".repeat(220)),
                "at most 223",
            ),
        ] {
            let error = check_nqn(bad).expect_err(bad);
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn identifiers_are_shown_as_they_are_read() {
        let uuid = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
        assert_eq!(
            uuid.parse::<Uuid>().map(|u| u.to_string()),
            Ok(uuid.to_owned())
        );
        assert_eq!(uuid.replace('-', "").parse::<Uuid>(), uuid.parse());
        assert_eq!(
            "0123456789ABCDEF".parse::<Eui64>().map(|e| e.to_string()),
            Ok("0123456789abcdef".to_owned())
        );
        for bad in [
            "",
            "00000000-0000-0000-0000-000000000000",
            "zz",
            "-",
            "6ba7b810-9dad-41d1-80b4-00c04fd430c8a",
        ] {
            assert!(
                bad.parse::<Uuid>()
                    .is_err_and(|e| e.to_string().contains("UUID")),
                "{bad}"
            );
        }
    }

    #[test]
    fn derived_identifiers_stay_the_same_and_differ() {
        let nqn = "nqn.2026-11.io.switchyard:default";
        let uuid = Uuid::derived(nqn, "S1", 1, "A");
        assert_eq!(uuid, Uuid::derived(nqn, "S1", 1, "A"));
        assert_ne!(uuid, Uuid::derived(nqn, "S1", 2, "A"));
        assert_ne!(uuid, Uuid::derived(nqn, "S2", 1, "A"));
        assert_ne!(uuid, Uuid::derived(nqn, "S1", 1, "B"));
        assert_eq!(uuid.bytes[6] >> 4, 8, "version");
        assert_eq!(uuid.bytes[8] >> 6, 2, "variant");
        assert_eq!(derived_serial(nqn).len(), 18);
        assert_ne!(
            derived_serial(nqn),
            derived_serial("nqn.2026-11.io.switchyard:other")
        );
    }
}
