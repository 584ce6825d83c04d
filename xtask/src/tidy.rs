//! `cargo xtask tidy`: checks the documents against the repository. ARCHITECTURE.md's table must
//! have all crates and their dependencies, each path in backticks must exist, prose must be wrapped,
//! each type name must have one meaning, and libraries know no command line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Error;

mod names;

/// The maximum width of prose, in characters.
const MAX_WIDTH: usize = 100;

/// Prints all faults; returns whether there are none.
///
/// # Errors
///
/// Files cannot be read, git or cargo cannot be run.
pub fn run(out: &mut impl Write) -> Result<bool, Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = lines(Command::new("git").args(["ls-files"]).current_dir(&root))?;
    let paths = Paths::new(&files);
    let mut faults = Vec::new();
    let documents = files.iter().filter(|file| file.ends_with(".md"));
    // Past releases mention old paths.
    for name in documents.filter(|name| *name != "CHANGELOG.md") {
        let text = fs::read_to_string(root.join(name))?;
        let at = |(line, what): (usize, String)| format!("{name}:{line}: {what}");
        faults.extend(wide_lines(&text).into_iter().map(at));
        faults.extend(missing_paths(&text, &paths).into_iter().map(at));
    }
    let sources = files.iter().filter(|file| file.ends_with(".rs"));
    let sources = sources.map(|name| Ok((name.as_str(), fs::read_to_string(root.join(name))?)));
    let sources: Vec<(&str, String)> = sources.collect::<Result<_, io::Error>>()?;
    let sources = sources.iter().map(|(name, text)| (*name, text.as_str()));
    faults.extend(
        sources
            .clone()
            .flat_map(|(name, text)| command_words(name, text)),
    );
    faults.extend(names::faults(sources));
    let table = fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    let differences = crate_differences(&table_of_crates(&table), &crates(&root)?);
    faults.extend(
        differences
            .into_iter()
            .map(|what| format!("ARCHITECTURE.md: {what}")),
    );
    for fault in &faults {
        writeln!(out, "{fault}")?;
    }
    Ok(faults.is_empty())
}

/// The lines of a command's output.
fn lines(command: &mut Command) -> Result<Vec<String>, Error> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}", why.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?
        .lines()
        .map(str::to_owned)
        .collect())
}

/// The prose lines of a document, numbered from 1, without code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_fence && !is_code).then_some((index + 1, line))
    })
}

/// Lines of prose that are too wide and can be wrapped: not rows of tables, nor lines of a single
/// word.
fn wide_lines(text: &str) -> Vec<(usize, String)> {
    let is_wide = |line: &str| {
        let can_wrap = line.trim_start_matches([' ', '-', '*', '>']).contains(' ');
        can_wrap && !line.starts_with('|') && line.chars().count() > MAX_WIDTH
    };
    let wide = prose(text).filter(|(_, line)| is_wide(line));
    wide.map(|(line, _)| (line, format!("wider than {MAX_WIDTH} characters")))
        .collect()
}

/// What only a command may know, in a library's source.
fn command_words<'t>(name: &'t str, text: &'t str) -> impl Iterator<Item = String> + use<'t> {
    let is_library =
        name.starts_with("crates/") && !name.starts_with("crates/cli/") && name.contains("/src/");
    let words = ["clap::", "anyhow::", "IsTerminal", "ExitCode"];
    let known = words
        .into_iter()
        .filter(move |word| is_library && text.contains(word));
    known.map(move |word| format!("{name}: {word} in a library: only `cli` parses and prints"))
}

/// The repository's files and folders as documents may write them. A path may omit leading folders,
/// and `src` after a crate's name.
struct Paths {
    known: BTreeSet<String>,
    /// The top folders, of the repository and of `crates`: a text that starts with one is a path.
    tops: BTreeSet<String>,
}

impl Paths {
    fn new(files: &[String]) -> Paths {
        let mut known = BTreeSet::new();
        for file in files {
            for name in [file.clone(), file.replacen("/src/", "/", 1)] {
                // The file, and each of its folders, from each component on.
                let mut whole = name.as_str();
                loop {
                    let mut rest = whole;
                    known.insert(rest.to_owned());
                    while let Some((_, behind)) = rest.split_once('/') {
                        known.insert(behind.to_owned());
                        rest = behind;
                    }
                    match whole.rsplit_once('/') {
                        Some((folder, _)) => whole = folder,
                        None => break,
                    }
                }
            }
        }
        let from_crate = files.iter().filter_map(|file| file.strip_prefix("crates/"));
        let all = files.iter().map(String::as_str).chain(from_crate);
        let tops = all.filter_map(|file| Some(file.split_once('/')?.0.to_owned()));
        Paths {
            tops: tops.collect(),
            known,
        }
    }

    /// Whether a text looks like a path of the repository and does not exist.
    fn lacks(&self, text: &str) -> bool {
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        // A name in capitals is a placeholder.
        let stands_for_any =
            |part: &str| part != "README" && part.contains(|c: char| c.is_ascii_uppercase());
        let Some((top, rest)) = text.split_once('/').filter(|_| text.chars().all(is_path)) else {
            return false;
        };
        let is_meant = rest.ends_with(".rs") || self.tops.contains(top) && !rest.is_empty();
        is_meant
            && !text.split(['/', '.']).any(stands_for_any)
            && !self.known.contains(text.trim_end_matches('/'))
    }
}

/// Paths in backticks that do not exist in the repository.
fn missing_paths(text: &str, paths: &Paths) -> Vec<(usize, String)> {
    let in_backticks = |(line, text): (usize, &'_ str)| {
        let quoted = text.split('`').skip(1).step_by(2);
        let missing = quoted.filter(|path| paths.lacks(path));
        let faults = missing.map(|path| (line, format!("no file or folder is named `{path}`")));
        faults.collect::<Vec<_>>()
    };
    prose(text).flat_map(in_backticks).collect()
}

/// The crates, and the crates of the workspace that each may use.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The rows of ARCHITECTURE.md's table. Parentheses after a crate say what is used of it.
fn table_of_crates(text: &str) -> Arrows {
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
        let [name, _, uses] = cells[..] else {
            return None;
        };
        let mut depth = 0_u32;
        let outside: String = (uses.chars())
            .filter(|character| {
                depth += u32::from(*character == '(');
                let is_outside = depth == 0;
                depth -= u32::from(*character == ')').min(depth);
                is_outside
            })
            .collect();
        let words = outside.split('`').skip(1).step_by(2);
        let crates = words.filter(|word| !word.contains('.')).map(str::to_owned);
        Some((name.trim_end_matches('`').to_owned(), crates.collect()))
    });
    rows.collect()
}

/// The same by cargo's metadata.
fn crates(root: &Path) -> Result<Arrows, Error> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let text = lines(command.current_dir(root))?.concat();
    let metadata: Value = serde_json::from_str(&text)?;
    let name = |of: &Value| {
        let name = of.get("name").and_then(Value::as_str).unwrap_or_default();
        name.strip_prefix("unspool-").unwrap_or(name).to_owned()
    };
    let list = |of: &Value, key| {
        of.get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    // A crate of the workspace has a path; a dependency of tests or of a build script has a kind.
    let is_used = |dependency: &&Value| {
        let has = |key| dependency.get(key).is_some_and(|value| !value.is_null());
        has("path") && !has("kind")
    };
    let packages = list(&metadata, "packages").into_iter().map(|package| {
        let dependencies = list(&package, "dependencies");
        (
            name(&package),
            dependencies.iter().filter(is_used).map(name).collect(),
        )
    });
    Ok(packages.collect())
}

/// Differences between the table and the crates.
fn crate_differences(table: &Arrows, crates: &Arrows) -> Vec<String> {
    let names: BTreeSet<&String> = table.keys().chain(crates.keys()).collect();
    let mut faults = Vec::new();
    for name in names {
        match (table.get(name), crates.get(name)) {
            (Some(said), Some(uses)) => {
                let more = said
                    .difference(uses)
                    .map(|used| format!("does not use `{used}`"));
                let fewer = uses
                    .difference(said)
                    .map(|used| format!("uses `{used}`, too"));
                faults.extend(
                    more.chain(fewer)
                        .map(|what| format!("crate `{name}` {what}")),
                );
            }
            (Some(_), None) => faults.push(format!("there is no crate `{name}`")),
            (None, _) => faults.push(format!("the table of crates has no `{name}`")),
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths {
        Paths::new(&["crates/a/src/x/y.rs", "docs/b.md"].map(str::to_owned))
    }

    #[test]
    fn paths_are_looked_for_from_any_folder_on() {
        let good =
            "`a/x/y.rs` `crates/a` `a/src/x/` `x/y.rs` `docs/b.md` `y/z` `n/a.c` `a/NAME.rs`";
        assert_eq!(missing_paths(good, &paths()), []);
        for bad in ["a/z.rs", "docs/c.md", "crates/a/x/z", "q/y.rs"] {
            let found = missing_paths(&format!("text\nsee `{bad}`"), &paths());
            assert_eq!(found, [(2, format!("no file or folder is named `{bad}`"))]);
        }
        assert_eq!(missing_paths("```\n`a/z.rs`\n```", &paths()), []);
    }

    #[test]
    fn prose_is_wrapped() {
        let wide = "word ".repeat(30);
        let text = format!(
            "{wide}\n```\n{wide}\n```\n| {wide} |\n- {}\n",
            "x".repeat(120)
        );
        assert_eq!(
            wide_lines(&text)
                .iter()
                .map(|(line, _)| *line)
                .collect::<Vec<_>>(),
            [1]
        );
    }

    #[test]
    fn libraries_are_no_commands() {
        let text = "use std::process::ExitCode;";
        assert_eq!(command_words("crates/a/src/x.rs", text).count(), 1);
        for name in [
            "crates/cli/src/x.rs",
            "crates/a/tests/x.rs",
            "xtask/src/x.rs",
        ] {
            assert_eq!(command_words(name, text).count(), 0);
        }
    }

    #[test]
    fn the_table_is_compared_with_the_crates() {
        let row = |name: &str, uses: &[&str]| {
            (
                name.to_owned(),
                uses.iter().map(|used| (*used).to_owned()).collect(),
            )
        };
        let table =
            "| `ir` | rows | – |\n| `c` | C | `ir` (`native`), `cfi`; `lib.so` |\nend | `x` | y |";
        let table = table_of_crates(table);
        assert_eq!(
            table,
            Arrows::from([row("ir", &[]), row("c", &["ir", "cfi"])])
        );
        let crates = Arrows::from([row("ir", &[]), row("c", &["ir", "a"]), row("new", &[])]);
        let expected = [
            "crate `c` does not use `cfi`",
            "crate `c` uses `a`, too",
            "the table of crates has no `new`",
        ];
        assert_eq!(crate_differences(&table, &crates), expected);
    }
}
