//! `cargo xtask archives`: what `unspool check` says of Debian's static libraries. Most of their
//! members do not show who made them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Error, ctf_compare, debian};

/// The help of `cargo xtask archives`.
pub const HELP: &str = "\
usage: cargo xtask archives [--only TEXT] [--sample N] [--write] [--unspool PATH]

Fetches development packages of Debian 12 into the target folder, each once, and checks the members
of their archives. Prints for each archive its rows, and how many are proven, unproven and refuted.
Each refuted finding has to be in xtask/src/archives/refuted.txt, since somebody judged it
(docs/findings.md), and each of that list has to be found. Fails if that is not so.

  --only TEXT      archives whose name contains TEXT
  --sample N       prints N of the refuted findings, for somebody to judge
  --write          writes the list instead
  --unspool PATH   the binary; without it one is built, optimised
";

const RELEASE: &str = "bookworm";

/// The refuted findings about rows that were judged, one a line, in the order of the archives.
const REFUTED: &str = include_str!("archives/refuted.txt");

/// The archives, and their packages.
const ARCHIVES: &[(&str, &str)] = &[
    ("libaom.a", "libaom-dev"),
    ("libasan.a", "libgcc-12-dev"),
    ("libavcodec.a", "libavcodec-dev"),
    ("libc.a", "libc6-dev"),
    ("libcrypto.a", "libssl-dev"),
    ("libffi.a", "libffi-dev"),
    ("libgcc.a", "libgcc-12-dev"),
    ("libgcrypt.a", "libgcrypt20-dev"),
    ("libgmp.a", "libgmp-dev"),
    ("libhogweed.a", "nettle-dev"),
    ("liblsan.a", "libgcc-12-dev"),
    ("libluajit-5.1.a", "libluajit-5.1-dev"),
    ("libm-2.36.a", "libc6-dev"),
    ("libmvec.a", "libc6-dev"),
    ("libnettle.a", "nettle-dev"),
    ("libopenblas.a", "libopenblas-pthread-dev"),
    ("libpng16.a", "libpng-dev"),
    ("libsodium.a", "libsodium-dev"),
    ("libssl.a", "libssl-dev"),
    ("libtsan.a", "libgcc-12-dev"),
    ("libubsan.a", "libgcc-12-dev"),
    ("libvpx.a", "libvpx-dev"),
    ("libx264.a", "libx264-dev"),
    ("libx265.a", "libx265-dev"),
];

/// The options.
#[derive(Debug, Default)]
pub struct ArchiveOptions {
    only: String,
    sample: usize,
    is_written: bool,
    unspool: Option<PathBuf>,
}

impl ArchiveOptions {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// One is unknown, or lacks its value.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<ArchiveOptions, Error> {
        let mut options = ArchiveOptions::default();
        while let Some(arg) = args.next() {
            if arg == "--write" {
                options.is_written = true;
                continue;
            }
            let value = args.next().ok_or(HELP)?;
            match arg.to_str() {
                Some("--only") => options.only = value.to_string_lossy().into_owned(),
                Some("--sample") => options.sample = value.to_string_lossy().parse()?,
                Some("--unspool") => options.unspool = Some(value.into()),
                _ => return Err(format!("{} is unknown\n\n{HELP}", arg.display()).into()),
            }
        }
        Ok(options)
    }
}

/// Checks the archives; returns whether the refuted findings are those that were judged.
///
/// # Errors
///
/// A package cannot be fetched, an archive is not in it, or cannot be checked.
pub fn run(options: &ArchiveOptions, out: &mut impl Write) -> Result<bool, Error> {
    let (root, target) = ctf_compare::folders()?;
    let folder = target.join("archives");
    let unspool = match &options.unspool {
        Some(path) => path.clone(),
        None => ctf_compare::release_binary()?,
    };
    let mut all = CheckedArchive::default();
    writeln!(out, "| archive | rows | proven | unproven | refuted |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    let is_chosen = |(name, _): &&(&str, &str)| name.contains(&options.only);
    for (name, package) in ARCHIVES.iter().filter(is_chosen) {
        let checked = CheckedArchive::check(&unspool, &archive(&folder, name, package)?)?;
        writeln!(out, "{}", checked.line(name))?;
        out.flush()?;
        for (sum, number) in all.rows.iter_mut().zip(checked.rows) {
            *sum += number;
        }
        all.refuted.extend(checked.refuted);
    }
    writeln!(out, "{}", all.line("all"))?;
    if options.is_written {
        let lines: String = all.refuted.iter().map(|it| format!("{it}\n")).collect();
        fs::write(root.join("xtask/src/archives/refuted.txt"), lines)?;
        return Ok(true);
    }
    let known = REFUTED.lines().filter(|line| line.contains(&options.only));
    let known: BTreeSet<&str> = known.collect();
    let found: BTreeSet<&str> = all.refuted.iter().map(String::as_str).collect();
    for new in found.difference(&known) {
        writeln!(out, "not judged: {new}")?;
    }
    for lost in known.difference(&found) {
        writeln!(out, "not found: {lost}")?;
    }
    for finding in sample(all.refuted.clone(), options.sample) {
        writeln!(out, "{finding}")?;
    }
    Ok(found == known)
}

/// An archive of a package, which is fetched if it is not there.
fn archive(folder: &Path, name: &str, package: &str) -> Result<PathBuf, Error> {
    let libraries = folder.join("usr/lib");
    if let Some(path) = find(&libraries, name) {
        return Ok(path);
    }
    fs::create_dir_all(folder)?;
    debian::unpack_alone(folder, RELEASE, package)?;
    Ok(find(&libraries, name).ok_or_else(|| format!("{package} has no {name}"))?)
}

/// The results of an archive's members.
#[derive(Debug, Default)]
struct CheckedArchive {
    /// All, the proven, the unproven and the refuted ones.
    rows: [u64; 4],
    /// Refuted findings, one a line.
    refuted: Vec<String>,
}

impl CheckedArchive {
    fn check(unspool: &Path, archive: &Path) -> Result<CheckedArchive, Error> {
        let mut command = Command::new(unspool);
        command.args(["check", "--format", "json"]).arg(archive);
        let output = command.output()?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{}: {error}: {output:?}", archive.display()))?;
        let mut checked = CheckedArchive::default();
        for file in field(&report, "files")?.as_array().into_iter().flatten() {
            // A member that cannot be checked has no rows.
            let Ok(rows) = field(file, "rows") else {
                continue;
            };
            let names = ["total", "proven", "unproven", "refuted"];
            for (sum, name) in checked.rows.iter_mut().zip(names) {
                *sum += field(rows, name)?.as_u64().ok_or("a count is no number")?;
            }
            let path = field(file, "file")?.as_str().unwrap_or_default();
            let member = path.rsplit('/').next().unwrap_or(path);
            for finding in field(file, "findings")?.as_array().into_iter().flatten() {
                // A function without an entry has no row.
                let is_of_row = field(finding, "code")? != "CFI005";
                if is_of_row && field(finding, "severity")? == "refuted" {
                    checked
                        .refuted
                        .push(CheckedArchive::finding(member, finding)?);
                }
            }
        }
        Ok(checked)
    }

    /// A finding as a line: where it is, and what is said.
    fn finding(member: &str, finding: &Value) -> Result<String, Error> {
        let text = |name: &str| -> Result<&str, Error> {
            Ok(field(finding, name)?.as_str().unwrap_or_default())
        };
        let offset = field(finding, "offset")?.as_u64().unwrap_or(0);
        Ok(format!(
            "{member} {} {}+{offset:#x}: {} is {:?}, and declared {:?}",
            text("code")?,
            text("function")?,
            text("subject")?,
            text("computed")?,
            text("declared")?,
        ))
    }

    fn line(&self, name: &str) -> String {
        let [rows, proven, unproven, refuted] = self.rows;
        format!("| {name} | {rows} | {proven} | {unproven} | {refuted} |")
    }
}

/// A member of an object.
fn field<'v>(value: &'v Value, name: &str) -> Result<&'v Value, Error> {
    Ok(value
        .get(name)
        .ok_or_else(|| format!("JSON without {name}"))?)
}

/// A file below a folder.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let own = paths
        .iter()
        .find(|path| path.file_name().is_some_and(|own| own == name));
    let folders = paths
        .iter()
        .filter(|path| path.is_dir() && !path.is_symlink());
    let below = || folders.clone().find_map(|folder| find(folder, name));
    own.cloned().or_else(below)
}

/// Some elements, chosen as if at random, the same each time.
fn sample(mut all: Vec<String>, count: usize) -> Vec<String> {
    // Knuth's multiplier for MMIX.
    let mut random = 1_u64;
    let mut chosen = Vec::new();
    while chosen.len() < count && !all.is_empty() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let place = usize::try_from(random >> 33).unwrap_or(0) % all.len();
        chosen.push(all.swap_remove(place));
    }
    chosen
}
