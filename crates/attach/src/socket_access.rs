//! The access to the Unix socket of an attachment.

use anyhow::{Context as _, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The permission bits and the group of a Unix socket. Without either only the user of the process may
/// open it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits; `None` for 0600, and with a group for 0660.
    pub mode: Option<u32>,
    /// Number of the group; `None` for that of the process.
    pub group: Option<u32>,
}

impl SocketAccess {
    /// Gives them to the socket at `path`.
    ///
    /// # Errors
    /// A group that the process may not give away.
    pub(crate) fn apply(self, path: &Path) -> Result<()> {
        let shown = path.display();
        // The group first: the mode of the start admits only the user.
        if let Some(group) = self.group {
            let changed = std::os::unix::fs::chown(path, None, Some(group));
            changed.with_context(|| {
                format!("{shown}: group {group}: run as root, or as a member of the group")
            })?;
        }
        if let Some(mode) = self.mode.or(self.group.map(|_| 0o660)) {
            let changed = fs::set_permissions(path, Permissions::from_mode(mode));
            changed.with_context(|| format!("{shown}: mode {mode:04o}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_gets_mode_and_group() {
        let path = block::temporary("access.sock");
        let _listener = UnixListener::bind(&path).expect("it is new");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is there");
        let own = fs::metadata(&path).expect("it is there").gid();
        let mut found = Vec::new();
        for (mode, group) in [
            (None, None),
            (None, Some(own)),
            (Some(0o666), Some(own)),
            (Some(0o620), None),
        ] {
            let applied = SocketAccess { mode, group }.apply(&path);
            let there = fs::metadata(&path).expect("it is there");
            found.push((applied.is_ok(), there.mode() & 0o777, there.gid()));
        }
        fs::remove_file(&path).expect("it is there");
        let expected = [0o600, 0o660, 0o666, 0o620].map(|mode| (true, mode, own));
        assert_eq!(found, expected);
    }
}
