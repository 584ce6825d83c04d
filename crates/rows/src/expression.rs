//! DWARF expressions in call frame information: a small stack machine with fixed limits.
//!
//! Implements the operations that DWARF 5 §6.4.2 leaves legal in CFI. Branches would make the
//! machine Turing-complete, so it has limits, [`MAX_STEPS`] and [`MAX_STACK_VALUES`]. They are the
//! same for every consumer: an expression that exceeds them has no value anywhere.

use crate::addr::{RuntimeAddr, Vaddr};
use crate::arch::{Abi, AddressSize};
use crate::interpret::FrameContext;
use crate::leb128;
use crate::memory::{Memory, Unreadable, read_uint};
use crate::register::Register;

pub mod operation;

pub use operation::{Operand, Operation, Operations};

/// The limit of executed operations in one evaluation.
pub const MAX_STEPS: u32 = 1024;

/// The limit of values on the stack: the same as in libgcc's unwinder (`execute_stack_op`).
pub const MAX_STACK_VALUES: usize = 64;

/// The bytes of a DWARF expression, operands in the byte order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expression<'e>(pub &'e [u8]);

/// Why an expression has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// The bytes end inside an operation.
    #[error("expression is truncated at byte {offset}")]
    Truncated {
        /// Offset of the operation in the expression, in bytes.
        offset: usize,
    },
    /// An opcode that is unknown, or not legal in call frame information.
    #[error("operation {opcode:#04x} at byte {offset} is not legal in call frame information")]
    Illegal {
        /// The opcode.
        opcode: u8,
        /// Offset of the operation in the expression, in bytes.
        offset: usize,
    },
    /// An operation takes more values than there are.
    #[error("stack is too short for the operation at byte {offset}")]
    Underflow {
        /// Offset of the operation in the expression, in bytes.
        offset: usize,
    },
    /// More than [`MAX_STACK_VALUES`] values.
    #[error("more than {max} values on the stack at byte {offset}", max = MAX_STACK_VALUES)]
    Overflow {
        /// Offset of the operation in the expression, in bytes.
        offset: usize,
    },
    /// More than [`MAX_STEPS`] operations.
    #[error("more than {max} operations executed", max = MAX_STEPS)]
    TooLong,
    /// A branch leads outside the expression.
    #[error("branch at byte {offset} leads outside the expression")]
    BadBranch {
        /// Offset of the operation in the expression, in bytes.
        offset: usize,
    },
    /// Division by zero.
    #[error("division by zero at byte {offset}")]
    DivisionByZero {
        /// Offset of the operation in the expression, in bytes.
        offset: usize,
    },
    /// It reads a register that is unknown in this frame.
    #[error("expression needs register {}, whose value is unknown in this frame", .0.0)]
    UnknownRegister(Register),
    /// It ends with nothing on the stack.
    #[error("expression yields no value")]
    Empty,
    /// It reads memory that cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl<'e> Expression<'e> {
    /// The operations, decoded one after another.
    #[must_use]
    pub fn operations(self, abi: Abi) -> Operations<'e> {
        Operations::new(self.0, abi)
    }

    /// The offset from `register` at the start of the expression (`DW_OP_breg0` to
    /// `DW_OP_breg31`), and the remaining bytes.
    #[must_use]
    pub fn register_offset(self, register: Register) -> Option<(i64, &'e [u8])> {
        let (opcode, mut rest) = self.0.split_first()?;
        let number = opcode.checked_sub(operation::DW_OP_BREG0)?;
        if *opcode > operation::DW_OP_BREG31 || u16::from(number) != register.0 {
            return None;
        }
        let offset = leb128::signed(&mut rest)?;
        Some((offset, rest))
    }

    /// Evaluates the expression in `frame`. `initial` is on the stack at the start, if present (the
    /// CFA, for a register's rule).
    ///
    /// Bounded by [`MAX_STEPS`] and [`MAX_STACK_VALUES`]; allocates nothing; async-signal-safe if
    /// the frame's memory is.
    ///
    /// # Errors
    ///
    /// [`ExpressionError`], with the byte offset of the operation at fault.
    pub fn evaluate<M: Memory + ?Sized>(
        self,
        frame: &FrameContext<'_, M>,
        initial: Option<u64>,
    ) -> Result<u64, ExpressionError> {
        let mut machine = StackMachine::new(frame.abi.arch.spec().address_size);
        if let Some(value) = initial {
            machine.at_operation(0).push(value)?;
        }
        let mut operations = self.operations(frame.abi);
        for _ in 0..MAX_STEPS {
            let Some(operation) = operations.next() else {
                return machine.result();
            };
            let operation = operation?;
            if let Some(distance) = machine
                .at_operation(operation.offset)
                .execute(&operation, frame)?
            {
                operations
                    .branch(distance)
                    .ok_or(ExpressionError::BadBranch {
                        offset: operation.offset,
                    })?;
            }
        }
        if operations.is_finished() {
            machine.result()
        } else {
            Err(ExpressionError::TooLong)
        }
    }
}

/// The stack and the width of its values.
struct StackMachine {
    stack: [u64; MAX_STACK_VALUES],
    len: usize,
    address_size: AddressSize,
}

/// The machine during the operation at `offset`, for error messages.
struct OperationContext<'m> {
    machine: &'m mut StackMachine,
    offset: usize,
}

impl StackMachine {
    fn new(address_size: AddressSize) -> Self {
        StackMachine {
            stack: [0; MAX_STACK_VALUES],
            len: 0,
            address_size,
        }
    }

    fn at_operation(&mut self, offset: usize) -> OperationContext<'_> {
        OperationContext {
            machine: self,
            offset,
        }
    }

    fn result(&self) -> Result<u64, ExpressionError> {
        let top = self.len.checked_sub(1).ok_or(ExpressionError::Empty)?;
        self.stack.get(top).copied().ok_or(ExpressionError::Empty)
    }
}

impl OperationContext<'_> {
    /// Pushes a value, cut to the width of an address (DWARF 5 §2.5.1: the generic type).
    fn push(&mut self, value: u64) -> Result<(), ExpressionError> {
        let value = value & self.machine.address_size.mask();
        let slot =
            self.machine
                .stack
                .get_mut(self.machine.len)
                .ok_or(ExpressionError::Overflow {
                    offset: self.offset,
                })?;
        *slot = value;
        self.machine.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Result<u64, ExpressionError> {
        let value = self.peek(0)?;
        self.machine.len -= 1;
        Ok(value)
    }

    /// The value `depth` entries below the top.
    fn peek(&self, depth: u64) -> Result<u64, ExpressionError> {
        usize::try_from(depth)
            .ok()
            .and_then(|depth| self.machine.len.checked_sub(depth)?.checked_sub(1))
            .and_then(|at| self.machine.stack.get(at).copied())
            .ok_or(ExpressionError::Underflow {
                offset: self.offset,
            })
    }

    /// The value as a signed number of the width of an address.
    fn signed(&self, value: u64) -> i64 {
        let unused = 64 - 8 * u32::from(self.machine.address_size.bytes());
        (value << unused).cast_signed() >> unused
    }

    /// Executes one operation; yields the distance to branch by, if it branches.
    fn execute<M: Memory + ?Sized>(
        &mut self,
        operation: &Operation,
        frame: &FrameContext<'_, M>,
    ) -> Result<Option<i16>, ExpressionError> {
        use operation::*;
        match operation.opcode {
            DW_OP_ADDR => {
                let vaddr = Vaddr(operation.unsigned());
                self.push(frame.bias.to_runtime(vaddr).0)?;
            }
            DW_OP_CONST1U..=DW_OP_CONSTS => self.push(operation.unsigned())?,
            DW_OP_LIT0..=DW_OP_LIT31 => self.push(u64::from(operation.opcode - DW_OP_LIT0))?,
            DW_OP_BREG0..=DW_OP_BREG31 => {
                let register = Register(u16::from(operation.opcode - DW_OP_BREG0));
                self.push_register(register, operation.signed(), frame)?;
            }
            DW_OP_BREGX => {
                let register = u16::try_from(operation.unsigned())
                    .map_err(|_| ExpressionError::UnknownRegister(Register(u16::MAX)))?;
                self.push_register(Register(register), operation.second_signed(), frame)?;
            }
            DW_OP_DUP | DW_OP_DROP | DW_OP_OVER | DW_OP_PICK | DW_OP_SWAP | DW_OP_ROT => {
                self.rearrange(operation)?;
            }
            DW_OP_DEREF => self.load(self.machine.address_size.bytes(), frame)?,
            DW_OP_DEREF_SIZE => {
                let size = u8::try_from(operation.unsigned()).unwrap_or(0);
                if size == 0 || size > self.machine.address_size.bytes() {
                    return Err(self.illegal(operation));
                }
                self.load(size, frame)?;
            }
            DW_OP_ABS | DW_OP_NEG | DW_OP_NOT | DW_OP_PLUS_UCONST => self.unary(operation)?,
            DW_OP_AND..=DW_OP_MUL | DW_OP_OR..=DW_OP_PLUS | DW_OP_SHL..=DW_OP_XOR => {
                self.binary(operation)?;
            }
            DW_OP_EQ..=DW_OP_NE => self.compare(operation.opcode)?,
            DW_OP_SKIP => return Ok(Some(operation.branch())),
            DW_OP_BRA => return Ok((self.pop()? != 0).then_some(operation.branch())),
            DW_OP_NOP => {}
            _ => return Err(self.illegal(operation)),
        }
        Ok(None)
    }

    fn illegal(&self, operation: &Operation) -> ExpressionError {
        ExpressionError::Illegal {
            opcode: operation.opcode,
            offset: self.offset,
        }
    }

    /// DWARF 5 §2.5.1.2: register values.
    fn push_register<M: Memory + ?Sized>(
        &mut self,
        register: Register,
        offset: i64,
        frame: &FrameContext<'_, M>,
    ) -> Result<(), ExpressionError> {
        let value = frame
            .registers
            .get(register)
            .ok_or(ExpressionError::UnknownRegister(register))?;
        self.push(value.wrapping_add_signed(offset))
    }

    /// DWARF 5 §2.5.1.3: stack operations that move values.
    fn rearrange(&mut self, operation: &Operation) -> Result<(), ExpressionError> {
        use operation::*;
        match operation.opcode {
            DW_OP_DUP => self.push(self.peek(0)?),
            DW_OP_DROP => self.pop().map(drop),
            DW_OP_OVER => self.push(self.peek(1)?),
            DW_OP_PICK => self.push(self.peek(operation.unsigned())?),
            DW_OP_SWAP => {
                let (top, second) = (self.pop()?, self.pop()?);
                self.push(top)?;
                self.push(second)
            }
            // The top becomes third, the second the top, the third the second.
            _ => {
                let (top, second, third) = (self.pop()?, self.pop()?, self.pop()?);
                self.push(top)?;
                self.push(third)?;
                self.push(second)
            }
        }
    }

    /// DWARF 5 §2.5.1.3: `DW_OP_deref` and `DW_OP_deref_size`, zero-extended.
    fn load<M: Memory + ?Sized>(
        &mut self,
        size: u8,
        frame: &FrameContext<'_, M>,
    ) -> Result<(), ExpressionError> {
        let addr = RuntimeAddr(self.pop()?);
        self.push(read_uint(frame.memory, addr, size, frame.abi.endian)?)
    }

    /// DWARF 5 §2.5.1.4: operations on the top value.
    fn unary(&mut self, operation: &Operation) -> Result<(), ExpressionError> {
        use operation::*;
        let value = self.pop()?;
        self.push(match operation.opcode {
            DW_OP_ABS => self.signed(value).unsigned_abs(),
            DW_OP_NEG => value.wrapping_neg(),
            DW_OP_NOT => !value,
            _ => value.wrapping_add(operation.unsigned()),
        })
    }

    /// DWARF 5 §2.5.1.4: operations on the two top values; `lhs` was pushed first.
    fn binary(&mut self, operation: &Operation) -> Result<(), ExpressionError> {
        use operation::*;
        let (rhs, lhs) = (self.pop()?, self.pop()?);
        let by_zero = ExpressionError::DivisionByZero {
            offset: self.offset,
        };
        let bits = u64::from(self.machine.address_size.bytes()) * 8;
        self.push(match operation.opcode {
            DW_OP_AND => lhs & rhs,
            DW_OP_OR => lhs | rhs,
            DW_OP_XOR => lhs ^ rhs,
            DW_OP_PLUS => lhs.wrapping_add(rhs),
            DW_OP_MINUS => lhs.wrapping_sub(rhs),
            DW_OP_MUL => lhs.wrapping_mul(rhs),
            DW_OP_DIV => match self.signed(rhs) {
                0 => return Err(by_zero),
                divisor => self.signed(lhs).wrapping_div(divisor).cast_unsigned(),
            },
            DW_OP_MOD => lhs.checked_rem(rhs).ok_or(by_zero)?,
            // A shift by the width or more leaves nothing but the sign.
            DW_OP_SHL => {
                if rhs < bits {
                    lhs << rhs
                } else {
                    0
                }
            }
            DW_OP_SHR => {
                if rhs < bits {
                    lhs >> rhs
                } else {
                    0
                }
            }
            DW_OP_SHRA => (self.signed(lhs) >> rhs.min(63)).cast_unsigned(),
            _ => return Err(self.illegal(operation)),
        })
    }

    /// DWARF 5 §2.5.1.5: signed comparisons.
    fn compare(&mut self, opcode: u8) -> Result<(), ExpressionError> {
        use operation::*;
        let (rhs, lhs) = (self.pop()?, self.pop()?);
        let order = self.signed(lhs).cmp(&self.signed(rhs));
        self.push(u64::from(match opcode {
            DW_OP_EQ => order.is_eq(),
            DW_OP_GE => order.is_ge(),
            DW_OP_GT => order.is_gt(),
            DW_OP_LE => order.is_le(),
            DW_OP_LT => order.is_lt(),
            _ => order.is_ne(),
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests;
