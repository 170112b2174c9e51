//! Pinning of threads to processors, and thread names.
//!
//! A core is a thread pinned to one processor. Programs query the allowed processors
//! ([`allowed_cores`]) and pin a thread to one ([`pin_to`]) or to several ([`pin_to_any`]); nothing
//! here chooses them. Container limits apply: a processor outside the process's set is never used.

use base::units::CoreId;
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt::Write;
use std::io;

/// Maximum bytes of a thread's name in the kernel.
const NAME_BYTES_MAX: usize = 15;

/// Why a thread cannot be pinned, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The process may not use that processor.
    #[error(
        "CPU {core} is not available to this process; use one of {}, or allow more CPUs (`taskset \
         -c`, `--cpuset-cpus` of a container, AllowedCPUs= in the service's unit)",
        ranges(allowed)
    )]
    NotAllowed {
        /// The requested core.
        core: CoreId,
        /// The cores that the process may use.
        allowed: Vec<CoreId>,
    },
    /// The kernel refused for another reason.
    #[error("cannot {what}: {source}; run without placement, or allow it in the seccomp profile")]
    Kernel {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Returns the processors that the calling thread may use, in ascending order.
///
/// Call it before pinning: a pinned thread, and threads it starts, may use that processor only.
///
/// # Errors [`PlacementError::Kernel`] if the kernel refuses, for example under a seccomp filter,
/// or on a machine with more than 1,024 processors.
pub fn allowed_cores() -> Result<Vec<CoreId>, PlacementError> {
    let set = sched_getaffinity(None).map_err(|error| PlacementError::Kernel {
        what: "determine the available CPUs",
        source: error.into(),
    })?;
    let all = (0u32..).zip(0..CpuSet::MAX_CPU);
    Ok(all
        .filter(|&(_, index)| set.is_set(index))
        .map(|(number, _)| CoreId(number))
        .collect())
}

/// Pins the calling thread to `core`.
///
/// # Errors [`PlacementError::NotAllowed`] if the thread may not run there; it then keeps its
/// placement.
pub fn pin_to(core: CoreId) -> Result<(), PlacementError> {
    pin_to_any(&[core])
}

/// Pins the calling thread, and threads that it starts later, to these cores.
///
/// # Errors [`PlacementError::NotAllowed`] if the thread may not run on one of them; it then keeps
/// its placement. [`PlacementError::Kernel`] if `cores` is empty.
pub fn pin_to_any(cores: &[CoreId]) -> Result<(), PlacementError> {
    // Checked first, because the kernel would also let a thread leave its initial set.
    check_allowed(cores)?;
    let mut set = CpuSet::new();
    for core in cores {
        set.set(core.0 as usize);
    }
    sched_setaffinity(None, &set).map_err(|error| PlacementError::Kernel {
        what: "pin a thread to its CPU",
        source: error.into(),
    })
}

/// Checks that the calling thread may run on all of these cores.
///
/// # Errors
/// [`PlacementError::NotAllowed`] with the first disallowed core.
pub fn check_allowed(cores: &[CoreId]) -> Result<(), PlacementError> {
    let allowed = allowed_cores()?;
    match cores.iter().find(|core| !allowed.contains(core)) {
        Some(&core) => Err(PlacementError::NotAllowed { core, allowed }),
        None => Ok(()),
    }
}

/// Sets the nice value of the calling thread, and of threads that it starts later: 0 (normal) to 19
/// (lowest priority).
///
/// # Errors [`PlacementError::Kernel`] if the kernel refuses, for example a value below the current
/// one.
pub fn set_nice(nice: u8) -> Result<(), PlacementError> {
    // On Linux this is the thread's, not the process's.
    setpriority_process(None, nice.into()).map_err(|error| PlacementError::Kernel {
        what: "set the nice value of a thread",
        source: error.into(),
    })
}

/// Names the calling thread for `top`, `perf` and debuggers. A name of more than 15 bytes is
/// truncated, and so is everything from a NUL byte on.
///
/// # Errors [`PlacementError::Kernel`] if the kernel refuses.
pub fn name_thread(name: &str) -> Result<(), PlacementError> {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let kept = name[..end].split('\0').next().unwrap_or_default();
    let kept = std::ffi::CString::new(kept).expect("what follows a NUL byte is cut off");
    rustix::thread::set_name(&kept).map_err(|error| PlacementError::Kernel {
        what: "name a thread",
        source: error.into(),
    })
}

/// Formats a list of cores, such as `0-3,8`.
fn ranges(cores: &[CoreId]) -> String {
    let mut text = String::new();
    for run in cores.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0)) {
        let comma = if text.is_empty() { "" } else { "," };
        let (first, last) = (run[0].0, run[run.len() - 1].0);
        // Writing to a string cannot fail.
        let _ = if first == last {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `work` on a separate thread, because pinning is permanent.
    fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().expect("it does not panic")
    }

    #[test]
    fn a_pinned_thread_runs_on_its_core_and_nowhere_else() {
        let allowed = allowed_cores().expect("known");
        assert!(!allowed.is_empty() && allowed.is_sorted());
        for core in allowed {
            let now = on_a_thread(move || {
                pin_to(core).expect("allowed");
                (
                    allowed_cores().expect("known"),
                    rustix::thread::sched_getcpu(),
                )
            });
            assert_eq!(now, (vec![core], core.0 as usize));
        }
    }

    #[test]
    fn a_thread_on_several_cores_has_all_of_them() {
        let all = allowed_cores().expect("known");
        let cores = all.clone();
        let now = on_a_thread(move || {
            pin_to_any(&cores).expect("allowed");
            allowed_cores().expect("known")
        });
        assert_eq!(now, all);
        let error = on_a_thread(|| pin_to_any(&[]).expect_err("nowhere to run"));
        assert!(matches!(error, PlacementError::Kernel { .. }), "{error}");
        let mixed = [all[0], CoreId(u32::MAX)];
        assert!(check_allowed(&mixed).is_err() && check_allowed(&all).is_ok());
    }

    #[test]
    fn threads_inherit_a_nice_value_and_others_keep_theirs() {
        use rustix::process::getpriority_process;
        let nice = || getpriority_process(None).expect("known");
        let before = nice();
        let (own, inherited) = on_a_thread(move || {
            set_nice(19).expect("allowed");
            (nice(), on_a_thread(nice))
        });
        assert_eq!((own, inherited, nice()), (19, 19, before));
    }

    #[test]
    fn a_core_outside_of_the_set_is_refused_with_those_inside() {
        let (before, after, error) = on_a_thread(|| {
            let before = allowed_cores().expect("known");
            let error = pin_to(CoreId(u32::MAX)).expect_err("no such core");
            (before, allowed_cores().expect("known"), error.to_string())
        });
        assert_eq!(before, after);
        let choice = format!("use one of {}", ranges(&before));
        assert!(error.contains(&choice), "{error}");
        // A confined thread cannot leave its set.
        let (first, last) = (before[0], before[before.len() - 1]);
        if first != last {
            let error = on_a_thread(move || {
                pin_to(first).expect("allowed");
                pin_to(last).expect_err("confined").to_string()
            });
            assert!(error.contains("taskset"), "{error}");
        }
    }

    #[test]
    fn names_are_cut_to_what_the_kernel_keeps() {
        for (given, kept) in [
            ("core-3", "core-3"),
            ("a-name-that-is-too-long", "a-name-that-is-"),
            ("fourteen-bytesé", "fourteen-bytes"),
            ("before\0after", "before"),
        ] {
            let name = on_a_thread(move || {
                name_thread(given).expect("named");
                std::fs::read_to_string("/proc/thread-self/comm").expect("proc")
            });
            assert_eq!(name.trim_end(), kept);
        }
    }

    #[test]
    fn lists_read_like_those_of_other_tools() {
        let list =
            |numbers: &[u32]| ranges(&numbers.iter().copied().map(CoreId).collect::<Vec<_>>());
        assert_eq!(list(&[]), "");
        assert_eq!(list(&[7]), "7");
        assert_eq!(list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    }
}
