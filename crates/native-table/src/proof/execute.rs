//! Symbolic execution of the few instructions that bodies use, in terms (Intel SDM, volume 2).
//!
//! Any other instruction is a fault, and so is a dependence on unknown values.

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use super::ProofFault;
use super::meaning::REGISTERS;
use super::memory;
use super::state::{
    Flags, MemoryLocation, ProofContext, RAX, RCX, RDI, RDX, RSI, RSP, SymbolicState, SymbolicWord,
};
use super::terms::{InputTerm, TermId, TermOperator, Terms};

/// The successor of a state.
pub(super) enum Successor {
    Address(u64),
    /// A return behind a call.
    Back(u64),
    /// One address if a condition holds, and another if not.
    Either {
        condition: TermId,
        yes: u64,
        no: u64,
    },
    /// The code's caller.
    Returns,
}

/// A general-purpose register, and its number of bits; not the second byte.
fn gpr(register: Register) -> Option<(usize, u32)> {
    let bits = match register.size() {
        8 if register.is_gpr64() => 64,
        4 if register.is_gpr32() => 32,
        1 if register.is_gpr8() => 8,
        _ => return None,
    };
    let is_second_byte = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    let number = register.full_register().number();
    (!is_second_byte).then_some((number, bits))
}

/// Execution of an instruction in a state.
pub(super) struct Execution<'e, 'c> {
    pub(super) context: &'e mut ProofContext<'c>,
    pub(super) state: &'e mut SymbolicState,
    pub(super) instruction: &'e Instruction,
}

impl Execution<'_, '_> {
    pub(super) fn run(mut self) -> Result<Successor, ProofFault> {
        use Mnemonic::*;
        let instruction = *self.instruction;
        let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        if instruction.has_lock_prefix()
            || instruction.segment_prefix() != Register::None
            || is_repeated && instruction.mnemonic() != Movsq
        {
            return Err(ProofFault::Instruction);
        }
        match instruction.mnemonic() {
            Mov => {
                let word = self.read(1)?;
                self.write(0, word)?;
            }
            Movzx => {
                let word = self.read(1)?;
                let (_, bits) = self.width(1)?;
                let node = match word {
                    SymbolicWord::Byte(node) if bits == 8 => node,
                    _ => self.context.terms.low(word.node(), bits),
                };
                self.write(0, SymbolicWord::Value(node))?;
            }
            Lea => {
                let address = self.address()?;
                self.write(0, SymbolicWord::Value(address))?;
            }
            Push => {
                let word = self.read(0)?;
                self.state.push(self.context, word)?;
            }
            Pop => {
                let word = self.state.pop(self.context)?;
                self.write(0, word)?;
            }
            Add | Sub | And | Or | Xor | Cmp | Test => self.arithmetic(instruction.mnemonic())?,
            Neg | Not => {
                let node = self.read(0)?.node();
                let terms = &mut *self.context.terms;
                let node = match instruction.mnemonic() {
                    Neg => terms.negate(node),
                    _ => terms.invert(node),
                };
                self.is_wide(0)?;
                self.write(0, SymbolicWord::Value(node))?;
                self.state.flags = Flags::UNKNOWN;
            }
            Imul if instruction.op_count() == 2 => {
                self.is_wide(0)?;
                let (a, b) = (self.read(0)?.node(), self.read(1)?.node());
                let node = self.context.terms.apply(TermOperator::Mul, a, b);
                self.write(0, SymbolicWord::Value(node))?;
                self.state.flags = Flags::UNKNOWN;
            }
            Div | Idiv => self.divide(instruction.mnemonic())?,
            Cqo => {
                let node = self.register(RAX);
                let sign = self.sign(node);
                self.set(RDX, sign)?;
            }
            Shl | Shr | Sar => self.shift(instruction.mnemonic())?,
            Bt | Bts | Btr => self.bit(instruction.mnemonic())?,
            Clc => self.state.flags = Flags::with_carry(Terms::NO),
            Stc => self.state.flags = Flags::with_carry(Terms::YES),
            Movsq if instruction.has_rep_prefix() => self.copy()?,
            Jmp => return self.branch().map(Successor::Address),
            Call => return self.call(),
            Ret if instruction.op_count() == 0 => {
                let to = self.state.pop(self.context)?.node();
                return match self.context.terms.as_input_term(to) {
                    Some(InputTerm::Return) => Ok(Successor::Returns),
                    Some(InputTerm::Code(at)) => Ok(Successor::Back(at)),
                    _ => Err(ProofFault::Branch),
                };
            }
            _ if instruction.is_jcc_short_or_near() => {
                let condition = self.condition()?;
                return Ok(Successor::Either {
                    condition,
                    yes: self.branch()?,
                    no: instruction.next_ip(),
                });
            }
            _ if is_set(&instruction) => {
                let condition = self.condition()?;
                self.write(0, SymbolicWord::Byte(condition))?;
            }
            _ => return Err(ProofFault::Instruction),
        }
        Ok(Successor::Address(instruction.next_ip()))
    }

    fn register(&mut self, register: usize) -> TermId {
        self.state.register(self.context, register).node()
    }

    fn set(&mut self, register: usize, node: TermId) -> Result<(), ProofFault> {
        self.state
            .set(self.context, register, SymbolicWord::Value(node))
    }

    /// The register of an operand, if it is one, and its number of bits.
    fn width(&self, operand: u32) -> Result<(Option<usize>, u32), ProofFault> {
        match self.instruction.op_kind(operand) {
            OpKind::Register => {
                let register = gpr(self.instruction.op_register(operand));
                let (register, bits) = register.ok_or(ProofFault::Instruction)?;
                Ok((Some(register), bits))
            }
            OpKind::Memory => {
                let bytes = u32::try_from(self.instruction.memory_size().size());
                Ok((None, bytes.map_err(|_| ProofFault::Instruction)? * 8))
            }
            _ => Ok((None, 64)),
        }
    }

    fn is_wide(&self, operand: u32) -> Result<(), ProofFault> {
        let (_, bits) = self.width(operand)?;
        (bits == 64).then_some(()).ok_or(ProofFault::Instruction)
    }

    /// The value of an operand; 32 bits for 32-bit registers.
    fn read(&mut self, operand: u32) -> Result<SymbolicWord, ProofFault> {
        match self.instruction.op_kind(operand) {
            OpKind::Register => {
                let (register, bits) = self.width(operand)?;
                let register = register.ok_or(ProofFault::Instruction)?;
                let word = self.state.register(self.context, register);
                Ok(match (word, bits) {
                    (SymbolicWord::Value(node), 32) => {
                        SymbolicWord::Value(self.context.terms.low(node, 32))
                    }
                    (word, _) => word,
                })
            }
            OpKind::Memory => {
                let address = self.address()?;
                let (_, bits) = self.width(operand)?;
                if !matches!(bits, 8 | 16 | 32 | 64) {
                    return Err(ProofFault::Instruction);
                }
                self.state.load(self.context, address, u64::from(bits / 8))
            }
            OpKind::Immediate8to32 => {
                let number = self.instruction.immediate8to32().cast_unsigned();
                Ok(SymbolicWord::Value(
                    self.context.terms.number(u64::from(number)),
                ))
            }
            kind if is_immediate(kind) => {
                let number = self.instruction.immediate(operand);
                Ok(SymbolicWord::Value(self.context.terms.number(number)))
            }
            _ => Err(ProofFault::Instruction),
        }
    }

    fn write(&mut self, operand: u32, word: SymbolicWord) -> Result<(), ProofFault> {
        match (self.instruction.op_kind(operand), self.width(operand)?) {
            (OpKind::Register, (Some(register), bits)) => {
                let word = match (bits, word) {
                    (8, SymbolicWord::Value(node)) => {
                        SymbolicWord::Byte(self.context.terms.low(node, 8))
                    }
                    (8, SymbolicWord::Byte(_)) | (64, _) => word,
                    (32, SymbolicWord::Value(node)) => {
                        SymbolicWord::Value(self.context.terms.low(node, 32))
                    }
                    _ => return Err(ProofFault::Instruction),
                };
                self.state.set(self.context, register, word)
            }
            (OpKind::Memory, (_, 64)) => {
                let address = self.address()?;
                self.state.store(self.context, address, word)
            }
            _ => Err(ProofFault::Instruction),
        }
    }

    /// The address of the memory operand: a register and a displacement.
    fn address(&mut self) -> Result<TermId, ProofFault> {
        let instruction = self.instruction;
        let base = gpr(instruction.memory_base());
        let Some((base, 64)) = base.filter(|_| instruction.memory_index() == Register::None) else {
            return Err(ProofFault::Instruction);
        };
        let base = self.register(base);
        let distance = instruction.memory_displacement64().cast_signed();
        Ok(self.context.terms.add(base, distance))
    }

    fn arithmetic(&mut self, mnemonic: Mnemonic) -> Result<(), ProofFault> {
        let (a, b) = (self.read(0)?, self.read(1)?);
        let (_, bits) = self.width(0)?;
        if let Some(word) = self.mask(mnemonic, a, b)? {
            self.state.flags = Flags::UNKNOWN;
            return self.write(0, word);
        }
        let is_stack = self.width(0)?.0 == Some(RSP);
        let (a, b) = (a.node(), b.node());
        let terms = &mut *self.context.terms;
        let operation = match mnemonic {
            Mnemonic::Add => TermOperator::Add,
            Mnemonic::Sub | Mnemonic::Cmp => TermOperator::Sub,
            Mnemonic::Or => TermOperator::Or,
            Mnemonic::Xor => TermOperator::Xor,
            _ => TermOperator::And,
        };
        if !matches!(bits, 32 | 64) {
            return Err(ProofFault::Instruction);
        }
        let result = if a == b && operation == TermOperator::And {
            a
        } else {
            terms.apply(operation, a, b)
        };
        self.state.flags = match operation {
            // 32-bit numbers are compared zero-extended, except for signs.
            TermOperator::Sub => Flags {
                carry: terms.apply(TermOperator::Below, a, b),
                compared: Some((a, b)).filter(|_| bits == 64),
                has_sign: bits == 64,
            },
            TermOperator::Add => Flags::UNKNOWN,
            _ => Flags {
                carry: Terms::NO,
                compared: Some((result, Terms::NO)),
                has_sign: bits == 64,
            },
        };
        match mnemonic {
            Mnemonic::Cmp | Mnemonic::Test => Ok(()),
            Mnemonic::And if is_stack => {
                if terms.as_number(b) != Some(0_u64.wrapping_sub(16)) {
                    return Err(ProofFault::Stack);
                }
                self.state.align(result);
                Ok(())
            }
            _ => self.write(0, SymbolicWord::Value(result)),
        }
    }

    /// `and` and `or` of the word of known registers with a number.
    fn mask(
        &mut self,
        mnemonic: Mnemonic,
        a: SymbolicWord,
        b: SymbolicWord,
    ) -> Result<Option<SymbolicWord>, ProofFault> {
        let Some(mut bits) = self.context.masks.get(a) else {
            return Ok(None);
        };
        let mask = self.context.terms.as_number(b.node());
        let mask = mask.ok_or(ProofFault::Instruction)?;
        self.is_wide(0)?;
        let by = match mnemonic {
            Mnemonic::And => Terms::NO,
            Mnemonic::Or => Terms::YES,
            _ => return Err(ProofFault::Instruction),
        };
        // The bits above those of registers are all kept, or none.
        let above = mask >> REGISTERS;
        if above != 0 && above != u64::MAX >> REGISTERS {
            return Err(ProofFault::Instruction);
        }
        for (number, bit) in bits.iter_mut().enumerate() {
            if (mask >> number & 1 != 0) == (by == Terms::YES) {
                *bit = by;
            }
        }
        Ok(Some(self.context.masks.put(bits)))
    }

    /// Tests, sets or clears a bit of that word, or of its low 32 bits.
    fn bit(&mut self, mnemonic: Mnemonic) -> Result<(), ProofFault> {
        let (Some(register), bits) = self.width(0)? else {
            return Err(ProofFault::Instruction);
        };
        let word = self.state.register(self.context, register);
        let is_immediate = is_immediate(self.instruction.op_kind(1));
        let number = usize::try_from(self.instruction.immediate(1)).ok();
        let number = number.filter(|number| is_immediate && bits == 32 && *number < REGISTERS);
        let number = number.ok_or(ProofFault::Instruction)?;
        let mut all = self
            .context
            .masks
            .get(word)
            .ok_or(ProofFault::Instruction)?;
        let above = all.last().copied();
        let bit = all.get_mut(number).ok_or(ProofFault::Instruction)?;
        self.state.flags = Flags::with_carry(*bit);
        match mnemonic {
            Mnemonic::Bt => return Ok(()),
            Mnemonic::Bts => *bit = Terms::YES,
            _ => *bit = Terms::NO,
        }
        // The upper half of the register becomes 0.
        if above != Some(Terms::NO) {
            return Err(ProofFault::Instruction);
        }
        let word = self.context.masks.put(all);
        self.state.set(self.context, register, word)
    }

    fn sign(&mut self, node: TermId) -> TermId {
        let bits = self.context.terms.number(63);
        self.context.terms.apply(TermOperator::Sar, node, bits)
    }

    /// Whether a condition holds in all cases of the state.
    fn holds(&mut self, condition: TermId) -> bool {
        self.state
            .path_condition
            .implies(self.context.terms, condition)
    }

    fn divide(&mut self, mnemonic: Mnemonic) -> Result<(), ProofFault> {
        self.is_wide(0)?;
        let (dividend, high) = (self.register(RAX), self.register(RDX));
        let divisor = self.read(0)?.node();
        let extended = match mnemonic {
            Mnemonic::Idiv => self.sign(dividend),
            _ => Terms::NO,
        };
        let terms = &mut *self.context.terms;
        let minus_one = terms.number(u64::MAX);
        let [by_zero, by_minus_one] =
            [Terms::NO, minus_one].map(|number| terms.apply(TermOperator::Equal, divisor, number));
        let traps = match mnemonic {
            Mnemonic::Idiv => terms.or(by_zero, by_minus_one),
            _ => by_zero,
        };
        let is_safe = terms.not(traps);
        // The values may depend on the condition in different places.
        let difference = terms.apply(TermOperator::Equal, high, extended);
        if !self.holds(is_safe) || !self.holds(difference) {
            return Err(ProofFault::Trap);
        }
        let terms = &mut *self.context.terms;
        let (quotient, rest) = match mnemonic {
            Mnemonic::Idiv => {
                let quotient = terms.apply(TermOperator::DivSigned, dividend, divisor);
                (quotient, Terms::UNKNOWN)
            }
            _ => (
                Terms::UNKNOWN,
                terms.apply(TermOperator::Rem, dividend, divisor),
            ),
        };
        self.state.flags = Flags::UNKNOWN;
        self.set(RAX, quotient)?;
        self.set(RDX, rest)
    }

    fn shift(&mut self, mnemonic: Mnemonic) -> Result<(), ProofFault> {
        self.is_wide(0)?;
        let node = self.read(0)?.node();
        let by = match self.instruction.op_kind(1) {
            OpKind::Register => {
                // cl: the processor uses 6 bits of it, so nothing may be above.
                let count = self.register(RCX);
                let most = self.context.terms.number(63);
                let terms = &mut *self.context.terms;
                let is_far = terms.apply(TermOperator::Below, most, count);
                let is_near = terms.not(is_far);
                if !self.holds(is_near) {
                    return Err(ProofFault::Instruction);
                }
                count
            }
            _ => {
                let number = self.instruction.immediate(1);
                let number = Some(number).filter(|number| *number < 64);
                let number = number.ok_or(ProofFault::Instruction)?;
                self.context.terms.number(number)
            }
        };
        let operation = match mnemonic {
            Mnemonic::Shl => TermOperator::Shl,
            Mnemonic::Shr => TermOperator::Shr,
            _ => TermOperator::Sar,
        };
        let node = self.context.terms.apply(operation, node, by);
        self.state.flags = Flags::UNKNOWN;
        self.write(0, SymbolicWord::Value(node))
    }

    /// `rep movsq`: from the frame to the own stack.
    fn copy(&mut self) -> Result<(), ProofFault> {
        let [from, to, count] = [RSI, RDI, RCX].map(|register| self.register(register));
        let count = self.context.terms.as_number(count);
        let count = count
            .filter(|count| *count <= 64)
            .ok_or(ProofFault::Address)?;
        for word in 0..count.cast_signed() {
            let [from, to] = [from, to].map(|base| self.context.terms.add(base, 8 * word));
            let copied = self.state.load(self.context, from, 8)?;
            if !matches!(
                self.state.place(self.context, to, 8)?,
                MemoryLocation::Stack(_) | MemoryLocation::Aligned(_)
            ) {
                return Err(ProofFault::Store);
            }
            self.state.store(self.context, to, copied)?;
        }
        let terms = &mut *self.context.terms;
        let bytes = 8 * count.cast_signed();
        let [from, to] = [from, to].map(|base| terms.add(base, bytes));
        self.set(RSI, from)?;
        self.set(RDI, to)?;
        self.set(RCX, Terms::NO)
    }

    fn branch(&self) -> Result<u64, ProofFault> {
        match self.instruction.op0_kind() {
            OpKind::NearBranch64 => Ok(self.instruction.near_branch_target()),
            _ => Err(ProofFault::Branch),
        }
    }

    fn call(&mut self) -> Result<Successor, ProofFault> {
        let next = self.instruction.next_ip();
        if self.instruction.op0_kind() == OpKind::NearBranch64 {
            let back = self.context.terms.input_term(InputTerm::Code(next));
            self.state.push(self.context, SymbolicWord::Value(back))?;
            return self.branch().map(Successor::Address);
        }
        // The function that reads memory.
        let (Some(register), 64) = self.width(0)? else {
            return Err(ProofFault::Branch);
        };
        let [function, argument, address, size, into] =
            [register, RDI, RSI, RDX, RCX].map(|register| self.register(register));
        let terms = &mut *self.context.terms;
        let size = terms.as_number(size);
        let size = size.filter(|size| matches!(size, 1 | 2 | 4 | 8));
        let can_ask = memory::can_ask(terms);
        if terms.as_input_term(function) != Some(InputTerm::Read)
            || terms.as_input_term(argument) != Some(InputTerm::Argument)
            || !terms.is_known(address)
            || !self.holds(can_ask)
            || !self.state.is_aligned()
        {
            return Err(ProofFault::Branch);
        }
        let size = size.ok_or(ProofFault::Branch)?;
        match self.state.place(self.context, into, 8)? {
            MemoryLocation::Stack(_) | MemoryLocation::Aligned(_) => {}
            _ => return Err(ProofFault::Store),
        }
        let loaded = memory::loaded(self.context.terms, address, size);
        self.state
            .store(self.context, into, SymbolicWord::Value(loaded))?;
        let answer = memory::answer(self.context.terms, address, size);
        self.state.called(answer);
        Ok(Successor::Address(next))
    }

    /// The condition of a conditional instruction.
    fn condition(&mut self) -> Result<TermId, ProofFault> {
        let Flags {
            carry,
            compared,
            has_sign,
        } = self.state.flags;
        let terms = &mut *self.context.terms;
        let mut compare = |operation, is_swapped| {
            let compared = compared.filter(|_| has_sign || operation != TermOperator::Less);
            let Some((a, b)) = compared else {
                return Terms::UNKNOWN;
            };
            let (a, b) = if is_swapped { (b, a) } else { (a, b) };
            terms.apply(operation, a, b)
        };
        use ConditionCode as If;
        let (condition, is_inverted) = match self.instruction.condition_code() {
            If::b => (carry, false),
            If::ae => (carry, true),
            If::e => (compare(TermOperator::Equal, false), false),
            If::ne => (compare(TermOperator::Equal, false), true),
            If::a => (compare(TermOperator::Below, true), false),
            If::be => (compare(TermOperator::Below, true), true),
            If::l => (compare(TermOperator::Less, false), false),
            If::ge => (compare(TermOperator::Less, false), true),
            If::g => (compare(TermOperator::Less, true), false),
            If::le => (compare(TermOperator::Less, true), true),
            _ => return Err(ProofFault::Instruction),
        };
        let condition = if is_inverted {
            terms.not(condition)
        } else {
            condition
        };
        let condition = self.state.path_condition.assume(terms, condition);
        if terms.is_known(condition) {
            Ok(condition)
        } else {
            Err(ProofFault::Condition)
        }
    }
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32
            | OpKind::Immediate32to64
            | OpKind::Immediate64
    )
}

/// Whether an instruction sets a byte by a condition.
fn is_set(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        instruction.mnemonic(),
        Seta | Setae | Setb | Setbe | Sete | Setg | Setge | Setl | Setle | Setne
    )
}
