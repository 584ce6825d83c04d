//! `cargo xtask renames OLD NEW`: JSON of an older version of the command, in the words of a newer one
//! (`docs/renames.tsv`), compared with what the newer one writes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};

use crate::Error;

/// The commands, without `--format json`: tables, rows, verdicts and codes of files that every Debian
/// has.
const COMMANDS: &[&str] = &[
    "show /bin/true",
    "show /lib64/ld-linux-x86-64.so.2",
    "stats /bin/true /lib/x86_64-linux-gnu/libc.so.6",
    "verify /bin/true /lib/x86_64-linux-gnu/libc.so.6",
    "check /bin/true /bin/ls /lib64/ld-linux-x86-64.so.2",
    "check /lib/x86_64-linux-gnu/libc.so.6",
    "synth /bin/true",
    "convert /bin/true --to sframe",
    "ctf diff /sys/kernel/btf/vmlinux /sys/kernel/btf/vmlinux",
];

/// The most differences that are printed for a command.
const MAX_SHOWN: usize = 10;

/// New names of fields, and new words for values, by document and old path.
#[derive(Debug, Default)]
struct Renames {
    fields: BTreeMap<String, String>,
    values: BTreeMap<String, String>,
}

impl Renames {
    /// Lines of `crate`, kind, old and new name: `DOCUMENT: PATH`, and for values `=WORD`.
    fn parse(text: &str) -> Renames {
        let mut renames = Renames::default();
        for line in text.lines() {
            if let [_, kind, old, new] = *line.split('\t').collect::<Vec<_>>() {
                let names = match kind {
                    "json-field" => &mut renames.fields,
                    "json-value" => &mut renames.values,
                    _ => continue,
                };
                names.insert(old.to_owned(), new.to_owned());
            }
        }
        renames
    }

    /// A value at an old path, in new words.
    fn apply(&self, path: &str, value: Value) -> Value {
        match value {
            Value::Array(all) => {
                let path = format!("{path}[]");
                all.into_iter().map(|one| self.apply(&path, one)).collect()
            }
            Value::Object(fields) => {
                let separator = if path.ends_with(' ') { "" } else { "." };
                let fields = fields.into_iter().map(|(name, value)| {
                    let path = format!("{path}{separator}{name}");
                    let name = self.fields.get(&path).cloned().unwrap_or(name);
                    (name, self.apply(&path, value))
                });
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Value::String(word) => match self.values.get(&format!("{path}={word}")) {
                Some(new) if new == "null" => Value::Null,
                Some(new) => Value::String(new.clone()),
                None => Value::String(word),
            },
            other => other,
        }
    }
}

/// What changes from run to run, and with the version.
const UNSTEADY: [&str; 3] = ["version", "unspool_version", "seconds"];

/// Adds the paths at which the new value lacks what the old one has.
fn differences(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, old) in old.iter().filter(|(name, _)| !UNSTEADY.contains(&&***name)) {
                let path = format!("{path}.{name}");
                match new.get(name) {
                    Some(new) => differences(&path, old, new, found),
                    None => found.push(format!("{path}: gone; was {old}")),
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                differences(&format!("{path}[{at}]"), old, new, found);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            found.push(format!(
                "{path}: {} elements; were {}",
                new.len(),
                old.len()
            ));
        }
        _ if old == new => {}
        _ => found.push(format!("{path}: {new}; was {old}")),
    }
}

fn document(unspool: &Path, words: &str) -> Result<Value, Error> {
    let mut command = Command::new(unspool);
    command
        .args(words.split_whitespace())
        .args(["--format", "json"]);
    let output = command.output()?;
    let document = serde_json::from_slice(&output.stdout);
    document.map_err(|error| format!("{command:?}: {}: {error}", output.status).into())
}

/// Compares all commands of two versions. Returns whether nothing differs; fields that are only in
/// the new version do not.
///
/// # Errors
///
/// A version cannot be run, or writes no JSON.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut dyn Write) -> Result<bool, Error> {
    let (Some(old), Some(new), None) = (args.next(), args.next(), args.next()) else {
        return Err("usage: cargo xtask renames OLD NEW: two files `unspool`".into());
    };
    let [old, new] = [old, new].map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let renames = Renames::parse(&fs::read_to_string(root.join("docs/renames.tsv"))?);
    let mut is_same = true;
    for words in COMMANDS {
        let before = document(&old, words)?;
        let schema = before.get("schema").and_then(Value::as_str);
        let schema = schema.unwrap_or_default().trim_start_matches("unspool.");
        let before = renames.apply(&format!("{schema}: "), before.clone());
        let mut found = Vec::new();
        differences("", &before, &document(&new, words)?, &mut found);
        writeln!(out, "{words}: {} differences", found.len())?;
        for line in found.iter().take(MAX_SHOWN) {
            writeln!(out, "    {line:.200}")?;
        }
        is_same &= found.is_empty();
    }
    Ok(is_same)
}
