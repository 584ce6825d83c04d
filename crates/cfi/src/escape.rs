//! The bytes of `.cfi_escape`: call frame instructions without an assembler directive.

use alloc::vec::Vec;

use unspool_rows::formula::{ExpressionUse, FormulaParseError, Statement};
use unspool_rows::leb128::put_unsigned;
use unspool_rows::{Abi, Register, Vaddr};

use crate::error::CfiError;
use crate::opcode;
use crate::pointer::PointerEncoding;
use crate::{CfiSection, Cie, Instruction, Instructions, SectionKind};

/// The instruction of a statement (DWARF 5 §6.4.2.2, §6.4.2.3); `None` if the statement sets
/// nothing.
#[must_use]
pub fn encode(statement: &Statement) -> Option<Vec<u8>> {
    let (code, register) = match statement.purpose {
        ExpressionUse::Any => return None,
        ExpressionUse::Cfa => (opcode::DEF_CFA_EXPRESSION, None),
        ExpressionUse::Address(register) => (opcode::EXPRESSION, Some(register)),
        ExpressionUse::Value(register) => (opcode::VAL_EXPRESSION, Some(register)),
    };
    let mut bytes = Vec::from([code]);
    if let Some(Register(number)) = register {
        put_unsigned(&mut bytes, number.into());
    }
    put_unsigned(&mut bytes, statement.expression.len() as u64);
    bytes.extend(&statement.expression);
    Some(bytes)
}

/// Decodes instructions, and passes them on one after another. Factored offsets are in words, as in
/// the CIEs that assemblers write.
///
/// # Errors
///
/// An instruction is unknown or truncated; those before it have been passed on. The error's offset
/// is relative to the bytes.
pub fn decode<'b>(
    bytes: &'b [u8],
    abi: Abi,
    mut see: impl FnMut(Instruction<'b>),
) -> Result<(), CfiError> {
    let address_size = abi.arch.spec().address_size;
    let section = CfiSection {
        kind: SectionKind::EhFrame,
        data: bytes,
        address: Vaddr(0),
        text_base: None,
        data_base: None,
        abi,
    };
    let cie = Cie {
        offset: 0,
        version: 1,
        augmentation: &[],
        code_alignment: 1,
        data_alignment: -i64::from(address_size.bytes()),
        return_address: abi.arch.spec().return_address,
        signal_frame: false,
        b_key: false,
        address_encoding: PointerEncoding::ABSOLUTE,
        lsda_encoding: PointerEncoding::ABSOLUTE,
        personality: None,
        address_size,
        has_augmentation_data: false,
        unknown_letter: None,
        segment_size: 0,
        instructions: &[],
        instructions_offset: 0,
    };
    for instruction in Instructions::new(&section, &cie, 0, bytes.len()) {
        see(instruction?.1);
    }
    Ok(())
}

/// The statement that an instruction makes by an expression, if it does.
#[must_use]
pub fn statement(instruction: &Instruction<'_>) -> Option<Statement> {
    let (purpose, expression) = match *instruction {
        Instruction::DefCfaExpression(expression) => (ExpressionUse::Cfa, expression),
        Instruction::Expression(register, expression) => {
            (ExpressionUse::Address(register), expression)
        }
        Instruction::ValExpression(register, expression) => {
            (ExpressionUse::Value(register), expression)
        }
        _ => return None,
    };
    Some(Statement {
        purpose,
        expression: expression.0.to_vec(),
    })
}

/// Parses a list of bytes: lines of `.cfi_escape`, numbers with commas between them, or at least
/// two pairs of hexadecimal digits. `None` for other texts.
///
/// # Errors
///
/// One of the numbers does not fit into a byte.
pub fn parse_bytes(text: &str) -> Result<Option<Vec<u8>>, FormulaParseError> {
    let is_escape = text.trim_start().starts_with(DIRECTIVE);
    let is_listed =
        |c: char| c.is_ascii_hexdigit() || c.is_whitespace() || matches!(c, 'x' | 'X' | ',');
    if !is_escape && !text.chars().all(is_listed) {
        return Ok(None);
    }
    if is_escape || text.contains(',') {
        listed(text).map(Some)
    } else {
        Ok(pairs(text))
    }
}

const DIRECTIVE: &str = ".cfi_escape";

/// Numbers with commas between them, in one line or several.
fn listed(text: &str) -> Result<Vec<u8>, FormulaParseError> {
    let mut bytes = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive(['\n', ';']) {
        let mut at = start;
        start += line.len();
        let code = line.split('#').next().unwrap_or_default();
        for piece in code.split([',', ';']) {
            let number = piece.trim();
            let number = number.strip_prefix(DIRECTIVE).unwrap_or(number).trim();
            let byte = match number.strip_prefix("0x").or(number.strip_prefix("0X")) {
                Some(digits) => u8::from_str_radix(digits, 16).ok(),
                None => number.parse().ok(),
            };
            match byte {
                Some(byte) => bytes.push(byte),
                // The end of a line.
                None if number.is_empty() => {}
                None => {
                    let at = at + piece.find(number).unwrap_or(0);
                    let what = "expected a number from 0 to 255, as 16 or 0x10";
                    return Err(FormulaParseError { at, what });
                }
            }
            at += piece.len() + 1;
        }
    }
    Ok(bytes)
}

/// Pairs of hexadecimal digits, at least two.
fn pairs(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    if digits.len() < 4 || !digits.len().is_multiple_of(2) {
        return None;
    }
    let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn bytes_and_formulas_are_distinguished() {
        let all = [
            (
                ".cfi_escape 0x0f, 0x05,0x77, 8, 6, 0x23, 0x08 # cfa",
                vec![0x0f, 5, 0x77, 8, 6, 0x23, 8],
            ),
            (
                ".cfi_escape 0x2e,0x10\n\t.cfi_escape 10; .cfi_escape 11\n",
                vec![0x2e, 0x10, 10, 11],
            ),
            ("0x0f,0x05", vec![0x0f, 5]),
            ("0f057708062308", vec![0x0f, 5, 0x77, 8, 6, 0x23, 8]),
            ("0f 05 77", vec![0x0f, 5, 0x77]),
        ];
        for (text, bytes) in all {
            assert_eq!(parse_bytes(text), Ok(Some(bytes)), "{text}");
        }
        for text in [
            "8",
            "0x10",
            "cfa",
            "rsp+8",
            "{#7708}",
            "shra(1, 2)",
            "8+shra(1, 2)",
            "",
        ] {
            assert_eq!(parse_bytes(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn errors_point_at_invalid_bytes() {
        for (text, at) in [
            ("0x0f, 256", 6),
            (".cfi_escape 1, 0xabc", 15),
            (".cfi_escape 1\n.cfi_escape rax", 26),
        ] {
            assert_eq!(
                parse_bytes(text).map_err(|error| error.at),
                Err(at),
                "{text}"
            );
        }
    }
}
