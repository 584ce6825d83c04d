//! Conversion between SFrame functions and call frame information rows.

use alloc::vec::Vec;

use unspool_rows::expression::operation::{
    DW_OP_AND, DW_OP_BREG0, DW_OP_BREG31, DW_OP_BREGX, DW_OP_DEREF, DW_OP_GE, DW_OP_LIT0,
    DW_OP_LIT31, DW_OP_PLUS, DW_OP_SHL,
};
use unspool_rows::formula::{Formula, InitialStack};
use unspool_rows::leb128::{put_signed, put_unsigned};
use unspool_rows::table::{Extent, FdeHeader, RowStart, Span};
use unspool_rows::{
    CfaRule, Expression, RaState, Register, RegisterRule, Row, RowId, Table, Vaddr,
};

use super::error::{SframeError, SframeProblem};
use super::frame::{
    FrameRowEntry, FreBase, FreContents, FreRules, FreValue, SframeAbi, SframeVersion,
};
use super::section::SframeFunction;
use super::writer;

/// Why SFrame cannot represent a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum UnrepresentableReason {
    /// There is no CFA.
    #[error("there is no CFA")]
    NoCfa,
    /// Versions 1 and 2 only have the stack and the frame pointer as CFA registers.
    #[error("the CFA is computed from register {}, for which version 3 is needed", .0.0)]
    CfaRegister(Register),
    /// More than a register, an offset and a load.
    #[error("the CFA's expression is not a register plus an offset, loaded or not")]
    CfaExpression,
    /// An offset of the CFA that does not fit, or on s390x is not a multiple of 8.
    #[error("the offset {0} of the CFA cannot be stored")]
    CfaOffset(i64),
    /// Another offset that does not fit.
    #[error("the offset {0} does not fit into 32 bits")]
    Offset(i64),
    /// The return address is in a column of its own.
    #[error("the return address is in column {}", .0.0)]
    Column(Register),
    /// The caller's stack pointer does not follow from the CFA.
    #[error("the stack pointer has a rule of its own")]
    StackPointer,
    /// The frame pointer is undefined, or its location cannot be represented.
    #[error("the frame pointer's rule cannot be expressed")]
    FramePointer,
    /// The location of the return address cannot be represented.
    #[error("the return address's rule cannot be expressed")]
    ReturnAddress,
    /// A register rule of another form: a load, a register, or a value computed from one.
    #[error(
        "a register is saved elsewhere than at an offset from the CFA, for which version 3 is needed"
    )]
    Flexible,
    /// The frame pointer is saved and the return address is not.
    #[error("the frame pointer is saved without the return address, for which version 3 is needed")]
    FramePointerAlone,
    /// The return address is also signed with the signing instruction's address.
    #[error("the return address is signed with its instruction's address (PAuth_LR)")]
    SignedWithPc,
    /// Versions 1 and 2 cannot mark them.
    #[error("it is a signal frame, for which version 3 is needed")]
    SignalFrame,
    /// A function of more than 4 GiB.
    #[error("the function has more than 4 GiB")]
    Size,
}

/// Addresses with rows that SFrame cannot represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unrepresentable {
    /// The first address.
    pub start: Vaddr,
    /// One past the last address.
    pub end: Vaddr,
    /// The offset of the entry in the section that was read.
    pub origin: u64,
    /// The reason.
    pub reason: UnrepresentableReason,
}

/// A table converted to SFrame.
#[derive(Debug, Clone, Default)]
pub struct SframeConversion {
    /// Ascending, each address in at most one.
    pub functions: Vec<SframeFunction>,
    /// The unrepresentable ranges, ascending.
    pub unrepresentable: Vec<Unrepresentable>,
    /// Number of entries with all rows represented, and of the default type.
    pub plain: usize,
    /// Number of entries with all rows represented, some by version 3's flexible type.
    pub flexible: usize,
    /// Number of entries with unrepresentable rows.
    pub incomplete: usize,
}

/// Converts a table's rules of CFA, return address and frame pointer to functions. Unrepresentable
/// rows are dropped and reported.
///
/// The format has no room for other registers, personality routines, language-specific data and
/// argument sizes. A table lacks the signing key of AArch64's return addresses; key A is assumed.
/// Allocates the functions.
#[must_use]
pub fn functions(table: &Table, abi: SframeAbi, version: SframeVersion) -> SframeConversion {
    let mut conversion = SframeConverter {
        table,
        abi,
        version,
        known: Vec::new(),
        conversion: SframeConversion::default(),
        open: None,
    };
    conversion.known.resize(table.distinct_rows(), None);
    let mut outcomes = Vec::new();
    outcomes.resize(table.fdes().len(), None);
    for extent in table.extents() {
        let outcome = conversion.extent(extent);
        if let Some(slot) = outcomes.get_mut(extent.id.0 as usize) {
            *slot = (*slot).max(Some(outcome));
        }
    }
    let mut converted = conversion.conversion;
    for outcome in outcomes.into_iter().flatten() {
        *match outcome {
            EntryForm::Plain => &mut converted.plain,
            EntryForm::Flexible => &mut converted.flexible,
            EntryForm::Incomplete => &mut converted.incomplete,
        } += 1;
    }
    converted
}

/// The result for an entry; the worse is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EntryForm {
    Plain,
    Flexible,
    Incomplete,
}

/// A converted row.
#[derive(Debug, Clone, Copy)]
enum ConvertedRow {
    Frame(FreContents),
    /// A row for code of a repeated block: the frame, and the stack pushed from an offset in the
    /// block on.
    Stubs(FreContents, PltPattern),
}

/// The CFA of `.plt` as linkers describe it: its distance grows behind an instruction that pushes.
#[derive(Debug, Clone, Copy)]
struct PltPattern {
    /// Size of a block in bytes.
    block: u8,
    /// The offset in the block at which the other CFA begins.
    from: u8,
    /// The additional distance, in bytes.
    more: i64,
}

struct SframeConverter<'t> {
    table: &'t Table,
    abi: SframeAbi,
    version: SframeVersion,
    /// The converted distinct rows, computed on demand.
    known: Vec<Option<Result<ConvertedRow, UnrepresentableReason>>>,
    conversion: SframeConversion,
    /// The function that the next row may extend.
    open: Option<SframeFunction>,
}

impl SframeConverter<'_> {
    fn extent(&mut self, extent: Extent<'_>) -> EntryForm {
        let mut outcome = EntryForm::Plain;
        let origin = extent.fde.origin;
        for span in extent.spans() {
            let said = self
                .meaning(span.row)
                .and_then(|meaning| self.span(span, origin, meaning));
            match said {
                Ok(of_span) => outcome = outcome.max(of_span),
                Err(why) => {
                    self.close();
                    outcome = EntryForm::Incomplete;
                    self.refuse(span, origin, why);
                }
            }
        }
        self.close();
        outcome
    }

    fn refuse(&mut self, span: Span, origin: u64, reason: UnrepresentableReason) {
        let (start, end) = (span.start, span.end);
        let last = self.conversion.unrepresentable.last_mut();
        match last.filter(|last| (last.end, last.origin, last.reason) == (start, origin, reason)) {
            Some(last) => last.end = end,
            None => self.conversion.unrepresentable.push(Unrepresentable {
                start,
                end,
                origin,
                reason,
            }),
        }
    }

    fn close(&mut self) {
        self.conversion.functions.extend(self.open.take());
    }

    fn meaning(&mut self, id: RowId) -> Result<ConvertedRow, UnrepresentableReason> {
        let Some(slot) = self.known.get_mut(id.0 as usize) else {
            return Err(UnrepresentableReason::NoCfa);
        };
        let (table, abi) = (self.table, self.abi);
        *slot.get_or_insert_with(|| {
            let row = table.row(id).ok_or(UnrepresentableReason::NoCfa)?;
            RowConverter { abi }.meaning(&row)
        })
    }

    fn span(
        &mut self,
        span: Span,
        origin: u64,
        converted_row: ConvertedRow,
    ) -> Result<EntryForm, UnrepresentableReason> {
        let row = self.table.row(span.row);
        let is_signal_frame = row.is_some_and(|row| row.signal_frame);
        let size =
            u32::try_from(span.end.0 - span.start.0).map_err(|_| UnrepresentableReason::Size)?;
        let function = |block, rows| SframeFunction {
            start: span.start,
            size,
            block,
            is_signal_frame,
            has_key_b: false,
            rows,
            origin,
        };
        match converted_row {
            ConvertedRow::Frame(frame) => {
                let outcome = self.check(frame, is_signal_frame)?;
                if !self.go_on(span, frame, is_signal_frame) {
                    self.close();
                    let row = FrameRowEntry {
                        offset: 0,
                        contents: frame,
                    };
                    self.open = Some(function(None, Vec::from([row])));
                }
                Ok(outcome)
            }
            ConvertedRow::Stubs(frame, stubs) => {
                let is_aligned = span.start.0.is_multiple_of(stubs.block.into());
                let pushed = pushed(frame, stubs.more).filter(|_| is_aligned);
                let pushed = pushed.ok_or(UnrepresentableReason::CfaExpression)?;
                let outcome = self
                    .check(frame, is_signal_frame)?
                    .max(self.check(pushed, is_signal_frame)?);
                self.close();
                let rows = [(0, frame), (stubs.from.into(), pushed)];
                let rows = rows.map(|(offset, frame)| FrameRowEntry {
                    offset,
                    contents: frame,
                });
                let function = function(Some(stubs.block), rows.into());
                self.conversion.functions.push(function);
                Ok(outcome)
            }
        }
    }

    fn check(
        &self,
        fre: FreContents,
        is_signal_frame: bool,
    ) -> Result<EntryForm, UnrepresentableReason> {
        let is_flexible = writer::is_flexible(fre, is_signal_frame, self.abi, self.version)?;
        Ok(if is_flexible {
            EntryForm::Flexible
        } else {
            EntryForm::Plain
        })
    }

    /// Adds a row to the open function, if it fits there.
    fn go_on(&mut self, span: Span, fre: FreContents, is_signal_frame: bool) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let size = u32::try_from(span.end.0.wrapping_sub(open.start.0));
        let has_room = open.rows.len() < writer::MAX_ROWS;
        let goes_on = open.end() == span.start && open.is_signal_frame == is_signal_frame;
        let Some(size) = size.ok().filter(|_| goes_on && has_room) else {
            return false;
        };
        if open.rows.last().is_none_or(|last| last.contents != fre) {
            let offset = open.size;
            open.rows.push(FrameRowEntry {
                offset,
                contents: fre,
            });
        }
        open.size = size;
        true
    }
}

/// The frame with a CFA that much further away.
fn pushed(fre: FreContents, more: i64) -> Option<FreContents> {
    match fre {
        FreContents::Outermost => None,
        FreContents::Rules(places) => {
            let cfa = FreValue {
                offset: places.cfa.offset.checked_add(more)?,
                ..places.cfa
            };
            Some(FreContents::Rules(FreRules { cfa, ..places }))
        }
    }
}

/// Converts rows.
struct RowConverter {
    abi: SframeAbi,
}

impl RowConverter {
    fn meaning(&self, row: &Row<'_>) -> Result<ConvertedRow, UnrepresentableReason> {
        let machine = self.abi;
        if row.return_address != machine.return_address() {
            return Err(UnrepresentableReason::Column(row.return_address));
        }
        if row.is_outermost() {
            return Ok(ConvertedRow::Frame(FreContents::Outermost));
        }
        let stubs = match row.cfa {
            CfaRule::Expression(expression) => self.stubs(expression),
            _ => None,
        };
        let cfa = match stubs {
            Some((cfa, _)) => cfa,
            None => self.cfa(row.cfa)?,
        };
        self.check_stack_pointer(row, cfa)?;
        let fp_rule = row.rule(machine.frame_pointer());
        let ra_rule = row.rule(machine.return_address());
        let frame = FreContents::Rules(FreRules {
            cfa,
            return_address: self
                .place(ra_rule)
                .ok_or(UnrepresentableReason::ReturnAddress)?,
            frame_pointer: self
                .place(fp_rule)
                .ok_or(UnrepresentableReason::FramePointer)?,
            is_signed: match row.ra_state {
                RaState::Plain => false,
                RaState::Signed => true,
                RaState::SignedWithPc => return Err(UnrepresentableReason::SignedWithPc),
            },
        });
        Ok(match stubs {
            Some((_, stubs)) => ConvertedRow::Stubs(frame, stubs),
            None => ConvertedRow::Frame(frame),
        })
    }

    fn cfa(&self, rule: CfaRule<'_>) -> Result<FreValue, UnrepresentableReason> {
        match rule {
            CfaRule::Undefined => Err(UnrepresentableReason::NoCfa),
            CfaRule::RegisterOffset { register, offset } => Ok(FreValue::sum(register, offset)),
            CfaRule::Expression(expression) => self
                .computed(expression, InitialStack::Nothing)
                .filter(|place| place.base != FreBase::Cfa)
                .ok_or(UnrepresentableReason::CfaExpression),
        }
    }

    /// The value of an expression, if that is a sum or a load from one.
    fn computed(&self, expression: Expression<'_>, initial: InitialStack) -> Option<FreValue> {
        let formula = Formula::from_expression(expression, self.abi.abi(), initial).ok()?;
        let address = formula.address();
        let is_loaded = address.is_some();
        let (register, offset) = address.unwrap_or(formula).as_sum()?;
        Some(FreValue {
            base: register.map_or(FreBase::Cfa, FreBase::Register),
            offset,
            is_loaded,
        })
    }

    /// The location of a register; `Some(None)`: unchanged.
    fn place(&self, rule: Option<RegisterRule<'_>>) -> Option<Option<FreValue>> {
        let place = match rule {
            None | Some(RegisterRule::SameValue) => return Some(None),
            Some(RegisterRule::Undefined) => return None,
            Some(RegisterRule::Offset(offset)) => FreValue::saved(offset),
            Some(RegisterRule::ValOffset(offset)) => FreValue {
                base: FreBase::Cfa,
                offset,
                is_loaded: false,
            },
            Some(RegisterRule::Register(register)) => FreValue::sum(register, 0),
            Some(RegisterRule::ValExpression(expression)) => {
                self.computed(expression, InitialStack::Cfa)?
            }
            Some(RegisterRule::Expression(expression)) => {
                let address = self.computed(expression, InitialStack::Cfa)?;
                let is_loaded = true;
                if address.is_loaded {
                    return None; // two loads
                }
                FreValue {
                    is_loaded,
                    ..address
                }
            }
        };
        Some(Some(place))
    }

    /// The caller's stack pointer follows from the CFA. An equivalent rule is not a separate rule.
    fn check_stack_pointer(
        &self,
        row: &Row<'_>,
        cfa: FreValue,
    ) -> Result<(), UnrepresentableReason> {
        let machine = self.abi;
        let is_same = match row.rule(machine.stack_pointer()) {
            None => true,
            Some(RegisterRule::ValOffset(offset)) => offset == machine.caller_stack_pointer(),
            // The ABI of s390x saves it among the other registers; it has its value at the call.
            Some(RegisterRule::Offset(_)) => machine == SframeAbi::S390x,
            // Signal frames: both are the interrupted stack pointer.
            Some(rule @ RegisterRule::Expression(_)) => {
                machine.caller_stack_pointer() == 0 && self.place(Some(rule)) == Some(Some(cfa))
            }
            Some(_) => false,
        };
        is_same
            .then_some(())
            .ok_or(UnrepresentableReason::StackPointer)
    }

    /// `sp + a + ((pc & mask) >= from) << shift`, in the operation order of all linkers.
    fn stubs(&self, expression: Expression<'_>) -> Option<(FreValue, PltPattern)> {
        let mut operations = [(0_u8, 0_i64); 9];
        for (at, operation) in expression.operations(self.abi.abi()).enumerate() {
            let operation = operation.ok()?;
            *operations.get_mut(at)? = (operation.opcode, operation.signed());
        }
        let [
            (base, offset),
            (pc, 0),
            (mask, _),
            (DW_OP_AND, _),
            (from, _),
            (DW_OP_GE, _),
            (shift, _),
            (DW_OP_SHL, _),
            (DW_OP_PLUS, _),
        ] = operations
        else {
            return None;
        };
        let register = |opcode| match opcode {
            DW_OP_BREG0..=DW_OP_BREG31 => Some(Register(u16::from(opcode - DW_OP_BREG0))),
            _ => None,
        };
        let literal = |opcode| match opcode {
            DW_OP_LIT0..=DW_OP_LIT31 => Some(opcode - DW_OP_LIT0),
            _ => None,
        };
        let (mask, from) = (literal(mask)?, literal(from)?);
        let block = mask + 1;
        let is_block = block.is_power_of_two() && (1..=mask).contains(&from);
        let is_pc = register(pc)? == self.abi.abi().arch.spec().pc;
        (is_block && is_pc).then_some(())?;
        let stubs = PltPattern {
            block,
            from,
            more: 1_i64.checked_shl(literal(shift)?.into())?,
        };
        Some((FreValue::sum(register(base)?, offset), stubs))
    }
}

/// The maximum number of rows from repeated blocks in one table.
const MAX_PLT_BYTES: usize = 1 << 20;

/// Converts functions to rows. Registers that SFrame does not describe have no recoverable value in
/// a row. An entry that cannot be put into the table is reported.
#[must_use]
pub fn table(functions: &[SframeFunction], abi: SframeAbi) -> (Table, Vec<SframeProblem>) {
    let mut table = Table::new(abi.abi());
    let mut problems = Vec::new();
    let mut left = MAX_PLT_BYTES;
    for function in functions
        .iter()
        .filter(|function| !function.rows.is_empty())
    {
        if let Err(error) = push(&mut table, function, abi, &mut left) {
            let entry = function.origin;
            problems.push(SframeProblem { entry, error });
        }
    }
    (table, problems)
}

fn push(
    table: &mut Table,
    function: &SframeFunction,
    abi: SframeAbi,
    left: &mut usize,
) -> Result<(), SframeError> {
    let mut rows = Vec::new();
    let block = function.block.map_or(function.size, u32::from);
    let blocks = function.size.checked_div(block).unwrap_or(0) as usize;
    let repeated = blocks.saturating_mul(function.rows.len());
    if function.block.is_some() {
        *left = left.checked_sub(repeated).ok_or(SframeError::TooLarge)?;
    }
    let mut reported = Vec::new();
    for row in &function.rows {
        let id = intern(table, row.contents, abi, function.is_signal_frame);
        reported.push((row.offset, id?));
    }
    let step = usize::try_from(block.max(1)).unwrap_or(usize::MAX);
    for base in (0..function.size.max(1)).step_by(step) {
        let placed = reported
            .iter()
            .map(|(offset, row)| (base.saturating_add(*offset), *row));
        let inside = placed.filter(|(offset, _)| *offset < function.size.max(1));
        rows.extend(inside.map(|(offset, row)| RowStart {
            start: function.start.offset(offset.into()),
            row,
        }));
    }
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let header = FdeHeader {
        start: first.start.min(function.end()),
        end: function.end(),
        personality: None,
        lsda: None,
        origin: function.origin,
    };
    table
        .push(header, &rows)
        .map(drop)
        .map_err(|_| SframeError::TooLarge)
}

fn intern(
    table: &mut Table,
    fre: FreContents,
    abi: SframeAbi,
    is_signal_frame: bool,
) -> Result<RowId, SframeError> {
    // One for each location.
    let mut rooms = [const { Vec::new() }; 3];
    let mut free = rooms.iter_mut();
    let mut express = |place| {
        let bytes = free.next().ok_or(SframeError::TooLarge)?;
        put_place(place, bytes);
        Ok(Expression(bytes))
    };
    let mut row = Row::new(abi.return_address());
    fre.write(abi, is_signal_frame, &mut row, &mut express)?;
    table.intern(&row).map_err(|_| SframeError::TooLarge)
}

/// Writes the operations for a register plus an offset, or for a load from there.
fn put_place(value: FreValue, bytes: &mut Vec<u8>) {
    if let FreBase::Register(Register(number)) = value.base {
        match u8::try_from(number) {
            Ok(number @ 0..=31) => bytes.push(DW_OP_BREG0 + number),
            _ => {
                bytes.push(DW_OP_BREGX);
                put_unsigned(bytes, number.into());
            }
        }
        put_signed(bytes, value.offset);
    }
    if value.is_loaded {
        bytes.push(DW_OP_DEREF);
    }
}
