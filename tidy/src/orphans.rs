//! Orphans: Rust files that no crate compiles.

use crate::source::{Finding, Source};
use std::collections::BTreeSet;

/// Reports Rust files that no `mod`, `#[path]` or `include!` of a compiled file names.
#[must_use]
pub fn check(files: &[Source]) -> Vec<Finding> {
    let rust: Vec<&Source> = files.iter().filter(|file| file.is_rust()).collect();
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Source> = rust.iter().copied().filter(|file| is_root(file)).collect();
    while let Some(file) = open.pop() {
        if !reached.insert(file.path.as_str()) {
            continue;
        }
        let named = named_by(file);
        open.extend(rust.iter().filter(|file| named.contains(&file.path)));
    }
    let orphans = rust
        .iter()
        .filter(|file| !reached.contains(file.path.as_str()));
    let message = "no file names this one as a module: add `mod` to its parent, or remove it";
    orphans.map(|file| file.finding(0, message)).collect()
}

/// Returns true for files that cargo finds without a declaration.
fn is_root(file: &Source) -> bool {
    let below = file.path[file.krate().len()..].trim_start_matches('/');
    let folders = [
        "tests/",
        "examples/",
        "benches/",
        "src/bin/",
        "fuzz_targets/",
    ];
    // Cargo treats `tests/all.rs` and `tests/all/main.rs` the same.
    let alone = |folder| {
        below.strip_prefix(folder).is_some_and(|rest| {
            rest.split_once('/')
                .is_none_or(|(_, name)| name == "main.rs")
        })
    };
    matches!(below, "src/lib.rs" | "src/main.rs" | "build.rs") || folders.iter().any(alone)
}

/// Returns the possible paths of the modules that a file declares.
fn named_by(file: &Source) -> BTreeSet<String> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let stem = name.trim_end_matches(".rs");
    let is_mod = matches!(stem, "mod" | "lib" | "main") || is_root(file);
    let own = if is_mod {
        folder.to_owned()
    } else {
        format!("{folder}/{stem}")
    };
    let mut named = BTreeSet::new();
    let mut given: Option<String> = None;
    // Inline modules, with the indentation of each.
    let mut inline: Vec<(usize, String)> = Vec::new();
    for line in file.text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code == "}" {
            inline.retain(|(outer, _)| *outer < indent);
        }
        for (start, end) in [("#[path = \"", "\"]"), ("include!(\"", "\")")] {
            let path = code
                .split_once(start)
                .and_then(|(_, rest)| rest.split_once(end));
            if let Some((path, _)) = path {
                given = Some(normal(&format!("{folder}/{path}")));
                named.extend(given.clone());
            }
        }
        let code = code.split("] ").last().unwrap_or(code);
        let visible = code.strip_prefix("pub").map_or(code, |rest| {
            let scope = rest
                .starts_with('(')
                .then(|| rest.split_once(") "))
                .flatten();
            scope.map_or(rest, |(_, after)| after).trim_start()
        });
        let Some(module) = visible.strip_prefix("mod ") else {
            continue;
        };
        if let Some(module) = module.strip_suffix(" {") {
            inline.push((indent, module.to_owned()));
        } else if let Some(module) = module.trim_end().strip_suffix(';')
            && given.take().is_none()
        {
            let mut at = own.clone();
            for (_, outer) in &inline {
                at = format!("{at}/{outer}");
            }
            named.insert(format!("{at}/{module}.rs"));
            named.insert(format!("{at}/{module}/mod.rs"));
        }
    }
    named
}

/// Returns a path without `.` and `..`.
pub(crate) fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_module_names_is_found() {
        let files = [
            Source::new(
                "crates/x/src/lib.rs",
                "pub mod a;\n#[cfg(test)]\nmod tests {\n}\n",
            ),
            Source::new("crates/x/src/a.rs", "pub(in crate::x) mod b;\n"),
            Source::new("crates/x/src/a/b.rs", ""),
            Source::new("crates/x/src/a/left.rs", "mod none;\n"),
            Source::new(
                "crates/x/tests/all.rs",
                "#[path = \"../../y/shared.rs\"]\nmod s;\n",
            ),
            Source::new("crates/y/shared.rs", ""),
            Source::new("crates/x/tests/whole/main.rs", "mod part;\n"),
            Source::new("crates/x/tests/whole/part.rs", ""),
        ];
        let found = check(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].path, "crates/x/src/a/left.rs");
    }

    #[test]
    fn a_module_within_an_inline_one_lies_in_its_folder() {
        let files = [
            Source::new("crates/x/src/lib.rs", "mod a {\n    mod b;\n}\nmod c;\n"),
            Source::new("crates/x/src/a/b.rs", ""),
            Source::new("crates/x/src/c.rs", ""),
        ];
        assert_eq!(check(&files), []);
    }
}
