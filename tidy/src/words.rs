//! Vocabulary: one word for one thing, the specification's or the papers' (`docs/GLOSSARY.md`). This
//! list is the glossary's table of refused words; a test compares them.

use crate::source::{Finding, Source};

/// Words that are not used here, and the ones that are used instead. A word is compared with the
/// words of comments and with the parts of identifiers, whatever their case.
pub const FORBIDDEN: &[(&str, &str)] = &[
    ("keeper", "idle spinner"),
    ("doze", "wake flag"),
    ("dozing", "asleep"),
    ("nearness", "latency activity"),
    ("untold", "unnotified"),
    ("luggage", "the connection's state in transit"),
    ("steersman", "application steering"),
    ("aftermath", "fencing"),
    ("heed", "respect"),
    ("heeds", "respects"),
    ("heeded", "respected"),
    ("seat", "attachment to a tenant"),
    ("passage", "fencing"),
    ("turner", "knob changes"),
    ("purse", "balance"),
    ("hungry", "backlogged"),
    ("hunger", "demand"),
    ("sate", "satisfy, or clear the demand"),
    ("enroll", "register"),
    ("heir", "successor"),
    ("upstairs", "host"),
    ("downstairs", "target"),
    ("roomlease", "operation namespace lease"),
    ("sit_down", "attach"),
    ("stand_up", "detach"),
    ("put_to_rest", "deactivate"),
    ("strike_off", "remove"),
    ("leave away", "omit"),
    ("left away", "omitted"),
    ("work is near", "work is active"),
    ("work was near", "work was active"),
    ("told of completions", "notified of completions"),
];

/// Reports forbidden words in Rust files and documents. Tests count, too: they are read first.
#[must_use]
pub fn check(files: &[Source], forbidden: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        // This list, and the glossary's column of words that are not used.
        let lists = ["tidy/src/words.rs", "docs/GLOSSARY.md"];
        if file.path.ends_with(".toml") || lists.contains(&file.path.as_str()) {
            continue;
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            let spaced = spaced(line);
            for (word, instead) in forbidden {
                if spaced.contains(&format!(" {} ", word.replace('_', " "))) {
                    let message = format!("\"{word}\" is not our word: use \"{instead}\"");
                    findings.push(file.finding(number, message));
                }
            }
        }
    }
    findings
}

/// The line in lower case, its words and the parts of its identifiers between single blanks.
fn spaced(line: &str) -> String {
    let mut text = String::from(" ");
    let mut was_lower = false;
    for c in line.chars() {
        if c.is_uppercase() && was_lower {
            text.push(' ');
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        if c.is_alphanumeric() {
            text.extend(c.to_lowercase());
        } else if !text.ends_with(' ') {
            text.push(' ');
        }
    }
    text.push(' ');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_word_is_found_in_prose_and_in_identifiers() {
        let text = "/// The keeper.\nstruct IdleKeeper;\nlet with_keeper = 1;\nfn sit_down() {}\n";
        let found = check(&[Source::new("crates/x/src/a.rs", text)], FORBIDDEN);
        let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
        assert!(found[0].message.contains("use \"idle spinner\""));
    }

    #[test]
    fn the_glossary_names_every_refused_word() {
        let glossary = include_str!("../../docs/GLOSSARY.md");
        let (_, rest) = glossary.split_once("\nRefused:\n").expect("the table");
        let (table, _) = rest.split_once("\nNot used").expect("its end");
        let rows = table.lines().filter_map(|row| row.strip_prefix("| "));
        let column: String = rows
            .map(|row| row.split(" |").next().unwrap_or_default())
            .collect();
        let column = spaced(&column);
        for (word, _) in FORBIDDEN {
            let stem = word.replace("left", "leave").replace('_', " ");
            let stem = stem.trim_end_matches('s').trim_end_matches("ed");
            let known = column.contains(stem) || column.replace(' ', "").contains(stem);
            assert!(known, "{word}");
        }
    }

    #[test]
    fn parts_of_words_are_other_words() {
        let text = "housekeeper bookkeepers dozen sated\n";
        assert_eq!(check(&[Source::new("docs/a.md", text)], FORBIDDEN), []);
    }
}
