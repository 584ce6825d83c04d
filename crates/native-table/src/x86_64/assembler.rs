//! An assembler for the few instructions of the code, with jumps.

/// A general-purpose register, by encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gpr(pub(super) u8);

pub(super) const RAX: Gpr = Gpr(0);
pub(super) const RCX: Gpr = Gpr(1);
pub(super) const RDX: Gpr = Gpr(2);
pub(super) const RBX: Gpr = Gpr(3);
pub(super) const RSP: Gpr = Gpr(4);
pub(super) const RBP: Gpr = Gpr(5);
pub(super) const RSI: Gpr = Gpr(6);
pub(super) const RDI: Gpr = Gpr(7);
pub(super) const R8: Gpr = Gpr(8);
pub(super) const R9: Gpr = Gpr(9);
pub(super) const R10: Gpr = Gpr(10);
pub(super) const R12: Gpr = Gpr(12);
pub(super) const R13: Gpr = Gpr(13);
pub(super) const R14: Gpr = Gpr(14);
pub(super) const R15: Gpr = Gpr(15);

/// Operations on two operands, by the opcode of their form "register or memory, register".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alu {
    Add = 0x01,
    Or = 0x09,
    And = 0x21,
    Sub = 0x29,
    Xor = 0x31,
    Cmp = 0x39,
    Test = 0x85,
}

/// Conditions, by encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionCode {
    Below = 2,
    AboveOrEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowOrEqual = 6,
    Above = 7,
    Less = 12,
    GreaterOrEqual = 13,
    LessOrEqual = 14,
    Greater = 15,
}

/// A position in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Label(u32);

/// Arrays that the code reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexArray {
    Pages,
    Buckets,
    Starts,
    Rows,
    Wide,
    Bodies,
}

/// An instruction with a distance, and its target.
#[derive(Debug, Clone, Copy)]
enum FixupKind {
    Jump(Label),
    JumpIf(ConditionCode, Label),
    /// Always with a 4-byte distance.
    Call(Label),
    /// Only the 4-byte distance, to data.
    Distance(IndexArray),
}

/// A distance that is only known once all code is.
#[derive(Debug, Clone, Copy)]
struct Fixup {
    /// Its offset in `bytes`.
    at: usize,
    kind: FixupKind,
    is_long: bool,
}

impl Fixup {
    fn len(&self) -> usize {
        match (self.kind, self.is_long) {
            (FixupKind::Jump(_) | FixupKind::JumpIf(..), false) => 2,
            (FixupKind::Jump(_) | FixupKind::Call(_), _) => 5,
            (FixupKind::JumpIf(..), true) => 6,
            (FixupKind::Distance(_), _) => 4,
        }
    }
}

/// Code with unresolved jumps.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    bytes: Vec<u8>,
    fixups: Vec<Fixup>,
    /// Position of each label: in `bytes`, and the number of gaps before it.
    labels: Vec<Option<(usize, usize)>>,
}

/// The finished code.
#[derive(Debug, Clone)]
pub(crate) struct AssembledCode {
    pub(crate) bytes: Vec<u8>,
    /// Offsets of the 4-byte distances to data, with their arrays.
    pub(crate) distances: Vec<(usize, IndexArray)>,
    labels: Vec<usize>,
}

impl AssembledCode {
    pub(super) fn place(&self, label: Label) -> u32 {
        let place = self.labels.get(label.0 as usize).copied().unwrap_or(0);
        u32::try_from(place).unwrap_or(u32::MAX)
    }
}

impl Assembler {
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(u32::try_from(self.labels.len() - 1).unwrap_or(u32::MAX))
    }

    /// Binds a label to this position.
    pub(super) fn bind(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0 as usize) {
            *place = Some((self.bytes.len(), self.fixups.len()));
        }
    }

    pub(super) fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    pub(super) fn emit(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    fn gap(&mut self, kind: FixupKind) {
        self.fixups.push(Fixup {
            at: self.bytes.len(),
            kind,
            is_long: matches!(kind, FixupKind::Call(_) | FixupKind::Distance(_)),
        });
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.gap(FixupKind::Jump(to));
    }

    pub(super) fn jump_if(&mut self, condition: ConditionCode, to: Label) {
        self.gap(FixupKind::JumpIf(condition, to));
    }

    pub(super) fn call(&mut self, to: Label) {
        self.gap(FixupKind::Call(to));
    }

    /// `lea array(%rip), to`
    pub(super) fn lea_array(&mut self, to: Gpr, array: IndexArray) {
        self.emit(&[rex(true, to.0, 0, 0), 0x8d, (to.0 & 7) << 3 | 5]);
        self.gap(FixupKind::Distance(array));
    }

    /// An instruction with a register and memory at a base register plus a displacement.
    fn memory(&mut self, is_wide: bool, opcode: &[u8], register: u8, base: Gpr, offset: i32) {
        let prefix = rex(is_wide, register, 0, base.0);
        if prefix != 0x40 {
            self.emit(&[prefix]);
        }
        self.emit(opcode);
        let short = i8::try_from(offset);
        let mode = match short {
            Ok(0) if base.0 & 7 != 5 => 0,
            Ok(_) => 0x40,
            Err(_) => 0x80,
        };
        self.emit(&[mode | (register & 7) << 3 | base.0 & 7]);
        if base.0 & 7 == 4 {
            self.emit(&[0x24]);
        }
        match (mode, short) {
            (0, _) => {}
            (_, Ok(short)) => self.emit(&short.to_le_bytes()),
            (_, Err(_)) => self.emit(&offset.to_le_bytes()),
        }
    }

    /// An instruction with two registers.
    fn registers(&mut self, is_wide: bool, opcode: &[u8], register: u8, other: Gpr) {
        let prefix = rex(is_wide, register, 0, other.0);
        if prefix != 0x40 {
            self.emit(&[prefix]);
        }
        self.emit(opcode);
        self.emit(&[0xc0 | (register & 7) << 3 | other.0 & 7]);
    }

    pub(super) fn load(&mut self, to: Gpr, base: Gpr, offset: i32) {
        self.memory(true, &[0x8b], to.0, base, offset);
    }

    pub(super) fn store(&mut self, base: Gpr, offset: i32, from: Gpr) {
        self.memory(true, &[0x89], from.0, base, offset);
    }

    pub(super) fn lea(&mut self, to: Gpr, base: Gpr, offset: i32) {
        self.memory(true, &[0x8d], to.0, base, offset);
    }

    pub(super) fn add_memory(&mut self, to: Gpr, base: Gpr, offset: i32) {
        self.memory(true, &[0x03], to.0, base, offset);
    }

    pub(super) fn cmp_memory(&mut self, register: Gpr, base: Gpr, offset: i32) {
        self.memory(true, &[0x3b], register.0, base, offset);
    }

    /// Calls the function at the address in a register.
    pub(super) fn call_register(&mut self, register: Gpr) {
        self.registers(false, &[0xff], 2, register);
    }

    pub(super) fn jump_register(&mut self, register: Gpr) {
        self.registers(false, &[0xff], 4, register);
    }

    pub(super) fn copy(&mut self, to: Gpr, from: Gpr) {
        self.registers(true, &[0x89], from.0, to);
    }

    pub(super) fn alu(&mut self, operation: Alu, to: Gpr, from: Gpr) {
        self.registers(true, &[operation as u8], from.0, to);
    }

    /// With an immediate as second operand; not for [`Alu::Test`].
    pub(super) fn alu_number(&mut self, operation: Alu, to: Gpr, number: i32) {
        let digit = operation as u8 >> 3;
        match i8::try_from(number) {
            Ok(short) => {
                self.registers(true, &[0x83], digit, to);
                self.emit(&short.to_le_bytes());
            }
            Err(_) => {
                self.registers(true, &[0x81], digit, to);
                self.emit(&number.to_le_bytes());
            }
        }
    }

    /// Shifts by an immediate: digit 4 to the left, 5 to the right, 7 with the sign.
    pub(super) fn shift(&mut self, digit: u8, register: Gpr, bits: u8) {
        self.registers(true, &[0xc1], digit, register);
        self.emit(&[bits]);
    }

    /// The same, by `cl`.
    pub(super) fn shift_by_cl(&mut self, digit: u8, register: Gpr) {
        self.registers(true, &[0xd3], digit, register);
    }

    /// One operand: digit 2 not, 3 neg, 6 div, 7 idiv.
    pub(super) fn unary(&mut self, digit: u8, register: Gpr) {
        self.registers(true, &[0xf7], digit, register);
    }

    /// `imul from, to`
    pub(super) fn multiply(&mut self, to: Gpr, from: Gpr) {
        self.registers(true, &[0x0f, 0xaf], to.0, from);
    }

    /// Tests, sets or clears a bit: digit 4, 5, 6.
    pub(super) fn bit(&mut self, digit: u8, register: Gpr, bit: u8) {
        self.registers(false, &[0x0f, 0xba], digit, register);
        self.emit(&[bit]);
    }

    pub(super) fn push(&mut self, register: Gpr) {
        if register.0 > 7 {
            self.emit(&[0x41]);
        }
        self.emit(&[0x50 | register.0 & 7]);
    }

    pub(super) fn pop(&mut self, register: Gpr) {
        if register.0 > 7 {
            self.emit(&[0x41]);
        }
        self.emit(&[0x58 | register.0 & 7]);
    }

    /// Loads a number into a register, by the shortest instruction.
    pub(super) fn number(&mut self, to: Gpr, number: u64) {
        if let Ok(number) = u32::try_from(number) {
            if to.0 > 7 {
                self.emit(&[0x41]);
            }
            self.emit(&[0xb8 | to.0 & 7]);
            self.emit(&number.to_le_bytes());
        } else if let Ok(number) = i32::try_from(number.cast_signed()) {
            self.registers(true, &[0xc7], 0, to);
            self.emit(&number.to_le_bytes());
        } else {
            self.emit(&[rex(true, 0, 0, to.0), 0xb8 | to.0 & 7]);
            self.emit(&number.to_le_bytes());
        }
    }

    /// Sets `rax` to 1 if the condition holds, else to 0.
    pub(super) fn set_if(&mut self, condition: ConditionCode) {
        self.emit(&[0x0f, 0x90 | condition as u8, 0xc0, 0x0f, 0xb6, 0xc0]);
    }

    /// Resolves the jumps, each as short as possible.
    pub(super) fn assemble(mut self) -> AssembledCode {
        let mut before = self.gap_bytes();
        loop {
            let mut changed = false;
            for index in 0..self.fixups.len() {
                let distance = self.distance(&before, index);
                if let Some(gap) = self.fixups.get_mut(index)
                    && !gap.is_long
                    && distance.is_none_or(|distance| i8::try_from(distance).is_err())
                {
                    gap.is_long = true;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
            before = self.gap_bytes();
        }
        self.written(&before)
    }

    /// Total size of the gaps before each gap, and of all, in bytes.
    fn gap_bytes(&self) -> Vec<usize> {
        let mut sum = 0;
        let mut before = Vec::with_capacity(self.fixups.len() + 1);
        for gap in &self.fixups {
            before.push(sum);
            sum += gap.len();
        }
        before.push(sum);
        before
    }

    fn place(&self, before: &[usize], label: Label) -> Option<usize> {
        let (at, gaps) = (*self.labels.get(label.0 as usize)?)?;
        Some(at + before.get(gaps)?)
    }

    /// Distance from a gap's end to its target; `None` for data.
    fn distance(&self, before: &[usize], index: usize) -> Option<i32> {
        let gap = self.fixups.get(index)?;
        let (FixupKind::Jump(label) | FixupKind::JumpIf(_, label) | FixupKind::Call(label)) =
            gap.kind
        else {
            return None;
        };
        let end = gap.at + before.get(index)? + gap.len();
        let place = i64::try_from(self.place(before, label)?).ok()?;
        i32::try_from(place - i64::try_from(end).ok()?).ok()
    }

    fn written(&self, before: &[usize]) -> AssembledCode {
        let mut assembled = AssembledCode {
            bytes: Vec::with_capacity(self.bytes.len()),
            distances: Vec::new(),
            labels: Vec::new(),
        };
        let mut done = 0;
        for (index, gap) in self.fixups.iter().enumerate() {
            let straight = self.bytes.get(done..gap.at).unwrap_or_default();
            assembled.bytes.extend(straight);
            done = gap.at;
            let distance = self.distance(before, index).unwrap_or(0);
            let [short, ..] = distance.to_le_bytes();
            match (gap.kind, gap.is_long) {
                (FixupKind::Jump(_), false) => assembled.bytes.extend([0xeb, short]),
                (FixupKind::JumpIf(condition, _), false) => {
                    assembled.bytes.extend([0x70 | condition as u8, short]);
                }
                (FixupKind::Jump(_), true) => assembled.bytes.push(0xe9),
                (FixupKind::JumpIf(condition, _), true) => {
                    assembled.bytes.extend([0x0f, 0x80 | condition as u8]);
                }
                (FixupKind::Call(_), _) => assembled.bytes.push(0xe8),
                (FixupKind::Distance(array), _) => {
                    assembled.distances.push((assembled.bytes.len(), array));
                }
            }
            if gap.is_long {
                assembled.bytes.extend(distance.to_le_bytes());
            }
        }
        let rest = self.bytes.get(done..).unwrap_or_default();
        assembled.bytes.extend(rest);
        let labels = (0..self.labels.len()).map(|n| Label(u32::try_from(n).unwrap_or(u32::MAX)));
        assembled.labels = labels
            .map(|label| self.place(before, label).unwrap_or(0))
            .collect();
        assembled
    }
}

/// The prefix for wide operands and extended registers.
fn rex(is_wide: bool, register: u8, index: u8, base: u8) -> u8 {
    0x40 | u8::from(is_wide) << 3 | (register >> 3) << 2 | (index >> 3) << 1 | base >> 3
}
