//! Containers of the C++ library, against gdb with the library's own printers.

use std::collections::BTreeMap;

use unspool_testing::{Folder, tool};

use crate::killed::{stack_of_core, test_file};

/// gdb's text of a value in our notation.
fn in_our_notation(gdb: &str) -> String {
    let number = |text: &str| {
        text.split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .to_owned()
    };
    let after = |start: &str| gdb.split_once(start).map(|(_, rest)| rest);
    for (start, name) in [
        ("std::map with ", "map"),
        ("std::set with ", "set"),
        ("std::unordered_map with ", "unordered_map"),
        ("std::deque with ", "deque"),
    ] {
        if let Some(rest) = gdb.strip_prefix(start) {
            return format!("{name} of {}", number(rest));
        }
    }
    if gdb.starts_with("std::__cxx11::list = ") {
        return format!("list of {}", gdb.matches("] = ").count());
    }
    if let Some(pointer) = after("{get() = ") {
        let pointer = pointer.trim_end_matches('}');
        let name = if gdb.contains("unique_ptr") {
            "unique_ptr"
        } else {
            "shared_ptr"
        };
        let uses = after("(use count ").map(|uses| format!(" (use count {})", number(uses)));
        return format!("{name} {pointer}{}", uses.unwrap_or_default());
    }
    if gdb.starts_with("std::optional") {
        let value = after("[contained value] = ").and_then(|value| value.strip_suffix('}'));
        return format!("optional: {}", value.unwrap_or("empty"));
    }
    if let Some(elements) = gdb.strip_prefix("{_M_elems = ") {
        return elements.strip_suffix('}').unwrap().to_owned();
    }
    let mut text = gdb.replace("std::vector of length ", "vector of ");
    while let Some((before, rest)) = text.split_once(", capacity ") {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        text = match rest.strip_prefix(" = {") {
            Some(elements) => format!("{before}: {{{elements}"),
            None => format!("{before}{rest}"),
        };
    }
    text
}

/// The variables and parameters that gdb prints in the innermost frame, as `name = value`. It leaves
/// a core file.
fn values_of_gdb(folder: &Folder) -> BTreeMap<String, String> {
    let mut gdb = tool("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set auto-load safe-path /"]);
    let settings = ["elements 80", "repeats unlimited", "object off"];
    for setting in settings {
        gdb.arg("-ex").arg(format!("set print {setting}"));
    }
    for command in ["run", "info locals", "info args", "generate-core-file core"] {
        gdb.args(["-ex", command]);
    }
    let output = gdb.arg("./program").current_dir(folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let values = text.lines().filter_map(|line| line.split_once(" = "));
    values
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn containers_are_those_of_gdbs_printers() {
    for format in ["-gdwarf-5", "-gdwarf-4"] {
        let folder = Folder::new();
        let source = test_file("programs/containers.cc");
        let words = format!("-std=c++17 -O0 {format} -o program {}", source.display());
        folder.tool("g++", &words);
        let gdb = values_of_gdb(&folder);
        let stack = stack_of_core(&folder.join("core"), &folder.join("program"));
        let values = &stack.frames[0].values;
        let locals = values.locals.iter().map(|own| (&own.name, &own.current));
        let arguments = values.arguments.iter().flatten();
        let arguments = arguments.filter_map(|own| Some((&own.name, own.current.as_ref()?)));
        let ours: BTreeMap<&str, &str> = (locals.chain(arguments))
            .filter_map(|(name, current)| Some((&**name, &*current.as_ref().ok()?.text)))
            .collect();
        let compared = [
            "brief", "longer", "quoted", "words", "people", "nested", "none", "ages", "some",
            "hash", "chain", "queue", "turns", "own", "nobody", "shared", "other", "maybe",
            "nothing", "text", "two", "pair", "vector", "optional", "numbers", "view",
        ];
        for name in compared {
            let own = ours[name].replace("{.", "{").replace(", .", ", ");
            assert_eq!(own, in_our_notation(&gdb[name]), "{name} {format}");
        }
        // gdb's is `std::shared_ptr<int> (empty) = {get() = 0x0}`.
        assert_eq!(ours["unset"], "shared_ptr 0x0");
        let many = ours["many"];
        assert!(
            many.starts_with("vector of 100: {7, 7, ") && many.ends_with(", 7, ...}"),
            "{many}"
        );
        // References are followed, after their address.
        let (at, title) = ours["title"].split_once(' ').unwrap();
        assert!(
            at.starts_with("0x") && title == "\"a title\"",
            "{}",
            ours["title"]
        );
        assert!(gdb["title"].ends_with(title), "{}", gdb["title"]);
        // What is no string, or no vector, is shown by its members.
        for name in ["broken", "backwards"] {
            assert!(
                ours[name].contains("_M_") && !ours[name].contains(" of "),
                "{}",
                ours[name]
            );
        }
    }
}
