//! What a variable is in a frame: location descriptions and expressions evaluated (DWARF 5 §2.5, §2.6).

use std::cell::Cell;
use std::rc::Rc;

use gimli::{
    AttributeValue, EvaluationResult, Location, Operation, Piece, RawLocListEntry, UnitOffset,
    ValueType,
};
use unspool_ir::arch::RegisterName;
use unspool_ir::{Register, Vaddr};

use super::entry::Way;
use super::function::{Expression, Function, Said, To, only};
use super::value::Value;
use super::{Frame, Stack};
use crate::error::TypesError;
use crate::index::{Index, Place, Slice};

/// Why a variable is not known in a frame.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Absent {
    /// It is nowhere at this address.
    #[error("optimized out here")]
    Nowhere,
    /// It was in a register that nobody tells the value of.
    #[error("it was in {0}, which was not saved")]
    Register(RegisterName),
    /// It is in memory that cannot be read.
    #[error("it is at {0:#x}, which cannot be read")]
    Memory(u64),
    /// The frame's CFA is not known.
    #[error("the frame's CFA is not known")]
    Cfa,
    /// It is what it was when the function was called, which the caller does not tell.
    #[error("it depends on an argument's value at the call, which the caller does not show")]
    Entry,
    /// It is a pointer to something that is in no memory.
    #[error("it points to a value that is not in memory")]
    Pointer,
    /// Each thread has its own, and where is not known.
    #[error("it is in the thread's own storage: {0}")]
    ThreadLocal(&'static str),
    /// Its type has no size, or none that is known.
    #[error("its size is not known")]
    Size,
    /// It is an array of so many elements as is not known.
    #[error("its number of elements is not known: {0}")]
    Count(Rc<Absent>),
    /// It needs more steps than an expression has.
    #[error("its location takes more than {limit} steps to compute")]
    TooLong {
        /// How many are taken at most.
        limit: u32,
    },
    /// The expression has something that is not evaluated here.
    #[error("its location is described in an unsupported way: {0}")]
    Unsupported(&'static str),
    /// The expression is broken.
    #[error("its location cannot be computed: {0}")]
    Expression(gimli::Error),
    /// The debug information is broken.
    #[error(transparent)]
    Broken(Rc<TypesError>),
}

impl From<gimli::Error> for Absent {
    fn from(error: gimli::Error) -> Absent {
        Absent::Expression(error)
    }
}

impl From<TypesError> for Absent {
    fn from(error: TypesError) -> Absent {
        Absent::Broken(Rc::new(error))
    }
}

/// So many times an expression is begun or given something that it asks for, for one variable.
const MOST_STEPS: u32 = 1000;

/// So many operations are done from one of these to the next, about.
const MOST_OPERATIONS: u32 = 1000;

/// Expressions that need others, and callers that need theirs, are followed so deep.
const DEEPEST: u32 = 32;

/// How it goes with one variable.
pub(super) struct Progress {
    /// How many steps may still be taken.
    steps: Cell<u32>,
    /// Whether something was taken for what a call gave that may have called something else.
    pub(super) is_guessed: Cell<bool>,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress {
            steps: Cell::new(MOST_STEPS),
            is_guessed: Cell::new(false),
        }
    }
}

/// Evaluates the expressions of a frame.
pub(super) struct Evaluator<'s, 'a> {
    pub(super) stack: &'s dyn Stack<'a>,
    pub(super) number: usize,
    pub(super) frame: Frame<'s, 'a>,
    pub(super) function: &'s Function<'a>,
    /// How the function was come into, if it is one that has ended with a call: its callee has the frame now.
    pub(super) ended: Option<Way<'a>>,
    pub(super) progress: &'s Progress,
    /// How deep it may still be gone.
    pub(super) depth: u32,
}

type Pieces<'a> = Vec<Piece<Slice<'a>>>;

impl<'s, 'a> Evaluator<'s, 'a> {
    pub(super) fn of(
        stack: &'s dyn Stack<'a>,
        number: usize,
        function: &'s Function<'a>,
        progress: &'s Progress,
    ) -> Result<Evaluator<'s, 'a>, Absent> {
        Ok(Evaluator {
            stack,
            number,
            frame: stack.frame(number).ok_or(Absent::Nowhere)?,
            function,
            ended: None,
            progress,
            depth: DEEPEST,
        })
    }

    pub(super) fn index(&self) -> &'s Index<'a> {
        &self.function.index
    }

    /// The address that describes the frame, as linked.
    pub(super) fn lookup(&self) -> Vaddr {
        self.frame.lookup
    }

    pub(super) fn step(&self) -> Result<(), Absent> {
        let steps = &self.progress.steps;
        let left = steps.get().checked_sub(1);
        steps.set(left.unwrap_or(0));
        left.map(|_| ())
            .ok_or(Absent::TooLong { limit: MOST_STEPS })
    }

    /// The same, one deeper.
    pub(super) fn deeper(&self) -> Result<Evaluator<'s, 'a>, Absent> {
        let depth = self.depth.checked_sub(1);
        let depth = depth.ok_or(Absent::TooLong { limit: DEEPEST })?;
        Ok(Evaluator {
            depth,
            ended: self.ended.clone(),
            ..*self
        })
    }

    /// What is at a location: so many bytes.
    pub(super) fn value(&self, location: &Said<'a>, size: usize) -> Result<Value, Absent> {
        let expression = self.at(location, self.frame.lookup)?;
        if size == 0 && !expression.0.is_empty() {
            return Ok(Value::unknown(0));
        }
        let (unit, _) = self.index().unit(location.place)?;
        let room = (size as u64).saturating_mul(8);
        let mut value = Value::unknown(size);
        let mut absent = Absent::Nowhere;
        let mut at = 0;
        for (part, bits) in parts(expression, unit.encoding())? {
            // That one part is not known is no reason to lose the others.
            match self.pieces(location.place, part) {
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
        match size != 0 && value.is_anywhere() {
            true => Ok(value),
            false => Err(absent),
        }
    }

    /// Puts so many bits of a piece into a value.
    fn put(
        &self,
        value: &mut Value,
        at: u64,
        piece: &Piece<Slice<'a>>,
        count: u64,
    ) -> Result<(), Absent> {
        let first = piece.bit_offset.unwrap_or(0);
        // Of what is in memory, nothing is read before that.
        let (skipped, first) = match piece.location {
            Location::Address { .. } => (first / 8, first % 8),
            _ => (0, first),
        };
        let found = self.piece(piece, skipped, first.saturating_add(count).div_ceil(8))?;
        value.put_bits(at, &found, first, count);
        Ok(())
    }

    /// The bytes of a piece: of one in memory so many, but for some that are skipped.
    fn piece(&self, piece: &Piece<Slice<'a>>, skipped: u64, size: u64) -> Result<Vec<u8>, Absent> {
        Ok(match piece.location {
            Location::Empty => return Err(Absent::Nowhere),
            Location::Register { register } => self.register(register)?.to_le_bytes().to_vec(),
            Location::Address { address } => {
                let address = address.wrapping_add(skipped);
                let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
                match self.stack.read(address, &mut bytes) {
                    true => bytes,
                    false => return Err(Absent::Memory(address)),
                }
            }
            Location::Value { value } => bits(value)?.to_le_bytes().to_vec(),
            Location::Bytes { value } => value.slice().to_vec(),
            Location::ImplicitPointer { .. } => return Err(Absent::Pointer),
        })
    }

    fn register(&self, register: gimli::Register) -> Result<u64, Absent> {
        let value = match self.ended {
            None => self.stack.register(self.number, register.0),
            // What calls preserve was as the caller has it again.
            Some(_) if register.0 == self.index().arch().spec().stack_pointer.0 => None,
            Some(_) => self
                .stack
                .register(self.number.saturating_add(1), register.0),
        };
        value.ok_or_else(|| {
            let arch = self.index().arch();
            Absent::Register(RegisterName(Register(register.0), arch))
        })
    }

    /// The expression of a location, or of that part of a list of locations which counts at an address.
    pub(super) fn at(&self, location: &Said<'a>, address: Vaddr) -> Result<Expression<'a>, Absent> {
        if let AttributeValue::Exprloc(expression) = location.value {
            return Ok(expression);
        }
        let mut list = self.list(location)?;
        for _ in 0..MOST_LOCATIONS {
            let Some(entry) = list.next()? else { break };
            if (entry.range.begin..entry.range.end).contains(&address.0) {
                return Ok(entry.data);
            }
        }
        Err(Absent::Nowhere)
    }

    /// The expression of a location when the function with this entry is called. Of what is something else before the first instruction, gcc
    /// has that in a part of the list which is of no address.
    pub(super) fn when_called(
        &self,
        location: &Said<'a>,
        entry: Vaddr,
    ) -> Result<Expression<'a>, Absent> {
        if let AttributeValue::Exprloc(expression) = location.value {
            return Ok(expression);
        }
        let mut list = self.list(location)?;
        for _ in 0..MOST_LOCATIONS {
            let Some(raw) = list.next_raw()? else { break };
            if let Some(part) = list.convert_raw(with_address(raw))?
                && (part.range.begin..part.range.end).contains(&entry.0)
            {
                return Ok(part.data);
            }
        }
        Err(Absent::Nowhere)
    }

    fn list(&self, location: &Said<'a>) -> Result<gimli::LocListIter<Slice<'a>>, Absent> {
        let index = self.index();
        let (unit, _) = index.unit(location.place)?;
        let dwarf = index.dwarf(location.place.part);
        let list = dwarf.attr_locations(unit, location.value)?;
        list.ok_or(Absent::Unsupported("a location that is no list"))
    }

    /// The number that an expression computes.
    pub(super) fn number(&self, place: Place, expression: Expression<'a>) -> Result<u64, Absent> {
        let (unit, _) = self.index().unit(place)?;
        // What is left on the stack at the end is taken for an address, which a floating-point number is not.
        if let Some(Operation::TypedLiteral { value, .. }) = only(expression, unit.encoding())
            && value.len() <= 8
        {
            let bytes = value.slice().iter().rev();
            return Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)));
        }
        let pieces = self.deeper()?.pieces(place, expression)?;
        match pieces.as_slice() {
            [one] => match one.location {
                Location::Address { address } => Ok(address),
                Location::Value { value } => bits(value),
                Location::Register { register } => self.register(register),
                _ => Err(Absent::Unsupported("an expression that computes no number")),
            },
            _ => Err(Absent::Unsupported("a number in pieces")),
        }
    }

    /// Evaluates an expression of an entry at a place, or in its unit.
    fn pieces(&self, place: Place, expression: Expression<'a>) -> Result<Pieces<'a>, Absent> {
        let index = self.index();
        let (unit, _) = index.unit(place)?;
        let mut evaluation = expression.evaluation(unit.encoding());
        evaluation.set_max_iterations(MOST_OPERATIONS);
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
                    let value = typed(value, self.value_type(place, base_type)?)?;
                    evaluation.resume_with_memory(value)?
                }
                EvaluationResult::RequiresRegister {
                    register,
                    base_type,
                } => {
                    let value = self.register(register)?;
                    let value = typed(value, self.value_type(place, base_type)?)?;
                    evaluation.resume_with_register(value)?
                }
                EvaluationResult::RequiresFrameBase => {
                    evaluation.resume_with_frame_base(self.frame_base()?)?
                }
                EvaluationResult::RequiresCallFrameCfa => {
                    let cfa = self.stack.cfa(self.number).ok_or(Absent::Cfa)?;
                    evaluation.resume_with_call_frame_cfa(cfa)?
                }
                EvaluationResult::RequiresTls(offset) => {
                    evaluation.resume_with_tls(self.stack.thread_local(self.number, offset)?)?
                }
                EvaluationResult::RequiresAtLocation(reference) => {
                    evaluation.resume_with_at_location(self.called(place, reference)?)?
                }
                EvaluationResult::RequiresEntryValue(expression) => {
                    let (register, base_type) = match only(expression, unit.encoding()) {
                        Some(Operation::Register { register }) => (register, UnitOffset(0)),
                        Some(Operation::RegisterOffset {
                            register,
                            offset: 0,
                            base_type,
                        }) => (register, base_type),
                        _ => return Err(Absent::Entry),
                    };
                    let value = self.given(To::Register(register.0))?;
                    let value = typed(value, self.value_type(place, base_type)?)?;
                    evaluation.resume_with_entry_value(value)?
                }
                EvaluationResult::RequiresParameterRef(offset) => {
                    let place = self.place_in_unit(place, offset)?;
                    let (origin, _) = index.origin(place, &index.entry(place)?)?;
                    let value = self.given(To::Parameter(origin))?;
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
                    let address = index.dwarf(place.part).address(unit, nth)?;
                    let bias = if relocate { self.frame.bias } else { 0 };
                    evaluation.resume_with_indexed_address(address.wrapping_add(bias))?
                }
                EvaluationResult::RequiresBaseType(offset) => {
                    evaluation.resume_with_base_type(self.value_type(place, offset)?)?
                }
                _ => return Err(Absent::Unsupported("an operation of another machine")),
            };
        }
    }

    /// A number of at most 8 bytes in memory.
    fn memory(&self, address: u64, size: u8) -> Result<u64, Absent> {
        let mut bytes = [0; 8];
        let read = bytes
            .get_mut(..usize::from(size))
            .is_some_and(|wanted| self.stack.read(address, wanted));
        match read {
            true => Ok(u64::from_le_bytes(bytes)),
            false => Err(Absent::Memory(address)),
        }
    }

    fn frame_base(&self) -> Result<u64, Absent> {
        let unknown = Absent::Unsupported("a function without a frame base");
        let base = self.function.frame_base.as_ref().ok_or(unknown)?;
        self.number(base.place, self.at(base, self.frame.lookup)?)
    }

    fn place_in_unit(&self, place: Place, offset: UnitOffset) -> Result<Place, Absent> {
        let value = AttributeValue::UnitRef(offset);
        Ok(self.index().referred(place, &value)?)
    }

    /// The expression that another entry's location is (`DW_OP_call2` and its like): empty if it has none.
    fn called(
        &self,
        place: Place,
        reference: gimli::DieReference<usize>,
    ) -> Result<Slice<'a>, Absent> {
        let index = self.index();
        let place = match reference {
            gimli::DieReference::UnitRef(offset) => self.place_in_unit(place, offset)?,
            gimli::DieReference::DebugInfoRef(offset) => {
                index.referred(place, &AttributeValue::DebugInfoRef(offset))?
            }
        };
        let entry = index.entry(place)?;
        let Some(value) = entry.attr_value(gimli::DW_AT_location) else {
            return Ok(Slice::default());
        };
        let expression = self.at(&Said { place, value }, self.frame.lookup)?;
        Ok(expression.0)
    }

    /// The type of a value in an expression (DWARF 5 §2.5.1).
    fn value_type(&self, place: Place, offset: UnitOffset) -> Result<ValueType, Absent> {
        if offset.0 == 0 {
            return Ok(ValueType::Generic);
        }
        let place = self.place_in_unit(place, offset)?;
        let ty = ValueType::from_entry(&self.index().entry(place)?)?;
        ty.ok_or(Absent::Unsupported(
            "a type that expressions do not compute with",
        ))
    }
}

/// The parts of an expression that describe pieces, each with how many bits its piece has; all of it if it is not of pieces, or jumps about.
fn parts(
    expression: Expression<'_>,
    encoding: gimli::Encoding,
) -> Result<Vec<(Expression<'_>, Option<u64>)>, Absent> {
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
    match parts.is_empty() {
        true => Ok(vec![(expression, None)]),
        false => Ok(parts),
    }
}

/// A part of a list of locations, which is of the address that it begins at if it is of none.
fn with_address(raw: RawLocListEntry<Slice<'_>>) -> RawLocListEntry<Slice<'_>> {
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

/// So many entries of a list of locations are looked at.
const MOST_LOCATIONS: usize = 100_000;

/// The bits of a value of an expression.
fn bits(value: gimli::Value) -> Result<u64, Absent> {
    Ok(match value {
        gimli::Value::F32(value) => u64::from(value.to_bits()),
        gimli::Value::F64(value) => value.to_bits(),
        other => other.to_u64(u64::MAX)?,
    })
}

/// A number as a value of a type, whose bits it has.
fn typed(number: u64, ty: ValueType) -> Result<gimli::Value, Absent> {
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
