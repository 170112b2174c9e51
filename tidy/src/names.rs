//! Names of types: one name for one type, so that a reader knows which one is meant.
//!
//! A name may stand in up to [`FILES_MAX`] files, where modules keep them apart. Those of
//! [`REPEATED`] have a number of their own, which may only fall.

use crate::source::{Finding, Source, code};
use std::collections::{BTreeMap, BTreeSet};

/// Files that may declare a type of the same name.
pub const FILES_MAX: usize = 5;

/// Names that more files declare, and those that are not to spread, with their number and the
/// reason.
pub const REPEATED: &[(&str, usize, &str)] = rows! {
    "Asked" => 6, "what each place asks another one, private to it";
    "Connection" => 6, "each end's own, and each protocol's";
    "Entry" => 4, "says nothing of what it is an entry of: private to its module only";
    "Event" => 8, "what each event loop or parser yields";
    "Kind" => 4, "says nothing of what it is a kind of: private to its module only";
    "Line" => 2, "says nothing of what stands in it: private to its module only";
    "Load" => 5, "what each figure, run or model is loaded with";
    "Message" => 9, "the message of each service's mailbox";
    "Namespace" => 6, "the NVMe namespace in each layer's terms";
    "Place" => 2, "says nothing of where it is: private to its module only";
    "Progress" => 5, "how far each long task is";
    "Queue" => 10, "the queue of each layer";
    "Report" => 2, "the result of each engine of the simulator that has no other report";
    "Request" => 7, "the request of each layer, and of each protocol";
    "Scenario" => 5, "what each engine of the simulator and each figure runs";
    "Shared" => 4, "says nothing of what is shared: private to its module only";
    "Slot" => 7, "the slot of each table";
    "State" => 4, "says nothing of what has it: private to its module only";
    "Step" => 2, "the value that a command returns, and that of a turn of simulated paths";
};

/// The files that declare a type of each name, outside of tests; a type that a trait's implementation
/// names is none.
#[must_use]
pub fn declared(files: &[Source]) -> BTreeMap<String, BTreeSet<&str>> {
    let mut names: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        if !file.is_rust() || file.is_test() || !file.path.contains("/src/") {
            continue;
        }
        for line in code(&file.text) {
            if let Some(name) = declaration(line) {
                let files = names.entry(name.to_owned()).or_default();
                files.insert(&file.path);
            }
        }
    }
    names
}

/// The name of the type that the line declares.
fn declaration(line: &str) -> Option<&str> {
    let (visible, rest) = ["struct ", "enum ", "trait ", "union ", "type "]
        .iter()
        .find_map(|kind| line.split_once(kind))?;
    let is_declared = visible.is_empty() || (visible.starts_with("pub") && visible.ends_with(' '));
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    is_declared.then(|| &rest[..end.unwrap_or(rest.len())])
}

/// Reports names that more files declare than may, and rows of `repeated` that are too high.
#[must_use]
pub fn check(files: &[Source], repeated: &[(&str, usize, &str)]) -> Vec<Finding> {
    let table = Source::new("tidy/src/names.rs", "");
    let declared = declared(files);
    let mut findings = Vec::new();
    for (name, files) in &declared {
        let row = repeated.iter().find(|(row, ..)| row == name);
        let allowed = row.map_or(FILES_MAX, |(_, files, _)| *files);
        if files.len() > allowed {
            let files: Vec<_> = files.iter().copied().collect();
            let message = format!(
                "{} files declare a type `{name}`, at most {allowed}: say in the name of a new one of \
                 what it is ({})",
                files.len(),
                files.join(" ")
            );
            findings.push(Source::new(files[0], "").finding(0, message));
        }
    }
    for (name, files, _) in repeated {
        let found = declared.get(*name).map_or(0, BTreeSet::len);
        if found < *files {
            let message = format!("`{name}` is declared in {found} files: lower its row to that");
            findings.push(table.finding(0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(count: usize, text: &str) -> Vec<Source> {
        let name = |file| format!("crates/x/src/{file}.rs");
        (0..count)
            .map(|file| Source::new(&name(file), text))
            .collect()
    }

    #[test]
    fn a_name_in_too_many_files_is_found() {
        for text in [
            "struct Shared<T> {\n",
            "pub(crate) enum Shared {\n",
            "pub type Shared = u8;\n",
        ] {
            assert_eq!(check(&files(FILES_MAX, text), &[]), []);
            let found = check(&files(FILES_MAX + 1, text), &[]);
            assert!(
                found[0].message.contains("6 files declare a type `Shared`"),
                "{text}"
            );
            assert_eq!(check(&files(6, text), &[("Shared", 6, "")]), []);
            assert_eq!(check(&files(3, text), &[("Shared", 2, "")]).len(), 1);
        }
    }

    #[test]
    fn a_row_that_is_too_high_is_found() {
        let found = check(&files(4, "struct Shared;\n"), &[("Shared", 5, "")]);
        assert!(
            found[0].message.contains("declared in 4 files"),
            "{}",
            found[0]
        );
        assert_eq!(check(&[], &[("Shared", 4, "")]).len(), 1);
    }

    #[test]
    fn types_of_implementations_and_of_tests_are_none() {
        for text in [
            "impl A for B {\n    type Shared = u8;\n}\n",
            "// struct Shared;\n",
            "#[cfg(test)]\nmod tests {\n    struct Shared;\n}\n",
            "let x = \"a struct Shared\";\n",
        ] {
            assert_eq!(check(&files(9, text), &[]), [], "{text}");
        }
    }
}
