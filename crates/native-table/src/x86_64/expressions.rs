//! Expressions as code: values are on the machine's stack.

use unspool_rows::expression::{Operation, operation};

use super::assembler::{Alu, ConditionCode, Label, RAX, RBP, RCX, RDX, RSP};
use super::{BIAS, CodeBuilder, OLD};
use crate::recipe::{self, BranchFreeExpression};

/// Targets of failed evaluations.
struct FailureLabels {
    unknown: Label,
    unreadable: Label,
    no_value: Label,
}

impl CodeBuilder {
    /// Sets `rax` to the result of an expression, or to the memory at it.
    pub(super) fn expression(
        &mut self,
        expression: &BranchFreeExpression,
        lost: Option<Label>,
        has_cfa: bool,
        is_address: bool,
    ) {
        let failures = FailureLabels {
            unknown: lost.map_or(self.shared.unknown, |_| self.asm.label()),
            unreadable: lost.map_or(self.shared.unreadable, |_| self.asm.label()),
            no_value: lost.map_or(self.shared.no_value, |_| self.asm.label()),
        };
        if has_cfa {
            self.asm.push(super::R12);
        }
        for operation in &expression.0 {
            self.operation(operation, &failures);
        }
        self.asm.pop(RAX);
        if is_address {
            self.asm.call(self.shared.load);
            self.asm.jump_if(ConditionCode::Below, failures.unreadable);
        }
        // With any number of values left on the stack.
        self.asm.lea(RSP, RBP, OLD);
        if let Some(lost) = lost {
            let done = self.asm.label();
            self.asm.jump(done);
            for label in [failures.unknown, failures.unreadable, failures.no_value] {
                self.asm.bind(label);
            }
            self.asm.lea(RSP, RBP, OLD);
            self.asm.jump(lost);
            self.asm.bind(done);
        }
    }

    fn operation(&mut self, operation: &Operation, failures: &FailureLabels) {
        use operation::*;
        if let Some(number) = recipe::constant(operation) {
            self.asm.number(RAX, number);
            return self.asm.push(RAX);
        }
        if let Some((register, offset)) = recipe::register(operation) {
            // A recipe only has registers of a frame.
            self.old(u8::try_from(register).unwrap_or(0), failures.unknown);
            self.add(offset.cast_unsigned());
            return self.asm.push(RAX);
        }
        match operation.opcode {
            DW_OP_ADDR => {
                self.asm.number(RAX, operation.unsigned());
                self.asm.add_memory(RAX, RBP, BIAS);
                self.asm.push(RAX);
            }
            DW_OP_DUP => self.pick(0),
            DW_OP_OVER => self.pick(1),
            DW_OP_PICK => self.pick(operation.unsigned()),
            DW_OP_DROP => self.asm.pop(RAX),
            DW_OP_SWAP => {
                self.asm.pop(RAX);
                self.asm.pop(RCX);
                self.asm.push(RAX);
                self.asm.push(RCX);
            }
            DW_OP_ROT => {
                for register in [RAX, RCX, RDX] {
                    self.asm.pop(register);
                }
                for register in [RAX, RDX, RCX] {
                    self.asm.push(register);
                }
            }
            DW_OP_DEREF | DW_OP_DEREF_SIZE => {
                self.asm.pop(RAX);
                let load = match (operation.opcode, operation.unsigned()) {
                    (DW_OP_DEREF, _) | (_, 8) => self.shared.load,
                    (_, size) => {
                        self.asm.number(RDX, size);
                        self.shared.load_size
                    }
                };
                self.asm.call(load);
                self.asm.jump_if(ConditionCode::Below, failures.unreadable);
                self.asm.push(RAX);
            }
            DW_OP_NOP => {}
            DW_OP_ABS | DW_OP_NEG | DW_OP_NOT | DW_OP_PLUS_UCONST => self.unary(operation),
            opcode => self.binary(opcode, failures),
        }
    }

    /// `rax` plus a number.
    fn add(&mut self, number: u64) {
        if number != 0 {
            self.asm.number(RCX, number);
            self.asm.alu(Alu::Add, RAX, RCX);
        }
    }

    fn pick(&mut self, below: u64) {
        // At most as deep as an expression's stack.
        let offset = i32::try_from(below * 8).unwrap_or(0);
        self.asm.load(RAX, RSP, offset);
        self.asm.push(RAX);
    }

    fn unary(&mut self, operation: &Operation) {
        use operation::*;
        self.asm.pop(RAX);
        match operation.opcode {
            DW_OP_NEG => self.asm.unary(3, RAX),
            DW_OP_NOT => self.asm.unary(2, RAX),
            DW_OP_ABS => {
                self.asm.copy(RCX, RAX);
                self.asm.shift(7, RCX, 63);
                self.asm.alu(Alu::Xor, RAX, RCX);
                self.asm.alu(Alu::Sub, RAX, RCX);
            }
            _ => self.add(operation.unsigned()),
        }
        self.asm.push(RAX);
    }

    fn binary(&mut self, opcode: u8, failures: &FailureLabels) {
        use operation::*;
        self.asm.pop(RCX);
        self.asm.pop(RAX);
        match opcode {
            DW_OP_AND => self.asm.alu(Alu::And, RAX, RCX),
            DW_OP_OR => self.asm.alu(Alu::Or, RAX, RCX),
            DW_OP_XOR => self.asm.alu(Alu::Xor, RAX, RCX),
            DW_OP_PLUS => self.asm.alu(Alu::Add, RAX, RCX),
            DW_OP_MINUS => self.asm.alu(Alu::Sub, RAX, RCX),
            DW_OP_MUL => self.asm.multiply(RAX, RCX),
            DW_OP_DIV | DW_OP_MOD => self.divide(opcode, failures),
            DW_OP_SHL | DW_OP_SHR | DW_OP_SHRA => self.shift(opcode),
            _ => {
                let condition = match opcode {
                    DW_OP_EQ => ConditionCode::Equal,
                    DW_OP_GE => ConditionCode::GreaterOrEqual,
                    DW_OP_GT => ConditionCode::Greater,
                    DW_OP_LE => ConditionCode::LessOrEqual,
                    DW_OP_LT => ConditionCode::Less,
                    _ => ConditionCode::NotEqual,
                };
                self.asm.alu(Alu::Cmp, RAX, RCX);
                self.asm.set_if(condition);
            }
        }
        self.asm.push(RAX);
    }

    /// Divides `rax` by `rcx`: signed, or the unsigned remainder.
    fn divide(&mut self, opcode: u8, failures: &FailureLabels) {
        self.asm.alu(Alu::Test, RCX, RCX);
        self.asm.jump_if(ConditionCode::Equal, failures.no_value);
        if opcode == operation::DW_OP_MOD {
            self.asm.number(RDX, 0);
            self.asm.unary(6, RCX);
            return self.asm.copy(RAX, RDX);
        }
        let (plain, done) = (self.asm.label(), self.asm.label());
        // The least number divided by -1 would trap.
        self.asm.alu_number(Alu::Cmp, RCX, -1);
        self.asm.jump_if(ConditionCode::NotEqual, plain);
        self.asm.unary(3, RAX);
        self.asm.jump(done);
        self.asm.bind(plain);
        // cqo
        self.asm.emit(&[0x48, 0x99]);
        self.asm.unary(7, RCX);
        self.asm.bind(done);
    }

    /// Shifts `rax` by `rcx` bits: for 64 or more only the sign is left.
    fn shift(&mut self, opcode: u8) {
        let (few, done) = (self.asm.label(), self.asm.label());
        let digit = match opcode {
            operation::DW_OP_SHL => 4,
            operation::DW_OP_SHR => 5,
            _ => 7,
        };
        self.asm.alu_number(Alu::Cmp, RCX, 63);
        self.asm.jump_if(ConditionCode::BelowOrEqual, few);
        if digit == 7 {
            self.asm.shift(7, RAX, 63);
        } else {
            self.asm.number(RAX, 0);
        }
        self.asm.jump(done);
        self.asm.bind(few);
        self.asm.shift_by_cl(digit, RAX);
        self.asm.bind(done);
    }
}
