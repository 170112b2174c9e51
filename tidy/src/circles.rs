//! Import circles: files of one crate that import each other.
//!
//! A file of a circle can only be read, tested and moved with the whole circle. A circle has at
//! most [`FILES_MAX`] files, and is listed in [`JUSTIFIED`] with its reason. A file imports another
//! file by a path from the crate, from the file's module or its parent, or from a module that it
//! declares; a path to a name re-exported with `pub use` counts as a path to the file that defines
//! the name.

use crate::source::{Finding, Source, code};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of files in a justified circle.
pub const FILES_MAX: usize = 3;

/// Accepted circles: the crate's folder, the files below its `src`, and the reason.
pub const JUSTIFIED: &[(&str, &[&str], &str)] = rows! {
    "crates/block" => &["cache/channel.rs", "cache/mod.rs"],
        "a cache opens its channels, and these change its state under its lock";
    "crates/block" => &["device/file/channel.rs", "device/file/mod.rs", "device/file/open.rs"],
        "a device is opened in one file and opens its channels in another; both read its options";
    "crates/block" => &["path/mod.rs", "path/submitter.rs"],
        "a path opens its channels, and these run its queue";
    "crates/config" => &["node.rs", "problem.rs"],
        "a problem finds its line in the nodes, and reading nodes ends with problems";
    "crates/control" => &["server.rs", "server/listener.rs"],
        "the server's error is that of its listener";
    "crates/frontend" => &["fuse/filesystem.rs", "fuse/mod.rs", "fuse/service.rs"],
        "the mount starts its service, and all share one description of what is mounted";
    "crates/frontend" => &["ublk/mod.rs", "ublk/recovery.rs"],
        "a device is attached anew or recovered, by the same steps and with the same errors";
    "crates/host" => &["client/blocking.rs", "client/queue.rs"],
        "a namespace opens queues, and a queue keeps its subsystem connected";
    "crates/host" => &["switchboard/mod.rs", "switchboard/registry.rs"],
        "the switchboard's fields, and their part of its methods";
    "crates/lab" => &["check/mod.rs", "check/mutations.rs", "check/search.rs"],
        "two commands share the function that runs seeds in parallel";
    "crates/load" => &["calibrate/mod.rs", "calibrate/sweep.rs"],
        "the sweep runs the probes of its calibration";
    "crates/load" => &["vhost/channel.rs", "vhost/mod.rs"], "a disk opens channels on its queues";
    "crates/nvme-target" => &["session/state.rs", "session/transfer.rs"],
        "the session's fields, and their part of its methods";
    "crates/qos" => &["token_scheduler.rs", "token_scheduler/entry.rs"],
        "an entry of the scheduler holds the scheduler's key of a tenant";
    "crates/reactor" => &["arrivals.rs", "arrivals/paced.rs"],
        "what is paced is received through the interests of all arrivals";
    "crates/reactor" => &["uring/listener.rs", "uring/mod.rs", "uring/operations.rs"],
        "the driver's fields, and two parts of its methods";
    "crates/switch" => &["knobs/table.rs", "knobs/table/list.rs"],
        "the type of a knob, and the list of all";
    "crates/wire" => &["tcp/framer.rs", "tcp/framer/body.rs"],
        "the framer's state machine in two files: the body's states are states of the framer";
    "fuzz/entries" => &["target_session/mod.rs", "target_session/world.rs"],
        "the world is made with the names that the session uses in it";
    "sim" => &["check/machine.rs", "check/machine/take_overs.rs", "check/mod.rs"],
        "the check runs the machine, which reports what survived to it; take-overs are a part of it";
    "sim" => &["client.rs", "client/connections.rs", "client/giving_up.rs"],
        "the application's fields, and two parts of its methods";
    "sim" => &["driver.rs", "driver/kernel.rs"],
        "the driver's sockets, and their side in the kernel";
    "sim" => &["network.rs", "network/unowned.rs"],
        "the network's fields, and their part of its methods";
    "sim" => &["tenants/calibration.rs", "tenants/engine.rs", "tenants/scenario.rs"],
        "a calibration is a run of the engine, and a scenario may be of a device that was calibrated";
};

/// The files that each file of a crate imports, as paths below `src`.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the circles of each crate, the largest first, as files below the crate's `src`.
#[must_use]
pub fn circles(files: &[Source]) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for file in files {
        if file.is_rust() && !file.is_test() && file.path.contains("/src/") {
            crates.entry(file.krate()).or_default().push(file);
        }
    }
    let mut found = BTreeMap::new();
    for (krate, files) in crates {
        let mut circles = components(&graph(krate, &files));
        circles.retain(|circle| circle.len() > 1);
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        found.insert(krate.to_owned(), circles);
    }
    found
}

/// Reports circles that are not in [`JUSTIFIED`], obsolete entries of it, and entries that are too
/// large.
#[must_use]
pub fn check(files: &[Source]) -> Vec<Finding> {
    let all = circles(files);
    let mut findings = Vec::new();
    let at = |krate: &str, file: &str| Source::new(&format!("{krate}/src/{file}"), "");
    for (krate, circles) in &all {
        for circle in circles {
            let justified = JUSTIFIED
                .iter()
                .any(|(of, files, _)| of == krate && files.iter().eq(circle));
            if !justified {
                let members = circle.join(" ");
                let message = format!(
                    "{} files import each other in a circle: {members}; move what they share to a \
                     file below them, or pass it as a value",
                    circle.len()
                );
                findings.push(at(krate, &circle[0]).finding(0, message));
            }
        }
    }
    for (krate, files, _) in JUSTIFIED {
        let known = all.get(*krate);
        let Some(circles) = known else { continue };
        if !circles.iter().any(|circle| files.iter().eq(circle)) {
            let message = "the justified circle is gone: remove it from JUSTIFIED";
            findings.push(at(krate, files[0]).finding(0, message));
        }
        if files.len() > FILES_MAX {
            let message = format!("a justified circle has at most {FILES_MAX} files");
            findings.push(at(krate, files[0]).finding(0, message));
        }
    }
    findings
}

fn module_of(file: &str) -> Vec<String> {
    let mut path: Vec<String> = file
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    if matches!(
        path.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        path.pop();
    }
    path
}

fn graph(krate: &str, files: &[&Source]) -> Graph {
    let prefix = format!("{krate}/src/");
    let below = |file: &Source| file.path.trim_start_matches(&prefix).to_owned();
    let modules: BTreeMap<Vec<String>, String> = files
        .iter()
        .map(|file| (module_of(&below(file)), below(file)))
        .collect();
    let mut named = Vec::new();
    let mut aliases = BTreeMap::new();
    for file in files {
        let name = below(file);
        let own = module_of(&name);
        for path in paths(&code(&file.text).join("\n")) {
            let Some(target) = resolve(&own, &path.text) else {
                continue;
            };
            if path.is_reexport {
                let alias = own.iter().chain(target.last()).cloned();
                aliases.insert(alias.collect::<Vec<_>>(), target);
            } else {
                named.push((name.clone(), target));
            }
        }
    }
    let mut graph: Graph = files
        .iter()
        .map(|file| (below(file), BTreeSet::new()))
        .collect();
    for (name, mut target) in named {
        while let Some(module) = aliases.get(&target) {
            target.clone_from(module);
        }
        let known = (1..=target.len())
            .rev()
            .find_map(|length| modules.get(&target[..length]));
        if let Some(known) = known.filter(|known| **known != name) {
            graph.entry(name).or_default().insert(known.clone());
        }
    }
    graph
}

/// Returns the module path of `path` in module `own`; `None` if it leaves the crate.
fn resolve(own: &[String], path: &str) -> Option<Vec<String>> {
    let mut segments = path.split("::").map(str::trim).peekable();
    let mut base = own.to_vec();
    match segments.next()? {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            base.pop();
            while segments.next_if_eq(&"super").is_some() {
                base.pop();
            }
        }
        _ => return None,
    }
    base.extend(segments.map(str::to_owned));
    Some(base)
}

/// A path in the code of a file.
struct Named {
    text: String,
    /// It re-exports a name of a child module, and is no import of the file itself.
    is_reexport: bool,
}

/// Returns all paths that begin with `crate`, `self`, `super` or a child of the file's module, with
/// the groups of `use` expanded.
fn paths(code: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let starts = ["crate", "super", "self"].map(|start| (start, ""));
    let children = children(code).map(|child| (child, "self::"));
    for (start, prefix) in starts.into_iter().chain(children) {
        for (at, _) in code.match_indices(&format!("{start}::")) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "_:$.".contains(c)) {
                continue;
            }
            if code[..at].ends_with("pub(in ") {
                continue;
            }
            let statement = code[..at].rsplit([';', '}']).next().unwrap_or_default();
            let is_pub_use = statement.ends_with(" use ") && statement.contains("pub");
            found.extend(expand(&code[at..]).into_iter().map(|path| Named {
                text: format!("{prefix}{path}"),
                is_reexport: is_pub_use && (start == "self" || !prefix.is_empty()),
            }));
        }
    }
    found
}

/// Returns the names of the modules that the file declares and that are separate files.
fn children(code: &str) -> impl Iterator<Item = &str> {
    let declared = code
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';')?.rsplit_once("mod "));
    let modules = declared.filter(|(scope, _)| scope.is_empty() || scope.starts_with("pub"));
    modules.map(|(_, name)| name)
}

/// Returns the paths at the start of the text: one, or one for each member of a group.
fn expand(text: &str) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let end = text.find(|c| !is_path(c)).unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    if !head.ends_with("::") || !rest.starts_with('{') {
        return vec![head.trim_end_matches(':').to_owned()];
    }
    let mut found = Vec::new();
    let mut depth = 0;
    let mut member = String::new();
    for c in rest.chars() {
        match c {
            '{' if depth == 0 => depth = 1,
            '}' if depth == 1 => break,
            ',' if depth == 1 => found.push(std::mem::take(&mut member)),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                member.push(c);
            }
        }
    }
    found.push(member);
    let found = found.iter().map(|member| member.trim());
    let found = found.filter(|member| !member.is_empty());
    found
        .flat_map(expand)
        .map(|member| format!("{head}{member}"))
        .collect()
}

/// Returns the strongly connected components of the graph, each sorted by name.
fn components(graph: &Graph) -> Vec<Vec<String>> {
    // The files reachable from each file; crates have some hundred files at most.
    let reach: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|from| {
            let mut seen = BTreeSet::new();
            let mut open = vec![from.as_str()];
            while let Some(file) = open.pop() {
                for next in &graph[file] {
                    if seen.insert(next.as_str()) {
                        open.push(next);
                    }
                }
            }
            (from.as_str(), seen)
        })
        .collect();
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for from in graph.keys() {
        if done.contains(from) {
            continue;
        }
        let circle: Vec<String> = graph
            .keys()
            .filter(|to| {
                *to == from
                    || (reach[from.as_str()].contains(to.as_str())
                        && reach[to.as_str()].contains(from.as_str()))
            })
            .cloned()
            .collect();
        done.extend(circle.iter().cloned());
        found.push(circle);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two(a: &str, b: &str) -> [Source; 3] {
        [
            Source::new("crates/x/src/lib.rs", "mod a;\nmod b;\n"),
            Source::new("crates/x/src/a.rs", a),
            Source::new("crates/x/src/b/mod.rs", b),
        ]
    }

    #[test]
    fn two_files_that_import_each_other_are_found_and_named() {
        let files = two("use crate::b::{C, D as E};\n", "use super::a::F;\n");
        let findings = check(&files);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "crates/x/src/a.rs");
        assert!(findings[0].message.contains("2 files"), "{}", findings[0]);
        assert!(findings[0].message.contains("a.rs b/mod.rs"));
    }

    #[test]
    fn one_direction_comments_and_tests_are_no_circle() {
        let files = two(
            "use crate::b::C;\n",
            "// use crate::a::F;\n#[cfg(test)]\nmod tests {\n    use crate::a::F;\n}\n",
        );
        assert!(check(&files).is_empty());
    }

    #[test]
    fn a_parent_that_calls_its_child_uses_it() {
        let parent = |text: &str| {
            [
                Source::new("crates/x/src/lib.rs", "mod a;\n"),
                Source::new("crates/x/src/a.rs", &format!("pub(crate) mod b;\n{text}")),
                Source::new(
                    "crates/x/src/a/b.rs",
                    "use super::F;\npub(in crate::a) mod c {}\n",
                ),
            ]
        };
        for text in ["use b::C;\n", "fn d() {\n    b::e(&b::C);\n}\n"] {
            assert_eq!(check(&parent(text)).len(), 1, "{text}");
        }
        for text in ["pub use b::C;\n", "fn d() {\n    ::b::e(x.b::<u8>());\n}\n"] {
            assert_eq!(check(&parent(text)), [], "{text}");
        }
    }

    #[test]
    fn a_name_that_is_said_again_is_its_own_files() {
        let files = [
            Source::new("crates/x/src/lib.rs", "mod a;\n"),
            Source::new(
                "crates/x/src/a.rs",
                "mod b;\nmod c;\npub use b::B;\npub use c::C;\n",
            ),
            Source::new("crates/x/src/a/b.rs", "use super::C;\n"),
            Source::new("crates/x/src/a/c.rs", "use crate::a::B;\n"),
        ];
        let findings = check(&files);
        assert_eq!(findings.len(), 1);
        assert!(
            findings[0].message.contains("a/b.rs a/c.rs"),
            "{}",
            findings[0]
        );
    }

    #[test]
    fn nested_groups_are_expanded() {
        let paths = paths("use crate::{a::{B, c::D}, e};\nlet x = super::f::g();");
        let paths: Vec<_> = paths.into_iter().map(|path| path.text).collect();
        let expected = ["crate::a::B", "crate::a::c::D", "crate::e", "super::f::g"];
        assert_eq!(paths, expected);
    }

    #[test]
    fn a_justified_circle_that_is_gone_is_reported() {
        let files = [Source::new("crates/wire/src/tcp/framer.rs", "")];
        let findings = check(&files);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("remove it"));
    }
}
