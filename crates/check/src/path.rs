//! A path to an instruction.

use std::collections::{HashMap, HashSet, VecDeque};

use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{Analyzer, ExtentKind, InsnId};
use unspool_rows::Vaddr;

use crate::subject::CheckSubject;
use crate::unit::TableAssumptions;

/// A jump: source and target.
pub type JumpEdge = [Vaddr; 2];

impl CheckSubject<'_> {
    /// The jumps on a shortest path from a function's start to an instruction. `None` if no path is
    /// known: jump tables and exceptions are left out.
    #[must_use]
    pub(crate) fn path_to(&self, analyzer: &mut Analyzer, at: Vaddr) -> Option<Vec<JumpEdge>> {
        let unit = self.program().unit_of(at.0)?;
        let rows = self.rows_of(unit);
        let guide = TableAssumptions::new(self, unit, &rows);
        let analysis = self.analyze(analyzer, unit, &guide);
        let code = analysis.code();
        let mut reached = HashSet::new();
        analysis.visit(|id, _| {
            reached.insert(id);
        });
        let by_start: HashMap<u64, InsnId> =
            code.ids().map(|id| (code.range(id).start, id)).collect();
        let known = |address: u64| {
            let id = by_start.get(&address).copied();
            id.filter(|id| reached.contains(id))
        };
        // By instruction: its predecessor, and whether that is a jump.
        let mut from: HashMap<InsnId, Option<(InsnId, bool)>> = HashMap::new();
        let functions = self
            .program()
            .unit(unit)
            .filter(|extent| extent.kind == ExtentKind::Function);
        let mut next: VecDeque<(InsnId, Option<(InsnId, bool)>)> = functions
            .filter_map(|extent| Some((known(extent.start)?, None)))
            .collect();
        let goal = known(at.0)?;
        while let Some((id, way)) = next.pop_front() {
            if from.contains_key(&id) {
                continue;
            }
            from.insert(id, way);
            if id == goal {
                break;
            }
            let flow = code.flow(id);
            let jump = flow.and_then(Flow::jump_target).and_then(known);
            let goes_on = flow.is_none_or(Flow::falls_through);
            let behind = known(code.range(id).end).filter(|_| goes_on);
            next.extend(jump.map(|to| (to, Some((id, true)))));
            // Fall-through first.
            if let Some(behind) = behind {
                next.push_front((behind, Some((id, false))));
            }
        }
        let mut path = Vec::new();
        let mut here = goal;
        while let Some((before, is_jump)) = *from.get(&here)? {
            if is_jump {
                path.push([before, here].map(|id| Vaddr(code.range(id).start)));
            }
            here = before;
        }
        path.reverse();
        Some(path)
    }
}
