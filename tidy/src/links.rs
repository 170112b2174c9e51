//! Links: the documents point at files that are there.

use crate::orphans::normal;
use crate::source::{Finding, Source};
use std::path::Path;

/// Reports relative links of Markdown files to targets that are not below `root`, and Rust files
/// that they name, by the end of a path, and that are not there.
#[must_use]
pub fn check(files: &[Source], root: &Path) -> Vec<Finding> {
    let mut findings = names(files);
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
            // One with braces or a star stands for several, and one with blanks is a command.
            for name in
                spans.filter(|span| span.ends_with(".rs") && !span.contains(['{', ' ', '*']))
            {
                let end = format!("/{name}");
                if !files
                    .iter()
                    .any(|file| format!("/{}", file.path).ends_with(&end))
                {
                    let message = format!("there is no {name}: repair its path");
                    findings.push(file.finding(number, message));
                }
            }
        }
    }
    findings
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
}
