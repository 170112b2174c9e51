//! The processors of the dataplane.

use super::finding::Finding;
use super::system::{System, field, numbers, process};
use config::schema::Configuration;
use std::collections::BTreeMap;

const CPUS: &str = "/sys/devices/system/cpu";

/// Checks them.
pub fn check(
    system: &System,
    pid: Option<u32>,
    configuration: Option<&Configuration>,
) -> Vec<Finding> {
    let defaults = Configuration::default();
    let configuration = configuration.unwrap_or(&defaults);
    let Some(cores) = cores(system, pid, configuration) else {
        return vec![Finding::unknown(
            "processors",
            "cannot read the affinity of the process",
        )];
    };
    vec![
        allowed(system, pid, configuration),
        threads(system, configuration, &cores),
        isolated(system, configuration),
        governor(system, &cores),
    ]
}

/// Returns the processors of the target: those of the configuration, or all that the process may
/// use.
pub fn cores(system: &System, pid: Option<u32>, configuration: &Configuration) -> Option<Vec<u32>> {
    configuration.cores.clone().or_else(|| may_use(system, pid))
}

/// Returns the processors of the first thread of a process. A pinned thread of a target is another
/// one.
fn may_use(system: &System, pid: Option<u32>) -> Option<Vec<u32>> {
    let status = system.text(&format!("{}/status", process(pid))).ok()?;
    numbers(field(&status, "Cpus_allowed_list")?)
}

fn allowed(system: &System, pid: Option<u32>, configuration: &Configuration) -> Finding {
    const CHECK: &str = "processors";
    let Some(may) = may_use(system, pid) else {
        return Finding::unknown(CHECK, "cannot read the affinity of the process");
    };
    let Some(cores) = &configuration.cores else {
        return Finding::ok(CHECK, format!("may use {}; cores is not set", joined(&may)));
    };
    let missing: Vec<_> = cores
        .iter()
        .copied()
        .filter(|core| !may.contains(core))
        .collect();
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("cores = {}, all allowed", joined(cores)));
    }
    Finding::fail(
        CHECK,
        format!(
            "cores has CPUs that the process may not use: {}",
            joined(&missing)
        ),
        format!(
            "choose of {} in cores, or allow more (AllowedCPUs= in the unit, --cpuset-cpus of a \
             container)",
            joined(&may)
        ),
    )
}

/// Two cores of a target on one physical core slow each other down.
fn threads(system: &System, configuration: &Configuration, cores: &[u32]) -> Finding {
    const CHECK: &str = "hyper-threads";
    let mut physical = BTreeMap::<String, Vec<u32>>::new();
    for &core in cores {
        match system.text(&format!("{CPUS}/cpu{core}/topology/thread_siblings_list")) {
            Ok(siblings) => physical.entry(siblings).or_default().push(core),
            Err(why) => return Finding::unknown(CHECK, why),
        }
    }
    let one_each: Vec<_> = physical.values().map(|cores| cores[0]).collect();
    if configuration.cores.is_none() || one_each.len() == cores.len() {
        let count = physical.len();
        return Finding::ok(
            CHECK,
            format!("{count} physical cores for {} CPUs", cores.len()),
        );
    }
    Finding::warn(
        CHECK,
        "several of cores are hyper-threads of one physical core",
        format!("cores = [{}] in the configuration", joined(&one_each)),
    )
}

fn isolated(system: &System, configuration: &Configuration) -> Finding {
    const CHECK: &str = "isolated processors";
    match system.text(&format!("{CPUS}/isolated")) {
        Err(why) => Finding::unknown(CHECK, why),
        Ok(list) if list.is_empty() => Finding::ok(CHECK, "none"),
        Ok(list) if configuration.cores.is_some() => Finding::ok(CHECK, list),
        Ok(list) => {
            let cores = numbers(&list).map_or(list.clone(), |cores| joined(&cores));
            Finding::warn(
                CHECK,
                format!("{list}: the scheduler puts no thread there by itself"),
                format!("cores = [{cores}] in the configuration"),
            )
        }
    }
}

fn governor(system: &System, cores: &[u32]) -> Finding {
    const CHECK: &str = "frequency governor";
    let mut slow = Vec::new();
    for &core in cores {
        match system.text(&format!("{CPUS}/cpu{core}/cpufreq/scaling_governor")) {
            Ok(governor) if governor == "performance" => {}
            Ok(governor) => slow.push(format!("{governor} on CPU {core}")),
            Err(why) => {
                return Finding::unknown(CHECK, format!("{why} (a virtual machine has none)"));
            }
        }
    }
    match slow.first() {
        None => Finding::ok(CHECK, "performance"),
        Some(first) => Finding::warn(
            CHECK,
            format!("{first}: waking up takes longer"),
            "cpupower frequency-set -g performance",
        ),
    }
}

fn joined(cores: &[u32]) -> String {
    let cores: Vec<_> = cores.iter().map(ToString::to_string).collect();
    cores.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;
    use std::fs;

    fn machine(folder: &block::Folder) -> System {
        let files = (0..4).flat_map(|cpu| {
            let siblings = if cpu < 2 { "0-1" } else { "2-3" };
            let cpu = format!("sys/devices/system/cpu/cpu{cpu}");
            [
                (format!("{cpu}/topology/thread_siblings_list"), siblings),
                (format!("{cpu}/cpufreq/scaling_governor"), "powersave"),
            ]
        });
        let more = [
            ("sys/devices/system/cpu/isolated".to_owned(), "2-3\n"),
            ("proc/self/status".to_owned(), "Cpus_allowed_list:\t0-2\n"),
        ];
        for (path, text) in files.chain(more) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        System::new(folder.path())
    }

    #[test]
    fn cores_are_compared_with_the_machine() {
        let folder = block::Folder::new();
        let system = machine(&folder);
        let statuses = |cores: Option<Vec<u32>>| {
            let configuration = Configuration {
                cores,
                ..Configuration::default()
            };
            let found = check(&system, None, Some(&configuration));
            found.iter().map(|it| it.status).collect::<Vec<_>>()
        };
        let [ok, warn, fail] = [Status::Ok, Status::Warn, Status::Fail];
        assert_eq!(statuses(None), [ok, ok, warn, warn]);
        assert_eq!(statuses(Some(vec![0, 2])), [ok, ok, ok, warn]);
        assert_eq!(statuses(Some(vec![0, 1])), [ok, warn, ok, warn]);
        assert_eq!(statuses(Some(vec![0, 3])), [fail, ok, ok, warn]);
        let empty = block::Folder::new();
        let found = check(&System::new(empty.path()), None, None);
        assert!(
            found.iter().all(|it| it.status == Status::Unknown),
            "{found:?}"
        );
    }
}
