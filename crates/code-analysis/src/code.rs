//! Lifted code: a list of instructions with their operations.

use core::ops::Range;

use crate::op::{Flow, Op};

/// Index of an instruction in [`LiftedCode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InsnId(pub u32);

impl InsnId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn next(self) -> InsnId {
        InsnId(self.0.saturating_add(1))
    }
}

/// An instruction.
#[derive(Debug, Clone, Copy)]
struct LiftedInsn {
    address: u64,
    /// End of its operations in [`LiftedCode::ops`]. They begin where the previous instruction's
    /// end.
    ops_end: u32,
    /// Index in [`LiftedCode::flows`], plus 1; 0 if control falls through.
    flow_index: u32,
    length: u8,
    is_padding: bool,
}

/// An instruction of a basic block.
#[derive(Debug)]
pub(crate) struct BlockInsn {
    pub(crate) id: InsnId,
    /// One past its last address.
    pub(crate) end: u64,
    /// Whether it does more than fall through.
    pub(crate) is_flow: bool,
    /// End of its operations in [`LiftedCode::ops`]. They begin where the previous instruction's
    /// end.
    pub(crate) ops_end: u32,
}

/// Instructions of some ranges of code, each decoded from the range's start.
#[derive(Debug, Clone, Default)]
pub struct LiftedCode {
    insns: Vec<LiftedInsn>,
    ops: Vec<Op>,
    /// Control flow of the instructions that do more than fall through.
    flows: Vec<(InsnId, Flow)>,
}

impl LiftedCode {
    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.insns.clear();
        self.ops.clear();
        self.flows.clear();
    }

    /// Receives the next instruction's operations.
    pub(crate) fn ops(&mut self) -> &mut Vec<Op> {
        &mut self.ops
    }

    /// Appends an instruction. Its operations are already in [`LiftedCode::ops`]. It is padding if
    /// it does nothing, traps or is unknown.
    pub(crate) fn push(&mut self, address: u64, length: u8, flow: Option<Flow>, is_padding: bool) {
        let flow = flow.map_or(0, |flow| {
            let id = InsnId(u32::try_from(self.insns.len()).unwrap_or(u32::MAX));
            self.flows.push((id, flow));
            u32::try_from(self.flows.len()).unwrap_or(0)
        });
        self.insns.push(LiftedInsn {
            address,
            ops_end: u32::try_from(self.ops.len()).unwrap_or(u32::MAX),
            flow_index: flow,
            length,
            is_padding,
        });
    }

    /// The number of instructions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.insns.len()
    }

    /// Whether there are no instructions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.insns.is_empty()
    }

    /// The addresses of an instruction's bytes.
    #[must_use]
    #[inline]
    pub fn range(&self, id: InsnId) -> Range<u64> {
        self.insns.get(id.index()).map_or(0..0, |insn| {
            insn.address..insn.address + u64::from(insn.length)
        })
    }

    /// Operations of an instruction.
    #[must_use]
    #[inline]
    pub fn ops_of(&self, id: InsnId) -> &[Op] {
        let end_of = |index: usize| {
            self.insns
                .get(index)
                .map_or(0, |insn| insn.ops_end as usize)
        };
        let start = id.index().checked_sub(1).map_or(0, end_of);
        self.ops.get(start..end_of(id.index())).unwrap_or_default()
    }

    /// Control flow of an instruction; `None` if it falls through.
    #[must_use]
    #[inline]
    pub fn flow(&self, id: InsnId) -> Option<Flow> {
        let (_, flow) = self.flows.get(self.flow_index(id)?)?;
        Some(*flow)
    }

    /// Control flow of the instructions that do more than fall through, in order.
    pub(crate) fn flows(&self) -> &[(InsnId, Flow)] {
        &self.flows
    }

    /// Index of an instruction in [`LiftedCode::flows`].
    #[inline]
    pub(crate) fn flow_index(&self, id: InsnId) -> Option<usize> {
        let flow = self.insns.get(id.index())?.flow_index.checked_sub(1)?;
        Some(flow as usize)
    }

    /// All instructions, in the order of their ranges.
    pub fn ids(&self) -> impl Iterator<Item = InsnId> + use<> {
        (0..u32::try_from(self.insns.len()).unwrap_or(u32::MAX)).map(InsnId)
    }

    /// Start addresses of the instructions with these indexes.
    pub(crate) fn starts(&self, among: Range<u32>) -> impl Iterator<Item = u64> {
        let insns = self.insns.get(among.start as usize..among.end as usize);
        insns.unwrap_or_default().iter().map(|insn| insn.address)
    }

    /// Indexes of an instruction's operations.
    pub(crate) fn ops_range(&self, id: InsnId) -> Range<u32> {
        let end_of = |index: usize| self.insns.get(index).map_or(0, |insn| insn.ops_end);
        let start = id.index().checked_sub(1).map_or(0, end_of);
        start..end_of(id.index())
    }

    /// Consecutive instructions.
    pub(crate) fn block_insns(
        &self,
        first: InsnId,
        end: InsnId,
    ) -> impl Iterator<Item = BlockInsn> {
        let insns = self.insns.get(first.index()..end.index());
        let ids = (first.0..).map(InsnId);
        ids.zip(insns.unwrap_or_default())
            .map(|(id, insn)| BlockInsn {
                id,
                end: insn.address + u64::from(insn.length),
                is_flow: insn.flow_index != 0,
                ops_end: insn.ops_end,
            })
    }

    /// Operations by index.
    #[inline]
    pub(crate) fn ops_at(&self, range: Range<u32>) -> &[Op] {
        let range = range.start as usize..range.end as usize;
        self.ops.get(range).unwrap_or_default()
    }

    /// All operations.
    pub(crate) fn all_ops(&self) -> &[Op] {
        &self.ops
    }

    /// Replaces one operation.
    pub(crate) fn replace(&mut self, place: u32, op: Op) {
        if let Some(old) = self.ops.get_mut(place as usize) {
            *old = op;
        }
    }

    /// Whether an instruction is padding between functions: it does nothing, traps or is unknown.
    #[must_use]
    pub fn is_padding(&self, id: InsnId) -> bool {
        self.insns
            .get(id.index())
            .is_some_and(|insn| insn.is_padding)
    }

    /// Whether another instruction follows without a gap.
    pub(crate) fn is_adjacent_to_next(&self, id: InsnId) -> bool {
        let next = self.insns.get(id.next().index());
        next.is_some_and(|next| next.address == self.range(id).end)
    }

    /// The instruction that starts at an address, among those with these indexes.
    #[must_use]
    pub fn insn_at(&self, address: u64, among: Range<u32>) -> Option<InsnId> {
        let insns = self.insns.get(among.start as usize..among.end as usize)?;
        let found = insns.binary_search_by_key(&address, |insn| insn.address);
        let index = u32::try_from(found.ok()?).ok()?;
        Some(InsnId(among.start + index))
    }
}
