//! Order of crates: each depends only on crates above it in the workspace's manifest.

use crate::source::{Finding, Source};

/// Reports dependencies of the workspace's crates on crates listed below them, and listed crates
/// that do not exist.
///
/// The order is that of the lines with a `path` in `[workspace.dependencies]` of the root's
/// `Cargo.toml`. Unlisted crates are programs: no crate depends on them.
#[must_use]
pub fn check(files: &[Source]) -> Vec<Finding> {
    let Some(root) = files.iter().find(|file| file.path == "Cargo.toml") else {
        return vec![Source::new("Cargo.toml", "").finding(0, "the workspace has no manifest")];
    };
    let order: Vec<(&str, &str)> = section(&root.text, "[workspace.dependencies]")
        .filter_map(|(_, line)| {
            let (name, rest) = line.split_once(" = ")?;
            let (_, path) = rest.split_once("path = \"")?;
            Some((name, path.split('"').next()?))
        })
        .collect();
    let mut findings = Vec::new();
    for (index, (name, path)) in order.iter().enumerate() {
        let manifest = format!("{path}/Cargo.toml");
        let Some(manifest) = files.iter().find(|file| file.path == manifest) else {
            let message = format!("`{name}` has no manifest at {manifest}: repair its path");
            findings.push(root.finding(0, message));
            continue;
        };
        for (number, line) in section(&manifest.text, "[dependencies]") {
            let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let place = order.iter().position(|(other, _)| *other == used);
            if place.is_some_and(|place| place >= index) {
                let message = format!(
                    "`{name}` depends on `{used}`, which is not above it in the workspace's \
                     Cargo.toml: move what it needs down, or hand it in as a value"
                );
                findings.push(manifest.finding(number, message));
            }
        }
    }
    findings
}

/// Returns the lines of a section, with their numbers.
fn section<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    (1..)
        .zip(text.lines())
        .skip_while(move |(_, line)| *line != name)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.dependencies]\n\
        low = { package = \"x-low\", path = \"crates/low\" }\n\
        high = { package = \"x-high\", path = \"crates/high\" }\n\
        libc = \"1\"\n\n[profile.dev]\n";

    fn findings(low: &str, high: &str) -> Vec<Finding> {
        check(&[
            Source::new("Cargo.toml", ROOT),
            Source::new("crates/low/Cargo.toml", low),
            Source::new("crates/high/Cargo.toml", high),
        ])
    }

    #[test]
    fn a_dependency_on_a_crate_below_is_found() {
        let up = "[dependencies]\nlibc.workspace = true\nhigh.workspace = true\n";
        let found = findings(up, "");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].path.as_str(), found[0].line),
            ("crates/low/Cargo.toml", 3)
        );
        assert!(found[0].message.contains("`low` depends on `high`"));
    }

    #[test]
    fn dependencies_on_crates_above_and_of_tests_are_fine() {
        let down = "[dependencies]\nlow = { workspace = true }\n";
        let tests = "[dependencies]\n\n[dev-dependencies]\nhigh.workspace = true\n";
        assert!(findings(tests, down).is_empty());
    }

    #[test]
    fn a_listed_crate_that_is_not_there_is_found() {
        let found = check(&[Source::new("Cargo.toml", ROOT)]);
        assert_eq!(found.len(), 2);
    }
}
