//! A table in the papers' form: C that gcc compiles to one function, a tree of comparisons that ends
//! in the bodies of rows, each distinct one written once. Only `rip`, `rsp`, `rbp` and `rbx` are
//! restored, and of expressions only that of linkage tables. Holes have the row before them, as
//! in the papers' last version.
//!
//! The papers' compiler is not used: it needs a library of its time. Its sizes are in docs/native.md.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};
use unspool_elf::ElfFile;
use unspool_rows::{CfaRule, Register, RegisterRule, Row, Table};

const RBX: Register = Register(3);
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// `rsp + 8 + ((rip & 15) >= 11) * 8`: the CFA in a linkage table, as GNU ld writes it.
const LINKAGE_TABLE: [u8; 11] = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];

const HEADER: &str = "\
#include <stdint.h>
struct four_registers { uint8_t flags; uintptr_t rip, rsp, rbp, rbx; };
struct four_registers eh_elf_step(struct four_registers in, uintptr_t pc, uintptr_t (*word)(uintptr_t))
{
    struct four_registers out;
";

/// A table as C.
#[derive(Debug)]
pub struct EhElf {
    /// The source.
    pub source: String,
    /// The number of distinct bodies.
    pub bodies: usize,
    /// Rows that the form does not have.
    pub failed_rows: usize,
}

impl EhElf {
    /// Writes the C of a table.
    ///
    /// # Errors
    ///
    /// None: text is written to memory.
    pub fn from_table(table: &Table) -> Result<Self, fmt::Error> {
        let mut bodies = Bodies::default();
        let mut starts = Vec::new();
        let (mut end, mut failed_rows) = (0, 0);
        for span in table.spans() {
            let body = table.row(span.row).and_then(|row| Body::from_row(&row));
            failed_rows += usize::from(body.is_none());
            starts.push((span.start.0, bodies.number(body)));
            end = span.end.0;
        }
        let mut source = HEADER.to_owned();
        if let Some((first, _)) = starts.first() {
            writeln!(source, "    if ({first:#x} <= pc && pc < {end:#x}) {{")?;
            tree(&mut source, &starts)?;
            writeln!(source, "    }}")?;
        }
        writeln!(source, "    out.flags = 128;\n    return out;")?;
        for (number, body) in bodies.list.iter().enumerate() {
            writeln!(source, "body_{number}:")?;
            match body {
                Some(body) => body.write(&mut source)?,
                None => writeln!(source, "    out.flags = 128;")?,
            }
            writeln!(source, "    return out;")?;
        }
        writeln!(source, "}}")?;
        Ok(EhElf {
            source,
            bodies: bodies.list.len(),
            failed_rows,
        })
    }

    /// The object that gcc makes of it. It is kept in the folder for the next run.
    ///
    /// # Errors
    ///
    /// gcc is missing or fails.
    pub fn object(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let options = ["-O2", "-fPIC", "-shared", "-nostartfiles"];
        Ok(compiled(&self.source, &options, folder)?.0)
    }
}

/// The object that gcc makes from a C source, and the seconds for that. It is kept in the folder for
/// the next run.
///
/// # Errors
///
/// gcc is missing or fails.
pub fn compiled(c: &str, options: &[&str], folder: &Path) -> anyhow::Result<(PathBuf, f64)> {
    let digest = Sha256::digest(options.join(" ") + "\n" + c);
    let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let [text, object, took] =
        ["c", "so", "seconds"].map(|kind| folder.join(&name).with_extension(kind));
    if let Ok(seconds) = std::fs::read_to_string(&took) {
        return Ok((object, seconds.parse()?));
    }
    std::fs::create_dir_all(folder)?;
    std::fs::write(&text, c)?;
    let started = Instant::now();
    gcc(options, &text, &object)?;
    let seconds = started.elapsed().as_secs_f64();
    std::fs::write(&took, seconds.to_string())?;
    Ok((object, seconds))
}

/// Runs gcc.
///
/// # Errors
///
/// It is missing or fails.
pub fn gcc(options: &[&str], source: &Path, out: &Path) -> anyhow::Result<()> {
    let status = Command::new("gcc")
        .args(options)
        .arg(source)
        .arg("-o")
        .arg(out)
        .status();
    let status = status.context("cannot run gcc (Debian package gcc)")?;
    ensure!(status.success(), "gcc {}: {status}", source.display());
    Ok(())
}

/// The bytes of `.text`, which the papers count.
///
/// # Errors
///
/// The object cannot be read.
pub fn text_bytes(object: &Path) -> anyhow::Result<u64> {
    let file = ElfFile::open(object)?;
    let text = file.sections().filter(|section| section.name == ".text");
    Ok(text.map(|section| section.size).sum())
}

/// Where a caller's registers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Body {
    cfa: Cfa,
    /// Offsets from the CFA.
    rip: Option<i64>,
    rbp: Option<i64>,
    rbx: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Cfa {
    RegisterOffset(&'static str, i64),
    LinkageTable,
}

impl Body {
    /// `None` if the form does not have it.
    fn from_row(row: &Row<'_>) -> Option<Self> {
        let cfa = match row.cfa {
            CfaRule::RegisterOffset { register, offset } => {
                let name = match register {
                    RSP => "rsp",
                    RBP => "rbp",
                    RBX => "rbx",
                    _ => return None,
                };
                Cfa::RegisterOffset(name, offset)
            }
            CfaRule::Expression(expression) if expression.0 == LINKAGE_TABLE => Cfa::LinkageTable,
            _ => return None,
        };
        let saved = |register| match row.rule(register) {
            Some(RegisterRule::Offset(offset)) => Some(Some(offset)),
            Some(RegisterRule::Undefined | RegisterRule::SameValue) | None => Some(None),
            Some(_) => None,
        };
        Some(Body {
            cfa,
            rip: saved(RIP)?,
            // As theirs, a body without a register leaves it.
            rbp: saved(RBP).flatten(),
            rbx: saved(RBX).flatten(),
        })
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        match self.cfa {
            Cfa::RegisterOffset(register, offset) => {
                writeln!(out, "    out.rsp = in.{register} + ({offset});")?;
            }
            Cfa::LinkageTable => {
                writeln!(
                    out,
                    "    out.rsp = in.rsp + ((in.rip & 15) >= 11 ? 16 : 8);"
                )?;
            }
        }
        let mut flags = 2;
        let registers = [
            ("rbp", self.rbp, 4),
            ("rip", self.rip, 1),
            ("rbx", self.rbx, 8),
        ];
        for (register, offset, flag) in registers {
            if let Some(offset) = offset {
                writeln!(out, "    out.{register} = word(out.rsp + ({offset}));")?;
                flags |= flag;
            }
        }
        writeln!(out, "    out.flags = {flags};")
    }
}

/// The distinct bodies.
#[derive(Debug, Default)]
struct Bodies {
    list: Vec<Option<Body>>,
    numbers: HashMap<Option<Body>, usize>,
}

impl Bodies {
    fn number(&mut self, body: Option<Body>) -> usize {
        *self.numbers.entry(body).or_insert_with(|| {
            self.list.push(body);
            self.list.len() - 1
        })
    }
}

/// The comparisons that lead from an address to a body.
fn tree(out: &mut String, starts: &[(u64, usize)]) -> fmt::Result {
    match starts {
        [] => Ok(()),
        [(_, body)] => writeln!(out, "goto body_{body};"),
        _ => {
            let (low, high) = starts.split_at(starts.len() / 2);
            let middle = high.first().map_or(0, |(start, _)| *start);
            writeln!(out, "if (pc < {middle:#x}) {{")?;
            tree(out, low)?;
            writeln!(out, "}} else {{")?;
            tree(out, high)?;
            writeln!(out, "}}")
        }
    }
}
