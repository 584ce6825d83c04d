//! Registers that a function has left alone so far.

use core::ops::Range;

use unspool_code_analysis::{
    AbstractValue, Analyzer, CodeExtent, ExtentKind, Lifter, NoAssumptions, ProgramCode,
};
use unspool_elf::ElfFile;
use unspool_rows::{Register, Vaddr};

use crate::elf_code_image::ElfCodeImage;

/// The general-purpose registers, by their DWARF numbers below this.
const GENERAL_REGISTERS: u8 = 16;

/// The general-purpose registers that hold before the instruction with an address what they held when its function was called, whichever way was taken there: proven
/// by the function's code, of which all parts must be given, the first of which begins with its entry. None if not all of its jumps are known.
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
