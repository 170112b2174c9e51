//! Links: documents refer to existing files.

use crate::orphans::normal;
use crate::source::{Finding, Source};
use std::collections::BTreeSet;
use std::path::Path;

/// Pages that map the source: a file name refers to the crate that the page named last.
const MAPS: [&str; 2] = ["docs/design/architecture.md", "docs/design/compliance.md"];

/// Reports relative links of Markdown files to missing targets below `root`, and names of missing
/// Rust files, matched by the end of a path; on `MAPS`, also Rust files that are not in the crate
/// named last, or lack the function named before them.
#[must_use]
pub fn check(files: &[Source], root: &Path) -> Vec<Finding> {
    let mut findings = names(files);
    findings.extend(maps(files));
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in (1..).zip(file.text.lines()) {
            for (_, rest) in line
                .match_indices("](")
                .map(|(at, _)| line.split_at(at + 2))
            {
                let Some((target, _)) = rest.split_once(')') else {
                    continue;
                };
                let path = target.split('#').next().unwrap_or_default();
                if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                    continue;
                }
                let path = normal(&format!("{folder}/{path}"));
                if !root.join(&path).exists() {
                    let message = format!("the link to {path} leads nowhere: repair its path");
                    findings.push(file.finding(number, message));
                }
            }
        }
    }
    findings
}

fn names(files: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let spans = line.split('`').skip(1).step_by(2);
            for name in spans.filter(|span| is_file(span)) {
                if named(files, name).next().is_none() {
                    let message = format!("there is no {name}: repair its path");
                    findings.push(file.finding(number, message));
                }
            }
        }
    }
    findings
}

/// Returns true for the name of one Rust file: a name with braces or a star stands for several
/// files, and a name with blanks is a command.
fn is_file(span: &str) -> bool {
    span.ends_with(".rs") && !span.contains(['{', ' ', '*'])
}

/// Returns the files whose path ends with `name`.
fn named<'a>(files: &'a [Source], name: &str) -> impl Iterator<Item = &'a Source> {
    let end = format!("/{name}");
    let mut rest = files.iter();
    std::iter::from_fn(move || rest.find(|file| format!("/{}", file.path).ends_with(&end)))
}

fn maps(files: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rust = files.iter().filter(|file| file.is_rust());
    let folders: BTreeSet<_> = rust.map(Source::krate).collect();
    let pages = files.iter();
    for page in pages.filter(|file| MAPS.contains(&file.path.as_str())) {
        let mut home = "";
        for (number, line) in (1..).zip(page.text.lines()) {
            // Every second piece is between backticks.
            let pieces: Vec<_> = line.split('`').collect();
            for (at, piece) in pieces.iter().enumerate() {
                home = last_named(piece, &folders).unwrap_or(home);
                if at % 2 == 0 || !is_file(piece) {
                    continue;
                }
                let here: Vec<_> = named(files, piece)
                    .filter(|file| home.is_empty() || file.krate() == home)
                    .collect();
                let before = (at > 2 && pieces[at - 1] == " (").then(|| pieces[at - 2]);
                let function = before.and_then(|before| before.rsplit("::").next());
                let message = match function {
                    _ if here.is_empty() => format!("{home} has no {piece}: name its crate"),
                    Some(name) if !here.iter().any(|file| has_word(&file.text, name)) => {
                        format!("{piece} has no {name}: repair its place")
                    }
                    _ => continue,
                };
                findings.push(page.finding(number, message));
            }
        }
    }
    findings
}

/// Returns the crate's folder that `text` names last, by a path from the workspace's root.
fn last_named<'a>(text: &str, folders: &BTreeSet<&'a str>) -> Option<&'a str> {
    let places = folders.iter().filter_map(|folder| {
        let (at, _) = text.rmatch_indices(folder).find(|&(at, _)| {
            let (before, rest) = (&text[..at], &text[at + folder.len()..]);
            let begins = before.is_empty() || before.ends_with("../");
            begins && (rest.is_empty() || rest.starts_with('/'))
        })?;
        Some((at, *folder))
    });
    places.max().map(|(_, folder)| folder)
}

fn has_word(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|other| other == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let good = Source::new(
            "docs/a.md",
            "[x](../src/lib.rs#y), [z](https://example.org/), [](#s)",
        );
        let bad = Source::new("docs/b.md", "\n[x](../src/lib.rs) [x](../src/gone.rs)\n");
        let found = check(&[good, bad], root);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("docs/b.md", 2));
        assert!(found[0].message.contains("src/gone.rs"));
    }

    #[test]
    fn a_file_that_is_named_and_not_there_is_found() {
        let code = Source::new("crates/a/src/b.rs", "");
        let named = "`b.rs` `src/b.rs`, `a/src/{b,c}.rs`, `cat c.rs`\n`c.rs`\n`rc/b.rs`";
        let found = check(&[code, Source::new("a.md", named)], Path::new("."));
        let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 3]);
    }

    #[test]
    fn a_map_names_files_of_the_crate_that_it_named_last() {
        let files = [
            Source::new("crates/a/src/b.rs", "fn run() {}"),
            Source::new("crates/c/src/d.rs", ""),
            Source::new("e/src/f.rs", ""),
            Source::new(
                MAPS[0],
                "`b.rs`\n`crates/a` `b.rs`, `d.rs`\n[c](../crates/c/src/d.rs) `d.rs` `b.rs`\n\
                 `e/src/f.rs` `f.rs`\n`a::run` (`crates/a/src/b.rs`), `gone` (`b.rs`)",
            ),
        ];
        let found = check(
            &files,
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap(),
        );
        let found: Vec<_> = found
            .iter()
            .filter(|finding| !finding.message.contains("link"))
            .map(|finding| (finding.line, finding.message.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (2, "crates/a has no d.rs: name its crate"),
                (3, "crates/c has no b.rs: name its crate"),
                (5, "b.rs has no gone: repair its place"),
            ]
        );
    }
}
