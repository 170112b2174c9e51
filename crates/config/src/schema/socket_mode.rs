//! Permission bits and groups of Unix sockets.

use std::fmt;
use std::fs;
use std::str::FromStr;

use super::as_text;

/// Permission bits, as octal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMode(u32);

impl SocketMode {
    /// Access for the owner and the group.
    pub const GROUP: Self = Self(0o660);

    /// Returns the bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

as_text!(SocketMode);

impl FromStr for SocketMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        let mode = u32::from_str_radix(text, 8).ok().filter(|_| digits);
        let mode = mode.filter(|&mode| mode <= 0o777);
        mode.map(Self)
            .ok_or("write permission bits in octal, for example \"0660\"")
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// Returns the number of a group, which is a number or a name of `/etc/group`.
///
/// # Errors
/// The remedy.
pub fn group_number(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string("/etc/group")
        .map_err(|error| format!("/etc/group: {error}; write the number of the group"))?;
    let number = groups.lines().find_map(|line| {
        let mut words = line.split(':');
        let is_it = words.next() == Some(text);
        words.nth(1).filter(|_| is_it)?.parse().ok()
    });
    number.ok_or_else(|| "no group in /etc/group; write its number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        let mode = "0660".parse::<SocketMode>().expect("a mode");
        assert_eq!((mode, &*mode.to_string()), (SocketMode::GROUP, "0660"));
        for wrong in ["", "1777", "8", "rw", "-1", "+1"] {
            wrong.parse::<SocketMode>().expect_err(wrong);
        }
    }

    #[test]
    fn groups_have_numbers() {
        assert_eq!(group_number("root"), Ok(0));
        assert_eq!(group_number("12"), Ok(12));
        group_number("no such group").expect_err("it is not there");
    }
}
