//! `cargo xtask archives`: what `unspool check` says of Debian's static libraries. Most of their
//! members do not show who made them.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Error, ctf_compare, debian};

/// The help of `cargo xtask archives`.
pub const HELP: &str = "\
usage: cargo xtask archives [--only TEXT] [--sample N] [--unspool PATH]

Fetches development packages of Debian 12 into the target folder, once, and checks the members of their archives. Prints
for each archive its rows, how many are proven, unproven and refuted, and how many are known to be refuted
(docs/findings.md); it fails if these numbers differ. With --only, archives whose name contains TEXT. With --sample,
N of the refuted findings, for somebody to judge. --unspool names the binary; without it one is built, optimised.
";

const RELEASE: &str = "bookworm";

const PACKAGES: &[&str] = &[
    "libaom-dev",
    "libavcodec-dev",
    "libc6-dev",
    "libffi-dev",
    "libgcc-12-dev",
    "libgcrypt20-dev",
    "libgmp-dev",
    "libluajit-5.1-dev",
    "libopenblas-pthread-dev",
    "libpng-dev",
    "libsodium-dev",
    "libssl-dev",
    "libvpx-dev",
    "libx264-dev",
    "libx265-dev",
    "nettle-dev",
];

/// The archives, and their number of refuted rows, each of which was judged (docs/findings.md).
const ARCHIVES: &[(&str, u64)] = &[
    ("libaom.a", 0),
    ("libasan.a", 0),
    ("libavcodec.a", 0),
    ("libc.a", 4),
    ("libcrypto.a", 47),
    ("libffi.a", 3),
    ("libgcc.a", 3),
    ("libgcrypt.a", 9),
    ("libgmp.a", 0),
    ("libhogweed.a", 0),
    ("liblsan.a", 0),
    ("libluajit-5.1.a", 2),
    ("libm-2.36.a", 0),
    ("libmvec.a", 67),
    ("libnettle.a", 0),
    ("libopenblas.a", 0),
    ("libpng16.a", 0),
    ("libsodium.a", 1),
    ("libssl.a", 0),
    ("libtsan.a", 0),
    ("libubsan.a", 0),
    ("libvpx.a", 0),
    ("libx264.a", 0),
    ("libx265.a", 0),
];

/// The options.
#[derive(Debug, Default)]
pub struct ArchiveOptions {
    only: String,
    sample: usize,
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

/// Checks the archives; returns whether as many rows are refuted as are known to be false.
///
/// # Errors
///
/// A package cannot be fetched, an archive is not in it, or cannot be checked.
pub fn run(options: &ArchiveOptions, out: &mut impl Write) -> Result<bool, Error> {
    let folder = ctf_compare::folders()?.1.join("archives");
    if !folder.join("usr").exists() {
        fs::create_dir_all(&folder)?;
        debian::unpack(&folder, RELEASE, PACKAGES)?;
    }
    let unspool = match &options.unspool {
        Some(path) => path.clone(),
        None => ctf_compare::release_binary()?,
    };
    let mut is_known = true;
    let mut total = [0; 4];
    let mut refuted = Vec::new();
    writeln!(
        out,
        "| archive | rows | proven | unproven | refuted | known |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for (name, known) in ARCHIVES
        .iter()
        .filter(|(name, _)| name.contains(&options.only))
    {
        let path = find(&folder.join("usr/lib"), name).ok_or_else(|| format!("no {name}"))?;
        let report = CheckedArchive::check(&unspool, &path)?;
        let [rows, proven, unproven, wrong] = report.rows;
        writeln!(
            out,
            "| {name} | {rows} | {proven} | {unproven} | {wrong} | {known} |"
        )?;
        out.flush()?;
        is_known &= wrong == *known;
        for (sum, number) in total.iter_mut().zip(report.rows) {
            *sum += number;
        }
        refuted.extend(report.refuted);
    }
    let [rows, proven, unproven, wrong] = total;
    writeln!(out, "| all | {rows} | {proven} | {unproven} | {wrong} | |")?;
    for finding in sample(refuted, options.sample) {
        writeln!(out, "{finding}")?;
    }
    Ok(is_known)
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
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let mut checked = CheckedArchive::default();
        for file in field(&report, "files").as_array().into_iter().flatten() {
            let names = ["all", "proven", "unproven", "refuted"];
            for (sum, name) in checked.rows.iter_mut().zip(names) {
                *sum += field(field(file, "rows"), name).as_u64().unwrap_or(0);
            }
            let findings = field(file, "findings").as_array().into_iter().flatten();
            let refuted = findings.filter(|it| field(it, "verdict") == "refuted");
            let lines = refuted.map(|it| {
                let text = |name: &str| field(it, name).as_str().unwrap_or_default();
                format!(
                    "{} {} {}+{:#x}: {} is {:?}, and declared {:?}",
                    field(file, "file").as_str().unwrap_or_default(),
                    text("code"),
                    text("function"),
                    field(it, "offset").as_u64().unwrap_or(0),
                    text("subject"),
                    text("computed"),
                    text("declared"),
                )
            });
            checked.refuted.extend(lines);
        }
        Ok(checked)
    }
}

/// A member of an object; null if there is none.
fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.get(name).unwrap_or(&Value::Null)
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
