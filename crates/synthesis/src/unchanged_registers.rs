//! Registers that a function has not changed so far.

use core::ops::Range;

use unspool_code_analysis::{
    AbstractValue, Analyzer, CodeExtent, ExtentKind, Lifter, NoAssumptions, ProgramCode,
};
use unspool_elf::ElfFile;
use unspool_rows::{Register, Vaddr};

use crate::elf_code_image::ElfCodeImage;

/// General-purpose registers have DWARF numbers below this.
const GENERAL_REGISTERS: u8 = 16;

/// The general-purpose registers that have their entry values before the instruction at an address,
/// on all paths. The function's code proves that: all its parts must be given, and the first begins
/// with its entry. `None` if some of its jumps are unknown.
#[must_use]
pub fn unchanged_registers(
    file: &ElfFile,
    parts: &[Range<Vaddr>],
    address: Vaddr,
) -> Vec<Register> {
    let Some(mut machine) = Lifter::new(file.abi()) else {
        return Vec::new();
    };
    let extents = parts.iter().enumerate().map(|(nth, part)| CodeExtent {
        start: part.start.0,
        end: part.end.0,
        kind: match nth {
            0 => ExtentKind::Function,
            _ => ExtentKind::Fragment,
        },
    });
    let text = ElfCodeImage(file);
    let program = ProgramCode::scan(&mut machine, &text, extents.collect(), Vec::new(), |_| {
        false
    });
    let mut analyzer = Analyzer::new(machine);
    let Some(unit) = program.unit_of(address.0) else {
        return Vec::new();
    };
    let analysis = analyzer.analyze(&program, &text, unit, &[], &NoAssumptions);
    let mut unchanged = Vec::new();
    if analysis.unresolved().is_empty() {
        analysis.visit(|insn, state| {
            if analysis.code().range(insn).contains(&address.0) {
                let own = (0..GENERAL_REGISTERS)
                    .filter(|own| state.get(*own) == AbstractValue::entry_value(*own));
                unchanged.extend(own.map(|own| Register(own.into())));
            }
        });
    }
    unchanged
}
