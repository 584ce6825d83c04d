//! The value of an argument, in a frame of a stack.

use crate::location::{ArgLocation, ArgSource, CallSiteValue, EntryValue, UnprovenRules};
use crate::table::{ArgTable, CallRecord, CodeRange};

/// The certainty of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueCertainty {
    /// It may be wrong. The program may have overwritten its location, or the compiler may have
    /// changed the function's parameters, or the caller may have called another function.
    Likely,
    /// It is the value when the function was called.
    Exact,
}

/// A value of at most 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgValue {
    /// The value.
    pub number: u64,
    /// Its certainty.
    pub certainty: ValueCertainty,
    /// The number of frames further out of the frame it was found in: 0 for the function's own.
    pub caller_depth: usize,
}

/// A frame's module table, and its position there.
#[derive(Debug, Clone, Copy)]
pub struct ArgFrame<'t> {
    /// The table of the module.
    pub table: ArgTable<'t>,
    /// The frame's code address, as linked.
    pub address: u64,
    /// Whether that is a return address.
    pub is_return: bool,
    /// The difference from link-time addresses to the process's.
    pub bias: u64,
}

impl<'t> ArgFrame<'t> {
    /// The function of the frame.
    #[must_use]
    pub fn function(&self) -> Option<CodeRange<'t>> {
        self.table.function(self.pc())
    }

    /// The unproven rules of the frame's unwind row.
    #[must_use]
    pub fn unproven_rules(&self) -> UnprovenRules {
        self.table.unproven_rules(self.pc())
    }

    /// The look-up address of the frame.
    fn pc(&self) -> u64 {
        self.address.wrapping_sub(u64::from(self.is_return))
    }
}

/// A stack of frames, the innermost first.
pub trait ArgStack {
    /// A frame; `None` if the number is too large, or its module is unknown.
    fn frame(&self, number: usize) -> Option<ArgFrame<'_>>;

    /// A register of a frame.
    fn register(&self, number: usize, register: u8) -> Option<u64>;

    /// The CFA of a frame.
    fn cfa(&self, number: usize) -> Option<u64>;

    /// Whether a frame was found without a guess.
    fn is_certain(&self, number: usize) -> bool;

    /// The unproven rules that led to a frame: the [`ArgFrame::unproven_rules`] of the frames
    /// further in.
    fn unproven_rules(&self, number: usize) -> UnprovenRules;

    /// The number in at most 8 bytes of memory.
    fn read(&self, address: u64, bytes: u8) -> Option<u64>;
}

/// The maximum number of callers to search.
const MAX_CALLERS: usize = 16;

/// The low `bits` of a source when the function of a frame was called: from the function's own
/// frame, or from the values its caller passed.
#[must_use]
pub fn argument(
    stack: &dyn ArgStack,
    frame: usize,
    source: ArgSource,
    bits: u8,
) -> Option<ArgValue> {
    find(stack, frame, source, bits, MAX_CALLERS)
}

fn find(
    stack: &dyn ArgStack,
    frame: usize,
    source: ArgSource,
    bits: u8,
    farthest: usize,
) -> Option<ArgValue> {
    let own = callee_value(stack, frame, source, bits);
    if own.is_some_and(|own| own.certainty == ValueCertainty::Exact) {
        return own;
    }
    let given = from_caller(stack, frame, source, bits, farthest);
    match (own, given) {
        (Some(own), Some(given)) if own.certainty >= given.certainty => Some(own),
        (own, given) => given.or(own),
    }
}

/// A register of a frame, if the rows that led there are proven.
fn register(stack: &dyn ArgStack, number: usize, register: u8) -> Option<u64> {
    let value = stack.register(number, register)?;
    (!stack.unproven_rules(number).has_register(register)).then_some(value)
}

/// The CFA of a frame, if its row and those that led there are proven.
fn cfa(stack: &dyn ArgStack, number: usize) -> Option<u64> {
    let own = stack
        .frame(number)
        .map_or(UnprovenRules::NONE, |frame| frame.unproven_rules());
    let cfa = stack.cfa(number)?;
    (!stack.unproven_rules(number).union(own).has_cfa()).then_some(cfa)
}

/// Whether a frame certainly exists.
fn is_certain(stack: &dyn ArgStack, number: usize) -> bool {
    stack.is_certain(number) && !stack.unproven_rules(number).has_cfa()
}

/// The entry value from the function's own frame.
#[must_use]
pub(crate) fn callee_value(
    stack: &dyn ArgStack,
    number: usize,
    source: ArgSource,
    bits: u8,
) -> Option<ArgValue> {
    let frame = stack.frame(number)?;
    let function = frame.function()?;
    let pieces = function
        .parameters()?
        .flat_map(|parameter| parameter.pieces());
    let followed = pieces.filter(|piece| piece.source.is_some());
    let mut found = followed.zip(function.row(frame.pc())?);
    let (piece, found) = found.find(|(piece, _)| piece.source == Some(source))?;
    let found = found.filter(|_| piece.bytes.saturating_mul(8) >= bits)?;
    let kept = match found.location {
        ArgLocation::Register(kept) => register(stack, number, kept)?,
        ArgLocation::Slot(at) => {
            let address = cfa(stack, number)?.wrapping_add_signed(at.into());
            stack.read(address, bits.div_ceil(8).min(8))?
        }
    };
    let is_exact = found.is_certain && is_certain(stack, number);
    Some(ArgValue {
        number: low(kept.wrapping_add_signed(-i64::from(found.addend)), bits),
        certainty: certainty(is_exact),
        caller_depth: 0,
    })
}

fn from_caller(
    stack: &dyn ArgStack,
    number: usize,
    source: ArgSource,
    bits: u8,
    farthest: usize,
) -> Option<ArgValue> {
    let (ArgSource::Register(wanted), Some(farthest)) = (source, farthest.checked_sub(1)) else {
        return None;
    };
    let callee = stack.frame(number).and_then(|frame| frame.function());
    let outer = number.checked_add(1)?;
    let caller = stack.frame(outer).filter(|frame| frame.is_return)?;
    let call = caller.function()?.call(caller.address)?;
    // Another function may have been called and have tail-called this one, with unknown arguments.
    let is_other = callee.is_some_and(|callee| match call.target {
        Some(target) => target != callee.entry,
        None => callee.is_jumped_to,
    });
    if is_other {
        return None;
    }
    let mut given = call.passed();
    let (_, given) = given.find(|(register, _)| *register == wanted)?;
    let value = evaluate(stack, outer, &caller, given, bits, farthest)?;
    let may_be_double = callee.is_some_and(|callee| may_be_double(&callee, source));
    let is_exact = (!may_be_double || is_float(&caller, given))
        && is_this_call(stack, number, &caller, &call, callee)
        && is_certain(stack, number)
        && is_certain(stack, outer);
    Some(ArgValue {
        number: low(value.number, bits),
        certainty: value.certainty.min(certainty(is_exact)),
        caller_depth: value.caller_depth + 1,
    })
}

/// Whether a function's parameter at a source is a `float` for which a `double` may be passed.
fn may_be_double(range: &CodeRange<'_>, source: ArgSource) -> bool {
    let mut parameters = range.parameters().into_iter().flatten();
    parameters
        .any(|own| own.is_float_or_double && own.pieces().any(|piece| piece.source == Some(source)))
}

/// Whether a call passes 4 bytes, and not a number of 8: the `double`s that fit into 4 bytes are
/// less than 1e-313.
fn is_float(caller: &ArgFrame<'_>, given: CallSiteValue) -> bool {
    match given {
        CallSiteValue::Number(number) => u32::try_from(number).is_ok(),
        CallSiteValue::Slot { bytes, .. } => bytes <= 4,
        CallSiteValue::Register { bits, .. } => bits <= 32,
        // A parameter that the caller has passed on unchanged.
        CallSiteValue::EntryValue(EntryValue { source, bits, .. }) => {
            let parameters = caller.function().and_then(|own| own.parameters());
            let mut pieces = parameters
                .into_iter()
                .flatten()
                .flat_map(|own| own.pieces());
            bits <= 32 || pieces.any(|own| own.source == Some(source) && own.bytes <= 4)
        }
        CallSiteValue::Address(_) | CallSiteValue::Cfa(_) => false,
    }
}

/// Whether the running function was certainly reached by this call.
fn is_this_call(
    stack: &dyn ArgStack,
    number: usize,
    caller: &ArgFrame<'_>,
    call: &CallRecord<'_>,
    callee: Option<CodeRange<'_>>,
) -> bool {
    let (Some(target), Some(callee), Some(frame)) = (call.target, callee, stack.frame(number))
    else {
        return false;
    };
    // The call is in the caller's own module.
    target == callee.entry && frame.bias == caller.bias && !callee.is_reentered && callee.is_certain
}

fn evaluate(
    stack: &dyn ArgStack,
    number: usize,
    frame: &ArgFrame<'_>,
    given: CallSiteValue,
    bits: u8,
    farthest: usize,
) -> Option<ArgValue> {
    let (value, is_exact) = match given {
        CallSiteValue::Number(value) => (value, true),
        CallSiteValue::Address(value) => (value.wrapping_add(frame.bias), true),
        CallSiteValue::Cfa(at) => (cfa(stack, number)?.wrapping_add_signed(at.into()), true),
        CallSiteValue::Register {
            register: given,
            addend: add,
            bits: known,
        } if known >= bits => {
            let value = register(stack, number, given)?;
            (value.wrapping_add_signed(add.into()), true)
        }
        CallSiteValue::Slot {
            at,
            bytes,
            is_certain,
        } if bytes.saturating_mul(8) >= bits => {
            let address = cfa(stack, number)?.wrapping_add_signed(at.into());
            (stack.read(address, bytes)?, is_certain)
        }
        CallSiteValue::EntryValue(EntryValue {
            source,
            addend: add,
            bits: known,
            is_certain,
        }) if known >= bits => {
            let own = find(stack, number, source, bits, farthest)?;
            let certainty = own.certainty.min(certainty(is_certain));
            return Some(ArgValue {
                number: own.number.wrapping_add_signed(add.into()),
                certainty,
                ..own
            });
        }
        _ => return None,
    };
    Some(ArgValue {
        number: value,
        certainty: certainty(is_exact),
        caller_depth: 0,
    })
}

fn certainty(is_exact: bool) -> ValueCertainty {
    if is_exact {
        ValueCertainty::Exact
    } else {
        ValueCertainty::Likely
    }
}

/// The low bits of a number.
fn low(number: u64, bits: u8) -> u64 {
    match 1_u64.checked_shl(bits.into()) {
        Some(end) => number & (end - 1),
        None => number,
    }
}
