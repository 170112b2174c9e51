//! Programs of Debian 13 for guests: `tlshd`, `nvme-cli` 2.13 and `keyctl`. Older releases lack
//! `tlshd`.
//!
//! Owns its cache below the target directory. The machine's own package manager downloads the
//! packages from the Debian archive that it already uses, and checks signature and hashes; nothing
//! is installed.

use crate::debian::{download, unpacked};
use crate::{cache_directory, output_of};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Folder of these programs and their libraries in a guest, for `chroot`.
pub const FOLDER: &str = "debian13";

/// The programs, as paths in their packages.
pub const PROGRAMS: [&str; 3] = ["usr/sbin/tlshd", "usr/sbin/nvme", "usr/bin/keyctl"];

/// The packages of the programs and of all their libraries.
const PACKAGES: [&str; 24] = [
    "keyutils",
    "ktls-utils",
    "libatomic1",
    "libc6",
    "libffi8",
    "libglib2.0-0t64",
    "libgmp10",
    "libgnutls30t64",
    "libhogweed6t64",
    "libidn2-0",
    "libjson-c5",
    "libkeyutils1",
    "libnettle8t64",
    "libnl-3-200",
    "libnl-genl-3-200",
    "libnvme1t64",
    "libp11-kit0",
    "libpcre2-8-0",
    "libssl3t64",
    "libtasn1-6",
    "libunistring5",
    "libzstd1",
    "nvme-cli",
    "zlib1g",
];

/// The keys that sign the archive, from Debian's package `debian-archive-keyring`.
const SIGNED_BY: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Returns the folder of the unpacked packages, from the cache or downloaded.
///
/// # Errors
/// If the package manager uses no Debian archive, or downloading or unpacking fails.
pub fn obtain() -> Result<PathBuf> {
    // Tests of one program run in parallel: the first one downloads for all.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    unpacked(&cache_directory("packages")?, FOLDER, fetch)
}

/// Downloads the packages to a folder, with package lists of its own there.
fn fetch(folder: &Path) -> Result<()> {
    let archive = archive()?;
    let sources = folder.join("sources.list");
    let source = format!("deb [signed-by={SIGNED_BY} target=Packages] {archive} trixie main\n");
    std::fs::write(&sources, source).context("write sources.list")?;
    for name in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(folder.join(name)).with_context(|| format!("make {name}"))?;
    }
    let inside = |name: &str| folder.join(name).display().to_string();
    let settings = [
        format!("Dir::Etc::SourceList={}", sources.display()),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        "Dir::State::Status=/dev/null".to_owned(),
        format!("Dir::State::Lists={}", inside("lists")),
        format!("Dir::Cache={}", inside("cache")),
        "Acquire::Languages=none".to_owned(),
        // The folder may be closed to the user that root's downloads run as.
        "APT::Sandbox::User=root".to_owned(),
    ];
    let with_settings = |command: &mut Command| {
        for setting in &settings {
            command.args(["-o", setting]);
        }
        output_of(command).map(drop)
    };
    with_settings(Command::new("apt-get").arg("update"))?;
    with_settings(&mut download(&PACKAGES, folder))
}

/// Returns the address of the Debian archive among the package manager's sources.
fn archive() -> Result<String> {
    let mut list = Command::new("apt-get");
    list.args(["indextargets", "--format", "$(REPO_URI)"]);
    list.args(["Created-By: Packages", "Label: Debian"]);
    let answer = String::from_utf8(output_of(&mut list)?).context("apt-get speaks UTF-8")?;
    let first = answer.lines().next().map(str::to_owned);
    first.context("no Debian archive is among the sources of apt: add one, run `apt-get update`")
}
