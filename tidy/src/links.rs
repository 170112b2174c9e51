//! Links: the documents point at files that are there.

use crate::orphans::normal;
use crate::source::{Finding, Source};
use std::path::Path;

/// Reports relative links of Markdown files to targets that are not below `root`.
#[must_use]
pub fn check(files: &[Source], root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
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
}
