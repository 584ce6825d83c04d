//! Rows synthesized from code alone, compared with the compiler's rows, and with the code.

use std::collections::BTreeMap;

use anyhow::Context as _;
use unspool_check::{CheckSubject, CodeOrigin, DeclaredTable, ForeignTable, RowVerdicts, Verdict};
use unspool_code_analysis::{Analyzer, Lifter};
use unspool_elf::ElfFile;
use unspool_rows::{Abi, CfaRule, Register, RegisterRule, Row, Table};

/// The quality of synthesized rows, at the first instruction of each declared row.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SynthesisQuality {
    /// Declared rows.
    pub rows: u64,
    /// Rows with a synthesized row.
    pub covered: u64,
    /// With the right CFA: proven, or equal to the declared one.
    pub cfa: u64,
    /// With an equal CFA: the same register and offset, or the same expression.
    pub same: u64,
    /// Declared rows with a register and an offset as CFA.
    pub plain: u64,
    /// Those with an equal CFA.
    pub same_plain: u64,
    /// With the right return address and callee-saved registers, too.
    pub registers: u64,
    /// With rules equal to the declared ones.
    pub same_registers: u64,
    /// Instructions with a refuted rule.
    pub refuted: u64,
}

impl SynthesisQuality {
    /// Adds other counts.
    pub fn add(&mut self, other: &SynthesisQuality) {
        self.rows += other.rows;
        self.covered += other.covered;
        self.cfa += other.cfa;
        self.same += other.same;
        self.plain += other.plain;
        self.same_plain += other.same_plain;
        self.registers += other.registers;
        self.same_registers += other.same_registers;
        self.refuted += other.refuted;
    }
}

/// Compares rows synthesized from a file's code with its declared rows. Refuted rows are printed.
///
/// If the two differ, the code decides: by the analysis of `unspool check`, which knows landing
/// pads from the file's table.
///
/// # Errors
///
/// The file has no table, or its architecture is not supported.
pub fn compare(
    file: &ElfFile,
    made: &Table,
    mut refuted: impl FnMut(String),
) -> anyhow::Result<SynthesisQuality> {
    let declarations = DeclaredTable::read(file)?;
    let subject = CheckSubject::new(file, &declarations, CodeOrigin::from_file(file))?;
    let others = ForeignTable::new(made, &subject);
    let mut judged = BTreeMap::new();
    let machine = || Lifter::new(file.abi()).context("the machine is not known");
    let mut analyzer = Analyzer::new(machine()?);
    let mut counts = SynthesisQuality::default();
    for unit in 0..subject.program().unit_count() {
        subject.check_foreign_table(&mut analyzer, unit, &others, |at, found| {
            let Some(found) = found else { return };
            if found.worst() == Verdict::Refuted
                && let Some(row) = others.row(at.start)
            {
                counts.refuted += 1;
                let wrong = found.aspects(subject.abi_info());
                let wrong = wrong.filter(|(_, verdict)| *verdict == Verdict::Refuted);
                let wrong: Vec<_> = wrong.map(|(aspect, _)| aspect).collect();
                refuted(format!("{:#x}: {:?}: {wrong:?}", at.start, row.cfa));
            }
            judged.insert(at.start, found);
        });
    }
    let preserved = preserved(file.abi());
    for span in declarations.table.spans() {
        let Some(declared) = declarations.table.row(span.row) else {
            continue;
        };
        counts.rows += 1;
        let is_plain = matches!(declared.cfa, CfaRule::RegisterOffset { .. });
        counts.plain += u64::from(is_plain);
        let at = span.start.0;
        let Some(row) = others.row(at) else { continue };
        let is = |ask: fn(&RowVerdicts) -> Verdict| {
            let verdict = judged.get(&at).map(ask);
            verdict == Some(Verdict::Proven)
        };
        let is_same = declared.cfa == row.cfa;
        let are_same = (preserved.iter()).all(|of| rule(&declared, *of) == rule(&row, *of));
        let is_lost = |of: &&Register| {
            let is_undefined = |row| rule(row, **of) == Some(RegisterRule::Undefined);
            is_undefined(&row) && !is_undefined(&declared)
        };
        let is_right = is_same || is(|found| found.cfa);
        let none_is_lost = !preserved.iter().any(|of| is_lost(&of));
        let are_right = are_same || none_is_lost && is(RowVerdicts::registers);
        counts.covered += 1;
        counts.same += u64::from(is_same);
        counts.same_plain += u64::from(is_plain && is_same);
        counts.cfa += u64::from(is_right);
        counts.same_registers += u64::from(is_right && are_same);
        counts.registers += u64::from(is_right && are_right);
    }
    Ok(counts)
}

/// The return address, and the callee-saved registers.
fn preserved(abi: Abi) -> Vec<Register> {
    let abi_info = Lifter::new(abi).map(|machine| machine.abi_info());
    let numbers = abi_info.into_iter().flat_map(|abi_info| {
        let preserved = abi_info.preserved.iter().copied();
        preserved.chain([abi_info.return_address])
    });
    numbers.map(|number| Register(number.into())).collect()
}

fn rule<'r>(row: &Row<'r>, register: Register) -> Option<RegisterRule<'r>> {
    row.rule(register)
        .filter(|rule| *rule != RegisterRule::SameValue)
}
