//! `switchyard attach --config` in the background.

use super::{Folder, PATIENCE, json, program, run, to_signal};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// `switchyard attach --config FILE`, killed when dropped.
pub struct Attaching {
    child: Child,
    stdout: Receiver<String>,
    api: String,
    /// Output lines of attachments that were ready at the start, in order.
    pub ready: Vec<String>,
    mountpoint: String,
    log: String,
}

impl Attaching {
    /// Starts it with this file, to which the HTTP interface and the log are added, and waits until
    /// all attachments are ready.
    pub fn start(folder: &Folder, attachments: &str) -> Self {
        let all = attachments.matches("[[attachments]]").count();
        Self::start_some(folder, attachments, all)
    }

    /// The same, waiting for `ready` attachments, which on a busy machine may become ready after
    /// the HTTP interface.
    pub fn start_some(folder: &Folder, attachments: &str, ready: usize) -> Self {
        Self::start_by(program(), folder, attachments, ready)
    }

    /// The same by a command that executes the program.
    pub fn start_by(
        mut program: Command,
        folder: &Folder,
        attachments: &str,
        ready: usize,
    ) -> Self {
        let api = format!("unix:{}", folder.path("api.sock"));
        let file = write(folder, attachments);
        let mut child = program
            .args(["attach", "--config", &file])
            .stdout(Stdio::piped())
            .stderr(File::create(folder.path("log")).unwrap())
            .spawn()
            .unwrap();
        let (lines, stdout) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines() {
                if lines.send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        let mut attaching = Self {
            child,
            stdout,
            api,
            ready: Vec::new(),
            mountpoint: folder.path("files"),
            log: folder.path("log"),
        };
        let mut has_interface = false;
        while !has_interface || attaching.ready.len() < ready {
            let line = attaching.line();
            if line.starts_with("API at ") {
                has_interface = true;
                continue;
            }
            assert!(line.starts_with("ready: "), "{line}{}", attaching.log());
            attaching.ready.push(line);
        }
        attaching.ready.sort();
        attaching
    }

    /// Returns the next line of its output.
    pub fn line(&self) -> String {
        let line = self.stdout.recv_timeout(PATIENCE);
        line.unwrap_or_else(|error| panic!("no further line: {error}\n{}", self.log()))
    }

    pub fn signal(&self, name: &str) {
        let process = to_signal(self.child.id());
        let status = Command::new("kill").args([name, &process]).status();
        assert!(status.unwrap().success());
    }

    pub fn run(&self, args: &[&str]) -> std::process::Output {
        run(&[args, &["--api", &self.api]].concat())
    }

    /// Returns the description of one attachment; null if it does not exist.
    pub fn show(&self, name: &str) -> Value {
        let mut all = json(&self.run(&["attachments", "--json"]));
        let all = all["attachments"].as_array_mut().unwrap();
        let found = all.iter().position(|it| it["name"] == name);
        found.map_or(Value::Null, |place| all[place].take())
    }

    pub fn names(&self) -> Vec<String> {
        let all = json(&self.run(&["attachments", "--json"]));
        let all = all["attachments"].as_array().unwrap().iter();
        all.map(|it| it["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns the raw response to a GET.
    pub fn get(&self, path: &str) -> String {
        self.ask(path).unwrap()
    }

    /// The same; fails if the HTTP interface closes the connection without a response.
    pub fn ask(&self, path: &str) -> std::io::Result<String> {
        let socket = self.api.strip_prefix("unix:").unwrap();
        let mut stream = UnixStream::connect(socket)?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        match stream.read_to_string(&mut text)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(text),
        }
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Kills it, without any cleanup.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Attaching {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            // A mounted file system remains after a killed process.
            let _ = Command::new("fusermount3")
                .args(["-u", "-z", &self.mountpoint])
                .stderr(Stdio::null())
                .status();
        }
    }
}

pub fn write(folder: &Folder, attachments: &str) -> String {
    let api = folder.path("api.sock");
    folder.write(
        "attach.toml",
        format!("api = \"unix:{api}\"\n{attachments}"),
    )
}

pub fn nbd(folder: &Folder, name: &str, device: &str) -> String {
    let socket = folder.path(&format!("{name}.sock"));
    format!("[[attachments]]\nname = \"{name}\"\nkind = \"nbd\"\nsocket = \"{socket}\"\n{device}\n")
}

pub fn vhost(folder: &Folder, name: &str, device: &str) -> String {
    let socket = folder.path(&format!("{name}.sock"));
    format!(
        "[[attachments]]\nname = \"{name}\"\nkind = \"vhost\"\nsocket = \"{socket}\"\n{device}\n"
    )
}

pub fn fuse(folder: &Folder, device: &str) -> String {
    let mountpoint = folder.path("files");
    std::fs::create_dir_all(&mountpoint).unwrap();
    format!(
        "[[attachments]]\nname = \"files\"\nkind = \"fuse\"\nmountpoint = \"{mountpoint}\"\n{device}\n"
    )
}

/// Returns true if FUSE file systems can be mounted.
pub fn have_fuse() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|it| {
        use std::os::unix::fs::MetadataExt as _;
        it.uid() == 0
    });
    let helper = Command::new("fusermount3").arg("--version").output();
    if std::path::Path::new("/dev/fuse").exists() && (root || helper.is_ok()) {
        return true;
    }
    block::skipped("no /dev/fuse, or not root and no fusermount3");
    false
}

/// Opens a connection that has chosen the default export; it counts as a client until dropped.
pub fn nbd_client(folder: &Folder, name: &str) -> UnixStream {
    let mut stream = UnixStream::connect(folder.path(&format!("{name}.sock"))).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    // Flags, the option EXPORT_NAME, and an empty name; the response is a size and flags.
    stream.write_all(&[0, 0, 0, 3]).unwrap();
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream
}
