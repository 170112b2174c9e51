//! The access to a Unix socket: of an attachment, or of the HTTP interface.

use config::schema::{Configuration, SocketMode};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The permission bits and the group of a Unix socket. Without either only the user of the process may
/// open it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits; `None` for 0600, and with a group for 0660.
    pub mode: Option<SocketMode>,
    /// Number of the group; `None` for that of the process.
    pub group: Option<u32>,
}

impl SocketAccess {
    /// The remedy for an error of [`apply`](Self::apply).
    pub const REMEDY: &str = "run as root, or as a member of the group";

    /// Returns the access to the interface's socket of a target.
    #[must_use]
    pub const fn of_interface(configuration: &Configuration) -> Self {
        Self {
            mode: configuration.api_socket_mode,
            group: configuration.api_socket_group,
        }
    }

    /// Gives them to the socket at `path`.
    ///
    /// # Errors
    /// A group that the process may not give away.
    pub fn apply(self, path: &Path) -> io::Result<()> {
        let named = |what: String| {
            move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"))
        };
        // The group first: the mode of the start admits only the user.
        if let Some(group) = self.group {
            let changed = std::os::unix::fs::lchown(path, None, Some(group));
            changed.map_err(named(format!("group {group}")))?;
        }
        if let Some(mode) = self.mode.or(self.group.map(|_| SocketMode::GROUP)) {
            let changed = fs::set_permissions(path, Permissions::from_mode(mode.bits()));
            changed.map_err(named(format!("mode {mode}")))?;
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
            (Some("0666"), Some(own)),
            (Some("0620"), None),
        ] {
            let mode = mode.map(|mode| mode.parse().expect("a mode"));
            let applied = SocketAccess { mode, group }.apply(&path);
            let there = fs::metadata(&path).expect("it is there");
            found.push((applied.is_ok(), there.mode() & 0o777, there.gid()));
        }
        fs::remove_file(&path).expect("it is there");
        let expected = [0o600, 0o660, 0o666, 0o620].map(|mode| (true, mode, own));
        assert_eq!(found, expected);
    }
}
