//! Voice: a comment says what a thing is or does, and has no people in it.
//!
//! The first sentence of a doc comment is a noun phrase for a type or a field, "Returns …" for a
//! query, and an active verb for an action.

use crate::source::{Finding, Source};

/// Words for people, where a comment should name the component.
const PEOPLE: [&str; 8] = [
    "who",
    "whom",
    "whose",
    "whoever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
];

/// Words that open a question.
const QUESTIONS: [&str; 8] = [
    "What", "Whether", "How", "Who", "Whose", "Where", "When", "Why",
];

/// Reports comment lines that speak of people.
#[must_use]
pub fn people(files: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, number, line) in comments(files) {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let found = words.find(|word| {
            PEOPLE
                .iter()
                .any(|person| person.eq_ignore_ascii_case(word))
        });
        if let Some(word) = found {
            let message = format!("\"{word}\" in a comment: name the component that acts");
            findings.push(file.finding(number, message));
        }
    }
    findings
}

/// Reports doc comments that open with a question word.
#[must_use]
pub fn questions(files: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut last = ("", 0);
    for (file, number, line) in comments(files) {
        let text = ["///", "//!"]
            .iter()
            .find_map(|mark| line.strip_prefix(mark));
        let Some(text) = text else { continue };
        let goes_on = last == (file.path.as_str(), number - 1);
        last = (&file.path, number);
        let text = text.strip_prefix(' ').unwrap_or(text);
        let end = text
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(text.len());
        let word = &text[..end];
        if !goes_on && QUESTIONS.contains(&word) {
            let message = format!(
                "a doc comment opens with \"{word}\": begin with a noun phrase, \"Returns …\", or \
                 an active verb"
            );
            findings.push(file.finding(number, message));
        }
    }
    findings
}

/// The comment lines of Rust files outside of tests, trimmed.
fn comments(files: &[Source]) -> impl Iterator<Item = (&Source, usize, &str)> {
    let code = files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test());
    code.flat_map(|file| {
        let lines = (1..).zip(file.text.lines());
        let lines = lines.map(move |(number, line)| (file, number, line.trim()));
        lines.filter(|(_, _, line)| line.starts_with("//"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: &str = "//! Whose turn it is.\n//! What follows is fine.\n\n/// Returns the owner; \
                       nobody else asks.\nfn f() {\n    // Who knows.\n}\n";

    #[test]
    fn people_are_found_in_every_comment() {
        let found = people(&[Source::new("crates/x/src/a.rs", BAD)]);
        let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 4, 6]);
    }

    #[test]
    fn questions_are_found_where_a_doc_comment_begins() {
        let found = questions(&[Source::new("crates/x/src/a.rs", BAD)]);
        let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1]);
        assert!(found[0].message.contains("\"Whose\""));
    }

    #[test]
    fn tests_and_code_may_say_what_they_like() {
        let files = [
            Source::new("crates/x/src/a/tests.rs", BAD),
            Source::new(
                "crates/x/src/b.rs",
                "/// Returns it.\nlet who = \"nobody\";\n",
            ),
        ];
        assert_eq!(people(&files), []);
        assert_eq!(questions(&files), []);
    }
}
