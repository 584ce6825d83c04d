//! Most rows are true, and the verifier proves that in one pass: each instruction preserves the
//! rows' claims for its successors. Everything else goes to the path-sensitive dataflow analysis.

use unspool_code_analysis::verifier::{Annotation, Annotations, Verifier};
use unspool_code_analysis::{Analyzer, Lifter, ReturnBehavior};
use unspool_rows::{Abi, Vaddr};
use unspool_synthesis::ElfCodeImage;

use crate::row_checker::{RowChecker, RowVerdicts};
use crate::subject::CheckSubject;
use crate::unit::{CheckedRow, UnitReport};

/// Checks rows; keeps its memory from unit to unit.
#[derive(Debug)]
pub struct UnitChecker {
    verifier: Verifier,
    pub(crate) analyzer: Analyzer,
}

impl UnitChecker {
    /// For the architecture of an ABI; `None` if it is not supported.
    #[must_use]
    pub fn new(abi: Abi) -> Option<UnitChecker> {
        Some(UnitChecker {
            verifier: Verifier::new(Lifter::new(abi)?),
            analyzer: Analyzer::new(Lifter::new(abi)?),
        })
    }
}

impl CheckSubject<'_> {
    /// Proves all rows of a unit by the verifier. If that fails, only the rows of the report are
    /// filled in.
    pub(crate) fn verify_unit(
        &self,
        unit_checker: &mut UnitChecker,
        unit: usize,
        rows: Vec<CheckedRow>,
    ) -> Result<UnitReport, Vec<CheckedRow>> {
        let mut report = UnitReport {
            rows,
            ..UnitReport::default()
        };
        let mut rows = RowAnnotations {
            row_checker: &self.row_checker,
            report: &mut report,
            row: 0,
        };
        let (landings, image) = (self.landings(unit), ElfCodeImage(self.file()));
        let verifier = &mut unit_checker.verifier;
        let verified = verifier.verify(self.program(), &image, unit, &landings, &mut rows);
        if verified.is_ok() && report.rows.iter().all(|row| row.verdicts.is_some()) {
            return Ok(report);
        }
        for row in &mut report.rows {
            row.verdicts = None;
        }
        Err(report.rows)
    }
}

/// The rows of a unit as annotations, in code order.
struct RowAnnotations<'w, 's> {
    row_checker: &'w RowChecker<'s>,
    report: &'w mut UnitReport,
    /// Index of the verifier's current row.
    row: usize,
}

impl Annotations for RowAnnotations<'_, '_> {
    fn seek(&mut self, address: u64, end: u64) -> Option<Annotation> {
        let rows = &self.report.rows;
        let is_here = |row: &CheckedRow| row.start.0 == address;
        self.row = if rows.get(self.row + 1).is_some_and(is_here) {
            self.row + 1
        } else {
            rows.binary_search_by_key(&address, |row| row.start.0)
                .ok()?
        };
        let row = rows.get(self.row)?.row;
        let (frame, lowest) = self.row_checker.annotation(row)?;
        let args_size = self.row_checker.declared(row)?.args_size;
        let next = rows.get(self.row + 1).map_or(u64::MAX, |next| next.start.0);
        Some(Annotation {
            state: frame,
            lowest,
            end: next.min(end),
            args_size: i32::try_from(args_size).ok()?,
        })
    }

    fn confirm(&mut self) {
        if let Some(row) = self.report.rows.get_mut(self.row) {
            row.verdicts = Some(RowVerdicts::PROVEN);
        }
    }

    fn note_bounds_assumption(&mut self) {
        self.report.assumes_bounds = true;
    }

    fn note_return(&mut self, from: u64, pops: u16) {
        self.report
            .exits
            .push((Vaddr(from), ReturnBehavior::Pops(pops)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use unspool_code_analysis::verifier::state::RegisterContents;
    use unspool_elf::ElfFile;

    use super::*;
    use crate::declared_row::RuleLocation;
    use crate::origin::CodeOrigin;
    use crate::subject::DeclaredTable;

    /// Annotations that differ from a row.
    struct AlteredAnnotations<'w, 's> {
        rows: RowAnnotations<'w, 's>,
        /// The address of the row.
        at: u64,
        alter: &'w dyn Fn(&mut Annotation),
    }

    impl Annotations for AlteredAnnotations<'_, '_> {
        fn seek(&mut self, address: u64, end: u64) -> Option<Annotation> {
            let mut annotation = self.rows.seek(address, end)?;
            if address == self.at {
                (self.alter)(&mut annotation);
            }
            Some(annotation)
        }

        fn confirm(&mut self) {
            self.rows.confirm();
        }

        fn note_bounds_assumption(&mut self) {
            self.rows.note_bounds_assumption();
        }

        fn note_return(&mut self, from: u64, pops: u16) {
            self.rows.note_return(from, pops);
        }
    }

    /// Whether a unit is proven with the row at an address altered.
    fn is_proven_with(
        subject: &CheckSubject<'_>,
        unit_checker: &mut UnitChecker,
        unit: usize,
        rows: &[CheckedRow],
        at: u64,
        alter: &dyn Fn(&mut Annotation),
    ) -> bool {
        let mut report = UnitReport {
            rows: rows.to_vec(),
            ..UnitReport::default()
        };
        let rows = RowAnnotations {
            row_checker: &subject.row_checker,
            report: &mut report,
            row: 0,
        };
        let mut annotations = AlteredAnnotations { rows, at, alter };
        let (landings, image) = (subject.landings(unit), ElfCodeImage(subject.file()));
        let (program, verifier) = (subject.program(), &mut unit_checker.verifier);
        let verified = verifier.verify(program, &image, unit, &landings, &mut annotations);
        verified.is_ok()
    }

    /// Alters each proven row: the CFA, and each saved register.
    #[test]
    #[cfg_attr(miri, ignore = "checks all code of libraries")]
    fn no_row_is_proven_that_says_something_else() {
        let path = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        let file = ElfFile::open(path).expect("it is installed");
        let declarations = DeclaredTable::read(&file).expect("it has a table");
        let subject =
            CheckSubject::new(&file, &declarations, CodeOrigin::from_file(&file)).expect("x86-64");
        let mut prover = UnitChecker::new(declarations.table.abi()).expect("x86-64");
        let abi_info = subject.abi_info();
        let (mut cfas, mut slots) = (0, 0);
        for unit in 0..subject.program().unit_count() {
            let rows = subject.rows_of(unit);
            let Ok(proven) = subject.verify_unit(&mut prover, unit, rows.clone()) else {
                continue;
            };
            for row in &proven.rows {
                let declared = subject.row_checker.declared(row.row).expect("it is proven");
                let RuleLocation::Register(register, _) = declared.cfa else {
                    panic!("the CFA is counted from a register in what is proven at one look");
                };
                let mut is_proven = |alter: &dyn Fn(&mut Annotation)| {
                    is_proven_with(&subject, &mut prover, unit, &rows, row.start.0, alter)
                };
                let moved = |annotation: &mut Annotation| {
                    let RegisterContents::StackAddress(distance) = annotation.state.get(register)
                    else {
                        panic!("the CFA is counted from {register}");
                    };
                    assert!(
                        annotation
                            .state
                            .set_register(register, RegisterContents::StackAddress(distance - 8))
                    );
                };
                assert!(!is_proven(&moved), "{:#x}: CFA", row.start.0);
                cfas += 1;
                for (register, place) in abi_info.preserved.iter().zip(declared.preserved) {
                    let RuleLocation::CfaOffset(offset) = place else {
                        continue;
                    };
                    let lower = i16::try_from(offset - 8).expect("frames are small");
                    let moved = |annotation: &mut Annotation| {
                        assert!(annotation.state.set_saved_at(*register, lower));
                    };
                    assert!(!is_proven(&moved), "{:#x}: {register}", row.start.0);
                    slots += 1;
                }
            }
        }
        assert!(cfas > 10_000 && slots > 10_000, "{cfas} {slots}");
    }

    /// The dataflow analysis must agree about each unit that the verifier proves.
    #[test]
    #[cfg_attr(miri, ignore = "checks all code of libraries")]
    fn the_full_analysis_proves_what_the_verifier_proves() {
        for path in [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        ] {
            let file = ElfFile::open(Path::new(path)).expect("it is installed");
            let declarations = DeclaredTable::read(&file).expect("it has a table");
            let subject = CheckSubject::new(&file, &declarations, CodeOrigin::from_file(&file))
                .expect("x86-64");
            let mut prover = UnitChecker::new(declarations.table.abi()).expect("x86-64");
            let units = subject.program().unit_count();
            let mut proven = 0;
            for unit in 0..units {
                let rows = subject.rows_of(unit);
                let Ok(mut own) = subject.verify_unit(&mut prover, unit, rows.clone()) else {
                    continue;
                };
                let mut full = subject.check_unit_by_dataflow(&mut prover.analyzer, unit, &rows);
                assert_eq!(own.rows, full.rows);
                assert!(full.discrepancies.is_empty() && full.misaligned_rows.is_empty());
                assert!(full.fall_through_ends.is_empty());
                for report in [&mut own, &mut full] {
                    report.exits.sort_unstable();
                    report.exits.dedup();
                }
                assert_eq!(own.exits, full.exits);
                proven += 1;
            }
            let rejections = prover.verifier.rejections();
            assert!(
                proven > units * 9 / 10,
                "{path}: {proven} of {units}: {rejections:?}"
            );
        }
    }
}
