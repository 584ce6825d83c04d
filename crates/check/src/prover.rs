//! Most rows are true, and are proven by one look at each instruction.
//!
//! Where paths meet, a row speaks of few registers and of what is saved. All else may be forgotten there: who knows less
//! proves less, so what is proven nevertheless is true, and the paths hardly ever differ in what is left. Then nothing is
//! done twice, and rows are judged on the way. If anything is left to tell, the unit is followed again, and nothing forgotten.

use unspool_recover::Text;
use unspool_synth::analysis::{Observer, Watch};
use unspool_synth::{Analysis, Analyzer, InsnId, State};

use crate::subject::{Maker, Subject};
use crate::unit::{ByTable, RowVerdict, UnitReport, Walk};

impl Subject<'_> {
    /// Proves all rows of a unit while it is followed; `None` if there is more to tell of it.
    pub(crate) fn prove_unit(
        &self,
        analyzer: &mut Analyzer,
        unit: usize,
        rows: &[RowVerdict],
    ) -> Option<UnitReport> {
        let guide = ByTable::new(self, rows);
        let mut report = UnitReport {
            rows: rows.to_vec(),
            ..UnitReport::default()
        };
        let mut prover = Prover {
            guide: &guide,
            walk: Walk::new(self, unit, &mut report),
        };
        let (landings, image) = (self.landings(unit), Text(self.file()));
        let analysis =
            analyzer.observe(self.program(), &image, unit, &landings, &guide, &mut prover)?;
        if self.maker() == Maker::People {
            self.note_unreached(&analysis, &mut report);
        }
        let are_proven = report.rows.iter().all(|row| row.judgement.is_some());
        (are_proven && report.unreached.is_empty()).then_some(report)
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
