//! A file with its table and code.

use std::collections::{BTreeMap, BTreeSet};

use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::op::{Flow, ScanEvent};
use unspool_code_analysis::{
    CodeExtent, CodeImage as _, ExtentKind, Landing, Lifter, ProgramCode, ReturnBehavior,
};
use unspool_elf::{Binding, ElfFile, Lines, Symbols};
use unspool_rows::{Abi, Arch, Fde, FdeId, Table, Vaddr};
use unspool_synthesis::{self as synthesis, ElfCodeImage};
use unspool_table_store::{self as tables, SourceError, TableSource};

use crate::convention::{CallingConvention, CallingConventions};
use crate::declared_row::{DeclaredRow, RuleLocation};
use crate::origin::{CodeOrigin, CodeOrigins};
use crate::path::JumpEdge;
use crate::row_checker::RowChecker;
use crate::undeclared_functions;

/// Why a file cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// It has no readable table.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The architecture is not supported.
    #[error("{file}: {} code is not supported; x86-64 code is", .arch.spec().name)]
    Arch {
        /// The file.
        file: String,
        /// Its architecture.
        arch: Arch,
    },
}

/// A file's declared rows.
#[derive(Debug)]
pub struct DeclaredTable {
    /// Its rows.
    pub table: Table,
    /// The entries by start. Entries without code, and all except the first at one address, are
    /// left out.
    by_start: Vec<FdeId>,
}

impl DeclaredTable {
    /// Reads the table of a file.
    ///
    /// # Errors
    ///
    /// It has none that can be read.
    pub fn read(file: &ElfFile) -> Result<DeclaredTable, SubjectError> {
        Ok(DeclaredTable::from_table(
            tables::read(file, TableSource::First)?.table,
        ))
    }

    /// Reads the table of a file, or takes an empty one if it has none: if the author of assembly
    /// wrote no directives, each function is a finding.
    ///
    /// # Errors
    ///
    /// It has one that cannot be read.
    pub fn read_if_any(file: &ElfFile) -> Result<DeclaredTable, SubjectError> {
        Ok(DeclaredTable::from_table(tables::read_if_any_from(
            file,
            TableSource::First,
        )?))
    }

    /// For a table.
    #[must_use]
    pub fn from_table(table: Table) -> DeclaredTable {
        let count = u32::try_from(table.fdes().len()).unwrap_or(u32::MAX);
        let start_of = |id: &FdeId| table.fde(*id).map(|fde| fde.start);
        let mut by_start: Vec<FdeId> = (0..count).map(FdeId).collect();
        by_start.retain(|id| table.fde(*id).is_some_and(|fde| fde.start < fde.end));
        by_start.sort_by_key(start_of);
        by_start.dedup_by_key(|id| start_of(id));
        DeclaredTable { table, by_start }
    }
}

/// A file with a table to check against its code.
#[derive(Debug)]
pub struct CheckSubject<'f> {
    file: &'f ElfFile,
    origins: CodeOrigins,
    conventions: CallingConventions,
    /// Whether its code is replaced when it is loaded, as the kernel's is. Then rows can be those of
    /// the other code, and begin inside of instructions.
    pub(crate) is_replaced: bool,
    /// The starts of the functions to report, if not all.
    reported: Option<BTreeSet<u64>>,
    pub(crate) symbols: &'f Symbols,
    pub(crate) lines: Option<&'f Lines>,
    /// Its declared rows.
    declared_table: &'f DeclaredTable,
    /// Its code.
    program: ProgramCode,
    /// Functions that others jump to with the return address in a register: their starts, and the
    /// register.
    link_registers: BTreeMap<u64, u8>,
    /// Labels inside entries that are entered as their rows say, and not by calls.
    declared_entries: BTreeSet<u64>,
    /// How often the known behavior of each function has changed.
    behavior_changes: BTreeMap<usize, u32>,
    unknown_callee: Option<ReturnBehavior>,
    pub(crate) row_checker: RowChecker<'f>,
}

impl<'f> CheckSubject<'f> {
    /// Scans a file's code.
    ///
    /// # Errors
    ///
    /// The architecture is not supported.
    pub fn new(
        file: &'f ElfFile,
        declarations: &'f DeclaredTable,
        origins: impl Into<CodeOrigins>,
    ) -> Result<CheckSubject<'f>, SubjectError> {
        let authors = origins.into();
        let abi = declarations.table.abi();
        let mut machine = lifter(file, abi)?;
        let row_checker = RowChecker::new(&declarations.table, machine.abi_info());
        let extents = extents(file, declarations, &row_checker);
        let symbols = file.symbols();
        let lost = synthesis::noreturn_addresses(file, symbols);
        let never_returns = |address| lost.contains(&address);
        let mut entries = synthesis::plt_stubs(file);
        entries.extend(functions(symbols, &authors));
        let program = ProgramCode::scan(
            &mut machine,
            &ElfCodeImage(file),
            extents,
            entries,
            never_returns,
        );
        let mut subject = CheckSubject {
            file,
            origins: authors,
            conventions: CallingConventions::from_file(file, symbols, &mut machine),
            is_replaced: file
                .sections()
                .any(|section| [".altinstructions", ".parainstructions"].contains(&&*section.name)),
            reported: None,
            declared_table: declarations,
            program,
            link_registers: BTreeMap::new(),
            declared_entries: BTreeSet::new(),
            behavior_changes: BTreeMap::new(),
            unknown_callee: None,
            row_checker,
            symbols,
            lines: None,
        };
        for start in undeclared_functions::undeclared_functions(&subject, machine) {
            subject.program.mark_function(start);
        }
        subject.declared_entries = undeclared_functions::declared_entries(&subject);
        subject.link_registers = subject.declared_link_registers();
        Ok(subject)
    }

    /// The fragments whose first rows declare the return address in a register.
    fn declared_link_registers(&self) -> BTreeMap<u64, u8> {
        let extents = self.program.extents().iter();
        let fragments = extents.filter(|extent| extent.kind == ExtentKind::Fragment);
        let declared = fragments.filter_map(|extent| {
            let (_, row) = self.first_row(extent.start)?;
            match row.return_address {
                RuleLocation::Register(register, 0) => Some((extent.start, register)),
                _ => None,
            }
        });
        declared.collect()
    }

    /// The register that holds the return address at the start of a function.
    pub(crate) fn link_register(&self, start: u64) -> Option<u8> {
        self.link_registers.get(&start).copied()
    }

    /// Whether a label inside an entry is entered as its row says.
    pub(crate) fn is_declared_entry(&self, address: u64) -> bool {
        self.declared_entries.contains(&address)
    }

    /// Labels of functions inside entries, with rows that deny a call.
    pub(crate) fn uncalled_labels(&self) -> BTreeSet<u64> {
        let labels = functions(self.symbols, &self.origins).filter(|label| {
            let is_inside = self.program.index_starting_at(*label).is_none();
            let declared = self.declared_at(*label).filter(|_| is_inside);
            declared.is_some_and(|row| !row.is_as_called(self.abi_info()))
        });
        labels.collect()
    }

    /// The row declared for an address.
    fn declared_at(&self, address: u64) -> Option<&DeclaredRow> {
        let (_, fde) = self.fde_of(&self.program.extent_at(address)?)?;
        let rows = self.table().rows(fde);
        let row = rows.take_while(|row| row.start.0 <= address).last()?;
        self.row_checker.declared(row.row)
    }

    /// The targets of all direct calls.
    pub(crate) fn called_addresses(&self) -> BTreeSet<u64> {
        let mut called = BTreeSet::new();
        self.visit_references(|_, kind, to| {
            if kind == ReferenceKind::Call {
                called.insert(to);
            }
        });
        called
    }

    /// Takes functions for parts of others that jump to them with something on the stack, if nobody
    /// else can know them: they are local, and neither called nor pointed to. Returns whether there
    /// are any.
    pub(crate) fn find_parts(&mut self, jumps: &[JumpEdge]) -> bool {
        let is_local = |to: Vaddr| {
            let symbol = self
                .symbols
                .lookup(to)
                .filter(|symbol| symbol.address == to);
            symbol.is_none_or(|symbol| symbol.binding == Binding::Local)
        };
        let jumps = jumps.iter().copied().filter(|[_, to]| {
            self.origin_at(*to) == CodeOrigin::HandWritten
                && is_local(*to)
                && !self.program.is_address_taken(to.0)
        });
        let jumps: Vec<JumpEdge> = jumps.collect();
        if jumps.is_empty() {
            return false;
        }
        let called = self.called_addresses();
        let mut joins = Vec::new();
        for [from, to] in jumps {
            let places = [from, to].map(|at| self.program.index_containing(at.0));
            if let [Some(from), Some(place)] = places
                && !called.contains(&to.0)
            {
                self.program.mark_fragment(to.0);
                joins.push((from, place));
            }
        }
        let is_any = !joins.is_empty();
        self.program.unite(joins);
        is_any
    }

    /// Takes the units that indirect jumps lead from and to for one. Returns whether there are any.
    pub(crate) fn unite_along(&mut self, jumps: &[JumpEdge]) -> bool {
        let places = |jump: &JumpEdge| {
            let [from, to] = jump.map(|at| self.program.index_containing(at.0));
            from.zip(to)
        };
        let joins: Vec<_> = jumps.iter().filter_map(places).collect();
        let is_any = !joins.is_empty();
        self.program.unite(joins);
        is_any
    }

    /// What callers find behind a function that they call through an unknown pointer, if that may be
    /// less than the ABI promises: code or data of the file names a function that does less.
    pub(crate) fn unknown_callee(&self) -> Option<ReturnBehavior> {
        self.unknown_callee
    }

    /// The functions that words in data name.
    fn pointed_functions(&self) -> BTreeSet<u64> {
        let mut functions = BTreeSet::new();
        for section in self.file.sections() {
            let Some(start) = section.address.filter(|_| !section.executable) else {
                continue;
            };
            let size = usize::try_from(section.size).unwrap_or(usize::MAX);
            let bytes = self.file.rest_at(start).unwrap_or_default();
            let (words, _) = bytes.get(..size).unwrap_or(bytes).as_chunks();
            let words = words.iter().map(|word| u64::from_le_bytes(*word));
            functions.extend(words.filter(|to| self.program.starts_function(*to)));
        }
        functions
    }

    /// Finds [`CheckSubject::unknown_callee`].
    fn find_unknown_callee(&mut self) {
        let unusual = self.program.unusual_functions();
        let unusual: Vec<_> = (unusual
            .filter(|(start, _)| self.origin_at(Vaddr(*start)) == CodeOrigin::HandWritten))
        .collect();
        if unusual.is_empty() && self.unknown_callee.is_none() {
            return;
        }
        let pointed = self.pointed_functions();
        let is_named =
            |start: &u64| self.program.is_address_taken(*start) || pointed.contains(start);
        let named = unusual.iter().filter(|(start, _)| is_named(start));
        let named = named.map(|(_, returns)| Some(*returns));
        self.unknown_callee = ReturnBehavior::of_any(named.chain([None]));
    }

    /// Finds functions that jump to the value that a register has at their entry, where another one
    /// jumps to them with an address of its own in that register. Returns whether there are new
    /// ones. `jumps` are jumps to functions, with the registers that hold such addresses.
    pub(crate) fn find_link_registers(
        &mut self,
        jumps: &[(Vaddr, u64)],
        entry_register_jumps: &[(Vaddr, u8)],
    ) -> bool {
        let mut is_new = false;
        for (start, register) in entry_register_jumps {
            let is_linked = |(to, registers): &(Vaddr, u64)| {
                to == start && registers >> (register & 63) & 1 != 0
            };
            if jumps.iter().any(is_linked) {
                is_new |= self.link_registers.insert(start.0, *register).is_none();
            }
        }
        is_new
    }

    /// Adds the source line table. Data between instructions has no lines of its own, which
    /// identifies it in unreached code.
    #[must_use]
    pub fn with_lines(mut self, lines: &'f Lines) -> CheckSubject<'f> {
        self.lines = Some(lines);
        self
    }

    /// Sets the calling convention of all code whose symbols show none.
    #[must_use]
    pub fn with_convention(mut self, convention: Option<CallingConvention>) -> CheckSubject<'f> {
        self.conventions = self.conventions.with_default(convention);
        self
    }

    /// Restricts the report to functions of these names, and to their parts (`NAME.cold`). All code
    /// is analysed, since callers depend on it. No name stands for all functions.
    #[must_use]
    pub fn with_functions(mut self, names: &[String]) -> CheckSubject<'f> {
        let is_named = |symbol: &str| {
            names.iter().any(|name| {
                let rest = symbol.strip_prefix(name.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        let symbols = self.symbols.iter();
        let starts = symbols.filter(|symbol| is_named(&symbol.name));
        let starts = starts.map(|symbol| symbol.address.0).collect();
        self.reported = (!names.is_empty()).then_some(starts);
        self
    }

    /// Whether the function at an address is reported.
    pub(crate) fn is_reported(&self, at: Vaddr) -> bool {
        self.reported.as_ref().is_none_or(|starts| {
            let entry = self.program.extent_at(at.0).map(|extent| extent.start);
            let symbol = || self.symbols.lookup(at).map(|symbol| symbol.address.0);
            entry
                .or_else(symbol)
                .is_some_and(|start| starts.contains(&start))
        })
    }

    /// The calling conventions other than the psABI's, each with the number of its entries.
    #[must_use]
    pub fn conventions(&self) -> Vec<(CallingConvention, usize)> {
        let mut found: Vec<(CallingConvention, usize)> = Vec::new();
        for extent in self.program.extents() {
            let Some(convention) = self.conventions.find(extent.start) else {
                continue;
            };
            match found.iter_mut().find(|(known, _)| known == convention) {
                Some((_, count)) => *count += 1,
                None => found.push((*convention, 1)),
            }
        }
        found
    }

    /// The calling convention of the code at an address; `None` for the psABI's.
    pub(crate) fn convention_at(&self, at: u64) -> Option<&CallingConvention> {
        self.conventions.find(at)
    }

    /// The registers that calls preserve by the psABI, and not by the convention of the code at an
    /// address: bit n stands for register n.
    pub(crate) fn unpreserved_at(&self, at: u64) -> u64 {
        let preserved = self.abi_info().preserved.iter();
        let by_abi = preserved.fold(0, |all, register| all | 1 << (register & 63));
        self.convention_at(at)
            .map_or(0, |convention| by_abi & !convention.preserved)
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &'f ElfFile {
        self.file
    }

    /// Origin of the code at an address.
    #[must_use]
    pub(crate) fn origin_at(&self, at: Vaddr) -> CodeOrigin {
        if self.conventions.is_compiled(at) {
            CodeOrigin::Compiler
        } else {
            self.origins.origin_at(at)
        }
    }

    /// Whether all of the file is hand-written.
    pub(crate) fn is_hand_written(&self) -> bool {
        self.origins.is_hand_written()
    }

    /// Whether the file has line numbers.
    pub(crate) fn has_lines(&self) -> bool {
        let mut sections = self.file.sections();
        sections.any(|section| section.name == ".debug_line")
    }

    /// The program's entry point, which nothing calls; `None` if it is not known.
    pub(crate) fn entry(&self) -> Option<Vaddr> {
        synthesis::entry_point(self.file, self.symbols).map(Vaddr)
    }

    /// Origin of a unit: hand-written, if any of it is.
    pub(crate) fn origin_of_unit(&self, unit: usize) -> CodeOrigin {
        if !self.origins.is_mixed() && !self.conventions.is_any_shown() {
            return self.origin_at(Vaddr(0));
        }
        let mut extents = self.program.unit(unit);
        if extents.any(|extent| self.origin_at(Vaddr(extent.start)) == CodeOrigin::HandWritten) {
            CodeOrigin::HandWritten
        } else {
            CodeOrigin::Compiler
        }
    }

    /// Its rows.
    #[must_use]
    pub fn table(&self) -> &'f Table {
        &self.declared_table.table
    }

    /// Its code.
    #[must_use]
    pub fn program(&self) -> &ProgramCode {
        &self.program
    }

    /// ABI parameters of its architecture.
    #[must_use]
    pub fn abi_info(&self) -> &'static AbiInfo {
        self.row_checker.abi_info
    }

    /// Sets returns of functions, with their behavior, and other exits. Returns the indexes of the
    /// functions for which that is new.
    pub(crate) fn set_return_behaviors(
        &mut self,
        exits: &[(Vaddr, ReturnBehavior)],
        others: &[Vaddr],
    ) -> Vec<usize> {
        let mut behaviors: BTreeMap<usize, ReturnBehavior> = BTreeMap::new();
        for (at, returns) in exits {
            let returns = match returns {
                ReturnBehavior::Pops(0) => ReturnBehavior::ABI_REGISTERS,
                other => *other,
            };
            if let Some(index) = self.program.index_containing(at.0) {
                let known = behaviors.entry(index).or_insert(returns);
                *known = known.join(returns);
            }
        }
        for at in others {
            let index = self.program.index_containing(at.0);
            if let Some(known) = index.and_then(|index| behaviors.get_mut(&index)) {
                *known = known.without_kept();
            }
        }
        let mut changed = Vec::new();
        for (index, returns) in behaviors {
            let returns = match returns {
                ReturnBehavior::ABI_REGISTERS => ReturnBehavior::Pops(0),
                other if other.breaks_abi() && self.has_inner_functions(index) => {
                    other.of_some_entry()
                }
                other => other,
            };
            let changes = self.behavior_changes.entry(index).or_default();
            let returns = if *changes < MAX_BEHAVIOR_CHANGES {
                returns
            } else {
                ReturnBehavior::Unknown
            };
            if self.program.set_return_behavior(index, returns) {
                *changes += 1;
                changed.push(index);
            }
        }
        if !changed.is_empty() {
            self.find_unknown_callee();
        }
        changed
    }

    /// Whether calls lead into the middle of an extent.
    fn has_inner_functions(&self, index: usize) -> bool {
        let Some(extent) = self.program.extents().get(index) else {
            return false;
        };
        let (image, lifter) = (ElfCodeImage(self.file), Lifter::new(self.table().abi()));
        let bytes = image.bytes(extent.start..extent.end).unwrap_or_default();
        let mut is_any = !(self.program)
            .extra_entries_in(extent.start + 1..extent.end)
            .is_empty();
        if let Some(mut lifter) = lifter.filter(|_| !is_any) {
            lifter.scan(bytes, extent.start, |_, seen| {
                is_any |= matches!(seen, ScanEvent::Flow(Flow::Call(to))
                    if extent.start < to && to < extent.end);
            });
        }
        is_any
    }

    /// For each function, by its index, the units with an instruction that names it.
    pub(crate) fn referring_units(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut units: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        self.visit_references(|from, _, to| {
            let index = self.program.index_containing(to);
            if let Some((index, unit)) = index.zip(self.program.unit_of(from)) {
                units.entry(index).or_default().insert(unit);
            }
        });
        units
    }

    /// Visits what instructions name: the start of the extent, the kind, the address.
    fn visit_references(&self, mut visit: impl FnMut(u64, ReferenceKind, u64)) {
        let image = ElfCodeImage(self.file);
        let Some(mut lifter) = Lifter::new(self.table().abi()) else {
            return;
        };
        for extent in self.program.extents() {
            let bytes = image.bytes(extent.start..extent.end).unwrap_or_default();
            lifter.scan(bytes, extent.start, |_, seen| match seen {
                ScanEvent::Flow(Flow::Call(to)) => visit(extent.start, ReferenceKind::Call, to),
                ScanEvent::Flow(Flow::Jump(to) | Flow::Branch { to, .. })
                | ScanEvent::AddressTaken(to) => visit(extent.start, ReferenceKind::Other, to),
                _ => {}
            });
        }
    }

    /// The entry of a program's extent.
    pub(crate) fn fde_of(&self, extent: &CodeExtent) -> Option<(FdeId, &'f Fde)> {
        let place = self.program.index_starting_at(extent.start)?;
        let id = *self.declared_table.by_start.get(place)?;
        Some((id, self.declared_table.table.fde(id)?))
    }

    /// The landing pads of a unit's calls, in the order of the calls.
    pub(crate) fn landings(&self, unit: usize) -> Vec<Landing> {
        let mut landings = Vec::new();
        for extent in self.program.unit(unit) {
            let Some((_, fde)) = self.fde_of(&extent) else {
                continue;
            };
            if let Some(lsda) = fde.lsda {
                synthesis::landings(self.file, lsda, fde.start, &mut landings);
            }
        }
        landings.sort_by_key(|landing| landing.start);
        landings
    }
}

/// How often the known behavior of a function may change. Then nothing is known any more behind its
/// calls, so that nothing is proven there. Registers only become lost, one after another.
const MAX_BEHAVIOR_CHANGES: u32 = 64;

/// How an instruction names an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReferenceKind {
    Call,
    Other,
}

/// The decoder for the code of a file with this ABI.
pub(crate) fn lifter(file: &ElfFile, abi: Abi) -> Result<Lifter, SubjectError> {
    Lifter::new(abi).ok_or_else(|| SubjectError::Arch {
        file: file.path().to_string_lossy().into_owned(),
        arch: abi.arch,
    })
}

/// Functions that unknown callers may call; hand-written code may call any.
fn functions(symbols: &Symbols, origins: &CodeOrigins) -> impl Iterator<Item = u64> {
    let functions = symbols.iter().filter(|symbol| {
        let is_seen = || symbol.binding != Binding::Local;
        symbol.is_function
            && (is_seen() || origins.origin_at(symbol.address) == CodeOrigin::HandWritten)
    });
    functions.map(|symbol| symbol.address.0)
}

/// The entries as code extents: each ends at latest where the next begins.
fn extents(
    file: &ElfFile,
    declarations: &DeclaredTable,
    row_checker: &RowChecker<'_>,
) -> Vec<CodeExtent> {
    let table = &declarations.table;
    let fdes = declarations.by_start.iter();
    let fdes = fdes.filter_map(|id| table.fde(*id));
    let mut extents: Vec<CodeExtent> = Vec::with_capacity(declarations.by_start.len());
    for fde in fdes {
        if let Some(last) = extents.last_mut() {
            last.end = last.end.min(fde.start.0);
        }
        extents.push(CodeExtent {
            start: fde.start.0,
            end: fde.end.0,
            kind: part(file, table, fde, row_checker),
        });
    }
    extents
}

/// How control enters an entry's code: an entry that is declared as after a call is a function.
fn part(file: &ElfFile, table: &Table, fde: &Fde, row_checker: &RowChecker<'_>) -> ExtentKind {
    /// GCC begins a cold part with one if a landing pad must not be at its start.
    const NOP: u8 = 0x90;
    let abi_info = row_checker.abi_info;
    let mut rows = table.rows(fde);
    let first = rows.next().and_then(|row| row_checker.declared(row.row));
    let is_as_called = first.is_some_and(|row| row.is_as_called(abi_info));
    let is_nop = rows.next().is_some_and(|second| {
        let bytes = file.bytes_at(fde.start, second.start.0 - fde.start.0);
        bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == NOP))
    });
    if is_as_called && !is_nop {
        ExtentKind::Function
    } else {
        ExtentKind::Fragment
    }
}
