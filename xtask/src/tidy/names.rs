//! Finds type names with more than one meaning. One name should have one meaning in the whole
//! workspace.

use std::collections::{BTreeMap, BTreeSet};

/// Names that may be defined more than twice, or be exported by two crates, and why.
const EXCUSED: &[(&str, &str)] = &[
    (
        "Endian",
        "`c-types` uses no other crate, and `rows` knows no C types",
    ),
    (
        "ModuleKey",
        "`native-table` does not use `compiled-table`: each key is a part of its format",
    ),
    (
        "Random",
        "tests need sequences that stay as they are when another's changes",
    ),
];

/// How often a name may be defined without a reason: as the obvious word of two modules.
const MAX_DEFINITIONS: usize = 2;

/// The faults of source files, given with their names.
pub(super) fn faults<'t>(files: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<String> {
    faults_except(files, EXCUSED)
}

fn faults_except<'t>(
    files: impl Iterator<Item = (&'t str, &'t str)>,
    excused: &[(&str, &str)],
) -> Vec<String> {
    let mut definitions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut exports: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (file, text) in files {
        for (line, name) in defined_types(text) {
            definitions
                .entry(name)
                .or_default()
                .push(format!("{file}:{line}"));
        }
        if let Some(name) = library_of(file) {
            for export in root_exports(text) {
                exports.entry(export).or_default().insert(name);
            }
        }
    }
    let often = (definitions.into_iter())
        .filter(|(_, at)| at.len() > MAX_DEFINITIONS)
        .map(|(name, at)| {
            (
                name,
                format!("is defined {} times: {}", at.len(), at.join(" ")),
            )
        });
    let twice = (exports.iter())
        .filter(|(_, crates)| crates.len() > 1)
        .map(|(name, crates)| {
            let crates: Vec<&str> = crates.iter().copied().collect();
            (
                name.as_str(),
                format!("is exported by {}", crates.join(", ")),
            )
        });
    let found: Vec<(&str, String)> = often.chain(twice).collect();
    let needless = (excused.iter())
        .filter(|(name, _)| found.iter().all(|(other, _)| other != name))
        .map(|(name, _)| format!("`{name}` needs no excuse any more (xtask/src/tidy/names.rs)"));
    let inexcusable = (found.iter())
        .filter(|(name, _)| excused.iter().all(|(other, _)| other != name))
        .map(|(name, fault)| format!("`{name}` {fault}"));
    inexcusable.chain(needless).collect()
}

/// The crate with this root file.
fn library_of(file: &str) -> Option<&str> {
    file.strip_prefix("crates/")?.strip_suffix("/src/lib.rs")
}

/// The types and traits that a file defines, with line numbers from 1.
fn defined_types(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let name = defined_type(line)?;
        Some((index + 1, name))
    })
}

fn defined_type(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    // An indented `type` belongs to a trait or an implementation.
    let is_inside = trimmed.len() < line.len();
    let mut words = without_visibility(trimmed).split_whitespace();
    let keyword = words.find(|word| *word != "unsafe")?;
    let is_definition = match keyword {
        "struct" | "enum" | "union" | "trait" => true,
        "type" => !is_inside,
        _ => false,
    };
    let word = words.next().filter(|_| is_definition)?;
    let end = word.find(|c: char| !c.is_alphanumeric() && c != '_');
    word.get(..end.unwrap_or(word.len()))
        .filter(|name| is_type(name))
}

/// Whether a name is written as types are, not as constants or functions.
fn is_type(name: &str) -> bool {
    let is_constant = name.len() > 1 && !name.contains(|c: char| c.is_ascii_lowercase());
    name.starts_with(|c: char| c.is_ascii_uppercase()) && !is_constant
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else {
        return line;
    };
    match rest.strip_prefix('(').and_then(|of| of.split_once(')')) {
        Some((_, behind)) => behind,
        None => rest,
    }
}

/// The public names of a crate's root: its own, and those re-exported from modules.
fn root_exports(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("pub ")) {
        names.extend(defined_type(line).map(str::to_owned));
    }
    let statements = text.split(';').filter_map(|part| {
        let (before, tree) = part.rsplit_once("pub use ")?;
        // A public use, not one in a comment.
        let is_statement = before.trim_end_matches(' ').ends_with(['\n', ']']) || before.is_empty();
        is_statement.then_some(tree)
    });
    // A re-export of another crate of the workspace is that crate's type.
    for tree in statements.filter(|tree| !tree.starts_with("unspool_")) {
        // Of a path, the last name or the one after `as` counts.
        for path in tree.split(['{', '}', ',']) {
            let last = path.rsplit("::").next().unwrap_or(path);
            let name = last.rsplit(" as ").next().unwrap_or(last).trim();
            if is_type(name) {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_where_they_are_defined() {
        let text = "pub struct A<T>(T);\n    pub(crate) enum B {\n// struct C\ntype D = u8;\n    \
                    type E = u8;\npub unsafe trait F {}\nimpl G for A {}\nuse x::H;\nstruct I;";
        let names: Vec<&str> = defined_types(text).map(|(_, name)| name).collect();
        assert_eq!(names, ["A", "B", "D", "F", "I"]);
    }

    #[test]
    fn a_name_may_be_defined_twice_and_exported_once() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "mod m;\npub use m::{One, Two as Three};\npub use unspool_b::Four;\n",
            ),
            ("crates/a/src/m.rs", "pub struct One;\npub struct Two;\n"),
            (
                "crates/b/src/lib.rs",
                "pub struct Three;\npub struct Four;\nstruct One;\n",
            ),
        ];
        let found = faults_except(files.into_iter(), &[]);
        assert_eq!(found, ["`Three` is exported by a, b"]);
        let thrice = [
            ("x.rs", "struct A;"),
            ("y.rs", "enum A {"),
            ("z.rs", "struct A;"),
        ];
        assert_eq!(
            faults_except(thrice.into_iter(), &[]),
            ["`A` is defined 3 times: x.rs:1 y.rs:1 z.rs:1"]
        );
    }
}
