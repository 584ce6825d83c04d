//! Machine code for x86-64, by the System V psABI.
//!
//! `unspool_step` finds the row of its address ([`crate::index`]) and jumps to the row's body. A
//! body sets `al` or `rax` to a distance and calls a *stub*: once for the CFA and once for each
//! saved register. Then it jumps to the end. Bodies share everything after the CFA: a body that
//! restores one more register does that first, and continues as the body that restores one fewer.
//! All other rows have bodies of their own.
//!
//! | register | holds |
//! |---|---|
//! | rbx | the frame |
//! | r12 | the CFA |
//! | r13 | which registers of the caller are known |
//! | r14, r15 | the first and the last address from which 8 bytes of the stack can be read |
//! | rbp | the frame pointer: after the prologue, the code's own CFA is always rbp+16 |

use std::collections::{BTreeMap, HashMap};

use unspool_rows::{Abi, Row};

use crate::index::{self, ArrayCounts, IndexArrays};
use crate::outline::Outline;
use crate::recipe::{CallerRecipe, Recipe, ReturnAddress, ValueSource};
use crate::status::StepStatus;

mod assembler;
mod expressions;

use assembler::{
    Alu, Assembler, ConditionCode, Label, R8, R9, R10, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI,
    RDX, RSI, RSP,
};
pub(crate) use assembler::{AssembledCode, IndexArray};

/// Offsets in `struct unspool_frame`.
pub(crate) const KNOWN: i32 = 136;
pub(crate) const CFA: i32 = 144;
/// In `struct unspool_memory`.
const STACK: i32 = 0;
const STACK_END: i32 = 8;
const READ: i32 = 16;
const ARGUMENT: i32 = 24;

/// From `rbp`: the saved arguments, and the original frame.
pub(crate) const BIAS: i32 = -48;
pub(crate) const MEMORY: i32 = -56;
pub(crate) const OLD: i32 = -208;

/// Words of the original frame: the registers, and which of them are known.
const OLD_WORDS: u64 = 18;

/// The return address, by number in a frame.
const PC: u8 = 16;
const SP: u8 = 7;

/// Offset of a register in `struct unspool_frame`.
fn slot(register: u8) -> i32 {
    8 * i32::from(register)
}

/// A shared routine.
#[derive(Debug, Clone, Copy)]
struct RoutineLabels {
    /// Entry with a distance in `rax`.
    wide: Label,
    /// Entry with 8-byte words in `al`.
    words: Label,
}

/// Registers still to be restored, with their offsets from the CFA; the last one first.
type RestoreList = Vec<(u8, i64)>;

/// A row of the usual kind: the return address is below the CFA, and other preserved registers are
/// saved or unchanged.
struct CommonRow {
    /// The register that the CFA is relative to, and the offset.
    base: u8,
    offset: i64,
    restore_list: RestoreList,
}

/// Labels that all bodies use.
struct SharedLabels {
    /// Returns `eax`.
    leave: Label,
    /// Returns the caller, with the known registers.
    caller: Label,
    interrupted: Label,
    no_row: Label,
    unknown: Label,
    unreadable: Label,
    no_value: Label,
    /// Loads 8 bytes at `rax`; carry if unreadable.
    load: Label,
    /// The same for `edx` bytes.
    load_size: Label,
    /// Loads through the callback only.
    ask: Label,
    /// Saves the original frame.
    keep_old: Label,
}

/// Generates the code for the rows of an outline.
pub(crate) struct CodeBuilder {
    asm: Assembler,
    abi: Abi,
    shared: SharedLabels,
    /// By the register that the CFA is relative to.
    cfa: BTreeMap<u8, RoutineLabels>,
    /// By the restored register.
    restore: BTreeMap<u8, RoutineLabels>,
    /// By the registers still to be restored, with their offsets.
    rests: HashMap<RestoreList, Label>,
    preserved: u32,
}

/// The code, and the begin of each row's body in it.
pub(crate) struct GeneratedCode {
    pub(crate) code: AssembledCode,
    pub(crate) bodies: Vec<u32>,
    pub(crate) frame: CodeFrame,
}

/// The code up to the first body: the look-up of a row, and the ends.
pub(crate) struct LookupCode {
    pub(crate) code: AssembledCode,
    pub(crate) frame: CodeFrame,
}

/// Where the code's own frame changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeFrame {
    pub(crate) prologue: Prologue<u32>,
    pub(crate) epilogue: Epilogue<u32>,
}

/// Positions in the prologue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prologue<P> {
    /// The frame pointer is pushed.
    pub(crate) pushed: P,
    /// The frame pointer is set.
    pub(crate) pointed: P,
    /// All saves are done.
    pub(crate) saved: P,
}

/// Positions in the epilogue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epilogue<P> {
    /// The frame pointer is restored.
    pub(crate) popped: P,
    /// Behind the return.
    pub(crate) end: P,
}

/// Generates the code for an outline and its index.
pub(crate) fn build(outline: &Outline<'_>, index: &IndexArrays) -> GeneratedCode {
    let mut builder = CodeBuilder::new(outline.abi());
    let frame = builder.look_up(index.base, &index.counts(0));
    let mut bodies = vec![builder.shared.no_row];
    for row in outline.rows() {
        bodies.push(builder.body(&row));
    }
    builder.loads();
    builder.stubs();
    let code = builder.asm.assemble();
    GeneratedCode {
        bodies: bodies.into_iter().map(|label| code.place(label)).collect(),
        frame: frame.offsets_in(&code),
        code,
    }
}

/// Generates the begin of the code for an index.
pub(crate) fn look_up(abi: Abi, base: u64, counts: &ArrayCounts) -> LookupCode {
    let mut builder = CodeBuilder::new(abi);
    let frame = builder.look_up(base, counts);
    let code = builder.asm.assemble();
    LookupCode {
        frame: frame.offsets_in(&code),
        code,
    }
}

/// The prologue and the epilogue, before their positions are known.
struct OwnLabels {
    prologue: Prologue<Label>,
    epilogue: Epilogue<Label>,
}

impl OwnLabels {
    fn offsets_in(&self, code: &AssembledCode) -> CodeFrame {
        let place = |label| code.place(label);
        CodeFrame {
            prologue: Prologue {
                pushed: place(self.prologue.pushed),
                pointed: place(self.prologue.pointed),
                saved: place(self.prologue.saved),
            },
            epilogue: Epilogue {
                popped: place(self.epilogue.popped),
                end: place(self.epilogue.end),
            },
        }
    }
}

impl CodeBuilder {
    fn new(abi: Abi) -> CodeBuilder {
        let mut asm = Assembler::default();
        let shared = SharedLabels {
            leave: asm.label(),
            caller: asm.label(),
            interrupted: asm.label(),
            no_row: asm.label(),
            unknown: asm.label(),
            unreadable: asm.label(),
            no_value: asm.label(),
            load: asm.label(),
            load_size: asm.label(),
            ask: asm.label(),
            keep_old: asm.label(),
        };
        let preserved = abi.arch.spec().preserved.iter();
        CodeBuilder {
            asm,
            abi,
            shared,
            cfa: BTreeMap::new(),
            restore: BTreeMap::new(),
            rests: HashMap::new(),
            preserved: preserved.fold(0, |all, register| all | 1 << register),
        }
    }

    fn look_up(&mut self, base: u64, counts: &ArrayCounts) -> OwnLabels {
        let prologue = self.enter();
        self.find_row(base, counts);
        let epilogue = self.ends();
        OwnLabels { prologue, epilogue }
    }

    fn enter(&mut self) -> Prologue<Label> {
        let asm = &mut self.asm;
        asm.push(RBP);
        let pushed = asm.here();
        asm.copy(RBP, RSP);
        let pointed = asm.here();
        for register in [RBX, R12, R13, R14, R15, RDX, RCX] {
            asm.push(register);
        }
        let saved = asm.here();
        asm.alu_number(Alu::Sub, RSP, MEMORY - OLD);
        asm.copy(RBX, RDI);
        asm.load(R14, RCX, STACK);
        asm.load(R15, RCX, STACK_END);
        let enough = asm.label();
        asm.alu_number(Alu::Sub, R15, 8);
        asm.jump_if(ConditionCode::AboveOrEqual, enough);
        // No 8 bytes fit: no address is at or above the first and at or below the last.
        asm.alu(Alu::Xor, R15, R15);
        asm.alu_number(Alu::Or, R14, -1);
        asm.bind(enough);
        Prologue {
            pushed,
            pointed,
            saved,
        }
    }

    /// Finds the row of the address in `rsi`, and jumps to its body.
    fn find_row(&mut self, base: u64, counts: &ArrayCounts) {
        let no_row = self.shared.no_row;
        let asm = &mut self.asm;
        asm.number(RAX, base);
        asm.alu(Alu::Sub, RSI, RAX);
        asm.copy(RAX, RSI);
        asm.copy(RCX, RSI);
        asm.shift(5, RCX, 16);
        let pages = i32::try_from(counts.pages).unwrap_or(0);
        asm.alu_number(Alu::Cmp, RCX, pages);
        asm.jump_if(ConditionCode::AboveOrEqual, no_row);
        asm.lea_array(RDX, IndexArray::Pages);
        // mov (%rdx,%rcx,4), %r8d
        asm.emit(&[0x44, 0x8b, 0x04, 0x8a]);
        let stride = i32::try_from(index::BUCKETS * 2).unwrap_or(0);
        // imul $stride, %ecx, %ecx
        asm.emit(&[0x69, 0xc9]);
        asm.emit(&stride.to_le_bytes());
        asm.lea_array(RDX, IndexArray::Buckets);
        asm.alu(Alu::Add, RCX, RDX);
        // movzbl %ah, %edx; movzwl (%rcx,%rdx,2), %r9d; movzwl 2(%rcx,%rdx,2), %ecx
        asm.emit(&[0x0f, 0xb6, 0xd4]);
        asm.emit(&[0x44, 0x0f, 0xb7, 0x0c, 0x51]);
        asm.emit(&[0x0f, 0xb7, 0x4c, 0x51, 0x02]);
        // sub %r9d, %ecx; movzwl %cx, %ecx
        asm.emit(&[0x44, 0x29, 0xc9, 0x0f, 0xb7, 0xc9]);
        asm.alu(Alu::Add, R8, R9);
        asm.lea_array(RDX, IndexArray::Starts);
        asm.alu(Alu::Add, RDX, R8);
        // The low byte, 16 times: movzbl %al, %eax; imul $0x01010101, %eax, %eax; movd %eax, %xmm0;
        // pshufd $0, %xmm0, %xmm0
        asm.emit(&[0x0f, 0xb6, 0xc0]);
        asm.emit(&[0x69, 0xc0, 0x01, 0x01, 0x01, 0x01]);
        asm.emit(&[0x66, 0x0f, 0x6e, 0xc0]);
        asm.emit(&[0x66, 0x0f, 0x70, 0xc0, 0x00]);
        let (again, few, found) = (asm.here(), asm.label(), asm.label());
        // Those that are not above it: movdqu (%rdx), %xmm1; movdqa %xmm1, %xmm2; pminub %xmm0,
        // %xmm2; pcmpeqb %xmm1, %xmm2; pmovmskb %xmm2, %eax
        asm.emit(&[0xf3, 0x0f, 0x6f, 0x0a]);
        asm.emit(&[0x66, 0x0f, 0x6f, 0xd1]);
        asm.emit(&[0x66, 0x0f, 0xda, 0xd0]);
        asm.emit(&[0x66, 0x0f, 0x74, 0xd1]);
        asm.emit(&[0x66, 0x0f, 0xd7, 0xc2]);
        // Number of the first ones: xor $0x1ffff, %eax; bsf %eax, %eax
        asm.emit(&[0x35, 0xff, 0xff, 0x01, 0x00]);
        asm.emit(&[0x0f, 0xbc, 0xc0]);
        // At most the number that there are.
        asm.alu(Alu::Cmp, RAX, RCX);
        asm.jump_if(ConditionCode::AboveOrEqual, few);
        asm.alu(Alu::Add, R8, RAX);
        asm.alu_number(Alu::Cmp, RAX, 16);
        asm.jump_if(ConditionCode::NotEqual, found);
        asm.alu_number(Alu::Sub, RCX, 16);
        asm.alu_number(Alu::Add, RDX, 16);
        asm.jump(again);
        asm.bind(few);
        asm.alu(Alu::Add, R8, RCX);
        asm.bind(found);
        asm.alu_number(Alu::Sub, R8, 1);
        asm.jump_if(ConditionCode::Below, no_row);
        asm.lea_array(RDX, IndexArray::Rows);
        // movzbl (%rdx,%r8), %eax
        asm.emit(&[0x42, 0x0f, 0xb6, 0x04, 0x02]);
        if counts.wide != 0 {
            self.find_wide(counts.wide);
        }
        let asm = &mut self.asm;
        asm.lea_array(RDX, IndexArray::Bodies);
        // movslq (%rdx,%rax,4), %rax
        asm.emit(&[0x48, 0x63, 0x04, 0x82]);
        asm.alu(Alu::Add, RAX, RDX);
        asm.jump_register(RAX);
    }

    /// If `eax` is [`index::WIDE`], looks the number up in `wide`, by binary search.
    fn find_wide(&mut self, count: usize) {
        let asm = &mut self.asm;
        let (narrow, halve, below, end) = (asm.label(), asm.label(), asm.label(), asm.label());
        asm.alu_number(Alu::Cmp, RAX, i32::from(index::WIDE));
        asm.jump_if(ConditionCode::NotEqual, narrow);
        asm.lea_array(RDX, IndexArray::Wide);
        asm.number(RCX, 0);
        asm.number(R9, count as u64);
        asm.bind(halve);
        asm.alu(Alu::Cmp, RCX, R9);
        asm.jump_if(ConditionCode::AboveOrEqual, end);
        // lea (%rcx,%r9), %rsi
        asm.emit(&[0x4a, 0x8d, 0x34, 0x09]);
        asm.shift(5, RSI, 1);
        // lea (%rsi,%rsi,2), %r10; cmp (%rdx,%r10,2), %r8d
        asm.emit(&[0x4c, 0x8d, 0x14, 0x76]);
        asm.emit(&[0x46, 0x3b, 0x04, 0x52]);
        asm.jump_if(ConditionCode::BelowOrEqual, below);
        asm.lea(RCX, RSI, 1);
        asm.jump(halve);
        asm.bind(below);
        asm.copy(R9, RSI);
        asm.jump(halve);
        asm.bind(end);
        // lea (%rcx,%rcx,2), %rcx; movzwl 4(%rdx,%rcx,2), %eax
        asm.emit(&[0x48, 0x8d, 0x0c, 0x49]);
        asm.emit(&[0x0f, 0xb7, 0x44, 0x4a, 0x04]);
        asm.bind(narrow);
    }

    /// The ends.
    fn ends(&mut self) -> Epilogue<Label> {
        let shared = &self.shared;
        let asm = &mut self.asm;
        for (label, status) in [
            (shared.unknown, StepStatus::UnknownRegister),
            (shared.unreadable, StepStatus::Unreadable),
            (shared.no_value, StepStatus::NoValue),
            (shared.no_row, StepStatus::NoRow),
        ] {
            asm.bind(label);
            fails(asm, shared, status);
        }
        asm.bind(shared.interrupted);
        asm.store(RBX, KNOWN, R13);
        asm.number(RAX, 1);
        asm.jump(shared.leave);
        asm.bind(shared.caller);
        asm.store(RBX, KNOWN, R13);
        asm.number(RAX, 0);
        asm.bind(shared.leave);
        asm.lea(RSP, RBP, BIAS + 8);
        for register in [R15, R14, R13, R12, RBX, RBP] {
            asm.pop(register);
        }
        let popped = asm.here();
        asm.emit(&[0xc3]);
        let end = asm.here();
        Epilogue { popped, end }
    }

    /// A row's body.
    fn body(&mut self, row: &Row<'_>) -> Label {
        let label = self.asm.here();
        match Recipe::from_row(row, self.abi) {
            Recipe::Fails(status) => fails(&mut self.asm, &self.shared, status),
            Recipe::Steps(steps) => match self.usual(&steps) {
                Some(usual) => {
                    let entry = self.entry(usual.base, |builder| &mut builder.cfa);
                    self.call_with(entry, usual.offset, 1);
                    self.rest(usual.restore_list);
                }
                None => self.written_out(&steps),
            },
        }
        label
    }

    /// The row in its usual form, if it has that.
    fn usual(&self, recipe: &CallerRecipe) -> Option<CommonRow> {
        let ValueSource::Register(base, offset) = recipe.cfa else {
            return None;
        };
        if recipe.return_address != ReturnAddress::Source(ValueSource::AtCfa(-8))
            || recipe.is_interrupted
        {
            return None;
        }
        let mut restore_list = Vec::new();
        let mut is_sp_cfa = false;
        for (register, source) in &recipe.set {
            match source {
                ValueSource::Cfa(0) if *register == SP => is_sp_cfa = true,
                ValueSource::AtCfa(offset) => restore_list.push((*register, *offset)),
                _ => return None,
            }
        }
        let restored = restore_list
            .iter()
            .fold(0, |all, (register, _)| all | 1 << register);
        // The first save is restored last.
        restore_list.sort_by_key(|(register, offset)| (core::cmp::Reverse(*offset), *register));
        let is_usual = is_sp_cfa && recipe.kept | restored & self.preserved == self.preserved;
        is_usual.then_some(CommonRow {
            base,
            offset,
            restore_list,
        })
    }

    fn entry(
        &mut self,
        register: u8,
        of: impl Fn(&mut CodeBuilder) -> &mut BTreeMap<u8, RoutineLabels>,
    ) -> RoutineLabels {
        if let Some(entry) = of(self).get(&register) {
            return *entry;
        }
        let entry = RoutineLabels {
            wide: self.asm.label(),
            words: self.asm.label(),
        };
        of(self).insert(register, entry);
        entry
    }

    /// Calls a stub with a distance: in words times `sign` if that fits, else in bytes.
    fn call_with(&mut self, labels: RoutineLabels, distance: i64, sign: i64) {
        let words = distance.checked_mul(sign).filter(|bytes| bytes % 8 == 0);
        match words.and_then(|bytes| u8::try_from(bytes / 8).ok()) {
            Some(words) => {
                // mov $words, %al
                self.asm.emit(&[0xb0, words]);
                self.asm.call(labels.words);
            }
            None => {
                self.asm.number(RAX, distance.cast_unsigned());
                self.asm.call(labels.wide);
            }
        }
    }

    /// Continues by restoring these, the last first.
    fn rest(&mut self, mut restore_list: RestoreList) {
        loop {
            if restore_list.is_empty() {
                return self.asm.jump(self.shared.caller);
            }
            if let Some(label) = self.rests.get(&restore_list) {
                return self.asm.jump(*label);
            }
            let label = self.asm.here();
            self.rests.insert(restore_list.clone(), label);
            let Some((register, offset)) = restore_list.pop() else {
                return;
            };
            let entry = self.entry(register, |builder| &mut builder.restore);
            self.call_with(entry, offset, -1);
        }
    }

    /// A body of its own that shares nothing.
    fn written_out(&mut self, recipe: &CallerRecipe) {
        self.asm.call(self.shared.keep_old);
        self.value(&recipe.cfa, None, false);
        self.asm.copy(R12, RAX);
        let return_address = match &recipe.return_address {
            ReturnAddress::Source(source) => source,
            ReturnAddress::Undefined => {
                self.asm.store(RBX, CFA, R12);
                return fails(&mut self.asm, &self.shared, StepStatus::Outermost);
            }
            ReturnAddress::Missing(status) => return fails(&mut self.asm, &self.shared, *status),
        };
        self.value(return_address, None, true);
        self.asm.store(RBX, slot(PC), RAX);
        self.asm.store(RBX, CFA, R12);
        self.asm.load(R13, RBP, OLD + KNOWN);
        self.asm.number(RAX, recipe.kept.into());
        self.asm.alu(Alu::And, R13, RAX);
        self.asm.bit(5, R13, PC);
        for (register, source) in &recipe.set {
            let lost = self.asm.label();
            self.value(source, Some(lost), true);
            self.asm.store(RBX, slot(*register), RAX);
            self.asm.bit(5, R13, *register);
            self.asm.bind(lost);
        }
        let end = if recipe.is_interrupted {
            self.shared.interrupted
        } else {
            self.shared.caller
        };
        self.asm.jump(end);
    }

    /// Sets `rax` to a value of the original frame. If there is none, jumps to `lost`, or gives up
    /// the step.
    fn value(&mut self, source: &ValueSource, lost: Option<Label>, has_cfa: bool) {
        match source {
            ValueSource::Cfa(offset) => {
                self.asm.number(RAX, offset.cast_unsigned());
                self.asm.alu(Alu::Add, RAX, R12);
            }
            ValueSource::AtCfa(offset) => {
                self.asm.number(RAX, offset.cast_unsigned());
                self.asm.alu(Alu::Add, RAX, R12);
                self.asm.call(self.shared.load);
                let unreadable = lost.unwrap_or(self.shared.unreadable);
                self.asm.jump_if(ConditionCode::Below, unreadable);
            }
            ValueSource::Register(register, offset) => {
                let unknown = lost.unwrap_or(self.shared.unknown);
                self.old(*register, unknown);
                if *offset != 0 {
                    self.asm.number(RCX, offset.cast_unsigned());
                    self.asm.alu(Alu::Add, RAX, RCX);
                }
            }
            ValueSource::Value(straight) => self.expression(straight, lost, has_cfa, false),
            ValueSource::Memory(straight) => self.expression(straight, lost, has_cfa, true),
        }
    }

    /// Sets `rax` to a register's original value; jumps elsewhere if that is unknown.
    fn old(&mut self, register: u8, unknown: Label) {
        self.asm.load(RAX, RBP, OLD + KNOWN);
        self.asm.bit(4, RAX, register);
        self.asm.jump_if(ConditionCode::AboveOrEqual, unknown);
        self.asm.load(RAX, RBP, OLD + slot(register));
    }

    /// The routines that read memory.
    fn loads(&mut self) {
        let shared = &self.shared;
        let asm = &mut self.asm;
        asm.bind(shared.keep_old);
        asm.copy(RSI, RBX);
        asm.lea(RDI, RBP, OLD);
        asm.number(RCX, OLD_WORDS);
        // rep movsq; ret
        asm.emit(&[0xf3, 0x48, 0xa5, 0xc3]);

        asm.bind(shared.load);
        load_near(asm, shared.ask);
        // clc; ret
        asm.emit(&[0xf8, 0xc3]);

        asm.bind(shared.ask);
        asm.number(RDX, 8);
        let asking = asm.label();
        asm.jump(asking);

        // For `edx` bytes: 1, 2 or 4.
        asm.bind(shared.load_size);
        asm.load(RCX, RBP, MEMORY);
        asm.cmp_memory(RAX, RCX, STACK);
        asm.jump_if(ConditionCode::Below, asking);
        asm.load(RCX, RCX, STACK_END);
        asm.alu(Alu::Sub, RCX, RAX);
        asm.jump_if(ConditionCode::Below, asking);
        asm.alu(Alu::Cmp, RCX, RDX);
        asm.jump_if(ConditionCode::Below, asking);
        let (two, four) = (asm.label(), asm.label());
        asm.alu_number(Alu::Cmp, RDX, 2);
        asm.jump_if(ConditionCode::Equal, two);
        asm.jump_if(ConditionCode::Above, four);
        // movzbl (%rax), %eax; clc; ret
        asm.emit(&[0x0f, 0xb6, 0x00, 0xf8, 0xc3]);
        asm.bind(two);
        // movzwl (%rax), %eax; clc; ret
        asm.emit(&[0x0f, 0xb7, 0x00, 0xf8, 0xc3]);
        asm.bind(four);
        // mov (%rax), %eax; clc; ret
        asm.emit(&[0x8b, 0x00, 0xf8, 0xc3]);

        asm.bind(asking);
        let no = asm.label();
        asm.load(R10, RBP, MEMORY);
        asm.load(R8, R10, READ);
        asm.alu(Alu::Test, R8, R8);
        asm.jump_if(ConditionCode::Equal, no);
        asm.copy(R9, RSP);
        asm.alu_number(Alu::And, RSP, -16);
        asm.push(R9);
        asm.push(R9);
        asm.load(RDI, R10, ARGUMENT);
        asm.copy(RSI, RAX);
        asm.copy(RCX, RSP);
        asm.call_register(R8);
        asm.pop(RCX);
        asm.pop(RSP);
        // test %eax, %eax, which clears carry
        asm.emit(&[0x85, 0xc0]);
        asm.jump_if(ConditionCode::NotEqual, no);
        asm.copy(RAX, RCX);
        asm.emit(&[0xc3]);
        asm.bind(no);
        // stc; ret
        asm.emit(&[0xf9, 0xc3]);
    }

    fn stubs(&mut self) {
        for (register, entry) in core::mem::take(&mut self.cfa) {
            self.cfa_stub(register, entry);
        }
        for (register, entry) in core::mem::take(&mut self.restore) {
            self.restore_stub(register, entry);
        }
    }

    /// The CFA is a register plus a distance; the return address is below it.
    fn cfa_stub(&mut self, register: u8, labels: RoutineLabels) {
        let shared = &self.shared;
        let asm = &mut self.asm;
        asm.bind(labels.words);
        // movzbl %al, %eax
        asm.emit(&[0x0f, 0xb6, 0xc0]);
        asm.shift(4, RAX, 3);
        asm.bind(labels.wide);
        asm.load(R13, RBX, KNOWN);
        asm.bit(4, R13, register);
        asm.jump_if(ConditionCode::AboveOrEqual, shared.unknown);
        asm.add_memory(RAX, RBX, slot(register));
        asm.copy(R12, RAX);
        asm.alu_number(Alu::Sub, RAX, 8);
        let (ask, read) = (asm.label(), asm.label());
        load_near(asm, ask);
        asm.bind(read);
        asm.store(RBX, slot(PC), RAX);
        asm.store(RBX, slot(SP), R12);
        asm.store(RBX, CFA, R12);
        asm.alu_number(Alu::And, R13, self.preserved.cast_signed());
        asm.alu_number(Alu::Or, R13, 1 << PC | 1 << SP);
        asm.emit(&[0xc3]);
        asm.bind(ask);
        asm.call(shared.ask);
        asm.jump_if(ConditionCode::AboveOrEqual, read);
        asm.jump(shared.unreadable);
    }

    /// A register is at the CFA plus a distance, or minus one in words.
    fn restore_stub(&mut self, register: u8, labels: RoutineLabels) {
        let shared = &self.shared;
        let asm = &mut self.asm;
        asm.bind(labels.words);
        asm.emit(&[0x0f, 0xb6, 0xc0]);
        asm.shift(4, RAX, 3);
        asm.unary(3, RAX);
        asm.bind(labels.wide);
        asm.alu(Alu::Add, RAX, R12);
        let (ask, read) = (asm.label(), asm.label());
        load_near(asm, ask);
        asm.bind(read);
        asm.store(RBX, slot(register), RAX);
        asm.bit(5, R13, register);
        asm.emit(&[0xc3]);
        asm.bind(ask);
        asm.call(shared.ask);
        asm.jump_if(ConditionCode::AboveOrEqual, read);
        asm.bit(6, R13, register);
        asm.emit(&[0xc3]);
    }
}

/// Loads the 8 bytes at `rax`, if they are on the stack; else jumps elsewhere.
fn load_near(asm: &mut Assembler, elsewhere: Label) {
    asm.alu(Alu::Cmp, RAX, R14);
    asm.jump_if(ConditionCode::Below, elsewhere);
    asm.alu(Alu::Cmp, RAX, R15);
    asm.jump_if(ConditionCode::Above, elsewhere);
    asm.load(RAX, RAX, 0);
}

/// Returns a status.
fn fails(asm: &mut Assembler, shared: &SharedLabels, status: StepStatus) {
    let number = i64::from(status.number());
    // Only the low half counts.
    asm.number(RAX, number.cast_unsigned() & 0xffff_ffff);
    asm.jump(shared.leave);
}
