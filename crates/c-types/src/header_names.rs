//! The names that header files contain.
//!
//! DWARF has the place of a function's definition, and not that of its declaration. So a header
//! counts as declaring a function if it contains its name, outside comments. Macros can make names
//! of parts: a name that begins or ends like such a part (`__gmpn_##x`) counts, too.

use hashbrown::HashSet;

/// The identifiers in header files of C and C++.
#[derive(Debug, Clone, Default)]
pub struct HeaderNames {
    names: HashSet<String>,
    /// The parts of names that macros complete at the end, and at the beginning.
    prefixes: HashSet<String>,
    suffixes: HashSet<String>,
}

impl HeaderNames {
    /// Adds the names in the text of a header.
    pub fn add(&mut self, text: &str) {
        for line in logical_lines(text).lines() {
            let words = words(line).map(str::to_owned);
            self.names.extend(words);
            self.add_name_parts(line);
        }
    }

    /// Whether a symbol's name is among them. Of a name of C++ (`_ZN3net4openEi`), all parts of the
    /// qualified name must be (`net`, `open`). Names without such parts, as of operators, count.
    #[must_use]
    pub fn declares(&self, symbol: &str) -> bool {
        match symbol.strip_prefix("_Z") {
            Some(mangled) => qualified_name(mangled).all(|part| self.contains(part)),
            None => self.contains(symbol),
        }
    }

    fn contains(&self, name: &str) -> bool {
        let starts = |prefix: &String| name.starts_with(&**prefix);
        let ends = |suffix: &String| name.ends_with(&**suffix);
        self.names.contains(name)
            || self.prefixes.iter().any(starts)
            || self.suffixes.iter().any(ends)
    }

    /// Adds the parts of names in the definition of a macro: what is next to `##`, except the
    /// macro's parameters.
    fn add_name_parts(&mut self, line: &str) {
        let directive = line.trim_start().strip_prefix('#').map(str::trim_start);
        let Some(definition) = directive.and_then(|text| text.strip_prefix("define")) else {
            return;
        };
        let definition = definition.trim_start();
        let (head, body) = definition.split_at(end_of_word(definition));
        let (parameters, body) = match body.strip_prefix('(').and_then(|text| text.split_once(')'))
        {
            Some((parameters, body)) if !head.is_empty() => (parameters, body),
            _ => ("", body),
        };
        let parameters: Vec<&str> = words(parameters).collect();
        let is_part = |word: &&str| !word.is_empty() && !parameters.contains(word);
        for (at, operator) in body.match_indices("##") {
            let (before, behind) = body.split_at(at);
            let before = before.trim_end();
            let behind = behind
                .get(operator.len()..)
                .unwrap_or_default()
                .trim_start();
            let before = before.get(start_of_last_word(before)..).filter(is_part);
            let behind = behind.get(..end_of_word(behind)).filter(is_part);
            self.prefixes.extend(before.map(str::to_owned));
            self.suffixes.extend(behind.map(str::to_owned));
        }
    }
}

/// A text without comments, and with continued lines as one.
fn logical_lines(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\\' if rest.starts_with("\\\n") => 2,
            '\\' if rest.starts_with("\\\r\n") => 3,
            '/' if rest.starts_with("/*") => {
                lines.push(' ');
                let inner = rest.get(2..).unwrap_or_default();
                inner.find("*/").map_or(rest.len(), |end| end + 4)
            }
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => {
                let length = literal_length(rest, first);
                lines.push_str(rest.get(..length).unwrap_or_default());
                length
            }
            _ => {
                lines.push(first);
                first.len_utf8()
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    lines
}

/// The length of the literal at the beginning of a text: to its end, or to the end of the line.
fn literal_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, one) in text.char_indices().skip(1) {
        match one {
            '\n' => return at,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if one == quote => return at + one.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

fn is_word(one: char) -> bool {
    one.is_alphanumeric() || one == '_' || one == '$'
}

/// The identifiers in a text. Those in literals count: assembler names are there.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|one| !is_word(one));
    words.filter(|word| word.starts_with(|first: char| !first.is_ascii_digit()))
}

fn end_of_word(text: &str) -> usize {
    text.find(|one| !is_word(one)).unwrap_or(text.len())
}

fn start_of_last_word(text: &str) -> usize {
    let before = text.char_indices().rev().find(|(_, one)| !is_word(*one));
    before.map_or(0, |(at, one)| at + one.len_utf8())
}

/// The parts of a qualified name behind `_Z` (Itanium C++ ABI §5.1), up to the first that is not an
/// identifier, such as an operator or template arguments.
fn qualified_name(mangled: &str) -> impl Iterator<Item = &str> {
    // Of a table of virtual functions, and of type information: of what class it is.
    let special = ["TV", "TI", "TS", "TT"].into_iter();
    let class = special.filter_map(|kind| mangled.strip_prefix(kind)).next();
    let name = class.unwrap_or(mangled);
    // Of a nested name: with the qualifiers of a member function.
    let nested = name.strip_prefix('N');
    let mut rest = nested.map_or(name, |nested| {
        nested.trim_start_matches(['r', 'V', 'K', 'R', 'O'])
    });
    std::iter::from_fn(move || {
        let digits = rest.find(|one: char| !one.is_ascii_digit())?;
        let (length, behind) = rest.split_at(digits);
        let part = behind.get(..length.parse().ok()?)?;
        rest = behind.get(part.len()..)?;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, declared: &[&str], others: &[&str]) {
        let mut names = HeaderNames::default();
        names.add(header);
        for name in declared {
            assert!(names.declares(name), "{name} in {header}");
        }
        for name in others {
            assert!(!names.declares(name), "{name} in {header}");
        }
    }

    #[test]
    fn names_in_comments_do_not_count() {
        check(
            "int open_it(const char *); /* see close_it */ int read_it(void); // and seek_it\n\
             #define HOME \"http://example.org\" /* \" */\nint \\\nwrite_it(void);",
            &["open_it", "read_it", "write_it", "example"],
            &["close_it", "seek_it", "pen_it", "open", ""],
        );
        check("/* never ends int a;", &[], &["a"]);
        check(
            "char c = '\"'; int b; char *s = \"\\\"\"; int d; \"",
            &["b", "d"],
            &["s2"],
        );
    }

    #[test]
    fn macros_make_names_of_parts() {
        check(
            "#define MPN(x) __gmpn_##x\n# define GET(type, name) type name ## _get(void)\n\
             #define PASTE(a, b) a##b\n#define ASM __asm__(\"renamed64\")\nMPN(add);",
            &["__gmpn_add", "size_get", "renamed64", "add"],
            &["gmpn_add", "size_set", "ab"],
        );
        check(
            "#define\n#define (x) ##\n#define A(x ##\n##",
            &["A"],
            &["b"],
        );
    }

    #[test]
    fn names_of_cpp_are_qualified() {
        check(
            "namespace net { int open(int); struct link { virtual ~link(); }; }",
            &[
                "_ZN3net4openEi",
                "_ZNK3net4openEi",
                "_ZTVN3net4linkE",
                "_Zplii",
                "_ZN3net4linkD1Ev",
            ],
            &[
                "_ZN3net5closeEi",
                "_ZN2my4openEi",
                "_Z5closev",
                "_ZTI5other",
            ],
        );
        check(
            "",
            &["_Z", "_ZN99open", "_ZN99999999999999999999999open"],
            &["open"],
        );
    }
}
