//! The output of `readelf --debug-dump=frames-interp` and `--debug-dump=frames` (binutils 2.40 and 2.44),
//! read as it is printed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use unspool_rows::{Arch, Register};

use crate::Error;

/// One of the two output forms of `readelf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadelfForm {
    /// Rows: interpreted.
    Rows,
    /// Instructions: as stored.
    Instructions,
}

/// An item of the output.
#[derive(Debug, Clone, PartialEq)]
pub enum DumpItem {
    /// The following items are from this member of an archive.
    Member(String),
    /// The following items are from this section.
    Section(String),
    /// A CIE, an FDE or a terminator.
    Entry(DumpEntry),
}

/// An entry of a section.
#[derive(Debug, Clone, PartialEq)]
pub struct DumpEntry {
    /// Its offset in the section.
    pub offset: u64,
    /// Its first line.
    pub header: DumpHeader,
    /// Its rows; none for an entry whose instructions are all `nop`.
    pub rows: Vec<DumpRow>,
    /// Its instructions.
    pub instructions: Vec<DumpInstruction>,
    /// Lines that cannot be parsed.
    pub unparsed_lines: Vec<String>,
}

/// The first line of an entry.
#[derive(Debug, Clone, PartialEq)]
pub enum DumpHeader {
    /// An entry of length zero.
    Terminator,
    /// A CIE; its properties other than rows are on this line only in the form of rows.
    Cie(Option<CieLine>),
    /// An FDE.
    Fde {
        /// The offset of its CIE; `None` if `readelf` finds none.
        cie: Option<u64>,
        /// The first address.
        start: u64,
        /// One past the last address.
        end: u64,
    },
}

/// The first line of a CIE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CieLine {
    /// The augmentation string.
    pub augmentation: String,
    /// The return-address column.
    pub return_address: Register,
}

/// The printed part of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct DumpRow {
    /// The address.
    pub at: u64,
    /// Register and offset; `None` for an expression.
    pub cfa: Option<(Register, i64)>,
    /// The columns.
    pub cells: Vec<(Register, Cell)>,
}

/// The rule in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// `u`: undefined, or no rule.
    Undefined,
    /// `s`
    Same,
    /// `c-16`
    Offset(i64),
    /// `v+8`
    ValOffset(i64),
    /// `r12 (r12)`
    Register(Register),
    /// `exp`
    Expression,
    /// `vexp`
    ValExpression,
}

/// An instruction with an effect that rows do not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DumpInstruction {
    /// A new row starts at this address.
    Advance(u64),
    /// The CFA becomes register plus offset.
    Cfa,
    /// The CFA's offset changes; an expression stays.
    CfaOffset,
    /// The CFA becomes an expression.
    CfaExpression(String),
    /// A register becomes undefined.
    Undefined(Register),
    /// A register gets an expression.
    Expression(Register, String),
    /// A register gets the value of an expression.
    ValExpression(Register, String),
    /// A register gets a rule that rows show completely.
    Rule(Register),
    /// A register gets the CIE's rule.
    Restore(Register),
    /// `DW_CFA_remember_state`
    RememberState,
    /// `DW_CFA_restore_state`
    RestoreState,
    /// `DW_CFA_GNU_args_size`
    ArgsSize(u64),
    /// `DW_CFA_AARCH64_negate_ra_state`
    NegateRaState,
    /// `DW_CFA_nop`
    Nop,
}

/// A running `readelf`, and its output.
#[derive(Debug)]
pub struct Readelf {
    child: Child,
    output: BufReader<ChildStdout>,
    arch: Arch,
    line: String,
    /// The line was read ahead and belongs to the next item.
    pending: bool,
    /// The columns of the following rows.
    columns: Vec<Register>,
    /// The return-address columns of this section's CIEs; `readelf` calls them `ra`.
    return_addresses: BTreeMap<u64, Register>,
    unparsed_lines: Vec<String>,
    /// The lines are of `.eh_frame_hdr`, which binutils 2.44 prints, too.
    is_search_table: bool,
}

impl Readelf {
    /// Starts `readelf` on a file whose registers have the names of `arch`.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(path: &Path, form: ReadelfForm, arch: Arch) -> Result<Self, Error> {
        let dump = match form {
            ReadelfForm::Rows => "--debug-dump=frames-interp,no-follow-links",
            ReadelfForm::Instructions => "--debug-dump=frames,no-follow-links",
        };
        let mut child = Command::new("readelf")
            .args(["--wide", dump])
            .arg(path)
            .env("LC_ALL", "C")
            .env_remove("DEBUGINFOD_URLS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run readelf (package binutils): {error}"))?;
        let output = child.stdout.take().ok_or("readelf has no output")?;
        Ok(Readelf {
            child,
            output: BufReader::with_capacity(1 << 18, output),
            arch,
            line: String::new(),
            pending: false,
            columns: Vec::new(),
            return_addresses: BTreeMap::new(),
            unparsed_lines: Vec::new(),
            is_search_table: false,
        })
    }

    /// The following registers have the names of `arch`.
    pub fn set_arch(&mut self, arch: Arch) {
        self.arch = arch;
    }

    /// Lines outside of entries that cannot be parsed.
    #[must_use]
    pub fn strange(&self) -> &[String] {
        &self.unparsed_lines
    }

    /// Reads the next item; `None` at the end.
    ///
    /// # Errors
    ///
    /// The output cannot be read.
    pub fn next_item(&mut self) -> Result<Option<DumpItem>, Error> {
        while self.advance()? {
            let line = self.line.as_str();
            if line.is_empty() || line.ends_with(" has no debugging data.") {
                continue;
            }
            if self.is_search_table && line.starts_with("  ") {
                continue;
            }
            if let Some(rest) = line.strip_prefix("Contents of the ") {
                let name = rest.split(' ').next().unwrap_or_default();
                self.is_search_table = name == ".eh_frame_hdr";
                if self.is_search_table {
                    continue;
                }
                self.return_addresses.clear();
                return Ok(Some(DumpItem::Section(name.to_owned())));
            }
            if let Some(name) = line.strip_prefix("File: ") {
                let member = name
                    .strip_suffix(')')
                    .and_then(|name| name.rsplit_once('('));
                let member = member.map_or(name, |(_, member)| member);
                return Ok(Some(DumpItem::Member(member.to_owned())));
            }
            match entry_header(line) {
                Some((offset, header)) => {
                    return Ok(Some(DumpItem::Entry(self.entry(offset, header)?)));
                }
                None => self.unparsed_lines.push(line.to_owned()),
            }
        }
        Ok(None)
    }

    /// Makes `self.line` the next line, without its end.
    fn advance(&mut self) -> Result<bool, Error> {
        if std::mem::take(&mut self.pending) {
            return Ok(true);
        }
        self.line.clear();
        if self.output.read_line(&mut self.line)? == 0 {
            return Ok(false);
        }
        let len = self.line.trim_end().len();
        self.line.truncate(len);
        Ok(true)
    }

    /// Reads the lines of an entry up to the first of another item.
    fn entry(&mut self, offset: u64, header: DumpHeader) -> Result<DumpEntry, Error> {
        let mut entry = DumpEntry {
            offset,
            header,
            rows: Vec::new(),
            instructions: Vec::new(),
            unparsed_lines: Vec::new(),
        };
        self.columns.clear();
        if let DumpHeader::Cie(Some(cie)) = &entry.header {
            self.return_addresses.insert(offset, cie.return_address);
        }
        while self.advance()? {
            if self.line.is_empty() {
                continue; // One precedes the instructions of some CIEs.
            }
            if self.ends_entry() {
                self.pending = true;
                break;
            }
            self.entry_line(&mut entry);
        }
        Ok(entry)
    }

    fn ends_entry(&self) -> bool {
        let line = self.line.as_str();
        !line.starts_with(' ')
            && (line.starts_with("Contents of the ")
                || line.starts_with("File: ")
                || entry_header(line).is_some())
    }

    fn entry_line(&mut self, entry: &mut DumpEntry) {
        let line = self.line.as_str();
        if let Some(instruction) = line.strip_prefix("  DW_CFA_") {
            match instruction_line(instruction) {
                Some(instruction) => entry.instructions.push(instruction),
                None => entry.unparsed_lines.push(line.to_owned()),
            }
        } else if let Some(names) = line.strip_prefix("   LOC") {
            let return_address = match entry.header {
                DumpHeader::Fde { cie, .. } => cie,
                _ => Some(entry.offset),
            };
            let return_address = return_address.and_then(|cie| self.return_addresses.get(&cie));
            self.columns.clear();
            for name in names.split_whitespace().skip(1) {
                let register = match name {
                    "ra" => return_address.copied(),
                    _ => named(name, self.arch),
                };
                match register {
                    Some(register) => self.columns.push(register),
                    None => entry.unparsed_lines.push(line.to_owned()),
                }
            }
        } else if !CIE_FIELDS.iter().any(|field| line.starts_with(field)) {
            match row_line(line, &self.columns, self.arch) {
                Some(row) => entry.rows.push(row),
                None => entry.unparsed_lines.push(line.to_owned()),
            }
        }
    }
}

impl Drop for Readelf {
    fn drop(&mut self) {
        // It may have exited by itself; a failure is ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines of a CIE or an FDE in the form of instructions. They repeat the first line in the form of
/// rows, or no row depends on them.
const CIE_FIELDS: [&str; 8] = [
    "  Version: ",
    "  Augmentation: ",
    "  Augmentation data: ",
    "  Code alignment factor: ",
    "  Data alignment factor: ",
    "  Return address column: ",
    "  Pointer Size: ",
    "  Segment Size: ",
];

/// `00000018 0000000000000014 0000001c FDE cie=00000000 pc=00000000000023d0..00000000000023f2`
fn entry_header(line: &str) -> Option<(u64, DumpHeader)> {
    let mut words = line.split_ascii_whitespace();
    let offset = hex(words.next()?)?;
    if words.next()? == "ZERO" {
        return Some((offset, DumpHeader::Terminator));
    }
    words.next()?;
    let header = match words.next()? {
        "CIE" => DumpHeader::Cie(cie_line(line)),
        "FDE" => {
            let cie = words.next()?.strip_prefix("cie=")?;
            let pc = words.find_map(|word| word.strip_prefix("pc="))?;
            let pc = pc.rsplit(':').next().unwrap_or(pc); // A segment selector precedes it.
            let (start, end) = pc.split_once("..")?;
            DumpHeader::Fde {
                cie: hex(cie),
                start: hex(start)?,
                end: hex(end)?,
            }
        }
        _ => return None,
    };
    Some((offset, header))
}

/// `… CIE "zR" cf=1 df=-8 ra=16`
fn cie_line(line: &str) -> Option<CieLine> {
    let (_, rest) = line.split_once('"')?;
    let (augmentation, rest) = rest.split_once('"')?;
    let (_, column) = rest.rsplit_once("ra=")?;
    Some(CieLine {
        augmentation: augmentation.to_owned(),
        return_address: Register(column.parse().ok()?),
    })
}

/// `00000000000024d2 rsp+32   u     c-24  r2 (rcx) exp   c-8`
fn row_line(line: &str, columns: &[Register], arch: Arch) -> Option<DumpRow> {
    let mut words = line
        .split_ascii_whitespace()
        .filter(|word| !word.starts_with('('));
    let at = hex(words.next()?)?;
    let cfa = match words.next()? {
        "exp" => None,
        cfa => {
            let (name, offset) = cfa.split_at(cfa.rfind(['+', '-'])?);
            Some((named(name, arch)?, offset.parse().ok()?))
        }
    };
    let mut cells = Vec::with_capacity(columns.len());
    for register in columns {
        cells.push((*register, cell(words.next()?)?));
    }
    words.next().is_none().then_some(DumpRow { at, cfa, cells })
}

fn cell(word: &str) -> Option<Cell> {
    Some(match word {
        "u" => Cell::Undefined,
        "s" => Cell::Same,
        "exp" => Cell::Expression,
        "vexp" => Cell::ValExpression,
        _ if word.starts_with('c') => Cell::Offset(word.get(1..)?.parse().ok()?),
        _ if word.starts_with('v') => Cell::ValOffset(word.get(1..)?.parse().ok()?),
        _ => Cell::Register(numbered(word)?),
    })
}

/// `def_cfa: r7 (rsp) ofs 8` and so on, without `DW_CFA_`.
fn instruction_line(line: &str) -> Option<DumpInstruction> {
    let (name, operands) = match line.split_once(": ") {
        // The first colon may be in an expression.
        Some((name, operands)) if !name.contains(' ') => (name, operands),
        _ => line.split_once(' ').unwrap_or((line, "")),
    };
    let register = || numbered(operands.split(' ').next()?);
    let expression = || {
        let open = match name {
            "def_cfa_expression" => 0,
            // Follows `r3 (rbx) `, or `r13 ` if registers have no names.
            _ => operands.find("(DW_OP_").or_else(|| operands.rfind("()"))?,
        };
        let inner = operands.get(open..)?.strip_prefix('(')?.strip_suffix(')')?;
        Some(expression_text(inner))
    };
    Some(match name {
        "nop" => DumpInstruction::Nop,
        "remember_state" => DumpInstruction::RememberState,
        "restore_state" => DumpInstruction::RestoreState,
        "AARCH64_negate_ra_state" => DumpInstruction::NegateRaState,
        "GNU_args_size" => DumpInstruction::ArgsSize(operands.parse().ok()?),
        "set_loc" => DumpInstruction::Advance(hex(operands)?),
        _ if name.contains("advance_loc") => {
            DumpInstruction::Advance(hex(operands.rsplit_once(' ')?.1)?)
        }
        "def_cfa" | "def_cfa_sf" | "def_cfa_register" => DumpInstruction::Cfa,
        "def_cfa_offset" | "def_cfa_offset_sf" => DumpInstruction::CfaOffset,
        "def_cfa_expression" => DumpInstruction::CfaExpression(expression()?),
        "expression" => DumpInstruction::Expression(register()?, expression()?),
        "val_expression" => DumpInstruction::ValExpression(register()?, expression()?),
        "undefined" => DumpInstruction::Undefined(register()?),
        "restore" | "restore_extended" => DumpInstruction::Restore(register()?),
        "same_value"
        | "register"
        | "offset"
        | "offset_extended"
        | "offset_extended_sf"
        | "val_offset"
        | "val_offset_sf"
        | "GNU_negative_offset_extended" => DumpInstruction::Rule(register()?),
        _ => return None,
    })
}

/// `DW_OP_breg7 (rsp): 8; DW_OP_plus` as `breg7 8; plus`.
fn expression_text(text: &str) -> String {
    let mut out = String::new();
    for operation in text.split("; ").filter(|operation| !operation.is_empty()) {
        if !out.is_empty() {
            out.push_str("; ");
        }
        let words = operation.split_ascii_whitespace();
        let words = words.filter(|word| !word.starts_with('('));
        for (at, word) in words.enumerate() {
            let word = word.strip_suffix(':').unwrap_or(word);
            if at > 0 {
                out.push(' ');
            }
            out.push_str(word.strip_prefix("DW_OP_").unwrap_or(word));
        }
    }
    out
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

/// `r7`: how `readelf` prints numbers of registers.
fn numbered(word: &str) -> Option<Register> {
    word.strip_prefix('r')?.parse().ok().map(Register)
}

/// A register by `readelf`'s name for it, or `r7` if it has none.
fn named(name: &str, arch: Arch) -> Option<Register> {
    let arch = match arch {
        Arch::Other { machine: 62, .. } => Arch::X86_64, // x32
        arch => arch,
    };
    let ours = || arch.register_named(name);
    let extra = || {
        let families = match arch {
            Arch::X86_64 => X86_64_FAMILIES,
            Arch::I386 => I386_FAMILIES,
            Arch::Aarch64 => AARCH64_FAMILIES,
            Arch::Other { machine: 22, .. } => S390_FAMILIES,
            _ => &[],
        };
        families.iter().find_map(|(family, first)| {
            let number = name.strip_prefix(family)?;
            let number: u16 = if number.is_empty() {
                0
            } else {
                number.parse().ok()?
            };
            Some(Register(first + number))
        })
    };
    ours().or_else(extra).or_else(|| numbered(name))
}

/// Registers that no compiler saves, which unspool's table of names does not have. A family has its
/// name or prefix, and the number of the register with that name, or with `0` appended.
type Families = &'static [(&'static str, u16)];

const X86_64_FAMILIES: Families = &[
    ("st", 33),
    ("mm", 41),
    ("es", 50),
    ("cs", 51),
    ("ss", 52),
    ("ds", 53),
    ("fs", 54),
    ("gs", 55),
    ("tr", 62),
    ("ldtr", 63),
    ("fsw", 66),
    ("xmm", 67 - 16),
    ("k", 118),
    ("bnd", 126),
];
const I386_FAMILIES: Families = &[
    ("mm", 29),
    ("fcw", 37),
    ("fsw", 38),
    ("es", 40),
    ("cs", 41),
    ("ss", 42),
    ("ds", 43),
    ("fs", 44),
    ("gs", 45),
];
const AARCH64_FAMILIES: Families = &[("elr", 33), ("ffr", 47), ("p", 48), ("z", 96)];
/// Floating-point registers in the order of their numbers; `f1` comes after the names that start
/// with it.
const S390_FAMILIES: Families = &[
    ("f0", 16),
    ("f2", 17),
    ("f4", 18),
    ("f6", 19),
    ("f3", 21),
    ("f5", 22),
    ("f7", 23),
    ("f8", 24),
    ("f10", 25),
    ("f12", 26),
    ("f14", 27),
    ("f9", 28),
    ("f11", 29),
    ("f13", 30),
    ("f15", 31),
    ("f1", 20),
];
