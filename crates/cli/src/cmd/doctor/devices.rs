//! Files and block devices of the configuration, and what else uses them.

use super::finding::Finding;
use super::system::{System, canonical};
use config::schema::{Configuration, Device};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

const CHECK: &str = "device";

/// Checks all devices; `target` is the process of the target, if known.
pub fn check(system: &System, configuration: &Configuration, target: Option<u32>) -> Vec<Finding> {
    let devices = configuration.devices.iter();
    let with_path = devices.filter_map(|(name, device)| Some((name, device, device.kind.path()?)));
    with_path
        .flat_map(|(name, device, path)| {
            let found = of_device(system, name, device, path, target);
            let is_fine = found.is_empty();
            let fine = || Finding::ok(CHECK, format!("{name} ({}): usable", path.display()));
            found.into_iter().chain(is_fine.then(fine))
        })
        .collect()
}

fn of_device(
    system: &System,
    name: &str,
    device: &Device,
    path: &Path,
    target: Option<u32>,
) -> Vec<Finding> {
    let shown = format!("{name} ({})", path.display());
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::PermissionDenied || path.is_relative() => {
            return vec![Finding::unknown(CHECK, format!("{shown}: {error}"))];
        }
        Err(error) => return missing(&shown, device, &error),
    };
    let is_block = metadata.file_type().is_block_device();
    if !metadata.is_file() && !is_block {
        let remedy = format!("name a file or block device in [devices.{name}]");
        return vec![Finding::fail(
            CHECK,
            format!("{shown} is neither a file nor a block device"),
            remedy,
        )];
    }
    let mut found = Vec::new();
    if is_block {
        let number = number(metadata.rdev());
        found.extend(mounts(system, &shown, &number));
        found.extend(holders(system, &shown, &number));
    }
    found.extend(swap(system, &shown, path));
    found.extend(loop_device(system, &shown, path));
    found.extend(kernel_target(system, &shown, path));
    found.extend(lock(system, &shown, &metadata, target));
    found
}

fn missing(shown: &str, device: &Device, error: &io::Error) -> Vec<Finding> {
    use config::schema::DeviceKind::File;
    if matches!(&device.kind, File { create: true, .. }) {
        return Vec::new();
    }
    let remedy = "correct path, or write create = true and size for a new file";
    vec![Finding::fail(CHECK, format!("{shown}: {error}"), remedy)]
}

/// Returns a device number as the kernel writes it.
fn number(device: u64) -> String {
    format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    )
}

/// Returns the numbers of a block device and of its partitions.
fn with_partitions(system: &System, number: &str) -> Vec<String> {
    let folder = format!("/sys/dev/block/{number}");
    let parts = system.names(&folder).into_iter().filter_map(|name| {
        let part = format!("{folder}/{name}");
        system
            .has(&format!("{part}/partition"))
            .then(|| system.text(&format!("{part}/dev")).ok())?
    });
    std::iter::once(number.to_owned()).chain(parts).collect()
}

fn mounts(system: &System, shown: &str, number: &str) -> Vec<Finding> {
    let Ok(table) = system.text("/proc/self/mountinfo") else {
        let why = format!("{shown}: cannot read the mounts");
        return vec![Finding::unknown(CHECK, why)];
    };
    let numbers = with_partitions(system, number);
    let mounts = table.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let number = words.nth(2)?;
        let point = words.nth(1)?;
        numbers.iter().any(|it| it == number).then_some(point)
    });
    let finding = |point: &str| {
        Finding::fail(
            CHECK,
            format!("{shown} is mounted at {point}"),
            format!("umount {point}"),
        )
    };
    mounts.map(finding).collect()
}

/// Other block devices on top: LVM, RAID, encryption.
fn holders(system: &System, shown: &str, number: &str) -> Vec<Finding> {
    let numbers = with_partitions(system, number).into_iter();
    let holders =
        numbers.flat_map(|number| system.names(&format!("/sys/dev/block/{number}/holders")));
    let finding = |holder: String| {
        Finding::fail(
            CHECK,
            format!("{shown} is a part of /dev/{holder}"),
            format!("use /dev/{holder}, or stop it (see `lsblk /dev/{holder}`)"),
        )
    };
    holders.map(finding).collect()
}

fn swap(system: &System, shown: &str, path: &Path) -> Option<Finding> {
    let table = system.text("/proc/swaps").ok()?;
    let own = canonical(path);
    let mut areas = table
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    areas
        .find(|area| canonical(Path::new(area)) == own)
        .map(|area| {
            Finding::fail(
                CHECK,
                format!("{shown} is a swap area"),
                format!("swapoff {area}"),
            )
        })
}

fn loop_device(system: &System, shown: &str, path: &Path) -> Option<Finding> {
    let own = canonical(path);
    let names = system.names("/sys/block").into_iter();
    let mut loops = names.filter(|name| name.starts_with("loop"));
    let name = loops.find(|name| {
        let file = system.text(&format!("/sys/block/{name}/loop/backing_file"));
        file.is_ok_and(|file| Path::new(&file) == own)
    })?;
    let remedy = format!("losetup -d /dev/{name}");
    Some(Finding::fail(
        CHECK,
        format!("{shown} is attached as /dev/{name}"),
        remedy,
    ))
}

/// The same device in the kernel's target.
fn kernel_target(system: &System, shown: &str, path: &Path) -> Option<Finding> {
    const FOLDER: &str = "/sys/kernel/config/nvmet/subsystems";
    let own = canonical(path);
    for nqn in system.names(FOLDER) {
        for nsid in system.names(&format!("{FOLDER}/{nqn}/namespaces")) {
            let folder = format!("{FOLDER}/{nqn}/namespaces/{nsid}");
            let text = |name: &str| system.text(&format!("{folder}/{name}")).unwrap_or_default();
            if text("enable") == "1" && canonical(Path::new(&text("device_path"))) == own {
                return Some(Finding::fail(
                    CHECK,
                    format!("{shown} is served by the kernel's target, in {nqn}"),
                    format!("echo 0 > {folder}/enable"),
                ));
            }
        }
    }
    None
}

/// The lock that each server of a file takes.
fn lock(system: &System, shown: &str, metadata: &Metadata, target: Option<u32>) -> Option<Finding> {
    let table = match system.text("/proc/locks") {
        Ok(table) => table,
        Err(why) => return Some(Finding::unknown(CHECK, format!("{shown}: {why}"))),
    };
    let (dev, inode) = (metadata.dev(), metadata.ino());
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let holder = table.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == file)?;
        words.get(at.checked_sub(1)?)?.parse::<u32>().ok()
    })?;
    if Some(holder) == target {
        return Some(Finding::ok(
            CHECK,
            format!("{shown}: served by the target, process {holder}"),
        ));
    }
    let name = system
        .text(&format!("/proc/{holder}/comm"))
        .unwrap_or_default();
    if target.is_none() && name == "switchyard" {
        return Some(Finding::ok(
            CHECK,
            format!("{shown}: served by switchyard, process {holder}"),
        ));
    }
    let who = if name.is_empty() {
        "a process".to_owned()
    } else {
        name
    };
    Some(Finding::fail(
        CHECK,
        format!("{shown} is locked by {who}, process {holder}"),
        format!("end process {holder}, or serve another file"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;
    use config::schema::DeviceKind;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    #[test]
    fn other_users_of_a_file_are_found() {
        let folder = block::Folder::new();
        let disk = folder.path().join("disk");
        fs::write(&disk, "").expect("a file");
        let found = fs::metadata(&disk).expect("a file");
        let (major, minor) = (
            rustix::fs::major(found.dev()),
            rustix::fs::minor(found.dev()),
        );
        let lock = format!(
            "1: FLOCK  ADVISORY  WRITE 42 {major:02x}:{minor:02x}:{} 0 EOF\n",
            found.ino()
        );
        let root = folder.path().join("root");
        let shown = disk.display();
        write(&root, "proc/locks", &lock);
        write(&root, "proc/42/comm", "qemu\n");
        write(
            &root,
            "proc/swaps",
            &format!("Filename Type Size\n{shown} file 1\n"),
        );
        write(
            &root,
            "sys/block/loop3/loop/backing_file",
            &format!("{shown}\n"),
        );
        let namespace = "sys/kernel/config/nvmet/subsystems/nqn.a:b/namespaces/1";
        write(
            &root,
            &format!("{namespace}/device_path"),
            &format!("{shown}\n"),
        );
        write(&root, &format!("{namespace}/enable"), "1\n");
        let mut configuration = Configuration::default();
        let device = Device::new(DeviceKind::file(&disk));
        configuration.devices.insert("d".to_owned(), device);
        let system = System::new(&root);
        let found = check(&system, &configuration, Some(7));
        let texts: Vec<_> = found.iter().map(|it| it.text.as_str()).collect();
        assert!(
            found.iter().all(|it| it.status == Status::Fail),
            "{found:?}"
        );
        for (text, part) in
            texts
                .iter()
                .zip(["swap area", "/dev/loop3", "nqn.a:b", "qemu, process 42"])
        {
            assert!(text.contains(part), "{texts:?}");
        }
        assert_eq!(texts.len(), 4, "{texts:?}");

        // The target itself may have the lock.
        fs::remove_dir_all(root.join("sys")).expect("a folder");
        write(&root, "proc/swaps", "");
        let found = check(&system, &configuration, Some(42));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].status, Status::Ok, "{found:?}");
    }

    #[test]
    fn mounts_and_holders_of_partitions_are_found() {
        let folder = block::Folder::new();
        let part = "sys/dev/block/8:0/sda1";
        write(folder.path(), &format!("{part}/partition"), "1\n");
        write(folder.path(), &format!("{part}/dev"), "8:1\n");
        write(folder.path(), "sys/dev/block/8:1/holders/dm-0", "");
        let table = "36 25 8:1 / /mnt/data rw,noatime shared:1 - ext4 /dev/sda1 rw\n\
                     37 25 8:17 / /other rw - ext4 /dev/sdb1 rw\n";
        write(folder.path(), "proc/self/mountinfo", table);
        let system = System::new(folder.path());
        let found = mounts(&system, "d", "8:0");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].remedy.as_deref(), Some("umount /mnt/data"));
        let found = holders(&system, "d", "8:0");
        assert!(found[0].text.contains("/dev/dm-0"), "{found:?}");
    }
}
