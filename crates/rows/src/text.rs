//! The text form of a table, which parses back.
//!
//! ```text
//! arch x86-64 little
//! fn 0x1130..0x1156 personality=[0x4010] lsda=0x2040
//!   0x1130  cfa=rsp+8  ra=[cfa-8]
//!   0x1131  cfa=rsp+16  ra=[cfa-8]  rbp=[cfa-16]
//! fn 0x1160..0x1170
//!   0x1160  cfa={breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}  ra=[cfa-8]
//! ```
//!
//! | text | rule |
//! |---|---|
//! | `cfa=rsp+8` · `cfa={…}` · `cfa=undefined` | the CFA: register + offset, expression, none |
//! | `rbp=undefined` · `rbp=same` | undefined, same value |
//! | `rbp=[cfa-16]` · `rbp=cfa-16` | in memory at CFA-16, the value CFA-16 |
//! | `rbp=rcx` | in register `rcx` |
//! | `rbp=[{…}]` · `rbp={…}` | in memory at the expression, the expression's value |
//! | `signal` · `return=rdi` · `args=16` · `signed` · `signed-pc` | other attributes, if unusual |
//!
//! Registers have their psABI names, or `reg77`. Expressions are `DW_OP` names without the prefix.
//! Bytes that these names would not reproduce exactly stand as `{#1a2b}`. `#` at the start of a
//! line makes it a comment. A line gives each register or attribute only once.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::addr::Pointer;
use crate::arch::{Abi, Arch, Endian, RegisterName};
use crate::expression::{Expression, Operand, operation};
use crate::leb128::{put_signed, put_unsigned};
use crate::register::Register;
use crate::row::{CfaRule, RaState, RegisterRule, Row};
use crate::table::{Fde, Table};

mod parse;

pub use parse::{TableParseError, parse, parse_expression};
pub(crate) use parse::{TextFault, expression, fits};

/// The table of a function that saves `rbp` and has 16 bytes of variables: for examples.
pub const EXAMPLE: &str = "\
arch x86-64 little
fn 0x1000..0x1040
  0x1000  cfa=rsp+8  ra=[cfa-8]
  0x1008  cfa=rsp+32  ra=[cfa-8]  rbp=[cfa-16]
";

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", AbiText(self.abi()))?;
        for fde in self.fdes() {
            writeln!(f, "{}", FdeText(fde))?;
            for row_start in self.rows(fde) {
                if let Some(row) = self.row(row_start.row) {
                    writeln!(f, "  {:#x}  {}", row_start.start.0, row.display(self.abi()))?;
                }
            }
        }
        Ok(())
    }
}

/// Prints the first line of a table.
#[derive(Debug, Clone, Copy)]
pub struct AbiText(pub Abi);

impl fmt::Display for AbiText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endian = match self.0.endian {
            Endian::Little => "little",
            Endian::Big => "big",
        };
        match self.0.arch {
            Arch::Other {
                machine,
                address_size,
            } => {
                write!(
                    f,
                    "arch machine-{machine}-{} {endian}",
                    address_size.bytes() * 8
                )
            }
            arch => write!(f, "arch {} {endian}", arch.spec().name),
        }
    }
}

/// Prints the line that begins an entry.
#[derive(Debug, Clone, Copy)]
pub struct FdeText<'a>(pub &'a Fde);

impl fmt::Display for FdeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fn {:#x}..{:#x}", self.0.start.0, self.0.end.0)?;
        match self.0.personality {
            None => {}
            Some(Pointer::Direct(addr)) => write!(f, " personality={:#x}", addr.0)?,
            Some(Pointer::Indirect(addr)) => write!(f, " personality=[{:#x}]", addr.0)?,
        }
        match self.0.lsda {
            None => Ok(()),
            Some(addr) => write!(f, " lsda={:#x}", addr.0),
        }
    }
}

impl Row<'_> {
    /// The row as text, without its address. The ABI has the names of registers.
    #[must_use]
    pub fn display(&self, abi: Abi) -> RowText<'_> {
        RowText(self, abi)
    }
}

/// Prints one row ([`Row::display`]).
#[derive(Debug, Clone, Copy)]
pub struct RowText<'a>(&'a Row<'a>, Abi);

impl fmt::Display for RowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowText(row, abi) = *self;
        f.write_str("cfa=")?;
        match row.cfa {
            CfaRule::Undefined => f.write_str("undefined")?,
            CfaRule::RegisterOffset { register, offset } => {
                write!(f, "{}{offset:+}", RegisterName(register, abi.arch))?;
            }
            CfaRule::Expression(expression) => ExpressionText(expression, abi).fmt(f)?,
        }
        if row.signal_frame {
            f.write_str("  signal")?;
        }
        if row.return_address != abi.arch.spec().return_address {
            write!(f, "  return={}", RegisterName(row.return_address, abi.arch))?;
        }
        match row.ra_state {
            RaState::Plain => {}
            RaState::Signed => f.write_str("  signed")?,
            RaState::SignedWithPc => f.write_str("  signed-pc")?,
        }
        if row.args_size != 0 {
            write!(f, "  args={}", row.args_size)?;
        }
        let is_return_address = |(register, _): &(Register, _)| *register == row.return_address;
        let others = row.rules().filter(|rule| !is_return_address(rule));
        for (register, rule) in row.rules().filter(is_return_address).chain(others) {
            write!(
                f,
                "  {}={}",
                RegisterName(register, abi.arch),
                RuleText(rule, abi)
            )?;
        }
        Ok(())
    }
}

/// Prints a register's rule.
#[derive(Debug, Clone, Copy)]
pub struct RuleText<'a>(pub RegisterRule<'a>, pub Abi);

impl fmt::Display for RuleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RegisterRule::Undefined => f.write_str("undefined"),
            RegisterRule::SameValue => f.write_str("same"),
            RegisterRule::Offset(offset) => write!(f, "[cfa{offset:+}]"),
            RegisterRule::ValOffset(offset) => write!(f, "cfa{offset:+}"),
            RegisterRule::Register(register) => RegisterName(register, self.1.arch).fmt(f),
            RegisterRule::Expression(expression) => {
                write!(f, "[{}]", ExpressionText(expression, self.1))
            }
            RegisterRule::ValExpression(expression) => ExpressionText(expression, self.1).fmt(f),
        }
    }
}

/// Prints an expression in braces.
#[derive(Debug, Clone, Copy)]
pub struct ExpressionText<'a>(pub Expression<'a>, pub Abi);

impl fmt::Display for ExpressionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operations() {
            Some(text) => write!(f, "{{{text}}}"),
            None => {
                f.write_str("{#")?;
                self.0
                    .0
                    .iter()
                    .try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_char('}')
            }
        }
    }
}

impl ExpressionText<'_> {
    /// The operations by name, if these assemble to the same bytes.
    fn operations(&self) -> Option<String> {
        let ExpressionText(expression, abi) = *self;
        let mut text = String::new();
        let mut again = Vec::new();
        for operation in expression.operations(abi) {
            let operation = operation.ok()?;
            if !text.is_empty() {
                text.push_str("; ");
            }
            put_operation_name(&mut text, operation.opcode);
            let operand = operation::operand_of(operation.opcode)?;
            let (first, second) = (operation.unsigned(), operation.second_signed());
            match operand {
                Operand::None => Ok(()),
                Operand::Address => write!(text, " {first:#x}"),
                Operand::Unsigned(_) | Operand::Uleb => write!(text, " {first}"),
                Operand::Signed(_) | Operand::Sleb | Operand::Branch => {
                    write!(text, " {}", operation.signed())
                }
                Operand::RegisterOffset => write!(text, " {first} {second}"),
            }
            .ok()?;
            assemble(&mut again, operation.opcode, operand, (first, second), abi);
        }
        (again == expression.0).then_some(text)
    }
}

fn put_operation_name(text: &mut String, opcode: u8) {
    use operation::{DW_OP_BREG0, DW_OP_BREG31, DW_OP_LIT0, DW_OP_LIT31};
    let (family, number) = match opcode {
        DW_OP_LIT0..=DW_OP_LIT31 => ("lit", opcode - DW_OP_LIT0),
        DW_OP_BREG0..=DW_OP_BREG31 => ("breg", opcode - DW_OP_BREG0),
        _ => {
            let name = operation::SINGLE.iter().find(|(code, ..)| *code == opcode);
            text.push_str(name.map_or("?", |(_, name, _)| name));
            return;
        }
    };
    // Writing to a `String` cannot fail.
    let _ = write!(text, "{family}{number}");
}

/// Appends an operation with its operands.
pub(crate) fn assemble(
    out: &mut Vec<u8>,
    opcode: u8,
    operand: Operand,
    values: (u64, i64),
    abi: Abi,
) {
    let (first, second) = values;
    out.push(opcode);
    match operand {
        Operand::None => {}
        Operand::Address => put_fixed(out, first, abi.arch.spec().address_size.bytes(), abi.endian),
        Operand::Unsigned(size) | Operand::Signed(size) => put_fixed(out, first, size, abi.endian),
        Operand::Branch => put_fixed(out, first, 2, abi.endian),
        Operand::Uleb => put_unsigned(out, first),
        Operand::Sleb => put_signed(out, first.cast_signed()),
        Operand::RegisterOffset => {
            put_unsigned(out, first);
            put_signed(out, second);
        }
    }
}

fn put_fixed(out: &mut Vec<u8>, value: u64, size: u8, endian: Endian) {
    let size = usize::from(size);
    match endian {
        Endian::Little => out.extend(value.to_le_bytes().iter().take(size)),
        Endian::Big => out.extend(
            value
                .to_be_bytes()
                .iter()
                .skip(8_usize.saturating_sub(size)),
        ),
    }
}

#[cfg(test)]
mod tests;
