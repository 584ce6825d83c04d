//! The few instructions that bodies are made of, in terms (Intel SDM, volume 2).
//!
//! What is not listed here is a fault, and so is whatever depends on what nothing is known of.

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use super::Fault;
use super::machine::{Context, Flags, Place, RAX, RCX, RDI, RDX, RSI, RSP, State, Word};
use super::meaning::REGISTERS;
use super::memory;
use super::terms::{Given, Node, Operator, Terms};

/// Where a state goes on.
pub(super) enum Next {
    At(u64),
    /// Behind a call.
    Back(u64),
    /// To one place where a condition holds, and to another where it does not.
    Either {
        condition: Node,
        yes: u64,
        no: u64,
    },
    /// To the code's caller.
    Returns,
}

/// A general-purpose register, and how many bits of it; not the second byte.
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

/// An instruction in a state.
pub(super) struct Execution<'e, 'c> {
    pub(super) context: &'e mut Context<'c>,
    pub(super) state: &'e mut State,
    pub(super) instruction: &'e Instruction,
}

impl Execution<'_, '_> {
    pub(super) fn run(mut self) -> Result<Next, Fault> {
        use Mnemonic::*;
        let instruction = *self.instruction;
        let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        if instruction.has_lock_prefix()
            || instruction.segment_prefix() != Register::None
            || is_repeated && instruction.mnemonic() != Movsq
        {
            return Err(Fault::Instruction);
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
                    Word::Byte(node) if bits == 8 => node,
                    _ => self.context.terms.low(word.node(), bits),
                };
                self.write(0, Word::Is(node))?;
            }
            Lea => {
                let address = self.address()?;
                self.write(0, Word::Is(address))?;
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
                self.write(0, Word::Is(node))?;
                self.state.flags = Flags::UNKNOWN;
            }
            Imul if instruction.op_count() == 2 => {
                self.is_wide(0)?;
                let (a, b) = (self.read(0)?.node(), self.read(1)?.node());
                let node = self.context.terms.apply(Operator::Mul, a, b);
                self.write(0, Word::Is(node))?;
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
            Clc => self.state.flags = Flags::of_carry(Terms::NO),
            Stc => self.state.flags = Flags::of_carry(Terms::YES),
            Movsq if instruction.has_rep_prefix() => self.copy()?,
            Jmp => return self.branch().map(Next::At),
            Call => return self.call(),
            Ret if instruction.op_count() == 0 => {
                let to = self.state.pop(self.context)?.node();
                return match self.context.terms.as_given(to) {
                    Some(Given::Return) => Ok(Next::Returns),
                    Some(Given::Code(at)) => Ok(Next::Back(at)),
                    _ => Err(Fault::Branch),
                };
            }
            _ if instruction.is_jcc_short_or_near() => {
                let condition = self.condition()?;
                return Ok(Next::Either {
                    condition,
                    yes: self.branch()?,
                    no: instruction.next_ip(),
                });
            }
            _ if is_set(&instruction) => {
                let condition = self.condition()?;
                self.write(0, Word::Byte(condition))?;
            }
            _ => return Err(Fault::Instruction),
        }
        Ok(Next::At(instruction.next_ip()))
    }

    fn register(&mut self, register: usize) -> Node {
        self.state.register(self.context, register).node()
    }

    fn set(&mut self, register: usize, node: Node) -> Result<(), Fault> {
        self.state.set(self.context, register, Word::Is(node))
    }

    /// The register of an operand, if it is one, and how many bits it has.
    fn width(&self, operand: u32) -> Result<(Option<usize>, u32), Fault> {
        match self.instruction.op_kind(operand) {
            OpKind::Register => {
                let register = gpr(self.instruction.op_register(operand));
                let (register, bits) = register.ok_or(Fault::Instruction)?;
                Ok((Some(register), bits))
            }
            OpKind::Memory => {
                let bytes = u32::try_from(self.instruction.memory_size().size());
                Ok((None, bytes.map_err(|_| Fault::Instruction)? * 8))
            }
            _ => Ok((None, 64)),
        }
    }

    fn is_wide(&self, operand: u32) -> Result<(), Fault> {
        let (_, bits) = self.width(operand)?;
        (bits == 64).then_some(()).ok_or(Fault::Instruction)
    }

    /// What an operand is: of registers of 32 bits these.
    fn read(&mut self, operand: u32) -> Result<Word, Fault> {
        match self.instruction.op_kind(operand) {
            OpKind::Register => {
                let (register, bits) = self.width(operand)?;
                let register = register.ok_or(Fault::Instruction)?;
                let word = self.state.register(self.context, register);
                Ok(match (word, bits) {
                    (Word::Is(node), 32) => Word::Is(self.context.terms.low(node, 32)),
                    (word, _) => word,
                })
            }
            OpKind::Memory => {
                let address = self.address()?;
                let (_, bits) = self.width(operand)?;
                if !matches!(bits, 8 | 16 | 32 | 64) {
                    return Err(Fault::Instruction);
                }
                self.state.load(self.context, address, u64::from(bits / 8))
            }
            OpKind::Immediate8to32 => {
                let number = self.instruction.immediate8to32().cast_unsigned();
                Ok(Word::Is(self.context.terms.number(u64::from(number))))
            }
            kind if is_immediate(kind) => {
                let number = self.instruction.immediate(operand);
                Ok(Word::Is(self.context.terms.number(number)))
            }
            _ => Err(Fault::Instruction),
        }
    }

    fn write(&mut self, operand: u32, word: Word) -> Result<(), Fault> {
        match (self.instruction.op_kind(operand), self.width(operand)?) {
            (OpKind::Register, (Some(register), bits)) => {
                let word = match (bits, word) {
                    (8, Word::Is(node)) => Word::Byte(self.context.terms.low(node, 8)),
                    (8, Word::Byte(_)) | (64, _) => word,
                    (32, Word::Is(node)) => Word::Is(self.context.terms.low(node, 32)),
                    _ => return Err(Fault::Instruction),
                };
                self.state.set(self.context, register, word)
            }
            (OpKind::Memory, (_, 64)) => {
                let address = self.address()?;
                self.state.store(self.context, address, word)
            }
            _ => Err(Fault::Instruction),
        }
    }

    /// The address of the operand in memory: a register and a number.
    fn address(&mut self) -> Result<Node, Fault> {
        let instruction = self.instruction;
        let base = gpr(instruction.memory_base());
        let Some((base, 64)) = base.filter(|_| instruction.memory_index() == Register::None) else {
            return Err(Fault::Instruction);
        };
        let base = self.register(base);
        let distance = instruction.memory_displacement64().cast_signed();
        Ok(self.context.terms.add(base, distance))
    }

    fn arithmetic(&mut self, mnemonic: Mnemonic) -> Result<(), Fault> {
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
            Mnemonic::Add => Operator::Add,
            Mnemonic::Sub | Mnemonic::Cmp => Operator::Sub,
            Mnemonic::Or => Operator::Or,
            Mnemonic::Xor => Operator::Xor,
            _ => Operator::And,
        };
        if !matches!(bits, 32 | 64) {
            return Err(Fault::Instruction);
        }
        let result = match a == b && operation == Operator::And {
            true => a,
            false => terms.apply(operation, a, b),
        };
        self.state.flags = match operation {
            // Numbers of 32 bits are compared as they are, but for signs.
            Operator::Sub => Flags {
                carry: terms.apply(Operator::Below, a, b),
                compared: Some((a, b)).filter(|_| bits == 64),
                has_sign: bits == 64,
            },
            Operator::Add => Flags::UNKNOWN,
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
                    return Err(Fault::Stack);
                }
                self.state.align(result);
                Ok(())
            }
            _ => self.write(0, Word::Is(result)),
        }
    }

    /// `and` and `or` of the word that says which registers are known, with a number.
    fn mask(&mut self, mnemonic: Mnemonic, a: Word, b: Word) -> Result<Option<Word>, Fault> {
        let Some(mut bits) = self.context.bits.get(a) else {
            return Ok(None);
        };
        let mask = self.context.terms.as_number(b.node());
        let mask = mask.ok_or(Fault::Instruction)?;
        self.is_wide(0)?;
        let by = match mnemonic {
            Mnemonic::And => Terms::NO,
            Mnemonic::Or => Terms::YES,
            _ => return Err(Fault::Instruction),
        };
        // The bits above those of registers are all kept, or none.
        let above = mask >> REGISTERS;
        if above != 0 && above != u64::MAX >> REGISTERS {
            return Err(Fault::Instruction);
        }
        for (number, bit) in bits.iter_mut().enumerate() {
            if (mask >> number & 1 != 0) == (by == Terms::YES) {
                *bit = by;
            }
        }
        Ok(Some(self.context.bits.put(bits)))
    }

    /// Tests, sets or clears a bit of that word; of 32 bits of it.
    fn bit(&mut self, mnemonic: Mnemonic) -> Result<(), Fault> {
        let (Some(register), bits) = self.width(0)? else {
            return Err(Fault::Instruction);
        };
        let word = self.state.register(self.context, register);
        let is_immediate = is_immediate(self.instruction.op_kind(1));
        let number = usize::try_from(self.instruction.immediate(1)).ok();
        let number = number.filter(|number| is_immediate && bits == 32 && *number < REGISTERS);
        let number = number.ok_or(Fault::Instruction)?;
        let mut all = self.context.bits.get(word).ok_or(Fault::Instruction)?;
        let above = all.last().copied();
        let bit = all.get_mut(number).ok_or(Fault::Instruction)?;
        self.state.flags = Flags::of_carry(*bit);
        match mnemonic {
            Mnemonic::Bt => return Ok(()),
            Mnemonic::Bts => *bit = Terms::YES,
            _ => *bit = Terms::NO,
        }
        // The upper half of the register becomes 0.
        if above != Some(Terms::NO) {
            return Err(Fault::Instruction);
        }
        let word = self.context.bits.put(all);
        self.state.set(self.context, register, word)
    }

    fn sign(&mut self, node: Node) -> Node {
        let bits = self.context.terms.number(63);
        self.context.terms.apply(Operator::Sar, node, bits)
    }

    /// Whether a condition holds wherever the state is met.
    fn holds(&mut self, condition: Node) -> bool {
        self.state.when.implies(self.context.terms, condition)
    }

    fn divide(&mut self, mnemonic: Mnemonic) -> Result<(), Fault> {
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
            [Terms::NO, minus_one].map(|number| terms.apply(Operator::Equal, divisor, number));
        let traps = match mnemonic {
            Mnemonic::Idiv => terms.or(by_zero, by_minus_one),
            _ => by_zero,
        };
        let is_safe = terms.not(traps);
        // The values may have been told apart by the condition in different places.
        let difference = terms.apply(Operator::Equal, high, extended);
        if !self.holds(is_safe) || !self.holds(difference) {
            return Err(Fault::Trap);
        }
        let terms = &mut *self.context.terms;
        let (quotient, rest) = match mnemonic {
            Mnemonic::Idiv => {
                let quotient = terms.apply(Operator::DivSigned, dividend, divisor);
                (quotient, Terms::UNKNOWN)
            }
            _ => (
                Terms::UNKNOWN,
                terms.apply(Operator::Rem, dividend, divisor),
            ),
        };
        self.state.flags = Flags::UNKNOWN;
        self.set(RAX, quotient)?;
        self.set(RDX, rest)
    }

    fn shift(&mut self, mnemonic: Mnemonic) -> Result<(), Fault> {
        self.is_wide(0)?;
        let node = self.read(0)?.node();
        let by = match self.instruction.op_kind(1) {
            OpKind::Register => {
                // cl: the machine takes 6 bits of it, and so nothing may be above.
                let count = self.register(RCX);
                let most = self.context.terms.number(63);
                let terms = &mut *self.context.terms;
                let is_far = terms.apply(Operator::Below, most, count);
                let is_near = terms.not(is_far);
                if !self.holds(is_near) {
                    return Err(Fault::Instruction);
                }
                count
            }
            _ => {
                let number = self.instruction.immediate(1);
                let number = Some(number).filter(|number| *number < 64);
                let number = number.ok_or(Fault::Instruction)?;
                self.context.terms.number(number)
            }
        };
        let operation = match mnemonic {
            Mnemonic::Shl => Operator::Shl,
            Mnemonic::Shr => Operator::Shr,
            _ => Operator::Sar,
        };
        let node = self.context.terms.apply(operation, node, by);
        self.state.flags = Flags::UNKNOWN;
        self.write(0, Word::Is(node))
    }

    /// `rep movsq`: from the frame to the own stack.
    fn copy(&mut self) -> Result<(), Fault> {
        let [from, to, count] = [RSI, RDI, RCX].map(|register| self.register(register));
        let count = self.context.terms.as_number(count);
        let count = count.filter(|count| *count <= 64).ok_or(Fault::Address)?;
        for word in 0..count.cast_signed() {
            let [from, to] = [from, to].map(|base| self.context.terms.add(base, 8 * word));
            let copied = self.state.load(self.context, from, 8)?;
            if !matches!(
                self.state.place(self.context, to, 8)?,
                Place::Stack(_) | Place::Aligned(_)
            ) {
                return Err(Fault::Store);
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

    fn branch(&self) -> Result<u64, Fault> {
        match self.instruction.op0_kind() {
            OpKind::NearBranch64 => Ok(self.instruction.near_branch_target()),
            _ => Err(Fault::Branch),
        }
    }

    fn call(&mut self) -> Result<Next, Fault> {
        let next = self.instruction.next_ip();
        if self.instruction.op0_kind() == OpKind::NearBranch64 {
            let back = self.context.terms.given(Given::Code(next));
            self.state.push(self.context, Word::Is(back))?;
            return self.branch().map(Next::At);
        }
        // The function that reads memory.
        let (Some(register), 64) = self.width(0)? else {
            return Err(Fault::Branch);
        };
        let [function, argument, address, size, into] =
            [register, RDI, RSI, RDX, RCX].map(|register| self.register(register));
        let terms = &mut *self.context.terms;
        let size = terms.as_number(size);
        let size = size.filter(|size| matches!(size, 1 | 2 | 4 | 8));
        let can_ask = memory::can_ask(terms);
        if terms.as_given(function) != Some(Given::Read)
            || terms.as_given(argument) != Some(Given::Argument)
            || !terms.is_known(address)
            || !self.holds(can_ask)
            || !self.state.is_aligned()
        {
            return Err(Fault::Branch);
        }
        let size = size.ok_or(Fault::Branch)?;
        match self.state.place(self.context, into, 8)? {
            Place::Stack(_) | Place::Aligned(_) => {}
            _ => return Err(Fault::Store),
        }
        let loaded = memory::loaded(self.context.terms, address, size);
        self.state.store(self.context, into, Word::Is(loaded))?;
        let answer = memory::answer(self.context.terms, address, size);
        self.state.called(answer);
        Ok(Next::At(next))
    }

    /// The condition of an instruction that has one.
    fn condition(&mut self) -> Result<Node, Fault> {
        let Flags {
            carry,
            compared,
            has_sign,
        } = self.state.flags;
        let terms = &mut *self.context.terms;
        let mut compare = |operation, is_swapped| {
            let compared = compared.filter(|_| has_sign || operation != Operator::Less);
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
            If::e => (compare(Operator::Equal, false), false),
            If::ne => (compare(Operator::Equal, false), true),
            If::a => (compare(Operator::Below, true), false),
            If::be => (compare(Operator::Below, true), true),
            If::l => (compare(Operator::Less, false), false),
            If::ge => (compare(Operator::Less, false), true),
            If::g => (compare(Operator::Less, true), false),
            If::le => (compare(Operator::Less, true), true),
            _ => return Err(Fault::Instruction),
        };
        let condition = match is_inverted {
            true => terms.not(condition),
            false => condition,
        };
        let condition = self.state.when.assume(terms, condition);
        match terms.is_known(condition) {
            true => Ok(condition),
            false => Err(Fault::Condition),
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
