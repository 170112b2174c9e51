//! Rules that assign requests a class by process, size and depth.

use std::sync::Arc;
use switch::Class;

/// A rule: requests that match all its conditions get its class. `None` matches every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRule {
    /// Path prefix of the process's control group (version 2), such as `/system.slice/postgresql`.
    pub cgroup: Option<String>,
    /// Name of the process, as in `/proc/PID/comm`: at most 15 bytes.
    pub command: Option<String>,
    /// File system user ID of the process.
    pub user: Option<u32>,
    /// Largest data size in bytes; a request without data has 0.
    pub max_bytes: Option<u64>,
    /// Largest number of outstanding requests, this one included: of the mount (FUSE), the
    /// connection (NBD) or the queue (vhost-user, ublk).
    pub max_depth: Option<usize>,
    /// Class of the requests.
    pub class: Class,
}

impl ClassRule {
    /// Returns true if the rule has a condition on the process, which the front end must then
    /// identify.
    #[must_use]
    pub const fn names_process(&self) -> bool {
        self.cgroup.is_some() || self.command.is_some() || self.user.is_some()
    }

    fn admits(&self, process: &Process) -> bool {
        let begins = |prefix: &String| {
            let cgroup = process.cgroup.as_ref();
            cgroup.is_some_and(|path| path.starts_with(prefix))
        };
        self.cgroup.as_ref().is_none_or(begins)
            && (self.command.is_none() || self.command == process.command)
            && (self.user.is_none() || self.user == process.user)
    }

    fn sizes(&self) -> SizeRule {
        SizeRule {
            max_bytes: self.max_bytes.unwrap_or(u64::MAX),
            max_depth: self.max_depth.unwrap_or(usize::MAX),
            class: self.class,
        }
    }
}

/// Properties of a process; `None` where unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) cgroup: Option<String>,
    pub(crate) command: Option<String>,
    pub(crate) user: Option<u32>,
}

/// Rules in order; the first match applies. Without a match the front end's
/// [`ClassChoice`](super::ClassChoice) applies. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRules(Arc<[ClassRule]>);

impl ClassRules {
    /// Returns the number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Creates the list.
    #[must_use]
    pub fn new(rules: Vec<ClassRule>) -> Self {
        Self(rules.into())
    }

    /// Returns true if there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn name_cgroups(&self) -> bool {
        self.0.iter().any(|rule| rule.cgroup.is_some())
    }

    pub(crate) fn name_commands(&self) -> bool {
        self.0.iter().any(|rule| rule.command.is_some())
    }

    /// Returns the remaining size and depth rules for requests of `process`.
    pub(crate) fn of(&self, process: &Process) -> SizeRules {
        let admitting = self.0.iter().filter(|rule| rule.admits(process));
        SizeRules(admitting.map(ClassRule::sizes).collect())
    }

    /// Returns the remaining size and depth rules for requests of an unknown process.
    pub(crate) fn of_unknown(&self) -> SizeRules {
        self.of(&Process::default())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SizeRule {
    max_bytes: u64,
    max_depth: usize,
    class: Class,
}

/// Rules on the size and depth of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SizeRules(Vec<SizeRule>);

impl SizeRules {
    /// Returns the class from the first matching rule, or `None`.
    pub(crate) fn class(&self, bytes: u64, depth: usize) -> Option<Class> {
        let mut rules = self.0.iter();
        let found = rules.find(|rule| bytes <= rule.max_bytes && depth <= rule.max_depth);
        found.map(|rule| rule.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(class: Class) -> ClassRule {
        ClassRule {
            cgroup: None,
            command: None,
            user: None,
            max_bytes: None,
            max_depth: None,
            class,
        }
    }

    fn process(cgroup: &str, command: &str, user: u32) -> Process {
        Process {
            cgroup: Some(cgroup.to_owned()),
            command: Some(command.to_owned()),
            user: Some(user),
        }
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let small = ClassRule {
            max_bytes: Some(16 << 10),
            max_depth: Some(4),
            ..any(Class::Latency)
        };
        let rules = ClassRules::new(vec![
            small,
            ClassRule {
                max_bytes: Some(64 << 10),
                ..any(Class::Throughput)
            },
        ]);
        let rules = rules.of_unknown();
        for (bytes, depth, class) in [
            (16 << 10, 4, Some(Class::Latency)),
            (0, 1, Some(Class::Latency)),
            ((16 << 10) + 1, 4, Some(Class::Throughput)),
            (16 << 10, 5, Some(Class::Throughput)),
            (1 << 20, 1, None),
        ] {
            assert_eq!(rules.class(bytes, depth), class, "{bytes} bytes at {depth}");
        }
    }

    #[test]
    fn every_condition_of_a_rule_has_to_hold() {
        let rules = ClassRules::new(vec![ClassRule {
            cgroup: Some("/system.slice/postgresql".to_owned()),
            command: Some("postgres".to_owned()),
            user: Some(26),
            ..any(Class::Latency)
        }]);
        let class = |process: &Process| rules.of(process).class(4096, 1);
        let unit = "/system.slice/postgresql@16-main.service";
        assert_eq!(class(&process(unit, "postgres", 26)), Some(Class::Latency));
        for other in [
            process("/user.slice", "postgres", 26),
            process(unit, "psql", 26),
            process(unit, "postgres", 0),
            Process::default(),
        ] {
            assert_eq!(class(&other), None, "{other:?}");
        }
    }

    #[test]
    fn without_rules_nothing_matches() {
        let rules = ClassRules::default();
        assert!(rules.is_empty() && !rules.name_cgroups() && !rules.name_commands());
        assert_eq!(rules.of(&process("/", "fio", 0)).class(0, 1), None);
    }
}
