//! TCP and network cards.

use super::finding::Finding;
use super::system::{System, numbers};
use config::schema::Configuration;
use std::collections::BTreeSet;

/// Checks them.
pub fn check(system: &System, configuration: Option<&Configuration>) -> Vec<Finding> {
    let mut addresses = configuration.iter().flat_map(|it| it.listeners());
    let mut found = vec![congestion(system)];
    found.extend(loss_timeouts(system));
    if configuration.is_some() && addresses.all(|(address, _)| address.ip().is_loopback()) {
        let text = "not used: the target listens at loopback addresses only";
        found.push(Finding::ok("network card", text));
        return found;
    }
    let names = system.names("/sys/class/net");
    let is_card = |name: &&String| system.has(&format!("/sys/class/net/{name}/device"));
    let cards: Vec<_> = names.iter().filter(is_card).collect();
    if cards.is_empty() {
        let why = "/sys/class/net has no card, as in a container";
        found.push(Finding::unknown("network card", why));
    }
    found.extend(cards.into_iter().flat_map(|name| card(system, name)));
    found
}

fn congestion(system: &System) -> Finding {
    const CHECK: &str = "congestion control";
    match system.text("/proc/sys/net/ipv4/tcp_congestion_control") {
        Err(why) => Finding::unknown(CHECK, why),
        Ok(name) if name.starts_with("bbr") => Finding::warn(
            CHECK,
            format!("{name} paces packets, which costs throughput within a data centre"),
            "sysctl -w net.ipv4.tcp_congestion_control=cubic",
        ),
        Ok(name) => Finding::ok(CHECK, name),
    }
}

/// Time for which a Linux host should wait for a target that restarts, in seconds.
const LOSS_TIMEOUT_MIN: i64 = 60;

/// Checks the connections of this machine's kernel to targets.
fn loss_timeouts(system: &System) -> Vec<Finding> {
    const CHECK: &str = "time-outs";
    let controllers = system
        .names("/sys/class/nvme")
        .into_iter()
        .filter_map(|name| {
            let path = format!("/sys/class/nvme/{name}/ctrl_loss_tmo");
            let seconds: i64 = system.text(&path).ok()?.parse().ok()?;
            Some(match seconds {
                0..LOSS_TIMEOUT_MIN => Finding::warn(
                    CHECK,
                    format!(
                        "{name} fails I/O {seconds} s after its target is lost, as in a restart"
                    ),
                    format!("echo 600 > {path}"),
                ),
                _ => Finding::ok(CHECK, format!("{name}: ctrl_loss_tmo {seconds}")),
            })
        });
    controllers.collect()
}

/// Checks queues and interrupts of a card.
fn card(system: &System, name: &str) -> Vec<Finding> {
    let check = "network card";
    let queues = system.names(&format!("/sys/class/net/{name}/queues"));
    let queues = queues
        .iter()
        .filter(|queue| queue.starts_with("rx-"))
        .count();
    let online = system.text(&format!("{}/online", "/sys/devices/system/cpu"));
    let processors = online
        .ok()
        .and_then(|list| numbers(&list))
        .map_or(0, |it| it.len());
    let mut found = Vec::new();
    if queues == 0 {
        found.push(Finding::unknown(check, format!("{name} shows no queues")));
    } else if queues < processors {
        found.push(Finding::warn(
            check,
            format!("{name} has {queues} receive queues for {processors} CPUs"),
            format!("ethtool -L {name} combined {processors} (`ethtool -l {name}`: its maximum)"),
        ));
    } else {
        found.push(Finding::ok(
            check,
            format!("{name} has {queues} receive queues"),
        ));
    }
    found.push(interrupts(system, name));
    found
}

fn interrupts(system: &System, name: &str) -> Finding {
    let check = "interrupts";
    let irqs = system.names(&format!("/sys/class/net/{name}/device/msi_irqs"));
    let lists = irqs.iter().map(|irq| {
        let effective = system.text(&format!("/proc/irq/{irq}/effective_affinity_list"));
        effective.or_else(|_| system.text(&format!("/proc/irq/{irq}/smp_affinity_list")))
    });
    let lists: Result<Vec<_>, _> = lists.collect();
    match lists {
        Err(why) => Finding::unknown(check, why),
        Ok(lists) if lists.is_empty() => {
            Finding::unknown(check, format!("{name} shows no interrupts of its own"))
        }
        Ok(lists) => {
            let count = lists.len();
            let distinct: BTreeSet<_> = lists.into_iter().collect();
            let one = distinct
                .iter()
                .next()
                .filter(|_| distinct.len() == 1 && count > 2);
            match one {
                Some(cpu) if !cpu.contains(['-', ',']) => Finding::warn(
                    check,
                    format!("all {count} interrupts of {name} go to CPU {cpu}"),
                    "systemctl start irqbalance, or write one CPU for each to \
                     /proc/irq/N/smp_affinity_list",
                ),
                _ => Finding::ok(
                    check,
                    format!("{count} interrupts of {name} on several CPUs"),
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;
    use std::fs;

    #[test]
    fn few_queues_and_interrupts_of_one_processor_are_found() {
        let folder = block::Folder::new();
        let card = "sys/class/net/eth0";
        for (path, text) in [
            ("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/class/nvme/nvme0/ctrl_loss_tmo", "10\n"),
            (&format!("{card}/queues/rx-0/rps_cpus"), "0\n"),
            (&format!("{card}/device/msi_irqs/31"), "msix\n"),
            (&format!("{card}/device/msi_irqs/32"), "msix\n"),
            (&format!("{card}/device/msi_irqs/33"), "msix\n"),
            ("proc/irq/31/smp_affinity_list", "0\n"),
            ("proc/irq/32/smp_affinity_list", "0\n"),
            ("proc/irq/33/effective_affinity_list", "0\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let found = check(&System::new(folder.path()), None);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(
            found.iter().all(|it| it.status == Status::Warn),
            "{found:?}"
        );
        let remedies: Vec<_> = found.iter().filter_map(|it| it.remedy.as_deref()).collect();
        assert!(
            remedies[2].starts_with("ethtool -L eth0 combined 4"),
            "{remedies:?}"
        );
        let empty = block::Folder::new();
        let found = check(&System::new(empty.path()), None);
        assert!(
            found.iter().all(|it| it.status == Status::Unknown),
            "{found:?}"
        );
    }
}
