//! Names that fit.

use std::ops::Range;

/// How much of a name is shown however narrow the terminal, in characters.
const MIN_NAME: usize = 8;

/// A name in so many characters. If it is too long, these are left out until it fits: the parameters and the type
/// before the name, the longest template arguments, and what is in the middle.
pub(crate) fn fit(name: &str, room: usize) -> String {
    let room = room.max(MIN_NAME);
    let is_long = |name: &str| name.chars().count() > room;
    let mut name = name.to_owned();
    if is_long(&name)
        && let Some((start, parameters)) = parts(&name)
    {
        if !parameters.is_empty() {
            name.replace_range(parameters, "…");
        }
        name.replace_range(..start, "");
    }
    while is_long(&name)
        && let Some(arguments) = longest_arguments(&name)
    {
        name.replace_range(arguments, "…");
    }
    if is_long(&name) {
        let (head, tail) = (room / 2, room - room / 2 - 1);
        let skipped = name.chars().count() - tail;
        let head = name.chars().take(head);
        name = (head.chain(['…']))
            .chain(name.chars().skip(skipped))
            .collect();
    }
    name
}

/// A name without its parameters and the type before it.
pub(crate) fn without_parameters(name: &str) -> &str {
    let found = parts(name).and_then(|(start, parameters)| name.get(start..parameters.start - 1));
    found.unwrap_or(name)
}

/// A name that ends in template arguments, without them.
pub(crate) fn without_arguments(name: &str) -> &str {
    let all = brackets(name);
    let last = (all.iter()).find(|pair| pair.kind == '<' && pair.inside.end + 1 == name.len());
    last.and_then(|pair| name.get(..pair.inside.start - 1))
        .map_or(name, str::trim_end)
}

/// Where a name with parameters begins, behind its type; and where the parameters are, without their parentheses.
/// They are in no other brackets, and nothing that is qualified follows.
fn parts(name: &str) -> Option<(usize, Range<usize>)> {
    // The type that an operator converts to is behind a space, too.
    if name.contains("operator ") {
        return None;
    }
    let all = brackets(name);
    let is_outside = |at: usize| !all.iter().any(|pair| pair.inside.contains(&at));
    let mut lists = all
        .iter()
        .filter(|pair| pair.kind == '(' && pair.depth == 0);
    let parameters = lists.next_back()?.inside.clone();
    let mut behind = name.get(parameters.end..)?.match_indices(':');
    if behind.any(|(at, _)| is_outside(parameters.end + at)) {
        return None;
    }
    let mut spaces = name.get(..parameters.start)?.rmatch_indices(' ');
    let space = spaces.find(|(at, _)| is_outside(*at));
    let start = space.map_or(0, |(at, _)| at + 1);
    (start + 1 < parameters.start).then_some((start, parameters))
}

/// Where the longest list of template arguments is, without its brackets, if any is worth leaving out.
fn longest_arguments(name: &str) -> Option<Range<usize>> {
    let lists = brackets(name).into_iter().filter(|pair| pair.kind == '<');
    let lists = lists.map(|pair| pair.inside);
    let is_worth = |list: &Range<usize>| {
        let list = name.get(list.clone()).unwrap_or_default();
        list.chars().count() > 1
    };
    lists.filter(is_worth).max_by_key(Range::len)
}

/// A pair of brackets in a name.
struct Brackets {
    /// The opening one.
    kind: char,
    /// How many others are around them.
    depth: usize,
    /// What is between them.
    inside: Range<usize>,
}

/// The pairs of brackets, by their ends. Of an operator's name, the sign is a pair of kind `o`.
fn brackets(name: &str) -> Vec<Brackets> {
    let (mut open, mut pairs) = (Vec::new(), Vec::new());
    let mut previous = ' ';
    let mut sign = 0..0;
    for (at, letter) in name.char_indices() {
        let rest = name.get(at..).unwrap_or_default();
        if !(previous.is_alphanumeric() || previous == '_')
            && let Some(found) = operator(rest)
        {
            sign = at..at + found;
            pairs.push(Brackets {
                kind: 'o',
                depth: open.len(),
                inside: sign.clone(),
            });
        }
        let opens = previous.is_alphanumeric() || "_:".contains(previous) || at == sign.end;
        let closed = match letter {
            _ if sign.contains(&at) => None,
            '(' | '{' => {
                open.push((letter, at + 1));
                None
            }
            '<' if opens => {
                open.push((letter, at + 1));
                None
            }
            ')' => Some('('),
            '}' => Some('{'),
            '>' if previous != '-' => Some('<'),
            _ => None,
        };
        if let Some((kind, start)) = open.pop_if(|(kind, _)| Some(*kind) == closed) {
            let depth = open.len();
            let inside = start..at;
            pairs.push(Brackets {
                kind,
                depth,
                inside,
            });
        }
        previous = letter;
    }
    pairs
}

/// The signs of operators, the longer ones first.
const SIGNS: [&str; 40] = [
    "<=>", "<<=", ">>=", "->*", "()", "[]", "<<", ">>", "<=", ">=", "->", "==", "!=", "&&", "||",
    "++", "--", "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<", ">", "+", "-", "*", "/", "%",
    "^", "&", "|", "~", "!", "=", ",", "\"\"",
];

/// The length of an operator's name at the start of a text, with the space before template arguments.
fn operator(text: &str) -> Option<usize> {
    let word = "operator";
    let behind = text.strip_prefix(word)?;
    let sign = SIGNS.iter().find(|sign| behind.starts_with(**sign))?;
    let space = behind.get(sign.len()..)?.starts_with(" <");
    Some(word.len() + sign.len() + usize::from(space))
}

#[cfg(test)]
mod tests {
    use super::{fit, without_arguments, without_parameters};

    #[test]
    fn long_names_lose_parameters_then_template_arguments_then_their_middle() {
        let name = "void ns::map<int, std::pair<long, char>>::find(int, int)  [libm.so]";
        assert_eq!(fit(name, 67), name);
        let without_type = "ns::map<int, std::pair<long, char>>::find(…)  [libm.so]";
        assert_eq!(fit(name, 66), without_type);
        assert_eq!(fit(name, 54), "ns::map<…>::find(…)  [libm.so]");
        assert_eq!(fit(name, 20), "ns::map<…>…[libm.so]");
        assert_eq!(fit("f<a>(g<bcd>)", 11), "f<a>(…)");
        assert_eq!(fit("operator<<(wide, left)", 15), "operator<<(…)");
        assert_eq!(fit("operator<<(wide, left)", 10), "opera…<(…)");
        let less = "bool std::operator< <char, long>(S<char>, S<char>)";
        assert_eq!(fit(less, 34), "std::operator< <char, long>(…)");
        assert_eq!(fit(less, 22), "std::operator< <…>(…)");
        assert_eq!(fit("ääääääääääää", 3), "ääää…äää");
    }

    #[test]
    fn names_without_template_arguments() {
        assert_eq!(without_arguments("a::f<b<c>, d>"), "a::f");
        assert_eq!(without_arguments("operator< <char>"), "operator<");
        for same in ["f", "A<b>::f", "operator>", "operator->"] {
            assert_eq!(without_arguments(same), same);
        }
    }

    #[test]
    fn names_without_parameters() {
        let same = [
            "f",
            "f<void (int)>",
            "<T as Trait>::f",
            "X::operator bool() const",
        ];
        same.iter()
            .for_each(|name| assert_eq!(without_parameters(name), *name));
        for (name, short) in [
            ("f()", "f"),
            ("row(int) [clone .cold]", "row"),
            ("std::vector<int, A<int> > f<int>(int (*)(int))", "f<int>"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            (
                "bool std::operator< <char, A<int> >(std::string const&)",
                "std::operator< <char, A<int> >",
            ),
            ("S std::operator+<char>(S, S)", "std::operator+<char>"),
            ("X::operator->() const", "X::operator->"),
            ("X::operator[]<int>(int)", "X::operator[]<int>"),
            (
                "f(int)::{lambda(long)#1}::operator()(long) const",
                "f(int)::{lambda(long)#1}::operator()",
            ),
            (
                "std::function<void (int)>::operator()(int) const",
                "std::function<void (int)>::operator()",
            ),
        ] {
            assert_eq!(without_parameters(name), short);
        }
    }
}
