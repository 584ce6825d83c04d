//! Instructions to rows (DWARF 5 §6.4.3), in fixed storage.
//!
//! `remember_state` does not copy the row: it marks a place in a log of changes, and
//! `restore_state` undoes them. That keeps the evaluator small enough for a signal stack.

use unspool_rows::{CfaRule, Expression, RaState, Register, RegisterRule, Row, Vaddr};

use crate::CfiSection;
use crate::entry::{Cie, ParsedFde};
use crate::error::CfiError;
use crate::instruction::{Instruction, Instructions};

/// The maximum number of saved states. Compilers nest one or two; LLVM has left a few unbalanced
/// `remember_state` in a function.
pub const MAX_REMEMBERED: usize = 16;

/// The maximum number of register rule changes to undo, over all saved states.
pub const MAX_CHANGES: usize = 96;

/// The maximum total length of one row's expressions, in bytes. A row takes two bytes of
/// instructions and repeats the expressions of the row before. Without a bound, the result is not
/// linear in the section's size. The greatest known length is 56, in OpenJDK's libjsvml.
pub const MAX_EXPRESSION_BYTES: usize = 1024;

/// The maximum distance of a row from its entry's start, in bytes: the limit of a table.
pub(crate) const MAX_DISTANCE_BYTES: u64 = u32::MAX as u64;

/// A row that holds over a range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRange<'a> {
    /// First address.
    pub start: Vaddr,
    /// One past the last address; greater than `start`.
    pub end: Vaddr,
    /// The bytes of the instructions since the last range, without the one that ends this range.
    pub instructions: &'a [u8],
    /// The offset of these instructions in the section.
    pub instructions_offset: u64,
}

/// The state that `remember_state` saves beside the log.
#[derive(Debug, Clone, Copy)]
struct SavedState<'a> {
    cfa: CfaRule<'a>,
    register_offset: Option<(Register, i64)>,
    ra_state: RaState,
    changes: usize,
}

/// A replaced rule.
type RuleChange<'a> = (Register, Option<RegisterRule<'a>>);

/// The row being built, the CIE's initial row, and the saved states. This is the storage of an
/// evaluation, 7.5 KB, and is reusable.
#[derive(Clone)]
pub struct Evaluator<'a> {
    row: Row<'a>,
    initial: Row<'a>,
    /// The CFA's last register and offset, for the instructions that change one of them.
    ///
    /// DWARF 5 §6.4.2.2 forbids these if the CFA is not a register and an offset. But the SHA-2
    /// code of libgcrypt 1.10 ends an expression with `.cfi_def_cfa_register`, and relies on the
    /// earlier offset. Every CIE of MIPS begins with that instruction, for an offset of 0. libgcc,
    /// gdb and `readelf` agree that both work.
    register_offset: Option<(Register, i64)>,
    remembered: [SavedState<'a>; MAX_REMEMBERED],
    depth: usize,
    log: [RuleChange<'a>; MAX_CHANGES],
    logged: usize,
    /// Whether the row's expressions may have grown since they were measured.
    is_unmeasured: bool,
}

impl Default for Evaluator<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Evaluator<'a> {
    /// Empty storage.
    #[must_use]
    pub const fn new() -> Self {
        let nothing = SavedState {
            cfa: CfaRule::Undefined,
            register_offset: None,
            ra_state: RaState::Plain,
            changes: 0,
        };
        Evaluator {
            row: Row::new(Register(0)),
            initial: Row::new(Register(0)),
            register_offset: None,
            remembered: [nothing; MAX_REMEMBERED],
            depth: 0,
            log: [(Register(0), None); MAX_CHANGES],
            logged: 0,
            is_unmeasured: false,
        }
    }

    /// Begins an entry. Its CIE's instructions make `initial`.
    fn start(&mut self, initial: &InitialRow<'a>) {
        self.row.assign(&initial.row);
        self.initial.assign(&initial.row);
        self.register_offset = initial.register_offset;
        self.forget_states();
    }

    /// Drops all saved states and measurements.
    fn forget_states(&mut self) {
        (self.depth, self.logged) = (0, 0);
        self.is_unmeasured = true;
    }

    /// Evaluates the CIE's initial instructions.
    ///
    /// # Errors
    ///
    /// An instruction is bad.
    pub fn initial_row(
        &mut self,
        section: &CfiSection<'a>,
        cie: &Cie<'a>,
    ) -> Result<InitialRow<'a>, CfiError> {
        self.evaluate_cie(section, cie)?;
        Ok(InitialRow {
            row: self.row,
            register_offset: self.register_offset,
        })
    }

    /// Leaves the row of a CIE's instructions in `row`.
    fn evaluate_cie(&mut self, section: &CfiSection<'a>, cie: &Cie<'a>) -> Result<(), CfiError> {
        for row in [&mut self.row, &mut self.initial] {
            row.clear(cie.return_address);
            row.signal_frame = cie.signal_frame;
        }
        self.register_offset = None;
        self.forget_states();
        let (offset, len) = (cie.instructions_offset, cie.instructions.len());
        for instruction in Instructions::new(section, cie, offset, len) {
            let (offset, instruction) = instruction?;
            // A CIE has no addresses: advances have no effect there.
            self.apply(instruction, offset)?;
        }
        Ok(())
    }

    /// The rows of `fde`. Its CIE is evaluated for it alone.
    ///
    /// # Errors
    ///
    /// An instruction of the CIE is bad.
    pub fn rows_of<'e, 's>(
        &'e mut self,
        section: &'s CfiSection<'a>,
        cie: &'s Cie<'a>,
        fde: &ParsedFde<'a>,
    ) -> Result<FdeRows<'e, 's, 'a>, CfiError> {
        self.rows_of_parts(section, section, cie, fde)
    }

    /// The same for a CIE in other memory than its FDE.
    ///
    /// # Errors
    ///
    /// As [`Evaluator::rows_of`].
    pub fn rows_of_parts<'e, 's>(
        &'e mut self,
        cie_section: &CfiSection<'a>,
        section: &'s CfiSection<'a>,
        cie: &'s Cie<'a>,
        fde: &ParsedFde<'a>,
    ) -> Result<FdeRows<'e, 's, 'a>, CfiError> {
        self.evaluate_cie(cie_section, cie)?;
        self.initial.assign(&self.row);
        self.forget_states();
        Ok(self.rows_from_here(section, cie, fde))
    }

    /// The rows of `fde`. Its CIE's instructions make `initial`.
    pub fn rows<'e, 's>(
        &'e mut self,
        section: &'s CfiSection<'a>,
        cie: &'s Cie<'a>,
        initial: &InitialRow<'a>,
        fde: &ParsedFde<'a>,
    ) -> FdeRows<'e, 's, 'a> {
        self.start(initial);
        self.rows_from_here(section, cie, fde)
    }

    fn rows_from_here<'e, 's>(
        &'e mut self,
        section: &'s CfiSection<'a>,
        cie: &'s Cie<'a>,
        fde: &ParsedFde<'a>,
    ) -> FdeRows<'e, 's, 'a> {
        let (offset, len) = (fde.instructions_offset, fde.instructions.len());
        FdeRows {
            section,
            instructions: Instructions::new(section, cie, offset, len),
            since: offset,
            evaluator: self,
            start: fde.start,
            at: fde.start,
            end: fde.end,
            next: fde.start,
            is_movable: true,
        }
    }

    /// Applies an instruction that stays in the row, at `offset` in the section.
    #[inline]
    fn apply(&mut self, instruction: Instruction<'a>, offset: u64) -> Result<(), CfiError> {
        use Instruction as I;
        match instruction {
            I::DefCfa(register, offset) => self.set_cfa(register, offset),
            I::DefCfaExpression(expression) => {
                self.row.cfa = CfaRule::Expression(expression);
                self.is_unmeasured = true;
            }
            I::DefCfaRegister(register) => {
                let last = self.register_offset.map_or(0, |(_, offset)| offset);
                self.set_cfa(register, last);
            }
            I::DefCfaOffset(cfa_offset) => {
                let last = self.register_offset;
                let (register, _) = last.ok_or(CfiError::CfaNotRegister { offset })?;
                match self.row.cfa {
                    // The expression stays, and the offset is kept for later.
                    CfaRule::Expression(_) => self.register_offset = Some((register, cfa_offset)),
                    _ => self.set_cfa(register, cfa_offset),
                }
            }
            I::Undefined(r) => self.set(r, Some(RegisterRule::Undefined), offset)?,
            I::SameValue(r) => self.set(r, Some(RegisterRule::SameValue), offset)?,
            I::Offset(r, n) => self.set(r, Some(RegisterRule::Offset(n)), offset)?,
            I::ValOffset(r, n) => self.set(r, Some(RegisterRule::ValOffset(n)), offset)?,
            I::Register(r, other) => self.set(r, Some(RegisterRule::Register(other)), offset)?,
            I::Expression(r, e) => self.set(r, Some(RegisterRule::Expression(e)), offset)?,
            I::ValExpression(r, e) => self.set(r, Some(RegisterRule::ValExpression(e)), offset)?,
            I::Restore(r) => self.set(r, self.initial.rule(r), offset)?,
            I::RememberState => return self.remember(offset),
            I::RestoreState => {
                self.restore(offset)?;
                self.is_unmeasured = true;
            }
            I::ArgsSize(size) => self.row.args_size = size,
            I::NegateRaState => self.toggle(RaState::Signed),
            // The place of signing would only serve to authenticate the address, which we do not
            // do.
            I::SetRaState(state, _) => self.row.ra_state = state,
            I::NegateRaStateWithPc => self.toggle(RaState::SignedWithPc),
            I::Nop | I::SetLoc(_) | I::AdvanceLoc(_) => {}
        }
        Ok(())
    }

    fn set_cfa(&mut self, register: Register, offset: i64) {
        self.row.cfa = CfaRule::RegisterOffset { register, offset };
        self.register_offset = Some((register, offset));
    }

    #[inline]
    fn set(
        &mut self,
        register: Register,
        rule: Option<RegisterRule<'a>>,
        offset: u64,
    ) -> Result<(), CfiError> {
        let old = self.row.set_rule(register, rule)?;
        if let Some(RegisterRule::Expression(_) | RegisterRule::ValExpression(_)) = rule {
            self.is_unmeasured = true;
        }
        if self.depth > 0 {
            self.log_change(register, old, offset)
        } else {
            Ok(())
        }
    }

    /// Refuses the row that begins at `start`, if its expressions are too long.
    #[inline]
    fn check_expressions(&mut self, start: Vaddr) -> Result<(), CfiError> {
        if !core::mem::take(&mut self.is_unmeasured) {
            return Ok(());
        }
        let cfa = match self.row.cfa {
            CfaRule::Expression(Expression(bytes)) => bytes.len(),
            CfaRule::Undefined | CfaRule::RegisterOffset { .. } => 0,
        };
        let rules = self.row.rules().map(|(_, rule)| match rule {
            RegisterRule::Expression(e) | RegisterRule::ValExpression(e) => e.0.len(),
            _ => 0,
        });
        match rules.fold(cfa, usize::saturating_add) {
            ..=MAX_EXPRESSION_BYTES => Ok(()),
            bytes => Err(CfiError::Expressions { start, bytes }),
        }
    }

    /// Keeps a register's rule from the time when the innermost state was saved.
    fn log_change(
        &mut self,
        register: Register,
        old: Option<RegisterRule<'a>>,
        offset: u64,
    ) -> Result<(), CfiError> {
        let since = self
            .depth
            .checked_sub(1)
            .and_then(|top| self.remembered.get(top));
        let since = since.map_or(0, |top| top.changes);
        let logged = self.log.get(since..self.logged).unwrap_or_default();
        if logged.iter().any(|(known, _)| *known == register) {
            return Ok(());
        }
        let slot = self.log.get_mut(self.logged);
        *slot.ok_or(CfiError::RememberedTooMuch { offset })? = (register, old);
        self.logged += 1;
        Ok(())
    }

    fn remember(&mut self, offset: u64) -> Result<(), CfiError> {
        let slot = self.remembered.get_mut(self.depth);
        *slot.ok_or(CfiError::RememberedTooMuch { offset })? = SavedState {
            cfa: self.row.cfa,
            register_offset: self.register_offset,
            ra_state: self.row.ra_state,
            changes: self.logged,
        };
        self.depth += 1;
        Ok(())
    }

    fn restore(&mut self, offset: u64) -> Result<(), CfiError> {
        let top = self
            .depth
            .checked_sub(1)
            .ok_or(CfiError::NothingRemembered { offset })?;
        let state = *self
            .remembered
            .get(top)
            .ok_or(CfiError::NothingRemembered { offset })?;
        let changes = self.log.get(state.changes..self.logged).unwrap_or_default();
        // A full row must drop the rules it gained before it can take back the rules it lost.
        let gained = changes.iter().filter(|(_, old)| old.is_none());
        let lost = changes.iter().filter(|(_, old)| old.is_some());
        for (register, rule) in gained.chain(lost) {
            self.row.set_rule(*register, *rule)?;
        }
        self.row.cfa = state.cfa;
        self.register_offset = state.register_offset;
        self.row.ra_state = state.ra_state;
        self.depth = top;
        self.logged = state.changes;
        Ok(())
    }

    fn toggle(&mut self, signed: RaState) {
        self.row.ra_state = match self.row.ra_state {
            RaState::Plain => signed,
            RaState::Signed | RaState::SignedWithPc => RaState::Plain,
        };
    }
}

/// The initial row of an entry, made by its CIE's instructions.
#[derive(Debug, Clone, Copy)]
pub struct InitialRow<'a> {
    pub(crate) row: Row<'a>,
    pub(crate) register_offset: Option<(Register, i64)>,
}

/// Evaluates the CIE's initial instructions in storage of its own: [`Evaluator::initial_row`].
///
/// # Errors
///
/// An instruction is bad.
pub fn initial_row<'a>(
    section: &CfiSection<'a>,
    cie: &Cie<'a>,
) -> Result<InitialRow<'a>, CfiError> {
    Evaluator::new().initial_row(section, cie)
}

/// The rows of an FDE, one after another.
///
/// If several rows begin at one address, the last holds. Rows that begin at or past the FDE's end
/// hold nowhere.
pub struct FdeRows<'e, 's, 'a> {
    section: &'s CfiSection<'a>,
    instructions: Instructions<'s, 'a>,
    /// The start of the range's instructions, as an offset in the section.
    since: u64,
    evaluator: &'e mut Evaluator<'a>,
    start: Vaddr,
    at: Vaddr,
    end: Vaddr,
    next: Vaddr,
    is_movable: bool,
}

impl<'a> FdeRows<'_, '_, 'a> {
    /// The row of the range that [`FdeRows::advance`] returned last.
    #[must_use]
    pub fn row(&self) -> &Row<'a> {
        &self.evaluator.row
    }

    /// Whether the ranges so far depend only on the CIE, the instructions, and the FDE's start.
    /// They do not if an instruction names an address, or ranges at the FDE's end are dropped.
    #[must_use]
    #[cfg(feature = "alloc")]
    pub(crate) fn is_movable(&self) -> bool {
        self.is_movable
    }

    /// Evaluates up to the end of the next range.
    ///
    /// # Errors
    ///
    /// An instruction is bad; drop the whole entry then.
    pub fn advance(&mut self) -> Result<Option<RowRange<'a>>, CfiError> {
        if self.next > self.at {
            self.at = self.next;
            self.since = self.instructions.offset();
        }
        loop {
            let before = self.instructions.offset();
            let Some(next) = self.instructions.next() else {
                break;
            };
            let (offset, instruction) = next?;
            let to = match instruction {
                Instruction::SetLoc(to) if to < self.at => {
                    return Err(CfiError::Backwards { from: self.at, to });
                }
                Instruction::SetLoc(to) => {
                    self.is_movable = false;
                    to
                }
                Instruction::AdvanceLoc(delta) => Vaddr(
                    self.at
                        .0
                        .checked_add(delta)
                        .ok_or(CfiError::Scale { offset })?,
                ),
                other => {
                    self.evaluator.apply(other, offset)?;
                    continue;
                }
            };
            self.is_movable &= to < self.end;
            if to > self.at {
                if to < self.end && to.0 - self.start.0 > MAX_DISTANCE_BYTES {
                    let start = self.start;
                    return Err(CfiError::Distant { start, to });
                }
                if self.at < self.end {
                    self.evaluator.check_expressions(self.at)?;
                    self.next = to;
                    return Ok(Some(self.range(to.min(self.end), before)));
                }
                self.at = to; // past the end: evaluated for its errors only
                self.next = to;
            }
        }
        if self.at >= self.end {
            return Ok(None);
        }
        self.evaluator.check_expressions(self.at)?;
        self.next = self.end;
        Ok(Some(self.range(self.end, self.instructions.offset())))
    }

    /// The range from here to `end`, by the instructions up to the offset `until`.
    fn range(&self, end: Vaddr, until: u64) -> RowRange<'a> {
        RowRange {
            start: self.at,
            end,
            instructions: self.section.bytes(self.since, until),
            instructions_offset: self.since,
        }
    }
}
