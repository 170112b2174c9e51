//! Tests against real kernels in guests and against other people's tools.
//!
//! This library holds what those tests share: the [`process`] under test, the [`debian`] kernel
//! that peers run, the [`image`] they boot, the [`vm`] they boot in, the [`guest`] scripts they
//! run, what a packet [`capture`] says, and the C [`library`]. The tests own the scenarios. Nothing else in the
//! workspace depends on it. A test must never be skipped silently: see [`require_programs`].

pub mod attach;
pub mod capture;
pub mod debian;
pub mod guest;
pub mod image;
pub mod library;
pub mod limits;
pub mod process;
pub mod vm;

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The readiness of this machine for a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// This machine has everything that is needed.
    Ready,
    /// Something is missing and was named on standard output; the test ends without a verdict.
    Skip,
}

/// Looks for the programs a test needs, and says which of them are missing.
///
/// # Errors
/// With `CI=true` in the environment a missing program is an error: there nothing is skipped.
pub fn require_programs(programs: &[&str]) -> Result<Readiness> {
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|name| find_program(name).is_none())
        .collect();
    if missing.is_empty() {
        return Ok(Readiness::Ready);
    }
    skip(&format!(
        "not installed: {} (scripts/setup installs what is missing)",
        missing.join(", ")
    ))
}

/// Says on standard output why a test does not run.
///
/// # Errors
/// With `CI=true` in the environment the reason becomes an error.
pub fn skip(why: &str) -> Result<Readiness> {
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        bail!("{why}; with CI=true nothing may be skipped");
    }
    println!("skipped: {why}");
    Ok(Readiness::Skip)
}

/// Returns the place of a program: in the directories of `PATH`, then in those that only root has
/// in it.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// The cargo target directory that this test was built into.
///
/// # Errors
/// When the running executable does not lie in one.
pub fn target_directory() -> Result<PathBuf> {
    let executable = std::env::current_exe().context("find the running test")?;
    // target/<profile>/deps/<test>
    let directory = executable.ancestors().nth(3);
    directory.map(Path::to_path_buf).with_context(|| {
        format!(
            "{} does not lie in a cargo target directory",
            executable.display()
        )
    })
}

/// A folder below the target directory that outlives a run; made if it does not exist.
///
/// # Errors
/// When it cannot be made.
pub fn cache_directory(name: &str) -> Result<PathBuf> {
    let directory = target_directory()?.join("e2e").join(name);
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("make the folder {}", directory.display()))?;
    Ok(directory)
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// When it cannot be started, or ends with anything but success; the error holds its
/// standard error.
pub fn output_of(command: &mut Command) -> Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("start {program}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{command:?} ended with {}: {}",
            output.status,
            complaint.trim()
        );
    }
    Ok(output.stdout)
}
