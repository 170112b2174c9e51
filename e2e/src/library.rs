//! `libswitchyard` and the C programs that use it: built for the tests.
//!
//! Owns a folder below the target directory. Cargo builds the library with the profile of the
//! running test, and the machine's C compiler builds the programs with warnings as errors. With
//! `SWITCHYARD_SANITIZED_LIBRARY=address=FOLDER`, the library in that folder is used, which was
//! built with the sanitizer, and all programs are sanitized, too (`scripts/sanitize`).

use crate::{cache_directory, output_of, target_directory};
use anyhow::{Context as _, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Checks that a compiler adds to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// None.
    Plain,
    /// Use of freed or invalid memory, and undefined behaviour.
    Sanitized,
}

/// The C library, with which programs are compiled and run.
#[derive(Debug, Clone)]
pub struct Library {
    folder: PathBuf,
    headers: PathBuf,
    /// The sanitizer of the library; `None` without.
    sanitizer: Option<String>,
}

impl Library {
    /// Builds the library.
    ///
    /// # Errors
    /// If cargo fails, or the library is not at cargo's output path.
    pub fn build() -> Result<Self> {
        let (sanitizer, folder) = match std::env::var("SWITCHYARD_SANITIZED_LIBRARY") {
            Ok(text) => {
                let (sanitizer, folder) = text
                    .split_once('=')
                    .context("it names sanitizer and folder")?;
                (Some(sanitizer.to_owned()), PathBuf::from(folder))
            }
            Err(_) => {
                let folder = build_with(&["--package", "switchyard-c"])
                    .context("build the library under test")?;
                (None, folder)
            }
        };
        let file = folder.join("libswitchyard.so");
        if !file.is_file() {
            bail!("cargo made no {}", file.display());
        }
        // The loader searches for the name with the ABI version.
        let link = folder.join("libswitchyard.so.1");
        // A concurrent test may have created it.
        let _ = std::os::unix::fs::symlink("libswitchyard.so", &link);
        let headers = repository().join("crates/capi/include");
        Ok(Self {
            folder,
            headers,
            sanitizer,
        })
    }

    /// Returns the folder of the library.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder of the header.
    pub fn headers(&self) -> &Path {
        &self.headers
    }

    /// Compiles `crates/capi/tests/c/NAME.c`, and returns the program.
    ///
    /// # Errors
    /// If the compiler reports a warning or error.
    pub fn compile(&self, name: &str, checks: Checks) -> Result<PathBuf> {
        // Tests of one program run in parallel, and may need the same program.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let program = cache_directory("programs")?.join(format!("{name}-{checks:?}"));
        let source = repository().join(format!("crates/capi/tests/c/{name}.c"));
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]);
        compiler.args(["-g", "-pthread", "-o"]).arg(&program);
        if let Some(sanitizer) = &self.sanitizer {
            compiler.arg(format!("-fsanitize={sanitizer}"));
        } else if checks == Checks::Sanitized {
            compiler.arg("-fsanitize=address,undefined");
        }
        if self.sanitizer.as_deref() == Some("thread") {
            compiler.arg(repository().join("crates/capi/tests/c/tsan.c"));
        }
        compiler.arg(source).arg("-I").arg(&self.headers);
        compiler.arg("-L").arg(&self.folder).arg("-lswitchyard");
        output_of(&mut compiler).with_context(|| format!("compile {name}.c"))?;
        Ok(program)
    }

    /// Builds fio's engine with `scripts/fio-engine`, which downloads headers, and returns its
    /// path.
    ///
    /// # Errors
    /// If the headers are not available, or the compiler fails.
    pub fn fio_engine(&self) -> Result<PathBuf> {
        let mut script = Command::new(repository().join("scripts/fio-engine"));
        script.arg(&self.folder);
        script.env("CARGO_TARGET_DIR", target_directory()?);
        let path = String::from_utf8(output_of(&mut script)?).context("the path is text")?;
        Ok(PathBuf::from(path.trim_end()))
    }

    /// Returns a command that runs a program with the library.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.folder);
        // A finding of the sanitizer fails the program.
        command.env("UBSAN_OPTIONS", "halt_on_error=1");
        command
    }
}

/// Returns the repository's root.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Builds the tokio example, and returns the program.
///
/// # Errors
/// If cargo fails.
pub fn tokio_example() -> Result<PathBuf> {
    let folder =
        build_with(&["--package", "switchyard-example-tokio"]).context("build the example")?;
    Ok(folder.join("switchyard-example-tokio"))
}

/// Builds a part of the workspace with the profile of the running test, and returns the folder of
/// the result.
pub(crate) fn build_with(arguments: &[&str]) -> Result<PathBuf> {
    let target = target_directory()?;
    let executable = std::env::current_exe().context("find the running test")?;
    let release = executable.starts_with(target.join("release"));
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["build", "--quiet"]).args(arguments);
    cargo.arg("--target-dir").arg(&target);
    if release {
        cargo.arg("--release");
    }
    output_of(&mut cargo)?;
    Ok(target.join(if release { "release" } else { "debug" }))
}
