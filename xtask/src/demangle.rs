//! `cargo xtask demangle`: demangles the symbols of a machine's files by unspool and by `c++filt`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use object::{Object, ObjectSymbol};
use unspool_demangle::{demangle, has_foreign_parameter};

use crate::Error;
use crate::packages;
use crate::readelf_all::{SYSTEM_FOLDERS, find};

/// The help of `cargo xtask demangle`.
pub const HELP: &str = "\
usage: cargo xtask demangle [--names FILE] [--printed N] [PATH...]

Demangles the C++ and Rust symbols of every ELF file below PATH (default: the whole machine), or the
names in FILE, one a line, and compares each with `c++filt -i`. Prints how many differ, by kind, and
the N shortest of each kind (default: 5).
";

/// The names to compare.
struct DemangleOptions {
    names: Option<PathBuf>,
    printed: usize,
    paths: Vec<PathBuf>,
}

/// The difference of two readable names of one symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameDifference {
    Same,
    OnlyOurs,
    OnlyTheirs,
    ForeignParameter,
    Suffix,
    Other,
}

impl NameDifference {
    fn text(self) -> &'static str {
        match self {
            NameDifference::Same => "are the same",
            NameDifference::OnlyOurs => "c++filt leaves mangled",
            NameDifference::OnlyTheirs => "we leave mangled",
            NameDifference::ForeignParameter => {
                "differ, and have a substitution for another template's parameter, which c++filt takes for its own"
            }
            NameDifference::Suffix => {
                "differ, and are parts of a thing in Rust, whose suffixes c++filt leaves out"
            }
            NameDifference::Other => "differ otherwise",
        }
    }
}

impl DemangleOptions {
    fn parse(mut args: impl Iterator<Item = OsString>) -> Result<DemangleOptions, Error> {
        let mut options = DemangleOptions {
            names: None,
            printed: 5,
            paths: Vec::new(),
        };
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--names") => options.names = args.next().map(PathBuf::from),
                Some("--printed") => {
                    let number = args.next().and_then(|number| number.into_string().ok());
                    let number = number.and_then(|number| number.parse().ok());
                    options.printed = number.ok_or("--printed needs a number")?;
                }
                _ => options.paths.push(arg.into()),
            }
        }
        if options.paths.is_empty() {
            options.paths = SYSTEM_FOLDERS.iter().map(PathBuf::from).collect();
        }
        Ok(options)
    }
}

/// Compares the names; returns whether there are only known differences, and unspool alone leaves
/// no name mangled.
///
/// # Errors
///
/// `c++filt` cannot be run, or the file of names cannot be read.
pub fn run(args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<bool, Error> {
    let options = DemangleOptions::parse(args)?;
    let names: Vec<String> = match &options.names {
        Some(file) => fs::read_to_string(file)?
            .lines()
            .map(str::to_owned)
            .collect(),
        None => symbols(&options.paths).into_iter().collect(),
    };
    let theirs = cxxfilt(&names)?;
    let mut kinds: BTreeMap<NameDifference, Vec<(&str, String, &str)>> = BTreeMap::new();
    for (name, theirs) in names.iter().zip(&theirs) {
        let ours = demangle(name).into_owned();
        let kind = kind(name, &ours, theirs);
        kinds.entry(kind).or_default().push((name, ours, theirs));
    }
    writeln!(out, "{} names", names.len())?;
    for (kind, mut all) in kinds.clone() {
        writeln!(out, "{:9} {}", all.len(), kind.text())?;
        all.sort_by_key(|(name, ..)| name.len());
        let shown = all.iter().filter(|_| kind != NameDifference::Same);
        for (name, ours, theirs) in shown.take(options.printed) {
            writeln!(
                out,
                "    {name}\n      unspool: {ours}\n      c++filt: {theirs}"
            )?;
        }
    }
    Ok(![NameDifference::OnlyTheirs, NameDifference::Other]
        .iter()
        .any(|kind| kinds.contains_key(kind)))
}

fn kind(name: &str, ours: &str, theirs: &str) -> NameDifference {
    if ours == theirs {
        NameDifference::Same
    } else if theirs == name {
        NameDifference::OnlyOurs
    } else if ours == name {
        NameDifference::OnlyTheirs
    } else if has_foreign_parameter(name) {
        NameDifference::ForeignParameter
    } else if is_suffixed(ours, theirs) {
        NameDifference::Suffix
    } else {
        NameDifference::Other
    }
}

/// Whether unspool's name is theirs followed by the number of a part, `.0`.
fn is_suffixed(ours: &str, theirs: &str) -> bool {
    let suffix = ours.strip_prefix(theirs).unwrap_or_default();
    suffix.starts_with('.') && !suffix.contains(' ')
}

/// The mangled names of all symbols, each once, without versions.
fn symbols(paths: &[PathBuf]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in find(paths) {
        let Ok(data) = fs::read(&path) else { continue };
        let Ok(file) = object::File::parse(&*data) else {
            continue;
        };
        let all = file.symbols().chain(file.dynamic_symbols());
        let all = all.filter_map(|symbol| symbol.name().ok());
        let mangled = all.filter(|name| name.starts_with("_Z") || name.starts_with("_R"));
        names.extend(mangled.map(|name| name.split('@').next().unwrap_or(name).to_owned()));
    }
    names.retain(|name| !name.contains(['\n', ' ']));
    names
}

/// The output of `c++filt` for each name; with `-i` in the form of gdb and perf: `std::string`, not
/// its expansion.
///
/// # Errors
///
/// `c++filt` cannot be run, or does not print a line for each name.
pub fn cxxfilt(names: &[String]) -> Result<Vec<String>, Error> {
    let mut child = Command::new(packages::path("/usr/bin/c++filt")?)
        .arg("-i")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("c++filt has no standard input")?;
    let text = names.join("\n") + "\n";
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| "writing to c++filt failed")??;
    let lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect();
    if lines.len() != names.len() {
        return Err(format!("c++filt made {} lines of {}", lines.len(), names.len()).into());
    }
    Ok(lines)
}
