//! Names that fit.

use std::ops::Range;

/// How much of a name is shown however narrow the terminal, in characters.
const MIN_NAME: usize = 8;

/// A name in so many characters: if it is too long, first the longest template arguments are left out,
/// and then what is in the middle.
pub(crate) fn fit(name: &str, room: usize) -> String {
    let room = room.max(MIN_NAME);
    let mut name = name.to_owned();
    loop {
        let length = name.chars().count();
        if length <= room {
            return name;
        }
        let Some(arguments) = longest_arguments(&name) else {
            let (head, tail) = (room / 2, room - room / 2 - 1);
            let head = name.chars().take(head);
            return (head.chain(['…']))
                .chain(name.chars().skip(length - tail))
                .collect();
        };
        name.replace_range(arguments, "…");
    }
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
    use super::fit;

    #[test]
    fn long_names_lose_template_arguments_and_then_their_middle() {
        let name = "ns::map<int, std::pair<long, char>>::find(int)  [libm.so]";
        assert_eq!(fit(name, 57), name);
        assert_eq!(fit(name, 56), "ns::map<…>::find(int)  [libm.so]");
        assert_eq!(fit(name, 20), "ns::map<…>…[libm.so]");
        assert_eq!(fit("f<a>(g<bcd>)", 11), "f<a>(g<…>)");
        assert_eq!(fit("operator<<(wide, left)", 10), "opera…eft)");
        assert_eq!(fit("ääääääääääää", 3), "ääää…äää");
    }
}
