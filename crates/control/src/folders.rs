//! Folders in which devices that are added over the interface may have their files.
//!
//! A client of the interface could otherwise have the target open, and hosts overwrite, any file
//! that the target's user may write. Paths in the configuration file are its author's choice and
//! not checked.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

#[cfg(doc)]
use block::device::file::open_beneath;
use config::ApplyError;
use config::schema::{Device, DeviceKind};

/// Refuses a device with a path that is not below one of `folders`, or that leads out of it by a
/// symbolic link: before anything is changed, so it says why. What is there may change afterwards;
/// the files are opened in a way that leads nowhere else ([`open_beneath`]).
///
/// # Errors
/// [`ApplyErrorKind::Invalid`], with the path.
pub(crate) fn check(device: &Device, folders: &[PathBuf]) -> Result<(), ApplyError> {
    if let DeviceKind::File { path, create, .. } = &device.kind {
        check_path(path, *create, folders)?;
    }
    if let Some(crypt) = &device.crypt {
        if !crypt.key_command.is_empty() {
            return Err(ApplyError::invalid(
                "key_command would run a program of the client's choice".to_owned(),
                "use key_file, or add the device in the configuration file",
            ));
        }
        if let Some(path) = &crypt.key_file {
            check_path(path, false, folders)?;
        }
    }
    match &device.model {
        Some(model) => check_path(model, false, folders),
        None => Ok(()),
    }
}

fn check_path(path: &Path, create: bool, folders: &[PathBuf]) -> Result<(), ApplyError> {
    let refused = |why: &str, what_to_do: &str| {
        let message = format!("{} {why}", path.display());
        Err(ApplyError::invalid(message, what_to_do))
    };
    let below = |folder: &PathBuf| Some((folder.clone(), path.strip_prefix(folder).ok()?));
    let Some((folder, rest)) = folders.iter().find_map(below) else {
        return refused(
            "is not below any of device_folders",
            "name a file that is, or add its folder to device_folders in the configuration file \
             and restart",
        );
    };
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !rest.components().all(plain) || rest.as_os_str().is_empty() {
        return refused("is no plain path", "write it without \"..\"");
    }
    let found = match beneath(&folder, rest) {
        Err(Errno::NOENT) if create => place_for_new(&folder, rest),
        other => other,
    };
    match found {
        Ok(_) => Ok(()),
        Err(Errno::NOENT) => refused("does not exist", "check the path"),
        Err(Errno::XDEV | Errno::LOOP) => refused(
            "leads out of its folder by a symbolic link",
            "name the file itself, below one of device_folders",
        ),
        Err(error) => refused(&format!("cannot be looked at: {error}"), "check the path"),
    }
}

/// Returns the file at `rest` below `folder`, without opening it.
fn beneath(folder: &Path, rest: &Path) -> Result<File, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let found = rustix::fs::openat2(&folder, rest, flags, Mode::empty(), within)?;
    Ok(found.into())
}

/// The folder of a file that will be created: nothing has its name yet, no link either.
fn place_for_new(folder: &Path, rest: &Path) -> Result<File, Errno> {
    let (parent, name) = (rest.parent(), rest.file_name());
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    let parent = beneath(folder, parent.unwrap_or(Path::new(".")))?;
    let name = name.ok_or(Errno::INVAL)?;
    match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(parent),
        // A link to nothing: the file would be created where it leads.
        Ok(_) => Err(Errno::LOOP),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::schema::Crypt;

    /// A client could otherwise run a program, or learn something of any file.
    #[test]
    fn keys_of_devices_lie_in_the_folders_and_come_from_no_program() {
        let folder = block::Folder::new();
        let path = folder.path().join("key");
        std::fs::write(&path, "").expect("a new file");
        let checked = |key_file: Option<PathBuf>, command: &[&str]| {
            let mut device = Device::new("ram:1G".parse().expect("a device"));
            device.crypt = Some(Crypt {
                key_file,
                key_command: command.iter().map(|&word| word.to_owned()).collect(),
                create: true,
            });
            check(&device, &[folder.path().to_owned()])
        };
        checked(Some(path), &[]).expect("below the folder");
        let outside = checked(Some("/etc/passwd".into()), &[]).expect_err("outside");
        assert!(outside.to_string().contains("device_folders"), "{outside}");
        let program = checked(None, &["true"]).expect_err("a program");
        assert!(program.to_string().contains("key_file"), "{program}");
    }
}
