//! Arguments of the functions on the own stack.
//!
//! They are found from a frame and its callers, by stepping a copy of the cursor.
//! Async-signal-safe.

use core::cell::Cell;

use unspool_arg_table::{
    ArgFrame, ArgStack, ArgTable, TableParameter, UnprovenRules, ValueCertainty, argument,
};
use unspool_rows::{CodeAddr, Memory, RuntimeAddr};
use unspool_unwind::local::{self, OwnCursor};
use unspool_unwind::{Cursor, Modules, Step};

/// A frame that can be stepped to its caller.
pub(crate) trait FrameCursor: Copy {
    /// Steps to the caller; returns whether there is one, and it is not a guess.
    fn step(&mut self) -> bool;
    /// The code address of the frame.
    fn code(&self) -> CodeAddr;
    /// A register.
    fn register(&self, number: u8) -> Option<u64>;
    /// The CFA.
    fn cfa(&self) -> Option<u64>;
    /// Reads memory; returns whether all of it could be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

impl FrameCursor for OwnCursor {
    fn step(&mut self) -> bool {
        OwnCursor::step(self) && self.evidence().is_some_and(|evidence| !evidence.is_guess())
    }

    fn code(&self) -> CodeAddr {
        OwnCursor::code(self)
    }

    fn register(&self, number: u8) -> Option<u64> {
        OwnCursor::register(self, number.into())
    }

    fn cfa(&self) -> Option<u64> {
        Some(OwnCursor::cfa(self)?.0)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let memory = local::OwnMemory::without_stack();
        memory.read(RuntimeAddr(address), into).is_ok()
    }
}

/// A cursor that steps with these modules and this memory.
pub(crate) struct ModuleCursor<'w, S, M> {
    /// The cursor.
    pub(crate) cursor: Cursor,
    /// The modules.
    pub(crate) modules: &'w S,
    /// The memory.
    pub(crate) memory: &'w M,
}

impl<S, M> Clone for ModuleCursor<'_, S, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, M> Copy for ModuleCursor<'_, S, M> {}

impl<S: Modules, M: Memory> FrameCursor for ModuleCursor<'_, S, M> {
    fn step(&mut self) -> bool {
        match self.cursor.step(self.modules, self.memory) {
            Step::Caller(found) => !found.evidence.is_guess(),
            Step::End(_) => false,
        }
    }

    fn code(&self) -> CodeAddr {
        self.cursor.code()
    }

    fn register(&self, number: u8) -> Option<u64> {
        let register = unspool_rows::Register(number.into());
        self.cursor.registers().get(register)
    }

    fn cfa(&self) -> Option<u64> {
        Some(self.cursor.cfa(self.modules, self.memory)?.0)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.memory.read(RuntimeAddr(address), into).is_ok()
    }
}

/// A frame and its callers.
struct Callers<C> {
    first: C,
    /// The unproven rules that led to the frame.
    unproven: UnprovenRules,
    /// The last frame used, its number, and the unproven rules that led to it.
    last: Cell<(usize, C, UnprovenRules)>,
}

impl<C: FrameCursor> Callers<C> {
    fn new(first: C, unproven: UnprovenRules) -> Callers<C> {
        Callers {
            first,
            unproven,
            last: Cell::new((0, first, unproven)),
        }
    }

    fn caller(&self, number: usize) -> Option<(C, UnprovenRules)> {
        let (mut at, mut cursor, mut unproven) = self.last.get();
        if number < at {
            (at, cursor, unproven) = (0, self.first, self.unproven);
        }
        while at < number {
            unproven = unproven.union(unproven_rules_at(cursor.code()));
            if !cursor.step() {
                return None;
            }
            at += 1;
        }
        self.last.set((at, cursor, unproven));
        Some((cursor, unproven))
    }
}

impl<C: FrameCursor> ArgStack for Callers<C> {
    fn frame(&self, number: usize) -> Option<ArgFrame<'_>> {
        frame(self.caller(number)?.0.code())
    }

    fn register(&self, number: usize, register: u8) -> Option<u64> {
        self.caller(number)?.0.register(register)
    }

    fn cfa(&self, number: usize) -> Option<u64> {
        self.caller(number)?.0.cfa()
    }

    /// Guessed frames are never reached.
    fn is_certain(&self, _: usize) -> bool {
        true
    }

    fn unproven_rules(&self, number: usize) -> UnprovenRules {
        self.caller(number)
            .map_or(UnprovenRules::ALL, |(_, unproven)| unproven)
    }

    fn read(&self, address: u64, bytes: u8) -> Option<u64> {
        let mut number = [0; 8];
        let wanted = number.get_mut(..usize::from(bytes))?;
        let is_read = self.first.read(address, wanted);
        is_read.then(|| u64::from_le_bytes(number))
    }
}

/// The argument table's view of a frame, if its module has an argument table.
fn frame(code: CodeAddr) -> Option<ArgFrame<'static>> {
    let module = local::modules().loaded(code.lookup())?;
    Some(ArgFrame {
        table: ArgTable::open(module.arguments?).ok()?,
        address: module.bias.to_vaddr(code.address()).0,
        is_return: matches!(code, CodeAddr::Return(_)),
        bias: module.bias.0,
    })
}

/// The rules of a frame's unwind row that the code does not prove, if this is known.
pub(crate) fn unproven_rules_at(code: CodeAddr) -> UnprovenRules {
    frame(code).map_or(UnprovenRules::NONE, |frame| frame.unproven_rules())
}

/// The unproven rules that led to a cursor's frame: those of interrupted instructions. At calls,
/// compilers' rows are right.
pub(crate) fn unproven_rules_within(cursor: &OwnCursor) -> UnprovenRules {
    let interrupted = cursor.interrupted().map(CodeAddr::Instruction);
    interrupted.map_or(UnprovenRules::NONE, unproven_rules_at)
}

/// An argument, if it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArgumentResult {
    /// The parameter.
    pub(crate) parameter: TableParameter<'static>,
    /// The first eight bytes of its value.
    pub(crate) value: u64,
    /// The certainty of the value; `None` if it was not found.
    pub(crate) certainty: Option<ValueCertainty>,
    /// The number of frames further out in which it was found.
    pub(crate) caller_depth: usize,
}

/// An argument of a frame's function, by its index; `None` if there are no more, or the function is
/// unknown. `unproven` are the rules that led to the frame.
pub(crate) fn argument_at(
    cursor: &impl FrameCursor,
    unproven: UnprovenRules,
    index: usize,
) -> Option<ArgumentResult> {
    let function = frame(cursor.code())?.function()?;
    let parameter = function.parameters()?.nth(index)?;
    Some(find(&Callers::new(*cursor, unproven), parameter))
}

fn find(stack: &dyn ArgStack, parameter: TableParameter<'static>) -> ArgumentResult {
    let mut found = ArgumentResult {
        parameter,
        value: 0,
        certainty: None,
        caller_depth: 0,
    };
    let mut pieces = parameter.pieces();
    let first = pieces.next().filter(|piece| piece.offset == 0);
    let Some((source, bytes)) = first.and_then(|piece| Some((piece.source?, piece.bytes))) else {
        return found;
    };
    if let Some(value) = argument(stack, 0, source, bytes.saturating_mul(8)) {
        found.value = value.number;
        found.certainty = Some(value.certainty);
        found.caller_depth = value.caller_depth;
    }
    found
}
