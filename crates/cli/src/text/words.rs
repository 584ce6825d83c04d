//! Arguments as text: in a file that is named as `@FILE`, in a variable of the environment, and for a shell.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The words of a text, as GNU's programs read files of arguments: quotes and backslashes take the meaning from what is
/// behind them.
pub(crate) fn split_words(text: &[u8]) -> Vec<OsString> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let (mut quote, mut is_inside) = (None, false);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if quote.is_none() && byte.is_ascii_whitespace() {
            is_inside = false;
            continue;
        }
        if !is_inside {
            words.push(Vec::new());
            is_inside = true;
        }
        let meant = match byte {
            b'\\' => bytes.next(),
            _ if quote == Some(byte) => {
                quote = None;
                None
            }
            b'\'' | b'"' if quote.is_none() => {
                quote = Some(byte);
                None
            }
            other => Some(other),
        };
        if let Some(word) = words.last_mut() {
            word.extend(meant);
        }
    }
    let words = words.into_iter();
    words
        .map(|word| OsStr::from_bytes(&word).to_owned())
        .collect()
}

/// A word with the quotes that a shell needs to take it as it is.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "%+,-./:=@_".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart_as_the_assembler_does() {
        let text = b"--64  -o 'a b'/c\\ d.o \"x\\\"y\"\n''\n";
        assert_eq!(split_words(text), ["--64", "-o", "a b/c d.o", "x\"y", ""]);
    }

    #[test]
    fn words_are_quoted_as_a_shell_needs_it() {
        for (word, shown) in [
            ("./app", "./app"),
            ("--level=3", "--level=3"),
            ("", "''"),
            ("kill -SEGV $$", "'kill -SEGV $$'"),
            ("it's", r"'it'\''s'"),
            ("*", "'*'"),
            ("~", "'~'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }
}
