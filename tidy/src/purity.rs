//! Purity: crates of decisions that read no clock, do no I/O and log nothing.
//!
//! They receive the time, bytes and loads as arguments, and return values, so that the simulator
//! runs the same code.

use crate::source::{Finding, Source, code};

/// The pure crates.
pub const CRATES: [&str; 5] = [
    "crates/base",
    "crates/qos",
    "crates/secure",
    "crates/switch",
    "crates/wire",
];

/// Names for access to clocks, I/O and logs.
const OUTSIDE: [&str; 11] = [
    "Instant",
    "SystemTime",
    "std::env",
    "std::fs",
    "std::io",
    "std::process",
    "std::thread",
    "eprintln!",
    "println!",
    "rustix",
    "tracing",
];

/// Reports names in `OUTSIDE` in the pure crates, except in tests.
#[must_use]
pub fn check(files: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pure = files.iter().filter(|file| {
        file.is_rust()
            && !file.is_test()
            && file.path.contains("/src/")
            && CRATES.contains(&file.krate())
    });
    for file in pure {
        for (number, line) in (1..).zip(code(&file.text)) {
            let found = OUTSIDE.iter().find(|name| has_word(line, name));
            if let Some(name) = found {
                let message =
                    format!("`{name}` in a pure crate: take what it yields as an argument");
                findings.push(file.finding(number, message));
            }
        }
    }
    findings
}

/// Returns true if the line contains `word`, but not as a part of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_in_a_pure_crate_is_found() {
        let text = "use std::time::Instant;\nfn f() {\n    println!(\"x\");\n}\n";
        let found = check(&[
            Source::new("crates/switch/src/a.rs", text),
            Source::new("crates/reactor/src/a.rs", text),
            Source::new("crates/switch/tests/a.rs", text),
        ]);
        let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 3]);
        assert_eq!(found[0].path, "crates/switch/src/a.rs");
    }

    #[test]
    fn longer_names_comments_and_tests_are_fine() {
        let text =
            "// Instant\nstruct InstantMode;\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert_eq!(check(&[Source::new("crates/wire/src/a.rs", text)]), []);
    }
}
