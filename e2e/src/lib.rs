//! Tests against real kernels in guests and against independent tools.
//!
//! Shared parts of these tests: the [`process`] under test, the [`debian`] kernel of guests, their
//! programs of [`debian13`], the [`image`] and the [`vm`] that they boot, their [`guest`] scripts,
//! packet [`capture`], and the C [`library`]. The tests define the scenarios. No other crate of the
//! workspace depends on this one. No test is skipped silently: see [`require_programs`].

pub mod attach;
pub mod capture;
pub mod debian;
pub mod debian13;
pub mod guest;
pub mod image;
pub mod library;
pub mod limits;
pub mod process;
pub mod vm;

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether this machine can run a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// This machine has all required programs.
    Ready,
    /// A required program is missing and was reported on standard output; the test ends without a
    /// result.
    Skip,
}

/// Checks for the programs that a test requires, and reports missing programs.
///
/// # Errors
/// With `CI=true` in the environment a missing program is an error: no test is skipped.
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

/// Reports on standard output why a test is skipped.
///
/// # Errors
/// With `CI=true` in the environment the reason is an error.
pub fn skip(why: &str) -> Result<Readiness> {
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        bail!("{why}; with CI=true nothing may be skipped");
    }
    println!("skipped: {why}");
    Ok(Readiness::Skip)
}

/// Returns the path of a program: from the directories of `PATH`, then from those that only root's
/// `PATH` has.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// Returns the cargo target directory of this test.
///
/// # Errors
/// If the running executable is not in a target directory.
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

/// Returns a folder below the target directory that outlives a run; creates it if missing.
///
/// # Errors
/// If it cannot be created.
pub fn cache_directory(name: &str) -> Result<PathBuf> {
    let directory = target_directory()?.join("e2e").join(name);
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("make the folder {}", directory.display()))?;
    Ok(directory)
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// If it cannot be started, or fails; the error has its standard error.
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
