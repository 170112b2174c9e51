//! Resource limits of a process.

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::path::{Path, PathBuf};

/// Limits of a process. Dropping it removes the control group; the process must have ended.
#[derive(Debug)]
pub(super) struct Confined {
    /// Mechanism that enforces the limit.
    pub(super) by: &'static str,
    group: Option<PathBuf>,
}

impl Confined {
    /// Limits the number of open files of the process.
    pub(super) fn files(pid: u32, files: u64) -> Result<Self> {
        limit(pid, Resource::Nofile, files)?;
        Ok(Self {
            by: "RLIMIT_NOFILE",
            group: None,
        })
    }

    /// Limits the memory of the process from now on: by a control group if this process may create
    /// one, otherwise by a limit on its data segment, which also counts untouched memory.
    pub(super) fn memory(pid: u32, bytes: u64) -> Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let (root, file, by) = match controllers {
                "memory" => (
                    "/sys/fs/cgroup/memory",
                    "memory.limit_in_bytes",
                    "cgroup v1",
                ),
                "" => ("/sys/fs/cgroup", "memory.max", "cgroup v2"),
                _ => continue,
            };
            let parent = Path::new(root).join(path.trim_start_matches('/'));
            if let Some(group) = join(&parent, file, pid, bytes) {
                let group = Some(group);
                return Ok(Self { by, group });
            }
        }
        limit(pid, Resource::Data, bytes)?;
        Ok(Self {
            by: "RLIMIT_DATA",
            group: None,
        })
    }
}

/// Moves a process into its own control group with this memory limit.
fn join(parent: &Path, file: &str, pid: u32, bytes: u64) -> Option<PathBuf> {
    let group = parent.join(format!("switchyard-{pid}"));
    fs::create_dir(&group).ok()?;
    let write = |file, text: String| fs::write(group.join(file), text);
    let joined =
        write(file, bytes.to_string()).and_then(|()| write("cgroup.procs", pid.to_string()));
    if joined.is_err() {
        let _ = fs::remove_dir(&group);
    }
    joined.is_ok().then_some(group)
}

fn limit(pid: u32, resource: Resource, value: u64) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let limit = Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    prlimit(pid, resource, limit).context("cannot limit the target")?;
    Ok(())
}

impl Drop for Confined {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            // It is empty, because its only process has ended.
            let _ = fs::remove_dir(group);
        }
    }
}
