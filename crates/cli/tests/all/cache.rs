//! `switchyard serve` with a cached device: the data reported to hosts, the effect of a Flush, and
//! the data left after an orderly end and after a crash.

use crate::common;
use crate::common::{Folder, NQN, Serving, code, own_address, run, stdout};
use block::BlockError;
use host::Host;
use std::io::Read as _;
use std::os::unix::net::UnixStream;

const PATTERN: [u8; 4096] = [0x5A; 4096];

/// A target with a file behind a cache without automatic write-back.
struct Cached {
    folder: Folder,
    config: String,
}

impl Cached {
    fn new(more: &str) -> Self {
        let folder = Folder::new();
        let (disk, socket) = (folder.path("disk.img"), folder.path("api.sock"));
        let config = format!(
            "api = \"unix:{socket}\"\ncores = [0]\n\
             [devices.disk]\ntype = \"file\"\npath = \"{disk}\"\nsize = \"16M\"\ncreate = true\n\
             block_size = 4096\ncache = \"4M\"\ncache_dirty_expire_ms = 3600000\n{more}\n\
             [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[subsystems.namespaces]]\nnsid = 1\ndevice = \"disk\"\n"
        );
        Self { folder, config }
    }

    /// Starts the target at an address.
    fn serve(&self, address: &str) -> Serving {
        let config = format!("listen = [\"{address}\"]\n{}", self.config);
        let file = self.folder.write("target.toml", config);
        Serving::start(&["--config", &file])
    }

    /// The first page of the device's file.
    fn first_page(&self) -> Vec<u8> {
        let mut page = vec![0; 4096];
        let mut file = std::fs::File::open(self.folder.path("disk.img")).unwrap();
        file.read_exact(&mut page).unwrap();
        page
    }

    /// Returns the HTTP interface's response.
    fn ask(&self, head: &str, body: &str) -> String {
        let stream = UnixStream::connect(self.folder.path("api.sock")).unwrap();
        common::request(stream, head, body)
    }

    /// Adds the device, and a subsystem with a namespace over it, by the HTTP interface.
    fn add(&self) {
        let disk = self.folder.path("disk.img");
        let device = format!(
            r#"{{"name": "disk", "device": {{"type": "file", "path": "{disk}", "size": "16M",
            "create": true, "block_size": 4096, "cache": "4M", "cache_dirty_expire_ms": 3600000}}}}"#
        );
        let subsystem = format!(
            r#"{{"nqn": "{NQN}", "allow_any_host": true,
            "namespaces": [{{"nsid": 1, "device": "disk"}}]}}"#
        );
        for (path, body) in [("devices", device), ("subsystems", subsystem)] {
            let added = self.ask(&format!("POST /v1/{path}"), &body);
            assert!(added.starts_with("HTTP/1.1 201"), "{added}");
        }
    }

    /// Value of a metric of the cache.
    fn metric(&self, name: &str) -> u64 {
        let text = self.ask("GET /metrics", "");
        let start = format!("switchyard_{name}{{device=\"disk\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&start));
        let value = value.unwrap_or_else(|| panic!("no {start} in {text}"));
        value.trim().parse().unwrap()
    }
}

#[test]
fn a_flush_reaches_the_file_and_an_orderly_end_writes_the_rest() {
    for more in ["", "io_path = \"stm\""] {
        let cached = Cached::new(more);
        let serving = cached.serve("127.0.0.1:0");
        let identify = run(&["identify", serving.address()]);
        code(&identify, 0);
        assert!(
            stdout(&identify).contains("volatile"),
            "{}",
            stdout(&identify)
        );
        let host = Host::builder().build().unwrap();
        let disk = host.connect(serving.address(), NQN).unwrap();
        let disk = disk.namespace(1).unwrap();
        disk.write(0, &PATTERN).unwrap();
        assert_eq!(cached.first_page(), [0; 4096], "it is in the cache");
        assert_eq!(cached.metric("cache_dirty"), 1);
        disk.flush().unwrap();
        assert_eq!(cached.first_page(), PATTERN);
        assert_eq!(cached.metric("cache_dirty"), 0);
        assert_eq!(cached.metric("cache_written_back_total"), 1);
        let mut found = [0; 4096];
        disk.read(0, &mut found).unwrap();
        assert_eq!(found, PATTERN);
        assert!(cached.metric("cache_hits_total") >= 1);
        disk.write(0, &[7; 4096]).unwrap();
        drop((disk, host));
        serving.signal("-TERM");
        assert_eq!(serving.end().0, Some(0));
        assert_eq!(cached.first_page(), [7; 4096]);
    }
}

#[test]
fn writes_that_a_crash_took_from_the_cache_are_reported_by_the_next_flush() {
    let cached = Cached::new("");
    let serving = cached.serve(&own_address());
    let address = serving.address().to_owned();
    let host = Host::builder().build().unwrap();
    let disk = host.connect(&address, NQN).unwrap().namespace(1).unwrap();
    disk.write_durable(4096, &PATTERN).unwrap();
    disk.write(0, &PATTERN).unwrap();
    serving.signal("-KILL");
    drop(serving);
    assert_eq!(cached.first_page(), [0; 4096], "it was lost");
    let _serving = cached.serve(&address);
    let flushed = disk.flush();
    let error = flushed.expect_err("a write was lost").to_string();
    assert_eq!(error, BlockError::CacheLost.to_string());
    disk.flush().unwrap();
    let mut found = [0; 4096];
    disk.read(4096, &mut found).unwrap();
    assert_eq!(found, PATTERN, "it was durable");
}

/// Regression: if the first cache was added by the HTTP interface, the life of the caches was that
/// of the machine, and a Flush succeeded after a crash that had lost the data to be flushed.
#[test]
fn a_cache_that_the_interface_adds_is_lost_with_the_process_as_well() {
    let mut cached = Cached::new("");
    let (socket, disks) = (cached.folder.path("api.sock"), cached.folder.path(""));
    cached.config =
        format!("api = \"unix:{socket}\"\ncores = [0]\ndevice_folders = [\"{disks}\"]\n");
    let serve = |address: &str| {
        let mut serving = cached.serve(address);
        while !serving.line().starts_with("API at ") {}
        cached.add();
        serving
    };
    let serving = serve(&own_address());
    let address = serving.address().to_owned();
    let host = Host::builder().build().unwrap();
    let disk = host.connect(&address, NQN).unwrap().namespace(1).unwrap();
    disk.write(0, &PATTERN).unwrap();
    serving.signal("-KILL");
    drop(serving);
    assert_eq!(cached.first_page(), [0; 4096], "it was lost");
    let _serving = serve(&address);
    let flushed = disk.flush();
    let error = flushed.expect_err("a write was lost").to_string();
    assert_eq!(error, BlockError::CacheLost.to_string());
    disk.flush().unwrap();
}

/// Regression: the device was removed, with its unwritten pages, without an error.
#[test]
fn a_device_with_pages_that_cannot_be_written_is_not_removed() {
    let fault = "[devices.disk.fault]\nseed = 1\n\
                 rules = [{ operation = \"write\", error = \"media\", times = 2 }]";
    let cached = Cached::new(fault);
    let mut serving = cached.serve("127.0.0.1:0");
    let host = Host::builder().build().unwrap();
    let disk = host.connect(serving.address(), NQN).unwrap();
    let disk = disk.namespace(1).unwrap();
    disk.write(0, &PATTERN).unwrap();
    drop((disk, host));
    while !serving.line().starts_with("API at ") {}
    let namespaces = format!("/v1/subsystems/{NQN}/namespaces");
    let remove = || {
        let removed = cached.ask(&format!("DELETE {namespaces}/1"), "");
        assert!(removed.starts_with("HTTP/1.1 204"), "{removed}");
        cached.ask("DELETE /v1/devices/disk", "")
    };
    // The write-back when the channel closes fails, and so does the next one.
    for _ in 0..2 {
        let kept = remove();
        assert!(kept.contains("1 pages of 4 KiB"), "{kept}");
        let again = cached.ask(
            &format!("POST {namespaces}"),
            r#"{"nsid": 1, "device": "disk"}"#,
        );
        assert!(again.starts_with("HTTP/1.1 201"), "{again}");
    }
    assert_eq!(cached.first_page(), [0; 4096]);
    let removed = remove();
    assert!(removed.starts_with("HTTP/1.1 204"), "{removed}");
    assert_eq!(cached.first_page(), PATTERN);
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}

/// The last write-back fails, which is an error at the end, not a success.
#[test]
fn pages_that_cannot_be_written_at_the_end_are_an_error() {
    let fault = "[devices.disk.fault]\nseed = 1\n\
                 rules = [{ operation = \"write\", error = \"media\" }]";
    let cached = Cached::new(fault);
    let serving = cached.serve("127.0.0.1:0");
    let host = Host::builder().build().unwrap();
    let disk = host.connect(serving.address(), NQN).unwrap();
    let disk = disk.namespace(1).unwrap();
    disk.write(0, &PATTERN).unwrap();
    disk.flush().expect_err("it cannot be written");
    drop((disk, host));
    serving.signal("-TERM");
    let (code, log) = serving.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("what its cache was to write back"), "{log}");
}
