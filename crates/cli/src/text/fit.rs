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

/// Where a name with parameters begins, behind its type; and where the parameters are, without their parentheses.
/// They are in no other brackets, and nothing that is qualified follows.
fn parts(name: &str) -> Option<(usize, Range<usize>)> {
    let (mut brackets, mut opened, mut start, mut found) = (Vec::new(), 0, 0, None);
    let mut previous = ' ';
    for (at, letter) in name.char_indices() {
        let before = name.get(..at).unwrap_or_default();
        let is_operator = before
            .trim_end_matches(['<', '>', '-'])
            .ends_with("operator");
        let is_list = !is_operator && (previous.is_alphanumeric() || "_:".contains(previous));
        match letter {
            '(' | '{' => {
                opened = if brackets.is_empty() { at + 1 } else { opened };
                brackets.push(letter);
            }
            '<' if is_list => brackets.push(letter),
            ')' | '}' | '>' if brackets.last().is_some_and(|open| closes(*open, letter)) => {
                brackets.pop();
                if letter == ')' && brackets.is_empty() {
                    found = Some((start, opened..at));
                }
            }
            ':' if brackets.is_empty() => found = None,
            ' ' if brackets.is_empty() && found.is_none() => start = at + 1,
            _ => {}
        }
        previous = letter;
    }
    let named = |(start, list): &(usize, Range<usize>)| start + 1 < list.start;
    // The type that an operator converts to is behind a space, too.
    found.filter(named).filter(|_| !name.contains("operator "))
}

fn closes(open: char, close: char) -> bool {
    matches!((open, close), ('(', ')') | ('{', '}') | ('<', '>'))
}

/// Where the longest list of template arguments is, without its brackets, if any is worth leaving out.
fn longest_arguments(name: &str) -> Option<Range<usize>> {
    let (mut open, mut lists) = (Vec::new(), Vec::new());
    let mut previous = ' ';
    for (at, letter) in name.char_indices() {
        match letter {
            '<' if previous.is_alphanumeric() || previous == '_' || previous == ':' => {
                open.push(at + 1);
            }
            '>' if previous != '-' => lists.extend(open.pop().map(|start| start..at)),
            _ => {}
        }
        previous = letter;
    }
    lists.retain(|list| {
        name.get(list.clone())
            .is_some_and(|list| list.chars().count() > 1)
    });
    lists.into_iter().max_by_key(Range::len)
}

#[cfg(test)]
mod tests {
    use super::{fit, without_parameters};

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
        assert_eq!(fit("ääääääääääää", 3), "ääää…äää");
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
