//! Values of variables in a frame: evaluating location descriptions and expressions (DWARF 5 §2.5,
//! §2.6).

use std::cell::Cell;
use std::rc::Rc;

use gimli::{
    AttributeValue, EvaluationResult, Location, Operation, Piece, RawLocListEntry, UnitOffset,
    ValueType,
};
use unspool_rows::arch::RegisterName;
use unspool_rows::{Register, Vaddr};

use super::call_sites::CallPath;
use super::function::{AttributeRef, DwarfFunction, EntryLocation, Expression, single_operation};
use super::value::PartialValue;
use super::{VariableFrame, VariableStack};
use crate::error::TypesError;
use crate::index::{DieIndex, DieRef, DwarfReader};

/// Why a variable's value in a frame is unknown.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum VariableUnavailable {
    /// It has no location at this address.
    #[error("optimized out here")]
    OptimizedOut,
    /// It was in a register with a lost value.
    #[error("it was in {0}, which was not saved")]
    Register(RegisterName),
    /// It is in memory that cannot be read.
    #[error("it is at {0:#x}, which cannot be read")]
    Memory(u64),
    /// The frame's CFA is not known.
    #[error("the frame's CFA is not known")]
    Cfa,
    /// It depends on a value when the function was called, and the caller does not have it.
    #[error("it depends on an argument's value at the call, which the caller does not show")]
    Entry,
    /// It is a pointer to a value that is not in memory.
    #[error("it points to a value that is not in memory")]
    Pointer,
    /// It is thread-local, and its address is unknown.
    #[error("it is in the thread's own storage: {0}")]
    ThreadLocal(&'static str),
    /// Its type has no size, or no known size.
    #[error("its size is not known")]
    Size,
    /// It is an array with an unknown number of elements.
    #[error("its number of elements is not known: {0}")]
    Count(Rc<VariableUnavailable>),
    /// Its evaluation exceeds the step limit.
    #[error("its location takes more than {limit} steps to compute")]
    TooLong {
        /// The maximum number of steps.
        limit: u32,
    },
    /// The expression has an unsupported operation.
    #[error("its location is described in an unsupported way: {0}")]
    Unsupported(&'static str),
    /// The expression is broken.
    #[error("its location cannot be computed: {0}")]
    Expression(gimli::Error),
    /// The debug information is broken.
    #[error(transparent)]
    InvalidDwarf(Rc<TypesError>),
}

impl From<gimli::Error> for VariableUnavailable {
    fn from(error: gimli::Error) -> VariableUnavailable {
        VariableUnavailable::Expression(error)
    }
}

impl From<TypesError> for VariableUnavailable {
    fn from(error: TypesError) -> VariableUnavailable {
        VariableUnavailable::InvalidDwarf(Rc::new(error))
    }
}

/// The maximum number of evaluations and requests for one variable.
const MAX_STEPS: u32 = 1000;

/// The approximate maximum number of operations between two of these.
const MAX_OPERATIONS: u32 = 1000;

/// The maximum depth of nested expressions and callers.
const MAX_NESTING: u32 = 32;

/// The budget for one variable.
pub(super) struct EvaluationBudget {
    /// The remaining number of steps.
    steps: Cell<u32>,
    /// Whether the value depends on a call that may have called another function.
    pub(super) is_guessed: Cell<bool>,
}

impl Default for EvaluationBudget {
    fn default() -> EvaluationBudget {
        EvaluationBudget {
            steps: Cell::new(MAX_STEPS),
            is_guessed: Cell::new(false),
        }
    }
}

/// Evaluates the expressions of a frame.
pub(super) struct ExpressionEvaluator<'s, 'a> {
    pub(super) stack: &'s dyn VariableStack<'a>,
    pub(super) number: usize,
    pub(super) frame: VariableFrame<'s, 'a>,
    pub(super) function: &'s DwarfFunction<'a>,
    /// The path to the function, if it ended with a tail call: its callee has the frame now.
    pub(super) tail_calls: Option<CallPath<'a>>,
    pub(super) budget: &'s EvaluationBudget,
    /// The remaining nesting depth.
    pub(super) depth: u32,
}

type LocationPieces<'a> = Vec<Piece<DwarfReader<'a>>>;

impl<'s, 'a> ExpressionEvaluator<'s, 'a> {
    pub(super) fn new(
        stack: &'s dyn VariableStack<'a>,
        number: usize,
        function: &'s DwarfFunction<'a>,
        budget: &'s EvaluationBudget,
    ) -> Result<ExpressionEvaluator<'s, 'a>, VariableUnavailable> {
        Ok(ExpressionEvaluator {
            stack,
            number,
            frame: stack
                .frame(number)
                .ok_or(VariableUnavailable::OptimizedOut)?,
            function,
            tail_calls: None,
            budget,
            depth: MAX_NESTING,
        })
    }

    pub(super) fn index(&self) -> &'s DieIndex<'a> {
        &self.function.index
    }

    /// The look-up address of the frame, as linked.
    pub(super) fn lookup(&self) -> Vaddr {
        self.frame.lookup
    }

    pub(super) fn step(&self) -> Result<(), VariableUnavailable> {
        let steps = &self.budget.steps;
        let left = steps.get().checked_sub(1);
        steps.set(left.unwrap_or(0));
        left.map(|_| ())
            .ok_or(VariableUnavailable::TooLong { limit: MAX_STEPS })
    }

    /// The same evaluator, one level deeper.
    pub(super) fn nested(&self) -> Result<ExpressionEvaluator<'s, 'a>, VariableUnavailable> {
        let depth = self.depth.checked_sub(1);
        let depth = depth.ok_or(VariableUnavailable::TooLong { limit: MAX_NESTING })?;
        Ok(ExpressionEvaluator {
            depth,
            tail_calls: self.tail_calls.clone(),
            ..*self
        })
    }

    /// The bytes at a location.
    pub(super) fn value(
        &self,
        location: &AttributeRef<'a>,
        size: usize,
    ) -> Result<PartialValue, VariableUnavailable> {
        let expression = self.expression_at(location, self.frame.lookup)?;
        if size == 0 && !expression.0.is_empty() {
            return Ok(PartialValue::unknown(0));
        }
        let (unit, _) = self.index().unit(location.die)?;
        let room = (size as u64).saturating_mul(8);
        let mut value = PartialValue::unknown(size);
        let mut absent = VariableUnavailable::OptimizedOut;
        let mut at = 0;
        for (part, bits) in parts(expression, unit.encoding())? {
            // One unknown part does not make the others unknown.
            match self.pieces(location.die, part) {
                Ok(pieces) => {
                    for piece in &pieces {
                        let count = piece.size_in_bits.unwrap_or(room).min(room - at);
                        if let Err(why) = self.put(&mut value, at, piece, count) {
                            absent = why;
                        }
                        at += count;
                    }
                }
                Err(why) => {
                    absent = why;
                    at += bits.unwrap_or(room).min(room - at);
                }
            }
        }
        if size != 0 && value.has_known_part() {
            Ok(value)
        } else {
            Err(absent)
        }
    }

    /// Puts the bits of a piece into a value.
    fn put(
        &self,
        value: &mut PartialValue,
        at: u64,
        piece: &Piece<DwarfReader<'a>>,
        count: u64,
    ) -> Result<(), VariableUnavailable> {
        let first = piece.bit_offset.unwrap_or(0);
        // Bytes in memory before the first one needed are not read.
        let (skipped, first) = match piece.location {
            Location::Address { .. } => (first / 8, first % 8),
            _ => (0, first),
        };
        let found = self.piece(piece, skipped, first.saturating_add(count).div_ceil(8))?;
        value.put_bits(at, &found, first, count);
        Ok(())
    }

    /// The bytes of a piece: for one in memory, `size` of them after the skipped ones.
    fn piece(
        &self,
        piece: &Piece<DwarfReader<'a>>,
        skipped: u64,
        size: u64,
    ) -> Result<Vec<u8>, VariableUnavailable> {
        Ok(match piece.location {
            Location::Empty => return Err(VariableUnavailable::OptimizedOut),
            Location::Register { register } => self.register(register)?.to_le_bytes().to_vec(),
            Location::Address { address } => {
                let address = address.wrapping_add(skipped);
                let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
                if self.stack.read(address, &mut bytes) {
                    bytes
                } else {
                    return Err(VariableUnavailable::Memory(address));
                }
            }
            Location::Value { value } => bits(value)?.to_le_bytes().to_vec(),
            Location::Bytes { value } => value.slice().to_vec(),
            Location::ImplicitPointer { .. } => return Err(VariableUnavailable::Pointer),
        })
    }

    fn register(&self, register: gimli::Register) -> Result<u64, VariableUnavailable> {
        let value = match self.tail_calls {
            None => self.stack.register(self.number, register.0),
            // Call-preserved registers have the caller's values again.
            Some(_) if register.0 == self.index().arch().spec().stack_pointer.0 => None,
            Some(_) => self
                .stack
                .register(self.number.saturating_add(1), register.0),
        };
        value.ok_or_else(|| {
            let arch = self.index().arch();
            VariableUnavailable::Register(RegisterName(Register(register.0), arch))
        })
    }

    /// The expression of a location, or that of its list entry for an address.
    pub(super) fn expression_at(
        &self,
        location: &AttributeRef<'a>,
        address: Vaddr,
    ) -> Result<Expression<'a>, VariableUnavailable> {
        if let AttributeValue::Exprloc(expression) = location.value {
            return Ok(expression);
        }
        let mut list = self.list(location)?;
        for _ in 0..MAX_LOCATION_LIST_ENTRIES {
            let Some(entry) = list.next()? else { break };
            if (entry.range.begin..entry.range.end).contains(&address.0) {
                return Ok(entry.data);
            }
        }
        Err(VariableUnavailable::OptimizedOut)
    }

    /// The expression of a location when the function with this entry is called. For values that
    /// change before the first instruction, gcc has it in a list entry with an empty range.
    pub(super) fn expression_at_entry(
        &self,
        location: &AttributeRef<'a>,
        entry: Vaddr,
    ) -> Result<Expression<'a>, VariableUnavailable> {
        if let AttributeValue::Exprloc(expression) = location.value {
            return Ok(expression);
        }
        let mut list = self.list(location)?;
        for _ in 0..MAX_LOCATION_LIST_ENTRIES {
            let Some(raw) = list.next_raw()? else { break };
            if let Some(part) = list.convert_raw(with_address(raw))?
                && (part.range.begin..part.range.end).contains(&entry.0)
            {
                return Ok(part.data);
            }
        }
        Err(VariableUnavailable::OptimizedOut)
    }

    fn list(
        &self,
        location: &AttributeRef<'a>,
    ) -> Result<gimli::LocListIter<DwarfReader<'a>>, VariableUnavailable> {
        let index = self.index();
        let (unit, _) = index.unit(location.die)?;
        let dwarf = index.dwarf(location.die.section);
        let list = dwarf.attr_locations(unit, location.value)?;
        list.ok_or(VariableUnavailable::Unsupported(
            "a location that is not a list",
        ))
    }

    /// The numeric value of an expression.
    pub(super) fn number(
        &self,
        die: DieRef,
        expression: Expression<'a>,
    ) -> Result<u64, VariableUnavailable> {
        let (unit, _) = self.index().unit(die)?;
        // A result on the stack is an address; a floating-point number is not.
        if let Some(Operation::TypedLiteral { value, .. }) =
            single_operation(expression, unit.encoding())
            && value.len() <= 8
        {
            let bytes = value.slice().iter().rev();
            return Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)));
        }
        let pieces = self.nested()?.pieces(die, expression)?;
        match pieces.as_slice() {
            [one] => match one.location {
                Location::Address { address } => Ok(address),
                Location::Value { value } => bits(value),
                Location::Register { register } => self.register(register),
                _ => Err(VariableUnavailable::Unsupported(
                    "an expression without a numeric result",
                )),
            },
            _ => Err(VariableUnavailable::Unsupported("a number in pieces")),
        }
    }

    /// Evaluates an expression of an entry, or of its unit.
    fn pieces(
        &self,
        die: DieRef,
        expression: Expression<'a>,
    ) -> Result<LocationPieces<'a>, VariableUnavailable> {
        let index = self.index();
        let (unit, _) = index.unit(die)?;
        let mut evaluation = expression.evaluation(unit.encoding());
        evaluation.set_max_iterations(MAX_OPERATIONS);
        let mut state = evaluation.evaluate()?;
        loop {
            self.step()?;
            state = match state {
                EvaluationResult::Complete => return Ok(evaluation.result()),
                EvaluationResult::RequiresMemory {
                    address,
                    size,
                    space: None,
                    base_type,
                } => {
                    let value = self.memory(address, size)?;
                    let value = typed(value, self.value_type(die, base_type)?)?;
                    evaluation.resume_with_memory(value)?
                }
                EvaluationResult::RequiresRegister {
                    register,
                    base_type,
                } => {
                    let value = self.register(register)?;
                    let value = typed(value, self.value_type(die, base_type)?)?;
                    evaluation.resume_with_register(value)?
                }
                EvaluationResult::RequiresFrameBase => {
                    evaluation.resume_with_frame_base(self.frame_base()?)?
                }
                EvaluationResult::RequiresCallFrameCfa => {
                    let cfa = self
                        .stack
                        .cfa(self.number)
                        .ok_or(VariableUnavailable::Cfa)?;
                    evaluation.resume_with_call_frame_cfa(cfa)?
                }
                EvaluationResult::RequiresTls(offset) => {
                    evaluation.resume_with_tls(self.stack.thread_local(self.number, offset)?)?
                }
                EvaluationResult::RequiresAtLocation(reference) => {
                    evaluation.resume_with_at_location(self.callee_expression(die, reference)?)?
                }
                EvaluationResult::RequiresEntryValue(expression) => {
                    let (register, base_type) = match single_operation(expression, unit.encoding())
                    {
                        Some(Operation::Register { register }) => (register, UnitOffset(0)),
                        Some(Operation::RegisterOffset {
                            register,
                            offset: 0,
                            base_type,
                        }) => (register, base_type),
                        _ => return Err(VariableUnavailable::Entry),
                    };
                    let value = self.entry_value(EntryLocation::Register(register.0))?;
                    let value = typed(value, self.value_type(die, base_type)?)?;
                    evaluation.resume_with_entry_value(value)?
                }
                EvaluationResult::RequiresParameterRef(offset) => {
                    let place = self.place_in_unit(die, offset)?;
                    let (origin, _) = index.origin(place, &index.entry(place)?)?;
                    let value = self.entry_value(EntryLocation::Parameter(origin))?;
                    evaluation.resume_with_parameter_ref(value)?
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    let address = address.wrapping_add(self.frame.bias);
                    evaluation.resume_with_relocated_address(address)?
                }
                EvaluationResult::RequiresIndexedAddress {
                    index: nth,
                    relocate,
                } => {
                    let address = index.dwarf(die.section).address(unit, nth)?;
                    let bias = if relocate { self.frame.bias } else { 0 };
                    evaluation.resume_with_indexed_address(address.wrapping_add(bias))?
                }
                EvaluationResult::RequiresBaseType(offset) => {
                    evaluation.resume_with_base_type(self.value_type(die, offset)?)?
                }
                _ => {
                    return Err(VariableUnavailable::Unsupported(
                        "an operation of another machine",
                    ));
                }
            };
        }
    }

    /// A number of at most 8 bytes in memory.
    fn memory(&self, address: u64, size: u8) -> Result<u64, VariableUnavailable> {
        let mut bytes = [0; 8];
        let read = bytes
            .get_mut(..usize::from(size))
            .is_some_and(|wanted| self.stack.read(address, wanted));
        if read {
            Ok(u64::from_le_bytes(bytes))
        } else {
            Err(VariableUnavailable::Memory(address))
        }
    }

    fn frame_base(&self) -> Result<u64, VariableUnavailable> {
        let unknown = VariableUnavailable::Unsupported("a function without a frame base");
        let base = self.function.frame_base.as_ref().ok_or(unknown)?;
        self.number(base.die, self.expression_at(base, self.frame.lookup)?)
    }

    fn place_in_unit(
        &self,
        die: DieRef,
        offset: UnitOffset,
    ) -> Result<DieRef, VariableUnavailable> {
        let value = AttributeValue::UnitRef(offset);
        Ok(self.index().resolve_reference(die, &value)?)
    }

    /// The location expression of another entry (`DW_OP_call2` and its variants): empty if it has
    /// none.
    fn callee_expression(
        &self,
        die: DieRef,
        reference: gimli::DieReference<usize>,
    ) -> Result<DwarfReader<'a>, VariableUnavailable> {
        let index = self.index();
        let die = match reference {
            gimli::DieReference::UnitRef(offset) => self.place_in_unit(die, offset)?,
            gimli::DieReference::DebugInfoRef(offset) => {
                index.resolve_reference(die, &AttributeValue::DebugInfoRef(offset))?
            }
        };
        let entry = index.entry(die)?;
        let Some(value) = entry.attr_value(gimli::DW_AT_location) else {
            return Ok(DwarfReader::default());
        };
        let expression = self.expression_at(&AttributeRef { die, value }, self.frame.lookup)?;
        Ok(expression.0)
    }

    /// The type of a value in an expression (DWARF 5 §2.5.1).
    fn value_type(
        &self,
        die: DieRef,
        offset: UnitOffset,
    ) -> Result<ValueType, VariableUnavailable> {
        if offset.0 == 0 {
            return Ok(ValueType::Generic);
        }
        let place = self.place_in_unit(die, offset)?;
        let ty = ValueType::from_entry(&self.index().entry(place)?)?;
        ty.ok_or(VariableUnavailable::Unsupported(
            "a type that expressions do not compute with",
        ))
    }
}

/// The parts of an expression for pieces, each with the size of its piece in bits. The whole
/// expression if it has no pieces, or has branches.
fn parts(
    expression: Expression<'_>,
    encoding: gimli::Encoding,
) -> Result<Vec<(Expression<'_>, Option<u64>)>, VariableUnavailable> {
    let mut operations = expression.operations(encoding);
    let (mut parts, mut start) = (Vec::new(), 0);
    while let Some(operation) = operations.next()? {
        let bits = match operation {
            Operation::Piece { size_in_bits, .. } => size_in_bits,
            Operation::Bra { .. } | Operation::Skip { .. } => return Ok(vec![(expression, None)]),
            _ => continue,
        };
        let end = operations.offset_from(&expression);
        let bytes = expression.0.range(start..end);
        parts.push((gimli::Expression(bytes), Some(bits)));
        start = end;
    }
    if parts.is_empty() {
        Ok(vec![(expression, None)])
    } else {
        Ok(parts)
    }
}

/// A list entry; one with an empty range gets its start address.
fn with_address(raw: RawLocListEntry<DwarfReader<'_>>) -> RawLocListEntry<DwarfReader<'_>> {
    let mut raw = raw;
    match &mut raw {
        RawLocListEntry::AddressOrOffsetPair { begin, end, .. }
        | RawLocListEntry::OffsetPair { begin, end, .. }
        | RawLocListEntry::StartEnd { begin, end, .. }
            if begin == end =>
        {
            *end = begin.saturating_add(1);
        }
        RawLocListEntry::StartxLength { length, .. }
        | RawLocListEntry::StartLength { length, .. } => *length = (*length).max(1),
        _ => {}
    }
    raw
}

/// The maximum number of location list entries to read.
const MAX_LOCATION_LIST_ENTRIES: usize = 100_000;

/// The bits of an expression's value.
fn bits(value: gimli::Value) -> Result<u64, VariableUnavailable> {
    Ok(match value {
        gimli::Value::F32(value) => u64::from(value.to_bits()),
        gimli::Value::F64(value) => value.to_bits(),
        other => other.to_u64(u64::MAX)?,
    })
}

/// A number as a value of a type with the same bits.
fn typed(number: u64, ty: ValueType) -> Result<gimli::Value, VariableUnavailable> {
    Ok(match ty {
        ValueType::Generic => gimli::Value::Generic(number),
        ValueType::F32 => {
            let low = u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default();
            gimli::Value::F32(f32::from_bits(low))
        }
        ValueType::F64 => gimli::Value::F64(f64::from_bits(number)),
        other => gimli::Value::from_u64(other, number)?,
    })
}
