//! The kernel, io_uring, the limits of a process, and the clock.

use super::finding::Finding;
use super::processors::cores;
use super::system::{System, field, process};
use config::schema::Configuration;
use reactor::uring::{Options, TaskRun, UringDriver};

/// The oldest kernel.
const KERNEL_MIN: (u32, u32) = (6, 1);

/// Locked memory that the rings of a core need, where they count.
const CORE_LOCKED_BYTES: u64 = 256 << 10;

/// Files of a process in addition to connections, and devices on each core.
const OTHER_FILES: u64 = 256;

/// Clock sources that are read without a system call.
const FAST_CLOCKS: [&str; 5] = [
    "tsc",
    "kvm-clock",
    "arch_sys_counter",
    "hyperv_clocksource_tsc_page",
    "timebase",
];

/// Bit of CAP_IPC_LOCK.
const IPC_LOCK: u32 = 14;

/// Checks them; with `pid`, the limits of that process instead of this one's.
pub fn check(
    system: &System,
    pid: Option<u32>,
    configuration: Option<&Configuration>,
) -> Vec<Finding> {
    vec![
        release(system),
        io_uring(),
        open_files(system, pid, configuration),
        locked_memory(system, pid, configuration),
        clock(system),
    ]
}

fn release(system: &System) -> Finding {
    const CHECK: &str = "kernel";
    let release = match system.text("/proc/sys/kernel/osrelease") {
        Ok(release) => release,
        Err(why) => return Finding::unknown(CHECK, why),
    };
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || parts.next()?.parse::<u32>().ok();
    match number().zip(number()) {
        Some(version) if version >= KERNEL_MIN => Finding::ok(CHECK, format!("Linux {release}")),
        Some(_) => Finding::fail(
            CHECK,
            format!("Linux {release} is too old"),
            "install Linux 6.1 or later",
        ),
        None => Finding::unknown(CHECK, format!("the release {release:?} has no version")),
    }
}

fn io_uring() -> Finding {
    const CHECK: &str = "io_uring";
    let options = Options {
        buffers: Vec::new(),
        sockets: 4,
        file_operations: 4,
    };
    match UringDriver::new(&options).map(|driver| driver.features().task_run) {
        Ok(TaskRun::Deferred) => Finding::ok(CHECK, "available, with DEFER_TASKRUN"),
        Ok(TaskRun::Cooperative) => Finding::warn(
            CHECK,
            "available, without DEFER_TASKRUN: more interruptions",
            "install Linux 6.1 or later",
        ),
        Err(error) => {
            let text = error.to_string();
            let (fact, remedy) = text
                .split_once("; ")
                .unwrap_or((&text, "see the kernel's log"));
            Finding::fail(CHECK, fact, remedy)
        }
    }
}

/// Returns the soft and hard limit in a process's `limits`; `None` if it is unlimited.
fn limit(text: &str, name: &str) -> Option<[Option<u64>; 2]> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    let mut value = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some([value()?, value()?])
}

/// Returns whose limits are told.
fn whose(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("of the target, process {pid}"),
        None => "of this shell".to_owned(),
    }
}

fn open_files(system: &System, pid: Option<u32>, configuration: Option<&Configuration>) -> Finding {
    const CHECK: &str = "open files";
    let limits = system.text(&format!("{}/limits", process(pid)));
    let limits = limits.and_then(|text| {
        limit(&text, "Max open files").ok_or_else(|| "no limit of open files".to_owned())
    });
    let hard = match limits {
        Ok([_, hard]) => hard,
        Err(why) => return Finding::unknown(CHECK, why),
    };
    let defaults = Configuration::default();
    let configuration = configuration.unwrap_or(&defaults);
    let connections = configuration.limits.get("connections");
    let cores = cores(system, pid, configuration).map_or(1, |cores| cores.len() as u64);
    let files = configuration.devices.len() as u64 * cores;
    let needed = connections + files + OTHER_FILES;
    let whose = whose(pid);
    match hard {
        Some(hard) if hard < needed => Finding::warn(
            CHECK,
            format!("hard limit {hard} {whose}; {connections} connections need {needed}"),
            format!("LimitNOFILE={needed} in the unit, or `ulimit -Hn {needed}` as root"),
        ),
        Some(hard) => Finding::ok(CHECK, format!("hard limit {hard} {whose}")),
        None => Finding::ok(CHECK, format!("no limit {whose}")),
    }
}

fn locked_memory(
    system: &System,
    pid: Option<u32>,
    configuration: Option<&Configuration>,
) -> Finding {
    const CHECK: &str = "locked memory";
    let folder = process(pid);
    let status = system.text(&format!("{folder}/status")).unwrap_or_default();
    let capabilities = field(&status, "CapEff").and_then(|it| u64::from_str_radix(it, 16).ok());
    if capabilities.is_some_and(|bits| bits >> IPC_LOCK & 1 == 1) {
        return Finding::ok(CHECK, format!("no limit with CAP_IPC_LOCK {}", whose(pid)));
    }
    let limits = system.text(&format!("{folder}/limits")).and_then(|text| {
        limit(&text, "Max locked memory").ok_or_else(|| "no limit of locked memory".to_owned())
    });
    let soft = match limits {
        Ok([soft, _]) => soft,
        Err(why) => return Finding::unknown(CHECK, why),
    };
    let defaults = Configuration::default();
    let configuration = configuration.unwrap_or(&defaults);
    let cores = cores(system, pid, configuration).map_or(1, |cores| cores.len() as u64);
    let needed = cores * CORE_LOCKED_BYTES;
    match soft {
        Some(soft) if soft < needed => Finding::warn(
            CHECK,
            format!(
                "{soft} bytes {}; {cores} cores need up to {needed} for io_uring",
                whose(pid)
            ),
            format!(
                "LimitMEMLOCK={needed} in the unit, `ulimit -l {}` as root, or `docker run --ulimit \
                 memlock={needed}`",
                needed >> 10
            ),
        ),
        Some(soft) => Finding::ok(CHECK, format!("{soft} bytes {}", whose(pid))),
        None => Finding::ok(CHECK, format!("no limit {}", whose(pid))),
    }
}

fn clock(system: &System) -> Finding {
    const CHECK: &str = "clock source";
    let folder = "/sys/devices/system/clocksource/clocksource0";
    match system.text(&format!("{folder}/current_clocksource")) {
        Err(why) => Finding::unknown(CHECK, why),
        Ok(clock) if FAST_CLOCKS.contains(&&*clock) => Finding::ok(CHECK, clock),
        Ok(clock) => {
            let text = format!("{clock}: each reading is a slow system call");
            let others = system.text(&format!("{folder}/available_clocksource"));
            let others = others.unwrap_or_default();
            let mut others = others.split_whitespace();
            let remedy = match others.find(|other| FAST_CLOCKS.contains(other)) {
                Some(other) => format!("echo {other} > {folder}/current_clocksource"),
                None => "boot with clocksource=tsc tsc=reliable if the hardware has one".to_owned(),
            };
            Finding::warn(CHECK, text, remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;
    use std::fs;

    /// A machine with these files.
    fn machine(files: &[(&str, &str)]) -> (block::Folder, System) {
        let folder = block::Folder::new();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let system = System::new(folder.path());
        (folder, system)
    }

    #[test]
    fn old_kernels_and_slow_clocks_are_found() {
        let clocks = "sys/devices/system/clocksource/clocksource0";
        let (_folder, system) = machine(&[
            ("proc/sys/kernel/osrelease", "5.15.0-91-generic\n"),
            (&format!("{clocks}/current_clocksource"), "hpet\n"),
            (
                &format!("{clocks}/available_clocksource"),
                "tsc hpet acpi_pm\n",
            ),
        ]);
        assert_eq!(release(&system).status, Status::Fail);
        let clock = clock(&system);
        assert_eq!(clock.status, Status::Warn);
        assert!(
            clock
                .remedy
                .is_some_and(|it| it.starts_with("echo tsc > /sys/"))
        );
        let (_folder, newer) = machine(&[("proc/sys/kernel/osrelease", "6.1.0\n")]);
        assert_eq!(release(&newer).status, Status::Ok);
    }

    #[test]
    fn limits_are_compared_with_the_configuration() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max open files            1024                 4096                 files\n\
                      Max locked memory         65536                65536                bytes\n";
        let (_folder, system) = machine(&[
            ("proc/7/limits", limits),
            (
                "proc/7/status",
                "Name:\tx\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n",
            ),
            (
                "proc/8/limits",
                &limits
                    .replace("4096 ", "unlimited ")
                    .replace("65536", "unlimited"),
            ),
            ("proc/9/limits", limits),
            ("proc/9/status", "CapEff:\t0000000000004000\n"),
        ]);
        let files = open_files(&system, Some(7), None);
        assert_eq!(files.status, Status::Warn, "{files:?}");
        assert!(
            files.text.contains("hard limit 4096 of the target"),
            "{files:?}"
        );
        let memory = locked_memory(&system, Some(7), None);
        assert_eq!(memory.status, Status::Warn);
        assert!(
            memory.text.contains("4 cores need up to 1048576"),
            "{memory:?}"
        );
        assert_eq!(open_files(&system, Some(8), None).status, Status::Ok);
        assert_eq!(locked_memory(&system, Some(8), None).status, Status::Ok);
        assert_eq!(locked_memory(&system, Some(9), None).status, Status::Ok);
    }

    #[test]
    fn without_files_of_the_kernel_nothing_fails() {
        let (_folder, system) = machine(&[]);
        for found in [
            release(&system),
            open_files(&system, None, None),
            clock(&system),
        ] {
            assert_eq!(found.status, Status::Unknown);
            assert!(found.text.starts_with("cannot read /"), "{found:?}");
        }
    }
}
