//! The kernel of guests: Debian's 6.12 package, downloaded and unpacked, never installed.
//!
//! Owns the cache below the target directory. Called once per test that boots a guest. The
//! machine's own package manager downloads the package, so its signature is checked.

use crate::{cache_directory, find_program, output_of};
use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Programs required to download and unpack a kernel.
pub const PROGRAMS: [&str; 5] = ["apt-cache", "apt-get", "dpkg-deb", "xz", "zstd"];

/// An unpacked kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The package's name, with its version.
    pub package: String,
    /// The image to boot.
    pub image: PathBuf,
    modules: BTreeMap<String, PathBuf>,
}

/// A kernel module, ready to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Name, with underscores.
    pub name: String,
    /// The uncompressed object file.
    pub object: Vec<u8>,
}

impl Kernel {
    /// Returns the newest 6.12 kernel that the package manager offers, from the cache or
    /// downloaded.
    ///
    /// # Errors
    /// If the package manager offers none, or downloading or unpacking fails.
    pub fn obtain() -> Result<Self> {
        // Tests of one program run in parallel: the first one downloads for all.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = cache_directory("kernel")?;
        let mut last_error = None;
        // The package lists may be older than the archive, which removes old packages: if a package
        // is not available, tries an older one.
        for package in available_packages()?.into_iter().rev().take(3) {
            match obtain_package(&cache, &package) {
                Ok(kernel) => return Ok(kernel),
                Err(error) => last_error = Some(error),
            }
        }
        Err(last_error.unwrap_or_else(|| {
            anyhow::anyhow!(
                "the package manager knows no linux-image-6.12*-amd64-unsigned: run `apt-get \
                 update` on Debian 12 or later, with the security suite among its sources"
            )
        }))
    }

    /// Returns the named modules and all their dependencies, uncompressed, in load order.
    ///
    /// # Errors
    /// If a module is not in the package, cannot be decompressed, or depends on itself.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<Module>> {
        let mut ordered = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            self.visit(&module_name(name), &mut seen, &mut ordered)?;
        }
        Ok(ordered)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        ordered: &mut Vec<Module>,
    ) -> Result<()> {
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let path = self
            .modules
            .get(name)
            .with_context(|| format!("{} has no module {name}", self.package))?;
        let object = decompress(path)?;
        for dependency in dependencies(&object) {
            self.visit(&dependency, seen, ordered)?;
        }
        ordered.push(Module {
            name: name.to_owned(),
            object,
        });
        Ok(())
    }
}

/// Returns matching package names, oldest first.
fn available_packages() -> Result<Vec<String>> {
    let mut search = Command::new("apt-cache");
    search.args([
        "search",
        "--names-only",
        r"^linux-image-6\.12.*-amd64-unsigned$",
    ]);
    let answer = String::from_utf8(output_of(&mut search)?).context("apt-cache speaks UTF-8")?;
    Ok(choose_packages(&answer))
}

fn choose_packages(answer: &str) -> Vec<String> {
    let mut packages: Vec<String> = answer
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with("linux-image-6.12") && name.ends_with("-amd64-unsigned"))
        .filter(|name| {
            !["-cloud-", "-rt-", "-dbg"]
                .iter()
                .any(|variant| name.contains(variant))
        })
        .map(str::to_owned)
        .collect();
    packages.sort_by_key(|name| numbers_in(name));
    packages
}

/// Returns the numbers in a name, in order, by which versions are compared.
fn numbers_in(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

fn obtain_package(cache: &Path, package: &str) -> Result<Kernel> {
    let root = unpacked(cache, package, |work| {
        output_of(&mut download(&[package], work)).map(drop)
    })?;
    let image = only_entry(&root.join("boot"), "vmlinuz-")?;
    let version = only_entry(&root.join("lib/modules"), "")?;
    let mut modules = BTreeMap::new();
    collect_modules(&version.join("kernel"), &mut modules)?;
    Ok(Kernel {
        package: package.to_owned(),
        image,
        modules,
    })
}

/// Returns the command that downloads packages to a folder.
pub(crate) fn download(packages: &[&str], folder: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.arg("download").args(packages).current_dir(folder);
    command
}

/// Returns the folder `name` of the cache with unpacked packages. If it is missing, `fetch`
/// downloads them to the folder it is given; the unpacked files are moved last, so that the folder
/// is complete even after an interrupted run.
pub(crate) fn unpacked(
    cache: &Path,
    name: &str,
    fetch: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let root = cache.join(name);
    if root.is_dir() {
        return Ok(root);
    }
    let work = cache.join(format!("{name}.{}", std::process::id()));
    std::fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    fetch(&work).with_context(|| format!("download {name}"))?;
    let new = work.join("root");
    for archive in entries(&work)? {
        if archive.extension().is_some_and(|end| end == "deb") {
            output_of(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&new))?;
        }
    }
    if let Err(error) = std::fs::rename(&new, &root)
        && !root.is_dir()
    {
        return Err(error).with_context(|| format!("move the packages to {}", root.display()));
    }
    std::fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    Ok(root)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = || format!("list {}", folder.display());
    std::fs::read_dir(folder)
        .with_context(list)?
        .map(|entry| Ok(entry.with_context(list)?.path()))
        .collect()
}

/// Returns the only entry of a folder with a name that starts with `prefix`.
fn only_entry(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let is_named = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    let mut matching: Vec<PathBuf> = entries(folder)?.into_iter().filter(is_named).collect();
    let count = matching.len();
    match matching.pop() {
        Some(path) if count == 1 => Ok(path),
        _ => bail!(
            "{} holds {count} entries named {prefix}*, not one",
            folder.display()
        ),
    }
}

fn collect_modules(folder: &Path, modules: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for path in entries(folder)? {
        if path.is_dir() {
            collect_modules(&path, modules)?;
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && let Some((stem, _)) = name.split_once(".ko")
        {
            modules.insert(module_name(stem), path);
        }
    }
    Ok(())
}

/// The kernel treats hyphens and underscores in module names the same.
fn module_name(name: &str) -> String {
    name.replace('-', "_")
}

fn decompress(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => {
            return std::fs::read(path).with_context(|| format!("read {}", path.display()));
        }
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => bail!("{} is compressed in an unknown way", path.display()),
    };
    let program = find_program(program).with_context(|| format!("{program} is not installed"))?;
    output_of(Command::new(program).arg("-dc").arg(path))
}

/// Returns the modules that a module depends on: the `depends=` entry of its information section.
fn dependencies(object: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = object.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = &object[start + KEY.len()..];
    let end = value
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(module_name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_plain_kernel_comes_last() {
        let answer = "\
linux-image-6.12.99+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs
linux-image-6.12.113+deb12-cloud-amd64-unsigned - Linux 6.12 for x86-64 cloud
linux-image-6.12.113+deb12-rt-amd64-unsigned - Linux 6.12 for 64-bit PCs, PREEMPT_RT
linux-image-6.12.113+deb12-amd64-dbg - Debug symbols
linux-image-6.12.107+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs
";
        assert_eq!(
            choose_packages(answer),
            [
                "linux-image-6.12.99+deb12-amd64-unsigned",
                "linux-image-6.12.107+deb12-amd64-unsigned"
            ]
        );
    }

    #[test]
    fn dependencies_are_read_from_the_information_section() {
        let object = b"\x7fELF..license=GPL\0depends=nvme-core,nvme-fabrics\0name=nvme_tcp\0";
        assert_eq!(dependencies(object), ["nvme_core", "nvme_fabrics"]);
        assert!(dependencies(b"license=GPL\0depends=\0name=x\0").is_empty());
        assert!(dependencies(b"no information").is_empty());
    }
}
