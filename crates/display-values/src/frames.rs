//! The arguments of the functions on a walked stack.

use unspool_arg_table::{ArgFrame, ArgSource, ArgTable, ArgValue, UnprovenRules};
use unspool_process::snapshot_unwinder::{CallStack, FrameLocation};
use unspool_rows::{CodeAddr, Memory, Register, RuntimeAddr};

/// A walked stack, prepared to find arguments. Its frames must have been [kept with their
/// registers](unspool_process::snapshot_unwinder::WalkDetail::Registers).
pub struct StackArguments<'a> {
    stack: &'a CallStack,
    memory: &'a dyn Memory,
    /// The argument table's view of each frame, if there is a table.
    frames: Vec<Option<ArgFrame<'a>>>,
    /// The unproven rules that led to each frame.
    unproven: Vec<UnprovenRules>,
    /// The frames before this one were found without a guess.
    certain: usize,
}

impl<'a> StackArguments<'a> {
    /// Prepares a stack of a process with this memory. `locate` returns the location of a frame,
    /// `table` the table of a module.
    pub fn new(
        stack: &'a CallStack,
        memory: &'a dyn Memory,
        locate: impl Fn(CodeAddr) -> Option<FrameLocation>,
        table: impl Fn(&FrameLocation) -> Option<ArgTable<'a>>,
    ) -> StackArguments<'a> {
        let frame = |code: CodeAddr| {
            let located = locate(code)?;
            Some(ArgFrame {
                table: table(&located)?,
                address: located.address.0,
                is_return: matches!(code, CodeAddr::Return(_)),
                bias: code.address().0.wrapping_sub(located.address.0),
            })
        };
        let frames = stack.frames.iter().map(|walked| frame(walked.code));
        let frames: Vec<Option<ArgFrame<'a>>> = frames.collect();
        let unproven = frames.iter().scan(UnprovenRules::NONE, |all, frame| {
            let before = *all;
            *all = all.union(
                frame
                    .as_ref()
                    .map_or(UnprovenRules::NONE, ArgFrame::unproven_rules),
            );
            Some(before)
        });
        StackArguments {
            stack,
            memory,
            unproven: unproven.collect(),
            frames,
            certain: stack.certain(),
        }
    }

    /// The function of a frame.
    #[must_use]
    pub fn frame(&self, number: usize) -> Option<&ArgFrame<'a>> {
        self.frames.get(number)?.as_ref()
    }

    /// The low `bits` of a source when the function of a frame was called.
    #[must_use]
    pub fn value(&self, frame: usize, source: ArgSource, bits: u8) -> Option<ArgValue> {
        unspool_arg_table::argument(self, frame, source, bits)
    }
}

impl unspool_arg_table::ArgStack for StackArguments<'_> {
    fn frame(&self, number: usize) -> Option<ArgFrame<'_>> {
        *self.frames.get(number)?
    }

    fn register(&self, number: usize, register: u8) -> Option<u64> {
        let registers = self.stack.frames.get(number)?.registers.as_ref()?;
        registers.get(Register(register.into()))
    }

    fn cfa(&self, number: usize) -> Option<u64> {
        Some(self.stack.frames.get(number)?.cfa?.0)
    }

    fn is_certain(&self, number: usize) -> bool {
        number < self.certain
    }

    fn unproven_rules(&self, number: usize) -> UnprovenRules {
        self.unproven.get(number).copied().unwrap_or_default()
    }

    fn read(&self, address: u64, bytes: u8) -> Option<u64> {
        let mut number = [0; 8];
        let wanted = number.get_mut(..usize::from(bytes))?;
        self.memory.read(RuntimeAddr(address), wanted).ok()?;
        Some(u64::from_le_bytes(number))
    }
}
