//! Fixed-size text fields: ASCII padded with spaces, and UTF-8 padded with zeroes.
//!
//! `[NVMe Base 2.0 §1.4.2]`: an ASCII field is left-justified and padded with spaces unless its
//! definition says otherwise; names are zero-terminated instead.

/// Returns `text` padded with spaces to `N` bytes; cut at `N` bytes.
///
/// Bytes other than printable ASCII become `?`, because the field allows no other bytes.
pub fn ascii_field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (place, byte) in field.iter_mut().zip(text.bytes()) {
        *place = if (0x20..0x7f).contains(&byte) {
            byte
        } else {
            b'?'
        };
    }
    field
}

/// Returns the text of `value`, padded with spaces to `N` bytes; cut at `N` bytes.
pub fn ascii_display_field<const N: usize>(value: impl core::fmt::Display) -> [u8; N] {
    let mut writer = FieldWriter {
        field: [b' '; N],
        length: 0,
    };
    // The writer accepts everything, so only a failing `Display` could fail here.
    let _ = core::fmt::Write::write_fmt(&mut writer, format_args!("{value}"));
    writer.field
}

/// Writes text to a field and drops the excess.
struct FieldWriter<const N: usize> {
    field: [u8; N],
    length: usize,
}

impl<const N: usize> core::fmt::Write for FieldWriter<N> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes().take(N - self.length) {
            self.field[self.length] = if (0x20..0x7f).contains(&byte) {
                byte
            } else {
                b'?'
            };
            self.length += 1;
        }
        Ok(())
    }
}

/// Returns `text` padded with zeroes to `N` bytes; cut at `N` bytes.
pub fn zero_padded_field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    field
}

/// Returns the text of a field of either kind without its padding; the longest valid UTF-8 prefix
/// if a peer sent invalid text.
pub fn field_text(field: &[u8]) -> &str {
    let end = field
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(field.len());
    let text = match core::str::from_utf8(&field[..end]) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&field[..error.valid_up_to()]).unwrap_or_default(),
    };
    text.trim_end_matches(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_padded_and_cut() {
        assert_eq!(&ascii_field::<6>("abc"), b"abc   ");
        assert_eq!(&ascii_field::<2>("abc"), b"ab");
        assert_eq!(&ascii_field::<4>("a\n\u{e9}"), b"a???");
        assert_eq!(&zero_padded_field::<5>("abc"), b"abc\0\0");
        assert_eq!(&ascii_display_field::<4>(65_535), b"6553");
    }

    #[test]
    fn text_is_what_comes_before_the_padding() {
        assert_eq!(field_text(b"abc   "), "abc");
        assert_eq!(field_text(b"abc\0\xff\xff"), "abc");
        assert_eq!(field_text(b"ab\xffc"), "ab");
        assert_eq!(field_text(b""), "");
    }
}
