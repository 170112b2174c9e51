//! Maximum length of functions and files.

use crate::source::{Finding, Source};

/// Maximum lines of a function.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Maximum lines of a file, except tests.
pub const FILE_LINES_MAX: usize = 800;

/// Reports functions of more than [`FUNCTION_LINES_MAX`] lines, outside of test files.
#[must_use]
pub fn functions(files: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test())
    {
        let mut open: Option<(usize, &str, &str)> = None;
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some((indent, name)) = signature(line) {
                open = Some((number, indent, name));
            }
            let Some((start, indent, name)) = open else {
                continue;
            };
            if line.strip_prefix(indent) == Some("}") {
                open = None;
                let lines = number - start;
                if lines > FUNCTION_LINES_MAX {
                    let message = format!(
                        "function `{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}: give a \
                         part of it a name of its own"
                    );
                    findings.push(file.finding(start, message));
                }
            }
        }
    }
    findings
}

/// Reports files of more than [`FILE_LINES_MAX`] lines, outside of tests.
#[must_use]
pub fn files(files: &[Source]) -> Vec<Finding> {
    let code = files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test());
    code.filter_map(|file| {
        let lines = file.text.lines().count();
        (lines > FILE_LINES_MAX).then(|| {
            let message = format!(
                "the file has {lines} lines, at most {FILE_LINES_MAX}: move its tests to a file \
                 `tests.rs`, or a noun of it to a file of its own"
            );
            file.finding(0, message)
        })
    })
    .collect()
}

/// Returns the indentation and the name of a function that begins in this line.
fn signature(line: &str) -> Option<(&str, &str)> {
    let code = line.trim_start();
    let indent = &line[..line.len() - code.len()];
    let mut words = code.split(' ');
    loop {
        match words.next()? {
            "fn" => break,
            "const" | "async" | "unsafe" | "extern" | "\"C\"" => {}
            word if word.starts_with("pub") || word.ends_with(')') => {}
            _ => return None,
        }
    }
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some((indent, &name[..end.unwrap_or(name.len())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> Source {
        let body = "        x();\n".repeat(lines - 1);
        let text = format!("impl A {{\n    pub(crate) const fn long(&self) {{\n{body}    }}\n}}\n");
        Source::new("crates/x/src/a.rs", &text)
    }

    #[test]
    fn a_function_that_is_one_line_too_long_is_found_by_name() {
        assert!(functions(&[function(FUNCTION_LINES_MAX)]).is_empty());
        let findings = functions(&[function(FUNCTION_LINES_MAX + 1)]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
        assert!(findings[0].message.contains("`long` has 71 lines"));
    }

    #[test]
    fn a_file_that_is_too_long_is_found_but_for_tests() {
        let long = "\n".repeat(FILE_LINES_MAX + 1);
        let found = files(&[
            Source::new("crates/x/src/a.rs", &long),
            Source::new("crates/x/src/a/tests.rs", &long),
            Source::new("crates/x/src/b.rs", "\n"),
        ]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "crates/x/src/a.rs");
    }
}
