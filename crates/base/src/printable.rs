//! Escaping of untrusted text for terminals.

use std::borrow::Cow;

/// Returns true unless the character is a control character, a line end, invisible, or changes text
/// direction.
#[must_use]
pub fn is_printable(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns the text with all characters that are not [printable](is_printable) escaped, such as
/// `\n` or `\u{9b}`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |character| character.escape_default().to_string())
}

/// As [`printable`], but keeps line feeds: for multi-line text of this program whose untrusted
/// parts are already escaped.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, |character| match character {
        '\n' => "\n".to_owned(),
        _ => character.escape_default().to_string(),
    })
}

/// Returns JSON with all characters that are not [printable](is_printable) escaped. Line feeds
/// between strings stay.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escape(json, |character| {
        if character == '\n' {
            return "\n".to_owned();
        }
        let mut units = [0; 2];
        let units = character.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect()
    })
}

fn escape(text: &str, escaped: impl Fn(char) -> String) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_printable(character) {
            shown.push(character);
        } else {
            shown.push_str(&escaped(character));
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lines, a terminal command in each of its forms, right-to-left text, invisible text, and
    /// a harmless name.
    const HOSTILE: &str =
        "a\r\nb\u{1b}[2J\u{9b}2J\u{7f}\u{202e}c\u{200b}\u{e0041}d \u{e9}\u{1f4be}";

    #[test]
    fn text_of_others_is_on_one_line_and_commands_no_terminal() {
        assert_eq!(
            printable(HOSTILE),
            "a\\r\\nb\\u{1b}[2J\\u{9b}2J\\u{7f}\\u{202e}c\\u{200b}\\u{e0041}d \u{e9}\u{1f4be}"
        );
        assert_eq!(printable_lines("one\ntwo\u{1b}\n"), "one\ntwo\\u{1b}\n");
        assert!(matches!(
            printable("nqn.2026-11.io.example:a"),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn json_stays_json() {
        let json = "{\n  \"a\": \"\u{9b}\u{e0041}\"\n}";
        let shown = "{\n  \"a\": \"\\u009b\\udb40\\udc41\"\n}";
        assert_eq!(printable_json(json), shown);
    }
}
