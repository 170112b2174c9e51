//! `switchyard attach` in the background, and other projects' programs that use it.

use super::{Folder, program, stderr};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

/// `switchyard attach`, killed when dropped.
pub struct Attached {
    pub child: Child,
    pub uri: String,
}

impl Attached {
    pub fn start(args: &[&str]) -> Self {
        Self::start_by(program(), args)
    }

    /// A file of the target's first namespace; returned with the mount point.
    pub fn fuse(folder: &Folder, target: &str) -> (Self, String) {
        let mountpoint = folder.path("files");
        std::fs::create_dir(&mountpoint).unwrap();
        let attached = Self::start(&["fuse", &mountpoint, "--target", target]);
        (attached, mountpoint)
    }

    pub fn start_by(mut program: Command, args: &[&str]) -> Self {
        let mut child = program
            .arg("attach")
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let uri = line
            .strip_prefix("ready: ")
            .and_then(|rest| rest.split_once(','));
        let Some((uri, _)) = uri else {
            let mut text = String::new();
            let _ = child.kill();
            let _ = child.stderr.take().unwrap().read_to_string(&mut text);
            panic!("it is not ready: {line}{text}");
        };
        let uri = uri.to_owned();
        Self { child, uri }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status();
        assert!(status.unwrap().success());
    }

    /// Detaches it; returns its exit code.
    pub fn detach(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some((mountpoint, _)) = self
            .uri
            .rsplit_once('/')
            .filter(|_| !self.uri.contains(':'))
        {
            // A mounted file system remains after a killed process.
            let unmount = ["-u", "-z", mountpoint];
            let _ = Command::new("fusermount3")
                .args(unmount)
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Returns true if these programs are installed; scripts/setup installs them.
pub fn have(programs: &[&str]) -> bool {
    let found = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let missing: Vec<_> = programs.iter().filter(|name| !found(name)).collect();
    if missing.is_empty() {
        return true;
    }
    block::skipped(format_args!("not installed: {missing:?}"));
    false
}

#[track_caller]
pub fn succeeds(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{args:?}: {text}{}",
        stderr(&output)
    );
    text
}
