//! Text of other programs where a person reads it.

use std::borrow::Cow;

/// Returns true for a character that shows as itself: neither a control character, nor one that
/// ends a line, is invisible, or changes the direction of the text around it.
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

/// Returns the text on one line that commands no terminal: every character that is not
/// [printable](is_printable) as its escape, such as `\n` or `\u{9b}`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |character| character.escape_default().to_string())
}

/// Returns the text as [`printable`] does, with its line feeds: for text of this program that has
/// lines, and in which text of other programs was escaped before.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, |character| match character {
        '\n' => "\n".to_owned(),
        _ => character.escape_default().to_string(),
    })
}

/// Returns JSON that commands no terminal: every character that is not [printable](is_printable)
/// as an escape of JSON. Between strings, line feeds stay: they are the only such characters there.
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

    /// Two lines, a command to a terminal in each of its forms, text that runs backwards, text that
    /// hides, and a name that is all right.
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
