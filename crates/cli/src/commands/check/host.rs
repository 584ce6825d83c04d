//! The program whose process calls a function of a file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use tempfile::TempDir;
use unspool_assembly::AssemblySource;
use unspool_elf::{Archive, ElfFile, demangle};
use unspool_single_step::{HostProgram, StopLocation};

use crate::commands::cc::CcAssembler;

/// The first address of an undefined symbol. Such addresses are in reach of code, far behind it, and
/// nothing is mapped there.
const FIRST_UNDEFINED: u64 = 0x6000_0000;
/// The distance of these addresses in bytes. Each symbol is in the middle of its range.
const UNDEFINED_STEP: u64 = 1 << 16;
/// Further undefined symbols are 0.
const MAX_UNDEFINED: usize = 4096;

/// A program that has a file mapped, and what it lacks.
pub(super) struct CallHost {
    pub(super) program: HostProgram,
    /// Symbols that nobody defines, by their addresses.
    undefined: BTreeMap<u64, String>,
    /// Has the program, if it was made.
    _folder: Option<TempDir>,
}

impl CallHost {
    /// Finds or makes a program for a file with a function.
    pub(super) fn new(path: &Path, function: &str) -> anyhow::Result<CallHost> {
        if AssemblySource::is_assembly_path(path) || Archive::open(path)?.is_some() {
            return CallHost::linked(path, function);
        }
        match HostProgram::with_file(&ElfFile::open(path)?)? {
            Some(program) => Ok(CallHost {
                program,
                undefined: BTreeMap::new(),
                _folder: None,
            }),
            None => CallHost::linked(path, function),
        }
    }

    /// A program linked from assembly source, an object file or an archive. The function is its
    /// entry point, which only matters for an archive: linkers take the member that has it.
    fn linked(path: &Path, function: &str) -> anyhow::Result<CallHost> {
        let folder = tempfile::tempdir().context("no folder to link in")?;
        let files = folder.path().canonicalize()?;
        let compiler = CcAssembler::from_environment();
        let mut program = files.join("linked");
        compiler.link(path, function, &program, None)?;
        let undefined = undefined(&program, function);
        if !undefined.is_empty() {
            let definitions = files.join("undefined.s");
            fs::write(&definitions, definitions_of(&undefined))?;
            let whole = files.join("linked_whole");
            // Without these addresses only names are lacking.
            if compiler
                .link(path, function, &whole, Some(&definitions))
                .is_ok()
            {
                program = whole;
            }
        }
        Ok(CallHost {
            program: HostProgram::itself(program),
            undefined,
            _folder: Some(folder),
        })
    }

    /// The undefined symbol whose use ended a call: its name, and whether control went there.
    pub(super) fn undefined_at(&self, location: &StopLocation) -> Option<(Cow<'_, str>, bool)> {
        let at = location.faulted?;
        let end = at.saturating_add(UNDEFINED_STEP / 2);
        let (address, name) = self.undefined.range(..=end).next_back()?;
        let is_near = at.abs_diff(*address) <= UNDEFINED_STEP / 2;
        is_near.then(|| (demangle(name), location.address == at))
    }
}

/// The undefined symbols of a linked program, with addresses. Weak ones stay 0, as code expects. The
/// entry point is undefined where the file lacks it, and no code uses it.
fn undefined(program: &Path, entry: &str) -> BTreeMap<u64, String> {
    let file = ElfFile::open(program);
    let symbols = file.as_ref().map(ElfFile::unresolved_symbols);
    let Ok(Ok(symbols)) = symbols else {
        return BTreeMap::new();
    };
    let is_odd = |c: char| c.is_control() || matches!(c, '"' | '\\' | char::REPLACEMENT_CHARACTER);
    let is_plain = |name: &str| !name.contains(is_odd);
    let symbols = symbols
        .into_iter()
        .filter(|it| !it.is_weak && !it.is_thread_local && it.name != entry && is_plain(&it.name));
    let addresses = (0..).map(|number| FIRST_UNDEFINED + number * UNDEFINED_STEP);
    addresses
        .map(|start| start + UNDEFINED_STEP / 2)
        .zip(symbols.take(MAX_UNDEFINED))
        .map(|(address, symbol)| (address, symbol.name.into_owned()))
        .collect()
}

/// Assembly source that gives symbols their addresses.
fn definitions_of(undefined: &BTreeMap<u64, String>) -> String {
    let mut text = ".section .note.GNU-stack, \"\", @progbits\n".to_owned();
    for (address, name) in undefined {
        let _ = writeln!(text, ".globl \"{name}\"\n.set \"{name}\", {address:#x}");
    }
    text
}
