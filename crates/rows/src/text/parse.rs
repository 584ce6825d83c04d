//! Parsing the text form.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::assemble;
use crate::addr::{Pointer, Vaddr};
use crate::arch::{Abi, AddressSize, Arch, Endian};
use crate::expression::{Expression, Operand, operation};
use crate::register::Register;
use crate::row::{CfaRule, RaState, RegisterRule, Row};
use crate::table::{FdeHeader, RowStart, Table};

/// Why a text is not a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}, in `{text}`")]
pub struct TableParseError {
    /// The line, counted from 1; 0 for a lone expression.
    pub line: usize,
    /// What was expected.
    pub what: &'static str,
    /// The text at fault.
    pub text: String,
}

/// What was expected, and the text at fault.
pub(crate) type TextFault<'s> = (&'static str, &'s str);

/// Parses the text form of a table.
///
/// # Errors
///
/// [`TableParseError`] with the line and the word at fault.
pub fn parse(text: &str) -> Result<Table, TableParseError> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(n, line)| (n + 1, line))
        .filter(|(_, line)| {
            let line = line.trim_start();
            !line.is_empty() && !line.starts_with('#')
        });
    let at = |line: usize| {
        move |(what, text): TextFault<'_>| TableParseError {
            line,
            what,
            text: text.to_owned(),
        }
    };
    let (number, first) = lines.next().unwrap_or((1, ""));
    let mut table = Table::new(abi(first).map_err(at(number))?);

    let mut open: Option<(usize, &str, FdeHeader)> = None;
    let mut rows: Vec<RowStart> = Vec::new();
    for (number, line) in lines {
        if let Some(rest) = line.strip_prefix("fn ") {
            close(&mut table, open.take(), &rows)?;
            rows.clear();
            open = Some((number, line, header(rest).map_err(at(number))?));
        } else if open.is_some() {
            rows.push(row_line(&mut table, line).map_err(at(number))?);
        } else {
            return Err(at(number)(("expected `fn START..END`", line)));
        }
    }
    close(&mut table, open, &rows)?;
    Ok(table)
}

fn close(
    table: &mut Table,
    open: Option<(usize, &str, FdeHeader)>,
    rows: &[RowStart],
) -> Result<(), TableParseError> {
    let Some((line, text, header)) = open else {
        return Ok(());
    };
    let what = "rows must begin at the entry's start, ascend, and end before its end";
    table
        .push(header, rows)
        .map(drop)
        .map_err(|_| TableParseError {
            line,
            what,
            text: text.to_owned(),
        })
}

fn abi(line: &str) -> Result<Abi, TextFault<'_>> {
    let fault = ("expected `arch NAME little|big`", line);
    let mut words = line.split_whitespace();
    let (Some("arch"), Some(name), Some(endian), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(fault);
    };
    let endian = match endian {
        "little" => Endian::Little,
        "big" => Endian::Big,
        _ => return Err(fault),
    };
    let known = Arch::KNOWN
        .into_iter()
        .find(|arch| arch.spec().name == name);
    let arch = known.or_else(|| other_arch(name)).ok_or(fault)?;
    Ok(Abi { arch, endian })
}

fn other_arch(name: &str) -> Option<Arch> {
    let (machine, bits) = name.strip_prefix("machine-")?.split_once('-')?;
    let word = match bits {
        "32" => AddressSize::W32,
        "64" => AddressSize::W64,
        _ => return None,
    };
    Some(Arch::from_elf(machine.parse().ok()?, word))
}

fn header(rest: &str) -> Result<FdeHeader, TextFault<'_>> {
    let mut words = rest.split_whitespace();
    let range = words.next().unwrap_or_default();
    let (start, end) = range
        .split_once("..")
        .ok_or(("expected START..END", rest))?;
    let mut header = FdeHeader {
        start: Vaddr(number(start)?),
        end: Vaddr(number(end)?),
        personality: None,
        lsda: None,
        origin: 0,
    };
    let words: Vec<&str> = words.collect();
    for (n, word) in words.iter().enumerate() {
        check_once(&words, n)?;
        match word.split_once('=') {
            Some(("lsda", addr)) => header.lsda = Some(Vaddr(number(addr)?)),
            Some(("personality", addr)) => {
                header.personality = Some(match bracketed(addr) {
                    Some(addr) => Pointer::Indirect(Vaddr(number(addr)?)),
                    None => Pointer::Direct(Vaddr(number(addr)?)),
                });
            }
            _ => return Err(("expected `personality=` or `lsda=`", word)),
        }
    }
    Ok(header)
}

fn row_line<'s>(table: &mut Table, line: &'s str) -> Result<RowStart, TextFault<'s>> {
    let abi = table.abi();
    let mut words = words(line)?.into_iter();
    let start = Vaddr(number(words.next().unwrap_or_default())?);
    let words: Vec<&str> = words.collect();

    // Expressions are assembled first; the row borrows their bytes.
    let mut assembled = Vec::new();
    for word in &words {
        assembled.push(match (word.find('{'), word.rfind('}')) {
            (Some(open), Some(close)) => {
                let inner = word.get(open + 1..close).unwrap_or_default();
                expression(inner, abi)?
            }
            _ => Vec::new(),
        });
    }
    let mut row = Row::new(abi.arch.spec().return_address);
    for (n, (word, bytes)) in words.iter().zip(&assembled).enumerate() {
        check_once(&words, n)?;
        item(&mut row, word, Expression(bytes), abi.arch)?;
    }
    let row = table
        .intern(&row)
        .map_err(|_| ("the table is too large", line))?;
    Ok(RowStart { start, row })
}

const GIVEN_TWICE: &str = "given a second time";

/// Refuses the `n`th word if an earlier one gives the same register or attribute.
fn check_once<'s>(words: &[&'s str], n: usize) -> Result<(), TextFault<'s>> {
    let subject = |word: &&'s str| match word.split_once('=') {
        Some((name, _)) => name,
        None => word.strip_suffix("-pc").unwrap_or(word), // `signed`, `signed-pc`
    };
    match words.get(..n).zip(words.get(n)) {
        Some((earlier, word)) if earlier.iter().any(|other| subject(other) == subject(word)) => {
            Err((GIVEN_TWICE, word))
        }
        _ => Ok(()),
    }
}

/// Splits at white space outside braces.
fn words(line: &str) -> Result<Vec<&str>, TextFault<'_>> {
    let mut found = Vec::new();
    let mut inside = false;
    let pieces = line.split(|c: char| {
        inside = (inside || c == '{') && c != '}';
        c.is_whitespace() && !inside
    });
    found.extend(pieces.filter(|piece| !piece.is_empty()));
    if inside {
        Err(("missing `}`", line))
    } else {
        Ok(found)
    }
}

/// One word of a row: an attribute or a rule.
fn item<'e, 's>(
    row: &mut Row<'e>,
    word: &'s str,
    expression: Expression<'e>,
    arch: Arch,
) -> Result<(), TextFault<'s>> {
    match word.split_once('=') {
        None if word == "signal" => row.signal_frame = true,
        None if word == "signed" => row.ra_state = RaState::Signed,
        None if word == "signed-pc" => row.ra_state = RaState::SignedWithPc,
        None => return Err(("expected NAME=RULE", word)),
        Some(("args", size)) => row.args_size = number(size)?,
        Some(("return", name)) => row.return_address = register(name, arch)?,
        Some(("cfa", rule)) => row.cfa = cfa_rule(rule, expression, arch)?,
        Some((name, rule)) => {
            let rule = register_rule(rule, expression, arch)?;
            let old = row
                .set_rule(register(name, arch)?, Some(rule))
                .map_err(|_| ("too many rules in one row", word))?;
            if old.is_some() {
                return Err((GIVEN_TWICE, word)); // by another name of the register
            }
        }
    }
    Ok(())
}

fn cfa_rule<'e, 's>(
    rule: &'s str,
    expression: Expression<'e>,
    arch: Arch,
) -> Result<CfaRule<'e>, TextFault<'s>> {
    if rule == "undefined" {
        return Ok(CfaRule::Undefined);
    }
    if in_braces(rule)? {
        return Ok(CfaRule::Expression(expression));
    }
    let sign = rule
        .rfind(['+', '-'])
        .ok_or(("expected REGISTER+OFFSET", rule))?;
    let (name, offset) = rule.split_at(sign);
    Ok(CfaRule::RegisterOffset {
        register: register(name, arch)?,
        offset: offset_of(offset)?,
    })
}

fn register_rule<'e, 's>(
    rule: &'s str,
    expression: Expression<'e>,
    arch: Arch,
) -> Result<RegisterRule<'e>, TextFault<'s>> {
    Ok(match (rule, bracketed(rule)) {
        ("undefined", _) => RegisterRule::Undefined,
        ("same", _) => RegisterRule::SameValue,
        (_, Some(inner)) if in_braces(inner)? => RegisterRule::Expression(expression),
        (_, Some(inner)) => match inner.strip_prefix("cfa") {
            Some(offset) => RegisterRule::Offset(offset_of(offset)?),
            None => return Err(("expected `[cfa+N]` or `[{…}]`", rule)),
        },
        _ if in_braces(rule)? => RegisterRule::ValExpression(expression),
        _ => match rule.strip_prefix("cfa") {
            Some(offset) => RegisterRule::ValOffset(offset_of(offset)?),
            None => RegisterRule::Register(register(rule, arch)?),
        },
    })
}

/// Whether the rule is just one expression.
fn in_braces(rule: &str) -> Result<bool, TextFault<'_>> {
    match (rule.starts_with('{'), rule.ends_with('}')) {
        (true, false) => Err(("expected the expression to end with `}`", rule)),
        (starts, _) => Ok(starts),
    }
}

fn bracketed(text: &str) -> Option<&str> {
    text.strip_prefix('[')?.strip_suffix(']')
}

fn register(name: &str, arch: Arch) -> Result<Register, TextFault<'_>> {
    arch.register_named(name).ok_or(("unknown register", name))
}

fn number(text: &str) -> Result<u64, TextFault<'_>> {
    let fault = ("expected a number", text);
    if text.contains('+') {
        return Err(fault); // the standard library accepts `+5`
    }
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|_| fault)
}

/// The `+N` or `-N` that follows a register or `cfa`.
fn offset_of(text: &str) -> Result<i64, TextFault<'_>> {
    if text.starts_with(['+', '-']) {
        signed(text)
    } else {
        Err(("expected +N or -N", text))
    }
}

fn signed(text: &str) -> Result<i64, TextFault<'_>> {
    text.parse().map_err(|_| ("expected +N or -N", text))
}

/// Assembles an expression from its text, without the braces.
///
/// # Errors
///
/// [`TableParseError`] with line 0.
pub fn parse_expression(text: &str, abi: Abi) -> Result<Vec<u8>, TableParseError> {
    expression(text, abi).map_err(|(what, text)| TableParseError {
        line: 0,
        what,
        text: text.to_owned(),
    })
}

/// The bytes of an expression, without the braces.
pub(crate) fn expression(text: &str, abi: Abi) -> Result<Vec<u8>, TextFault<'_>> {
    if let Some(hex) = text.strip_prefix('#') {
        return raw_bytes(hex);
    }
    let mut out = Vec::new();
    for piece in text
        .split(';')
        .map(str::trim)
        .filter(|piece| !piece.is_empty())
    {
        let mut words = piece.split_whitespace();
        let opcode = opcode(words.next().unwrap_or_default())?;
        let operand = operation::operand_of(opcode).ok_or(("unknown operation", piece))?;
        let mut next = || words.next().ok_or(("operand is missing", piece));
        let values = match operand {
            Operand::None => (0, 0),
            Operand::Address | Operand::Unsigned(_) | Operand::Uleb => (number(next()?)?, 0),
            Operand::Signed(_) | Operand::Sleb | Operand::Branch => {
                (signed(next()?)?.cast_unsigned(), 0)
            }
            Operand::RegisterOffset => (number(next()?)?, signed(next()?)?),
        };
        if words.next().is_some() {
            return Err(("more operands than the operation takes", piece));
        }
        if !fits(operand, values.0, abi) {
            return Err(("operand does not fit", piece));
        }
        assemble(&mut out, opcode, operand, values, abi);
    }
    Ok(out)
}

/// Whether `value` fits in the operand's bytes.
pub(crate) fn fits(operand: Operand, value: u64, abi: Abi) -> bool {
    let (size, is_signed) = match operand {
        Operand::Address => (abi.arch.spec().address_size.bytes(), false),
        Operand::Unsigned(size) => (size, false),
        Operand::Signed(size) => (size, true),
        Operand::Branch => (2, true),
        Operand::None | Operand::Uleb | Operand::Sleb | Operand::RegisterOffset => return true,
    };
    if is_signed {
        value == operation::sign_extend(value, size)
    } else {
        size >= 8 || value >> (8 * size) == 0
    }
}

fn raw_bytes(hex: &str) -> Result<Vec<u8>, TextFault<'_>> {
    let fault = ("expected pairs of hexadecimal digits", hex);
    let all_digits = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !all_digits || !hex.len().is_multiple_of(2) {
        return Err(fault);
    }
    let pair = |at: usize| {
        hex.get(at..at + 2)
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    (0..hex.len())
        .step_by(2)
        .map(|at| pair(at).ok_or(fault))
        .collect()
}

fn opcode(name: &str) -> Result<u8, TextFault<'_>> {
    let family = |prefix: &str, base: u8| {
        let number: u8 = name.strip_prefix(prefix)?.parse().ok()?;
        (number < 32).then(|| base + number)
    };
    let single = operation::SINGLE
        .iter()
        .find(|(_, known, _)| *known == name);
    single
        .map(|(code, ..)| *code)
        .or_else(|| family("lit", operation::DW_OP_LIT0))
        .or_else(|| family("breg", operation::DW_OP_BREG0))
        .ok_or(("unknown operation", name))
}
