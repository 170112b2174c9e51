//! Unsafe code: only in listed files.

use crate::source::{Finding, Source, code};

/// Files that may allow `unsafe`, each with the reason.
pub const ROOMS: &[(&str, &str)] = rows! {
    "crates/base/src/bounded_queue.rs" => "elements that threads hand over without a lock";
    "crates/block/src/layer/crypt/xts.rs" => "AES-256-XTS of a C library";
    "crates/capi/src/error.rs" => "names that C sees";
    "crates/capi/src/memory.rs" => "pointers of C programs";
    "crates/capi/src/namespace.rs" => "names and arguments that C sees";
    "crates/capi/src/options.rs" => "layouts that C sees";
    "crates/capi/src/queue.rs" => "names and arguments that C sees";
    "crates/capi/src/requests.rs" => "memory of C programs";
    "crates/capi/src/switchboard.rs" => "names that C sees, and pointers that are handed on";
    "crates/capi/src/target.rs" => "names and arguments that C sees";
    "crates/capi/src/version.rs" => "names that C sees";
    "crates/frontend/src/fuse/gathered.rs" => "a ring that writes several answers";
    "crates/frontend/src/ublk/control.rs" => "a ring for commands to the kernel's ublk driver";
    "crates/frontend/src/ublk/descriptors.rs" => "memory that the kernel's ublk driver shares";
    "crates/lab/src/limit/region.rs" => "one `madvise`";
    "crates/reactor/examples/tls_records.rs" => "the callbacks of the TLS library, to compare it";
    "crates/reactor/src/memory/pool.rs" => "buffers of the kernel's";
    "crates/reactor/src/memory/prefetch.rs" => "one prefetch instruction";
    "crates/reactor/src/memory/region.rs" => "mappings, and copies that bypass the caches";
    "crates/reactor/src/preemption.rs" => "`getrusage` of one thread";
    "crates/reactor/src/priority.rs" => "scheduling calls for one thread";
    "crates/reactor/src/tls/library.rs" => "callbacks of the TLS library";
    "crates/reactor/src/uring/listener.rs" => "the descriptor of an accepted connection";
    "crates/reactor/src/uring/ring.rs" => "the submission queue of io_uring";
    "crates/reactor/src/uring/socket.rs" => "`sendmsg` and `recvmsg`";
};

/// Reports `unsafe` in files that are not in [`ROOMS`], except in tests, and entries without
/// `unsafe`.
#[must_use]
pub fn check(files: &[Source], rooms: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test())
    {
        let listed = rooms.iter().any(|(path, _)| *path == file.path);
        let lines = code(&file.text);
        let used = (1..).zip(lines).find(|(_, line)| {
            let allows = line.starts_with("#![allow(unsafe_code");
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            allows || words.any(|word| word == "unsafe") && !line.contains('"')
        });
        match used {
            Some((number, _)) if !listed => {
                let message = "unsafe code outside of its rooms: use a safe interface, or list the \
                               file with its reason in tidy's ROOMS";
                findings.push(file.finding(number, message));
            }
            None if listed => {
                let message = "a room for unsafe code without any: remove it from tidy's ROOMS";
                findings.push(file.finding(0, message));
            }
            _ => {}
        }
    }
    for (path, _) in rooms {
        if !files.iter().any(|file| file.path == *path) {
            let message = "tidy's ROOMS names a file that is not there";
            findings.push(Source::new(path, "").finding(0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_outside_of_its_rooms_is_found() {
        let files = [
            Source::new("crates/x/src/a.rs", "fn f() {\n    unsafe { g() }\n}\n"),
            Source::new("crates/x/src/b.rs", "// unsafe\nfn f(unsafe_code: u8) {}\n"),
        ];
        let found = check(&files, &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].path.as_str(), found[0].line),
            ("crates/x/src/a.rs", 2)
        );
        assert!(check(&files, &[("crates/x/src/a.rs", "")]).is_empty());
    }

    #[test]
    fn a_room_without_unsafe_or_without_a_file_is_found() {
        let files = [Source::new("crates/x/src/a.rs", "fn f() {}\n")];
        let rooms = [("crates/x/src/a.rs", ""), ("crates/x/src/gone.rs", "")];
        assert_eq!(check(&files, &rooms).len(), 2);
    }
}
