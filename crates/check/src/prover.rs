//! Most rows are true, and one look at each instruction shows it: what rows claim is handed on from each instruction to those that come behind
//! it. What is not shown so is followed along all paths, with all that is known.

use unspool_ir::{Abi, Vaddr};
use unspool_recover::Text;
use unspool_synth::sweep::{Claim, Claims, Sweeper};
use unspool_synth::{Analyzer, Machine, Returns};

use crate::judge::{Judge, Judgement};
use crate::subject::Subject;
use crate::unit::{RowVerdict, UnitReport};

/// Finds whether rows hold; keeps its room from unit to unit.
#[derive(Debug)]
pub struct Prover {
    sweeper: Sweeper,
    pub(crate) analyzer: Analyzer,
}

impl Prover {
    /// One for the machine of an ABI; `None` if its instructions are not known.
    #[must_use]
    pub fn of(abi: Abi) -> Option<Prover> {
        Some(Prover {
            sweeper: Sweeper::new(Machine::of(abi)?),
            analyzer: Analyzer::new(Machine::of(abi)?),
        })
    }
}

impl Subject<'_> {
    /// Proves all rows of a unit in one look at each instruction. What is left of the report if there is more to tell is its rows.
    pub(crate) fn prove_unit(
        &self,
        prover: &mut Prover,
        unit: usize,
        rows: Vec<RowVerdict>,
    ) -> Result<UnitReport, Vec<RowVerdict>> {
        let mut report = UnitReport {
            rows,
            ..UnitReport::default()
        };
        let mut rows = Rows {
            judge: &self.judge,
            report: &mut report,
            row: 0,
        };
        let (landings, image) = (self.landings(unit), Text(self.file()));
        let sweeper = &mut prover.sweeper;
        let are_true = sweeper.sweep(self.program(), &image, unit, &landings, &mut rows);
        if are_true && report.rows.iter().all(|row| row.judgement.is_some()) {
            return Ok(report);
        }
        for row in &mut report.rows {
            row.judgement = None;
        }
        Err(report.rows)
    }
}

/// The rows of a unit, in the order of a sweep.
struct Rows<'w, 's> {
    judge: &'w Judge<'s>,
    report: &'w mut UnitReport,
    /// The place of the one that the sweep is at.
    row: usize,
}

impl Claims for Rows<'_, '_> {
    fn turn(&mut self, address: u64, end: u64) -> Option<Claim> {
        let rows = &self.report.rows;
        let is_here = |row: &RowVerdict| row.start.0 == address;
        self.row = match rows.get(self.row + 1).is_some_and(is_here) {
            true => self.row + 1,
            false => rows
                .binary_search_by_key(&address, |row| row.start.0)
                .ok()?,
        };
        let row = rows.get(self.row)?.row;
        let (frame, lowest) = self.judge.claim(row)?;
        let args_size = self.judge.declared(row)?.args_size;
        let next = rows.get(self.row + 1).map_or(u64::MAX, |next| next.start.0);
        Some(Claim {
            frame,
            lowest,
            end: next.min(end),
            args_size: i32::try_from(args_size).ok()?,
        })
    }

    fn hold(&mut self) {
        if let Some(row) = self.report.rows.get_mut(self.row) {
            row.judgement = Some(Judgement::PROVEN);
        }
    }

    fn assume_bounds(&mut self) {
        self.report.assumes_bounds = true;
    }

    fn returns(&mut self, from: u64, pops: u16) {
        self.report.exits.push((Vaddr(from), Returns::Pops(pops)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use unspool_module::ElfFile;
    use unspool_synth::sweep::frame::Held;

    use super::*;
    use crate::authors::Maker;
    use crate::declared::Place;
    use crate::subject::Declarations;

    /// Claims something else than a row does.
    struct Altered<'w, 's> {
        rows: Rows<'w, 's>,
        /// The address of the row.
        at: u64,
        alter: &'w dyn Fn(&mut Claim),
    }

    impl Claims for Altered<'_, '_> {
        fn turn(&mut self, address: u64, end: u64) -> Option<Claim> {
            let mut claim = self.rows.turn(address, end)?;
            if address == self.at {
                (self.alter)(&mut claim);
            }
            Some(claim)
        }

        fn hold(&mut self) {
            self.rows.hold();
        }

        fn assume_bounds(&mut self) {
            self.rows.assume_bounds();
        }

        fn returns(&mut self, from: u64, pops: u16) {
            self.rows.returns(from, pops);
        }
    }

    /// Whether a unit is proven with the row at an address altered.
    fn is_proven_with(
        subject: &Subject<'_>,
        prover: &mut Prover,
        unit: usize,
        rows: &[RowVerdict],
        at: u64,
        alter: &dyn Fn(&mut Claim),
    ) -> bool {
        let mut report = UnitReport {
            rows: rows.to_vec(),
            ..UnitReport::default()
        };
        let rows = Rows {
            judge: &subject.judge,
            report: &mut report,
            row: 0,
        };
        let mut claims = Altered { rows, at, alter };
        let (landings, image) = (subject.landings(unit), Text(subject.file()));
        let (program, sweeper) = (subject.program(), &mut prover.sweeper);
        sweeper.sweep(program, &image, unit, &landings, &mut claims)
    }

    /// Each row of what is proven, with the CFA elsewhere, and with each saved register elsewhere.
    #[test]
    fn no_row_is_proven_that_says_something_else() {
        let path = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        let file = ElfFile::open(path).expect("it is installed");
        let declarations = Declarations::read(&file).expect("it has a table");
        let subject = Subject::new(&file, &declarations, Maker::of(&file)).expect("x86-64");
        let mut prover = Prover::of(declarations.table.abi()).expect("x86-64");
        let facts = subject.facts();
        let (mut cfas, mut slots) = (0, 0);
        for unit in 0..subject.program().units() {
            let rows = subject.rows_of(unit);
            let Ok(proven) = subject.prove_unit(&mut prover, unit, rows.clone()) else {
                continue;
            };
            for row in &proven.rows {
                let declared = subject.judge.declared(row.row).expect("it is proven");
                let Place::Register(register, _) = declared.cfa else {
                    panic!("the CFA is counted from a register in what is proven at one look");
                };
                let mut is_proven = |alter: &dyn Fn(&mut Claim)| {
                    is_proven_with(&subject, &mut prover, unit, &rows, row.start.0, alter)
                };
                let moved = |claim: &mut Claim| {
                    let Held::Stack(distance) = claim.frame.get(register) else {
                        panic!("the CFA is counted from {register}");
                    };
                    assert!(claim.frame.know(register, Held::Stack(distance - 8)));
                };
                assert!(!is_proven(&moved), "{:#x}: CFA", row.start.0);
                cfas += 1;
                for (register, place) in facts.preserved.iter().zip(declared.preserved) {
                    let Place::AtCfa(offset) = place else {
                        continue;
                    };
                    let lower = i16::try_from(offset - 8).expect("frames are small");
                    let moved = |claim: &mut Claim| {
                        assert!(claim.frame.know_saved(*register, lower));
                    };
                    assert!(!is_proven(&moved), "{:#x}: {register}", row.start.0);
                    slots += 1;
                }
            }
        }
        assert!(cfas > 10_000 && slots > 10_000, "{cfas} {slots}");
    }

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
            let mut prover = Prover::of(declarations.table.abi()).expect("x86-64");
            let units = subject.program().units();
            let mut proven = 0;
            for unit in 0..units {
                let rows = subject.rows_of(unit);
                let Ok(mut own) = subject.prove_unit(&mut prover, unit, rows.clone()) else {
                    continue;
                };
                let mut full = subject.judge_fully(&mut prover.analyzer, unit, rows);
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
