//! Safe display of untrusted text.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

/// Untrusted text: names in files, of files, of threads. It is shown on one line. Characters that
/// would control a terminal, end the line or change the text's direction are shown as escapes
/// (`\u{1b}`, `\n`, `\u{202e}`).
#[derive(Debug, Clone, Copy)]
pub struct EscapedText<'a>(pub &'a str);

impl EscapedText<'_> {
    /// Whether a character is shown as an escape: a control character (C0, DEL, C1), a separator of
    /// lines or paragraphs, or a format character that changes the direction of text (Unicode, UAX
    /// #9 §2).
    #[must_use]
    pub(crate) fn is_escaped(character: char) -> bool {
        character.is_control()
            || matches!(
                character,
                '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            )
    }
}

impl Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some((plain, after)) = rest.split_once(EscapedText::is_escaped) {
            f.write_str(plain)?;
            // The rest between both is the character.
            let escaped = rest.get(plain.len()..rest.len() - after.len());
            for part in escaped.unwrap_or_default().escape_default() {
                f.write_char(part)?;
            }
            rest = after;
        }
        f.write_str(rest)
    }
}

/// The same for bytes, which are mostly ASCII without control characters and then stay as they are.
/// Invalid UTF-8 is replaced.
#[must_use]
pub fn escape_bytes(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        Cow::Borrowed(text)
    } else {
        let text = String::from_utf8_lossy(text);
        Cow::Owned(EscapedText(&text).to_string().into_bytes())
    }
}

/// Writes text, and shows each line as [`EscapedText`]. Line ends and tabs are kept, so names that
/// may contain them must be `EscapedText` themselves.
#[derive(Debug)]
pub struct EscapedLines<W>(pub W);

impl<W: Write> Write for EscapedLines<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let stays = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
        if text.iter().all(stays) {
            return self.0.write(text);
        }
        for part in text.split_inclusive(stays_apart) {
            let (rest, end) = match part.split_last() {
                Some((end, rest)) if stays_apart(end) => (rest, std::slice::from_ref(end)),
                _ => (part, &[][..]),
            };
            self.0.write_all(&escape_bytes(rest))?;
            self.0.write_all(end)?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn stays_apart(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\t')
}

/// Writes JSON that is safe to display: the characters that [`EscapedText`] escapes are written as
/// JSON escapes (RFC 8259 §7), so that a parser restores them. C0 characters are kept: valid JSON
/// has them only between values. A character must be written in one piece.
#[derive(Debug)]
pub struct PlainJson<W>(pub W);

impl<W: Write> Write for PlainJson<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if text.iter().all(|byte| *byte < 0x7f) {
            return self.0.write(text);
        }
        let whole = str::from_utf8(text).map_err(io::Error::other)?;
        let is_escaped = |character| character >= '\x7f' && EscapedText::is_escaped(character);
        let mut rest = whole;
        while let Some((plain, after)) = rest.split_once(is_escaped) {
            self.0.write_all(plain.as_bytes())?;
            let escaped = rest.get(plain.len()..rest.len() - after.len());
            for unit in escaped.unwrap_or_default().encode_utf16() {
                write!(self.0, "\\u{unit:04x}")?;
            }
            rest = after;
        }
        self.0.write_all(rest.as_bytes())?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// An error and what caused it, on one line.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_controls_are_escaped() {
        let shown = |text| EscapedText(text).to_string();
        assert_eq!(
            shown("operator new(unsigned long)"),
            "operator new(unsigned long)"
        );
        assert_eq!(shown("größe \\n 'x'"), "größe \\n 'x'");
        assert_eq!(shown("\x1b[31mred\x07"), "\\u{1b}[31mred\\u{7}");
        assert_eq!(
            shown("a\nb\r\tc\x7f\u{9b}1m"),
            "a\\nb\\r\\tc\\u{7f}\\u{9b}1m"
        );
    }

    #[test]
    fn bidirectional_controls_are_escaped() {
        let steering = "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
                        \u{2066}\u{2067}\u{2068}\u{2069}";
        for character in steering.chars() {
            let code = u32::from(character);
            assert_eq!(
                EscapedText(&character.to_string()).to_string(),
                format!("\\u{{{code:x}}}")
            );
        }
        assert_eq!(&*escape_bytes(b"a b"), b"a b");
        assert_eq!(
            &*escape_bytes(b"a\xff\n\xc3\xa4"),
            "a\u{fffd}\\nä".as_bytes()
        );
        let mut lines = EscapedLines(Vec::new());
        lines.write_all("a\t\x1bä\nb\n".as_bytes()).unwrap();
        assert_eq!(lines.0, "a\t\\u{1b}ä\nb\n".as_bytes());
        // A joiner is part of words.
        assert_eq!(
            EscapedText("\u{200d}\u{5d0}").to_string(),
            "\u{200d}\u{5d0}"
        );
    }

    #[test]
    fn json_keeps_what_it_escapes() {
        let mut json = PlainJson(Vec::new());
        let text = "{\n \"ä\": \"a\x7fb\u{9b}\u{202e}\u{200d}\"}";
        json.write_all(text.as_bytes()).unwrap();
        let expected = "{\n \"ä\": \"a\\u007fb\\u009b\\u202e\u{200d}\"}";
        assert_eq!(String::from_utf8(json.0).unwrap(), expected);
    }
}
