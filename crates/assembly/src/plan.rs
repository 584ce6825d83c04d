//! The directives to write into a text, and the resulting table.

use std::collections::BTreeMap;

use unspool_code_analysis::{Analyzer, Lifter, NoAssumptions, ProgramCode, ProvenRules};
use unspool_elf::ElfFile;
use unspool_rows::{RegisterRule, Row, Table, Vaddr};
use unspool_synthesis::{ElfCodeImage, FunctionExtent, functions, noreturn_addresses};

use crate::directives::{DirectiveWriter, RegisterSyntax};
use crate::function_rows::{CalleeBehavior, FunctionPlanner, PlannedInsn};
use crate::placement::{PlacedDirectives, repeated};
use crate::refusal::{AnnotateRefusal, RefusalReason};
use crate::source::AssemblySource;

/// A plan: directives, and the rows that they make.
#[derive(Debug, Clone, Default)]
pub struct DirectivePlan {
    /// Directives by function, in the order of addresses.
    functions: Vec<FunctionDirectives>,
    /// Number of functions that already have an entry.
    pub already_described: usize,
    /// Functions without directives.
    pub refusals: Vec<AnnotateRefusal>,
}

/// The directives of a function.
#[derive(Debug, Clone)]
struct FunctionDirectives {
    /// Line numbers count from 1; 0 is the start of the file.
    directives: PlacedDirectives,
    /// The row before each instruction that has one.
    rows: Vec<(InsnPosition, ProvenRules)>,
}

/// The position of an instruction: section and offset.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InsnPosition {
    section: String,
    offset: u64,
    function: String,
    line: Option<u32>,
}

impl DirectivePlan {
    /// Plans directives for the functions of an object file without an entry in `declared`, its
    /// table.
    ///
    /// `source` is the text that the object file is made from. `line_of` maps an instruction's
    /// address to its line there.
    #[must_use]
    pub fn new(
        file: &ElfFile,
        declared: &Table,
        source: &AssemblySource,
        syntax: RegisterSyntax,
        line_of: impl Fn(Vaddr) -> Option<u32>,
    ) -> DirectivePlan {
        let mut plan = DirectivePlan::default();
        let Some(mut machine) = Lifter::new(file.abi()) else {
            plan.refusals.push(AnnotateRefusal {
                function: file.path().display().to_string(),
                line: None,
                reason: RefusalReason::Arch(file.abi().arch),
            });
            return plan;
        };
        let functions = functions(file, file.symbols(), &mut machine);
        let extents = functions.iter().map(|function| function.extent).collect();
        let lost = noreturn_addresses(file, file.symbols());
        let program = ProgramCode::scan(
            &mut machine,
            &ElfCodeImage(file),
            extents,
            Vec::new(),
            |address| lost.contains(&address),
        );
        let writer = DirectiveWriter {
            abi: file.abi(),
            abi_info: machine.abi_info(),
            syntax,
        };
        let is_kept = |function: &FunctionExtent| {
            let mut fdes = declared.fdes().iter();
            fdes.any(|fde| (fde.start.0..fde.end.0).contains(&function.extent.start))
        };
        let mut analyzer = Analyzer::new(machine);
        let returns = CalleeBehavior::by_function(&program, &ElfCodeImage(file), &mut analyzer);
        let work = FunctionPlanner {
            file,
            program: &program,
            writer,
            line_of: &line_of,
            callee_behavior: &returns,
            source,
        };
        let mut planned: Vec<(&FunctionExtent, Vec<PlannedInsn>)> = Vec::new();
        for unit in 0..program.unit_count() {
            let analysis =
                analyzer.analyze(&program, &ElfCodeImage(file), unit, &[], &NoAssumptions);
            for extent in program.unit(unit) {
                let found = functions
                    .iter()
                    .find(|function| function.extent.start == extent.start);
                let Some(function) = found else { continue };
                if is_kept(function) {
                    plan.already_described += 1;
                    continue;
                }
                match work.instructions(&analysis, function) {
                    Ok(insns) => planned.push((function, insns)),
                    Err(refusal) => plan.refusals.push(refusal),
                }
            }
        }
        planned.sort_by_key(|(function, _)| function.extent.start);
        let repeated = repeated(file, &functions, &line_of, writer);
        for (function, insns) in planned {
            match work.directives(&function.name, &insns, &repeated) {
                Ok(directives) => plan.add(&work, function, &insns, directives),
                Err((line, reason)) => plan.refusals.push(AnnotateRefusal {
                    function: function.name.clone(),
                    line: Some(line),
                    reason,
                }),
            }
        }
        plan
    }

    fn add<L: Fn(Vaddr) -> Option<u32>>(
        &mut self,
        planner: &FunctionPlanner<'_, L>,
        function: &FunctionExtent,
        insns: &[PlannedInsn],
        directives: PlacedDirectives,
    ) {
        let rows = insns.iter().filter_map(|insn| {
            let (section, offset) = position_of(planner.file, insn.range.start)?;
            let place = InsnPosition {
                section,
                offset,
                function: function.name.clone(),
                line: Some(insn.line),
            };
            Some((place, insn.rules))
        });
        self.functions.push(FunctionDirectives {
            rows: rows.collect(),
            directives,
        });
    }

    /// Number of functions with directives.
    #[must_use]
    pub fn annotated_count(&self) -> usize {
        self.functions.len()
    }

    /// Keeps only the function at an offset of a section.
    pub fn retain_around(&mut self, section: &str, offset: u64) {
        self.functions.retain(|function| {
            let first = function.rows.first().map(|(place, _)| place);
            let last = function.rows.last().map(|(place, _)| place);
            let range = first.zip(last);
            range.is_some_and(|(first, last)| {
                first.section == section && (first.offset..=last.offset).contains(&offset)
            })
        });
    }

    /// Inserts the directives into the text that the plan is for. Everything else is unchanged.
    pub fn write_into(&self, source: &mut AssemblySource) {
        let mut behind: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        let directives = self
            .functions
            .iter()
            .flat_map(|function| &function.directives);
        for (line, directives) in directives {
            let directives = directives.iter().map(String::as_str);
            behind.entry(*line).or_default().extend(directives);
        }
        for (line, directives) in behind.into_iter().rev() {
            source.insert(line + 1, directives);
        }
    }

    /// Verifies that the object file from the written text, with this table, has the planned row
    /// before every instruction.
    ///
    /// # Errors
    ///
    /// The first instruction with another row.
    pub fn verify(&self, after: &ElfFile, table: &Table) -> Result<(), AnnotateRefusal> {
        let Some(machine) = Lifter::new(after.abi()) else {
            return Ok(());
        };
        let abi_info = machine.abi_info();
        let mut wanted = Table::new(after.abi());
        for (place, rules) in self.functions.iter().flat_map(|function| &function.rows) {
            let refusal = || AnnotateRefusal {
                function: place.function.clone(),
                line: place.line,
                reason: RefusalReason::NotAsPlanned,
            };
            let address = address(after, &place.section, place.offset).ok_or_else(refusal)?;
            let wanted_row = rules.intern(&mut wanted, abi_info).map_err(|_| refusal())?;
            let wanted_row = wanted.row(wanted_row);
            let mut fdes = table.fdes().iter();
            let fde = fdes.find(|fde| (fde.start.0..fde.end.0).contains(&address));
            let row = fde.and_then(|fde| {
                let rows = table.rows(fde);
                rows.take_while(|row| row.start.0 <= address).last()
            });
            let row = row.and_then(|row| table.row(row.row));
            let is_as_planned = row
                .zip(wanted_row)
                .is_some_and(|(row, wanted)| is_same_row(&row, &wanted));
            if !is_as_planned {
                return Err(refusal());
            }
        }
        Ok(())
    }
}

/// Whether two rows are equal; an unchanged register may have a rule or not.
fn is_same_row(a: &Row<'_>, b: &Row<'_>) -> bool {
    let said = |row: &Row<'_>| {
        let rules = row.rules();
        let rules = rules.filter(|(_, rule)| *rule != RegisterRule::SameValue);
        rules
            .map(|(register, rule)| (register, format!("{rule:?}")))
            .collect::<Vec<_>>()
    };
    a.cfa == b.cfa && said(a) == said(b)
}

fn position_of(file: &ElfFile, address: u64) -> Option<(String, u64)> {
    let (name, start) = file.section_of(Vaddr(address))?;
    Some((name.into_owned(), address.checked_sub(start.0)?))
}

fn address(file: &ElfFile, section: &str, offset: u64) -> Option<u64> {
    let mut sections = file.sections();
    let section = sections.find(|known| known.name == section && known.size > offset)?;
    Some(section.address?.0 + offset)
}
