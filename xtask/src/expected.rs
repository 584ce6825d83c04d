//! Expected lines of binutils' tests: regular expressions, one for each line that is not empty;
//! `#...` matches any lines, `#pass` all that follow.

use regex_lite::Regex;

use crate::Error;

/// The first difference between a text and the expected one; `None` if there is none.
///
/// # Errors
///
/// An expected line is not a valid regular expression.
pub(crate) fn difference(text: &str, expected: &str) -> Result<Option<String>, Error> {
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let mut may_skip = false;
    for wanted in expected.lines().filter(|line| !line.is_empty()) {
        match wanted {
            "#pass" => return Ok(None),
            "#..." => may_skip = true,
            _ if wanted.starts_with('#') => {}
            _ => {
                let regex = Regex::new(&format!("^(?:{wanted})$"))?;
                let found = if may_skip {
                    lines
                        .any(|line| regex.is_match(line))
                        .then_some("")
                        .ok_or("")
                } else {
                    match lines.next() {
                        Some(line) if regex.is_match(line) => Ok(line),
                        line => Err(line.unwrap_or("nothing")),
                    }
                };
                if let Err(line) = found {
                    return Ok(Some(format!("expected {wanted:?}, and there is {line:?}")));
                }
                may_skip = false;
            }
        }
    }
    match lines.next().filter(|_| !may_skip) {
        Some(line) => Ok(Some(format!("there is more: {line:?}"))),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn lines_are_compared_with_expected_ones() {
        let text = "one\n\ntwo 0x12\nthree\nfour\n";
        let is_equal = |expected| difference(text, expected).is_ok_and(|found| found.is_none());
        assert!(is_equal("one\ntwo 0x[0-9a-f]*\nthree\nfour"));
        assert!(is_equal("#...\nthree\n#..."));
        assert!(is_equal("one\n#pass\nnever"));
        assert!(!is_equal("one\nthree\n#..."));
        assert!(!is_equal("#...\nfive\n#..."));
        assert!(!is_equal("#...\nthree"));
        assert!(!is_equal("on\n#..."));
        assert!(!is_equal("#...\nfour\nfive"));
    }
}
