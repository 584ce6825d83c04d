//! Registers that a function has left alone so far.

use core::ops::Range;

use unspool_ir::{Register, Vaddr};
use unspool_module::ElfFile;
use unspool_synth::{Analyzer, CodeAlone, Extent, Machine, Part, Program, Value};

use crate::text::Text;

/// The general-purpose registers, by their DWARF numbers below this.
const GENERAL: u8 = 16;

/// The general-purpose registers that hold before the instruction with an address what they held when its function was called, whichever way was taken there: proven
/// by the function's code, of which all parts must be given, the first of which begins with its entry. None if not all of its jumps are known.
#[must_use]
pub fn unchanged(file: &ElfFile, parts: &[Range<Vaddr>], address: Vaddr) -> Vec<Register> {
    let Some(mut machine) = Machine::of(file.abi()) else {
        return Vec::new();
    };
    let extents = parts.iter().enumerate().map(|(nth, part)| Extent {
        start: part.start.0,
        end: part.end.0,
        part: match nth {
            0 => Part::Function,
            _ => Part::Fragment,
        },
    });
    let text = Text(file);
    let program = Program::survey(&mut machine, &text, extents.collect(), Vec::new(), |_| {
        false
    });
    let mut analyzer = Analyzer::new(machine);
    let Some(unit) = program.unit_of(address.0) else {
        return Vec::new();
    };
    let analysis = analyzer.analyze(&program, &text, unit, &[], &CodeAlone);
    let mut unchanged = Vec::new();
    if analysis.unresolved().is_empty() {
        analysis.visit(|insn, state| {
            if analysis.code().range(insn).contains(&address.0) {
                let own = (0..GENERAL).filter(|own| state.get(*own) == Value::at_entry(*own));
                unchanged.extend(own.map(|own| Register(own.into())));
            }
        });
    }
    unchanged
}
