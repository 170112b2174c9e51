//! The initial file system of a guest, as a `cpio` archive ("newc" format) in memory.
//!
//! The caller decides its content. Programs are copied from this machine with their shared
//! libraries. Nothing on this machine is changed.

use crate::debian::Module;
use crate::{cache_directory, find_program, output_of};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Image {
    archive: Vec<u8>,
    paths: BTreeSet<String>,
    next_inode: u32,
}

impl Image {
    /// Creates an archive with the folders and the console that the kernel needs before it mounts
    /// any file system.
    ///
    /// # Errors
    /// Never for this content; the functions called can return errors.
    pub fn new() -> Result<Self> {
        let mut image = Self::default();
        for folder in ["dev", "proc", "sys", "run", "tmp", "mnt", "bin"] {
            image.folder(folder)?;
        }
        image.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[])?;
        Ok(image)
    }

    /// Adds a file without execute permission.
    ///
    /// # Errors
    /// If the content exceeds the format's maximum of 4 GiB.
    pub fn data(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.file(path, DATA, content)
    }

    /// Adds an executable file.
    ///
    /// # Errors
    /// Like [`Image::data`].
    pub fn script(&mut self, path: &str, content: &str) -> Result<()> {
        self.file(path, PROGRAM, content.as_bytes())
    }

    /// Adds a program of this machine as `usr/sbin/NAME`, with its shared libraries and loader.
    ///
    /// # Errors
    /// If it is not installed or one of its libraries is missing.
    pub fn program(&mut self, name: &str) -> Result<()> {
        let path = find_program(name).with_context(|| format!("{name} is not installed"))?;
        let content = read(&path)?;
        self.linked_program(name, &path, &content)
    }

    /// Adds this program as `usr/sbin/NAME`, stripped of debug information.
    ///
    /// # Errors
    /// Like [`Image::program`], and if `strip` fails.
    pub fn stripped_program(&mut self, name: &str, path: &Path) -> Result<()> {
        let stripped = cache_directory("run")?.join(format!("{name}.{}", std::process::id()));
        output_of(Command::new("strip").arg("-o").arg(&stripped).arg(path))?;
        let content = read(&stripped)?;
        std::fs::remove_file(&stripped)
            .with_context(|| format!("remove {}", stripped.display()))?;
        self.linked_program(name, path, &content)
    }

    fn linked_program(&mut self, name: &str, path: &Path, content: &[u8]) -> Result<()> {
        self.file(&format!("usr/sbin/{name}"), PROGRAM, content)?;
        for library in shared_libraries(path)? {
            let inside = library.to_string_lossy().trim_start_matches('/').to_owned();
            if !self.paths.contains(&inside) {
                self.file(&inside, PROGRAM, &read(&library)?)?;
            }
        }
        Ok(())
    }

    /// Adds programs of unpacked packages, with their shared libraries and loader, below a folder
    /// that is complete for `chroot`. Programs are paths below `root`.
    ///
    /// # Errors
    /// If the packages lack a program or a library.
    pub fn foreign_programs(&mut self, folder: &str, root: &Path, programs: &[&str]) -> Result<()> {
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let loader = libraries.join("ld-linux-x86-64.so.2");
        for path in ["", "/dev", "/proc", "/sys", "/run", "/tmp"] {
            self.folder(&format!("{folder}{path}"))?;
        }
        self.file(
            &format!("{folder}/lib64/ld-linux-x86-64.so.2"),
            PROGRAM,
            &read(&loader)?,
        )?;
        for program in programs {
            let path = root.join(program);
            let mut list = Command::new(&loader);
            list.arg("--library-path").arg(&libraries);
            let text = output_of(list.arg("--list").arg(&path))?;
            let needed = parse_libraries(&String::from_utf8_lossy(&text))?;
            for file in needed.iter().chain([&path]) {
                let inside = file
                    .strip_prefix(root)
                    .with_context(|| format!("{} is not of the packages", file.display()))?;
                let inside = format!("{folder}/{}", inside.display());
                if !self.paths.contains(&inside) {
                    self.file(&inside, PROGRAM, &read(file)?)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the statically linked `busybox` as `bin/busybox`.
    ///
    /// # Errors
    /// If it is not installed, or needs shared libraries (then it is from another package).
    pub fn busybox(&mut self) -> Result<()> {
        let path = find_program("busybox").context("busybox is not installed")?;
        if !shared_libraries(&path)?.is_empty() {
            bail!(
                "{} is not statically linked: install busybox-static",
                path.display()
            );
        }
        self.file("bin/busybox", PROGRAM, &read(&path)?)
    }

    /// Adds modules as `modules/NAME.ko`, and `modules/order` that lists them in this order.
    ///
    /// # Errors
    /// Like [`Image::data`].
    pub fn modules(&mut self, modules: &[Module]) -> Result<()> {
        let mut order = String::new();
        for module in modules {
            self.data(&format!("modules/{}.ko", module.name), &module.object)?;
            order.push_str(&module.name);
            order.push('\n');
        }
        self.data("modules/order", order.as_bytes())
    }

    /// Returns the finished archive.
    ///
    /// # Errors
    /// Never for this content; the functions called can return errors.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.header("TRAILER!!!", 0, (0, 0), 0)?;
        // The kernel reads whole blocks.
        self.pad(512);
        Ok(self.archive)
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        for (end, _) in path.match_indices('/') {
            self.folder(&path[..end])?;
        }
        self.entry(path, mode, (0, 0), content)
    }

    fn folder(&mut self, path: &str) -> Result<()> {
        if self.paths.contains(path) {
            Ok(())
        } else {
            self.entry(path, DIRECTORY, (0, 0), &[])
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) -> Result<()> {
        if !self.paths.insert(path.to_owned()) {
            bail!("{path} is in the image twice");
        }
        let length = u32::try_from(content.len())
            .with_context(|| format!("{path} is larger than a cpio archive can hold"))?;
        self.header(path, mode, device, length)?;
        self.archive.extend_from_slice(content);
        self.pad(4);
        Ok(())
    }

    fn header(&mut self, path: &str, mode: u32, device: (u32, u32), length: u32) -> Result<()> {
        self.next_inode += 1;
        let name_length = u32::try_from(path.len() + 1).context("a path has a sane length")?;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // inode, mode, user, group, links, time, size, device of the file (2), device number of a
        // device file (2), length of the name, checksum
        let fields = [
            self.next_inode,
            mode,
            0,
            0,
            links,
            0,
            length,
            0,
            0,
            device.0,
            device.1,
            name_length,
            0,
        ];
        self.archive.extend_from_slice(b"070701");
        for field in fields {
            self.archive
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.archive.extend_from_slice(path.as_bytes());
        self.archive.push(0);
        self.pad(4);
        Ok(())
    }

    fn pad(&mut self, alignment: usize) {
        self.archive
            .resize(self.archive.len().next_multiple_of(alignment), 0);
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Returns the shared libraries and the loader of a program; none if it is statically linked.
fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .context("start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("not a dynamic executable") || text.contains("statically linked") {
        return Ok(Vec::new());
    }
    if !output.status.success() {
        bail!(
            "ldd {} ended with {}: {complaint}",
            program.display(),
            output.status
        );
    }
    parse_libraries(&text).with_context(|| format!("libraries of {}", program.display()))
}

fn parse_libraries(text: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        if line.contains("not found") {
            bail!("missing: {}", line.trim());
        }
        let found = line
            .rsplit_once("=> ")
            .map_or(line, |(_, right)| right)
            .trim();
        let path = found.split_whitespace().next().unwrap_or_default();
        // The kernel's own page (linux-vdso) has no path.
        if path.starts_with('/') {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_unpacks_to_what_went_in() {
        let mut image = Image::new().unwrap();
        image.data("a/b/odd", b"12345").unwrap();
        image.script("init", "#!/bin/sh\n").unwrap();
        let twice = image.data("init", b"");
        assert!(twice.unwrap_err().to_string().contains("twice"));
        let archive = image.finish().unwrap();

        // An independent parser of the format: walks the headers.
        let mut rest: &[u8] = &archive;
        let mut names = Vec::new();
        let number = |bytes: &[u8], index: usize| {
            let text = std::str::from_utf8(&bytes[6 + 8 * index..][..8]).unwrap();
            usize::from_str_radix(text, 16).unwrap()
        };
        loop {
            assert_eq!(&rest[..6], b"070701");
            let (mode, size, name_length) = (number(rest, 1), number(rest, 6), number(rest, 11));
            let name = std::str::from_utf8(&rest[110..110 + name_length - 1])
                .unwrap()
                .to_owned();
            let start = (110 + name_length).next_multiple_of(4);
            if name == "a/b/odd" {
                assert_eq!(
                    (mode, &rest[start..start + size]),
                    (0o100_644, b"12345".as_slice())
                );
            }
            rest = &rest[(start + size).next_multiple_of(4)..];
            let last = name == "TRAILER!!!";
            names.push(name);
            if last {
                break;
            }
        }
        assert!(rest.iter().all(|&byte| byte == 0));
        assert_eq!(&names[8..], ["a", "a/b", "a/b/odd", "init", "TRAILER!!!"]);
    }

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibe2p.so.2 => /lib/libe2p.so.2 (0x2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let expected = ["/lib/libe2p.so.2", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_libraries(text).unwrap(), expected);
        let error = parse_libraries("\tlibx.so => not found\n").unwrap_err();
        assert!(error.to_string().contains("libx.so"));
    }
}
