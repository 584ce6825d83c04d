//! Most rows are true, and are proven by one look at each instruction.
//!
//! Where paths meet, a row speaks of few registers and of what is saved. All else may be forgotten there: who knows less
//! proves less, so what is proven nevertheless is true, and the paths hardly ever differ in what is left. Then nothing is
//! done twice, and rows are judged on the way. If anything is left to tell, the unit is followed again, and nothing forgotten.

use unspool_recover::Text;
use unspool_synth::analysis::{Observer, Watch};
use unspool_synth::op::STORED;
use unspool_synth::{Analysis, Analyzer, InsnId, State};

use crate::subject::Subject;
use crate::unit::{ByTable, RowVerdict, UnitReport, Walk};

impl Subject<'_> {
    /// Proves all rows of a unit while it is followed; `None` if there is more to tell of it.
    pub(crate) fn prove_unit(
        &self,
        analyzer: &mut Analyzer,
        unit: usize,
        rows: &[RowVerdict],
    ) -> Option<UnitReport> {
        let guide = ByTable::new(self, unit, rows);
        let mut report = UnitReport {
            rows: rows.to_vec(),
            ..UnitReport::default()
        };
        let mut prover = Prover {
            guide: &guide,
            // A row that is proven stays so, whatever else is stored where nothing was known.
            walk: Walk::new(self, unit, &mut report, STORED),
        };
        let (landings, image) = (self.landings(unit), Text(self.file()));
        analyzer.observe(self.program(), &image, unit, &landings, &guide, &mut prover)?;
        let are_proven = report.rows.iter().all(|row| row.judgement.is_some());
        are_proven.then_some(report)
    }
}

/// Follows a unit to prove its rows.
struct Prover<'w, 's> {
    guide: &'w ByTable<'w>,
    walk: Walk<'w, 's>,
}

impl Observer for Prover<'_, '_> {
    const LOOKS: bool = true;

    fn needs(&self, address: u64) -> u64 {
        let declared = self.guide.declared_at(address);
        declared.map_or(u64::MAX, |declared| declared.reads)
    }

    fn see(
        &mut self,
        so_far: &Analysis<'_>,
        insn: InsnId,
        state: &State,
        written: u64,
    ) -> Option<Watch> {
        let at = so_far.code().range(insn).start;
        self.walk.go_back(at);
        let watch = self.walk.look(so_far, insn, state, written);
        self.walk.is_clear().then_some(watch)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use unspool_module::ElfFile;
    use unspool_synth::Machine;

    use super::*;
    use crate::authors::Maker;
    use crate::subject::Declarations;

    /// The full analysis is asked about each unit that is proven without it.
    #[test]
    fn what_is_proven_at_one_look_is_proven_by_all_that_is_known() {
        for path in [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        ] {
            let file = ElfFile::open(Path::new(path)).expect("it is installed");
            let declarations = Declarations::read(&file).expect("it has a table");
            let subject = Subject::new(&file, &declarations, Maker::of(&file)).expect("x86-64");
            let machine = || Machine::of(declarations.table.abi()).expect("x86-64");
            let (mut short, mut long) = (Analyzer::new(machine()), Analyzer::new(machine()));
            let units = subject.program().units();
            let mut proven = 0;
            for unit in 0..units {
                let rows = subject.rows_of(unit);
                let Some(mut own) = subject.prove_unit(&mut short, unit, &rows) else {
                    continue;
                };
                let mut full = subject.judge_fully(&mut long, unit, rows);
                assert_eq!(own.rows, full.rows);
                assert!(full.doubts.is_empty() && full.inside.is_empty());
                assert!(full.runs_out.is_empty());
                for report in [&mut own, &mut full] {
                    report.exits.sort_unstable();
                    report.exits.dedup();
                }
                assert_eq!(own.exits, full.exits);
                proven += 1;
            }
            assert!(proven > units * 9 / 10, "{path}: {proven} of {units}");
        }
    }
}
