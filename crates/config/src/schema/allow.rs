//! A tenant's permissions in words: the keys of a configuration, on one line.

use super::{Access, Permission};
use std::fmt;
use std::str::FromStr;

/// Blocks that a tenant may use: all of them, none, or those of a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// Nothing is checked.
    Everything,
    /// Not one block.
    Nothing,
    /// These blocks, beside those of other permissions.
    Blocks(Permission),
}

const FORM: &str = "write everything, nothing, or access=read|write|read_write with, where it is not \
                    of all of them, subsystem=NQN, namespace=NSID, first_block=BLOCK and \
                    blocks=NUMBER, separated by commas";

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "everything" => return Ok(Self::Everything),
            "nothing" => return Ok(Self::Nothing),
            _ => {}
        }
        let mut permission = Permission {
            subsystem: None,
            namespace: None,
            first_block: 0,
            blocks: None,
            access: Access::ReadWrite,
        };
        let mut seen = Vec::new();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is no KEY=VALUE; {FORM}"))?;
            if seen.contains(&key) {
                return Err(format!("{key} is said twice; keep one of them"));
            }
            seen.push(key);
            match key {
                "subsystem" => permission.subsystem = Some(value.to_owned()),
                "namespace" => permission.namespace = Some(number(key, value)?),
                "first_block" => permission.first_block = number(key, value)?,
                "blocks" => permission.blocks = Some(number(key, value)?),
                "access" => permission.access = access(value)?,
                _ => return Err(format!("{key:?} is none of a permission's keys; {FORM}")),
            }
        }
        if !seen.contains(&"access") {
            return Err(format!("access is missing; {FORM}"));
        }
        Ok(Self::Blocks(permission))
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    let number = value.parse();
    number.map_err(|_| format!("{key}={value} is no number that it can be; write digits"))
}

fn access(value: &str) -> Result<Access, String> {
    let all = [Access::Read, Access::Write, Access::ReadWrite];
    let found = all.into_iter().find(|one| one.to_string() == value);
    found.ok_or_else(|| format!("access={value} means nothing; write read, write or read_write"))
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Permission {
            subsystem,
            namespace,
            first_block,
            blocks,
            access,
        } = match self {
            Self::Everything => return f.write_str("everything"),
            Self::Nothing => return f.write_str("nothing"),
            Self::Blocks(permission) => permission,
        };
        if let Some(nqn) = subsystem {
            write!(f, "subsystem={nqn},")?;
        }
        if let Some(nsid) = namespace {
            write!(f, "namespace={nsid},")?;
        }
        if *first_block > 0 || blocks.is_some() {
            write!(f, "first_block={first_block},")?;
        }
        if let Some(blocks) = blocks {
            write!(f, "blocks={blocks},")?;
        }
        write!(f, "access={access}")
    }
}

impl Allow {
    /// Merges several of them.
    ///
    /// # Errors
    /// When one of them says all or nothing, and it is not the only one.
    pub fn permissions(all: &[Self]) -> Result<Option<Vec<Permission>>, String> {
        let blocks = all.iter().map(|one| match one {
            Self::Blocks(permission) => Some(permission.clone()),
            Self::Everything | Self::Nothing => None,
        });
        match (all, blocks.collect::<Option<Vec<_>>>()) {
            ([Self::Everything], _) => Ok(None),
            ([Self::Nothing], _) => Ok(Some(Vec::new())),
            (_, Some(blocks)) => Ok(Some(blocks)),
            (_, None) => {
                let all = all.iter().find(|one| !matches!(one, Self::Blocks(_)));
                let all = all.expect("one is not about blocks");
                Err(format!("--allow {all} cannot stand beside another one"))
            }
        }
    }

    /// Returns a tenant's permissions, one by one.
    #[must_use]
    pub fn of(permissions: Option<&[Permission]>) -> Vec<Self> {
        match permissions {
            None => vec![Self::Everything],
            Some([]) => vec![Self::Nothing],
            Some(some) => some.iter().cloned().map(Self::Blocks).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_said_again() {
        for text in [
            "everything",
            "nothing",
            "access=read_write",
            "namespace=1,first_block=0,blocks=1024,access=read",
            "subsystem=nqn.2026-11.com.example:a,first_block=7,access=write",
        ] {
            let allow: Allow = text.parse().unwrap();
            assert_eq!(allow.to_string(), text);
        }
    }

    #[test]
    fn what_means_nothing_is_explained() {
        for (text, expected) in [
            ("", "no KEY=VALUE"),
            ("namespace=1", "access is missing"),
            ("access=all", "read_write"),
            ("access=read,access=write", "said twice"),
            ("access=read,block=7", "\"block\" is none"),
            ("access=read,blocks=-1", "no number"),
            ("access=read,namespace=4294967296", "no number"),
        ] {
            let error = text.parse::<Allow>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let read: Allow = "access=read".parse().unwrap();
        let error = Allow::permissions(&[read.clone(), Allow::Everything]).unwrap_err();
        assert!(error.contains("--allow everything"), "{error}");
        assert_eq!(Allow::permissions(&[Allow::Nothing]), Ok(Some(Vec::new())));
        assert_eq!(Allow::permissions(&[Allow::Everything]), Ok(None));
        let both = Allow::permissions(&[read.clone(), read]).unwrap();
        assert_eq!(both.map(|both| both.len()), Some(2));
    }
}
