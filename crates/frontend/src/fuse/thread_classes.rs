//! The class of a request, by the rules and by the I/O priority of its thread.

use super::limits::{CLASS_AGE, THREADS_MAX};
use crate::class_rules::{Process, SizeRules};
use crate::{ClassChoice, ClassRules};
use base::Time;
use reactor::priority::io_class_of;
use std::collections::HashMap;
use std::fs::read_to_string;
use switch::Class;

/// The properties of a request that determine its class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Identifier of the thread; 0 for kernel threads.
    pub(super) thread: u32,
    pub(super) user: u32,
    /// Bytes of data.
    pub(super) bytes: u64,
    /// Outstanding requests of the mount, this one included.
    pub(super) depth: usize,
}

/// Class of a thread's requests.
#[derive(Debug)]
struct ThreadClass {
    rules: SizeRules,
    /// Class of requests that match no rule.
    otherwise: Class,
}

/// Cached classes of threads.
#[derive(Debug)]
pub(super) struct ThreadClasses {
    choice: ClassChoice,
    rules: ClassRules,
    known: HashMap<u32, (Time, ThreadClass)>,
}

impl ThreadClasses {
    pub(super) fn new(choice: ClassChoice, rules: ClassRules) -> Self {
        Self {
            choice,
            rules,
            known: HashMap::new(),
        }
    }

    /// Returns the class of a request.
    pub(super) fn of(&mut self, asked: Asked, now: Time) -> Class {
        let Asked { thread, user, .. } = asked;
        let known = self.known.get(&thread);
        if known.is_none_or(|(found, _)| now.since(*found) >= CLASS_AGE) {
            if self.known.len() >= THREADS_MAX {
                self.known.clear();
            }
            let class = self.find(thread, user);
            self.known.insert(thread, (now, class));
        }
        let (_, class) = &self.known[&thread];
        let by_rule = class.rules.class(asked.bytes, asked.depth);
        by_rule.unwrap_or(class.otherwise)
    }

    /// Queries the kernel about a thread.
    fn find(&self, thread: u32, user: u32) -> ThreadClass {
        let otherwise = match self.choice {
            ClassChoice::Fixed(class) => class,
            ClassChoice::ByIoPriority if thread == 0 => Class::DEFAULT,
            ClassChoice::ByIoPriority => io_class_of(thread),
        };
        let rules = if self.rules.is_empty() {
            SizeRules::default()
        } else if thread == 0 {
            self.rules.of_unknown()
        } else {
            self.rules.of(&self.process(thread, user))
        };
        ThreadClass { rules, otherwise }
    }

    /// Returns the properties of a thread's process that the rules need; none if the process has
    /// ended.
    fn process(&self, thread: u32, user: u32) -> Process {
        let cgroup = self.rules.name_cgroups().then(|| {
            let text = read_to_string(format!("/proc/{thread}/cgroup")).ok()?;
            let path = text.lines().find_map(|line| line.strip_prefix("0::"));
            path.map(ToOwned::to_owned)
        });
        let command = self.rules.name_commands().then(|| {
            let status = read_to_string(format!("/proc/{thread}/status")).ok()?;
            let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
            let name = read_to_string(format!("/proc/{}/comm", process.trim())).ok()?;
            Some(name.trim_end_matches('\n').to_owned())
        });
        Process {
            cgroup: cgroup.flatten(),
            command: command.flatten(),
            user: Some(user),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClassRule;

    fn asked(thread: u32) -> Asked {
        Asked {
            thread,
            user: 7,
            bytes: 4096,
            depth: 1,
        }
    }

    #[test]
    fn unknown_threads_have_the_default_class_and_are_forgotten() {
        let mut classes = ThreadClasses::new(ClassChoice::ByIoPriority, ClassRules::default());
        assert_eq!(classes.of(asked(0), Time(1)), Class::DEFAULT);
        for thread in 1..=2 * u32::try_from(THREADS_MAX).expect("few") {
            // Larger than any thread identifier of the kernel.
            let thread = u32::MAX / 2 - thread;
            assert_eq!(classes.of(asked(thread), Time(1)), Class::DEFAULT);
            assert!(classes.known.len() <= THREADS_MAX);
        }
    }

    #[test]
    fn a_rule_names_the_process_of_a_thread() {
        let name = read_to_string("/proc/self/comm").expect("Linux");
        let rule = |command: &str| ClassRule {
            cgroup: None,
            command: Some(command.to_owned()),
            user: Some(7),
            max_bytes: None,
            max_depth: None,
            class: Class::Latency,
        };
        for (command, class) in [
            (name.trim_end(), Class::Latency),
            ("another", Class::Throughput),
        ] {
            let rules = ClassRules::new(vec![rule(command)]);
            let choice = ClassChoice::Fixed(Class::Throughput);
            let mut classes = ThreadClasses::new(choice, rules);
            assert_eq!(classes.of(asked(std::process::id()), Time(1)), class);
            assert_eq!(classes.of(asked(0), Time(1)), Class::Throughput);
        }
    }

    #[test]
    fn a_rule_names_the_control_group_of_a_thread() {
        let text = read_to_string("/proc/self/cgroup").expect("Linux");
        let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
            block::skipped("this machine has control groups of version 1 alone");
            return;
        };
        for (cgroup, class) in [(own, Class::Latency), ("/no/such/group", Class::Throughput)] {
            let rules = ClassRules::new(vec![ClassRule {
                cgroup: Some(cgroup.to_owned()),
                command: None,
                user: None,
                max_bytes: None,
                max_depth: None,
                class: Class::Latency,
            }]);
            let choice = ClassChoice::Fixed(Class::Throughput);
            let mut classes = ThreadClasses::new(choice, rules);
            assert_eq!(classes.of(asked(std::process::id()), Time(1)), class);
        }
    }
}
