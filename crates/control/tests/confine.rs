//! What the filter of system calls refuses, tried out.

// The whole file is a test program. There is no safe way to a system call by its number.
#![allow(clippy::tests_outside_test_module, clippy::unwrap_used, unsafe_code)]

use std::io;
use switchyard_control::process::confine::{Confinement, Paths, confine};

/// Makes a system call with arguments that no call makes anything of; `None` where it succeeds.
fn error_of(number: i64) -> Option<i32> {
    let nothing = [-1_i64; 6];
    let [a, b, c, d, e, f] = nothing;
    // SAFETY: No address is valid, and no flags, so that nothing is read, written or changed.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    (result == -1).then(|| io::Error::last_os_error().raw_os_error().unwrap())
}

/// Calls that any program may make, so that only the filter refuses them.
const OPEN_TO_ALL: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_mknodat,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_add_key,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    // Of x32, or of nothing at all: getpid, and its own execve.
    0x4000_0000 + libc::SYS_getpid,
    0x4000_0000 + 520,
];

/// Nothing had tried: x32's ways to the same calls were open, and some calls were not in the list.
#[test]
fn the_filter_refuses_what_no_target_does() {
    let refused = Some(libc::EPERM);
    let privileged = [libc::SYS_kexec_load, libc::SYS_kexec_file_load];
    // The filter is of this thread alone.
    std::thread::spawn(move || {
        let open = OPEN_TO_ALL.iter().copied();
        // What this program runs in may refuse some of them already.
        let open: Vec<i64> = open.filter(|&it| error_of(it) != refused).collect();
        assert!(open.contains(&libc::SYS_execve));
        confine(&[Confinement::Seccomp], &Paths::default()).unwrap();
        for &number in open.iter().chain(&privileged) {
            assert_eq!(error_of(number), refused, "{number:#x}");
        }
        assert_eq!(error_of(libc::SYS_getpid), None);
        assert_eq!(error_of(libc::SYS_read), Some(libc::EBADF));
    })
    .join()
    .unwrap();
}
