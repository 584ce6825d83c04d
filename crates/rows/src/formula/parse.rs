//! Reading formulas.

use super::{
    BinaryOperator, Formula, FormulaBuilder, InitialStack, MAX_DEPTH, Node, NodeId, TooLarge,
    operator,
};
use crate::arch::Abi;
use crate::expression::operation;

/// Why a text is not a formula or a statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct FormulaParseError {
    /// The position, in bytes from the start of the text.
    pub at: usize,
    /// What was expected, or is wrong.
    pub what: &'static str,
}

const OPERAND: &str = "expected a register, a number, `cfa`, `*` or `(`";

/// Reads the formula from a position in a text on.
pub(super) fn formula(
    text: &str,
    from: usize,
    abi: Abi,
    initial: InitialStack,
) -> Result<Formula, FormulaParseError> {
    let mut parser = Parser {
        text,
        at: from,
        initial,
        builder: FormulaBuilder::new(abi),
        depth: 0,
    };
    let root = parser.sum(0)?;
    match parser.rest() {
        "" => Ok(parser.builder.finish(root)),
        rest if rest.starts_with('=') => Err(parser.fault("`==` compares")),
        rest if rest.starts_with(')') => Err(parser.fault("`(` is missing")),
        _ => Err(parser.fault("expected an operator, as `+`, `&`, `<<` or `==`")),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    initial: InitialStack,
    builder: FormulaBuilder,
    /// How deep the recursion is.
    depth: u8,
}

impl<'t> Parser<'t> {
    /// The rest of the text, after white space.
    fn rest(&mut self) -> &'t str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    fn fault(&self, what: &'static str) -> FormulaParseError {
        FormulaParseError { at: self.at, what }
    }

    fn is_next(&mut self, symbol: &str) -> bool {
        let is_next = self.rest().starts_with(symbol);
        if is_next {
            self.at += symbol.len();
        }
        is_next
    }

    fn expect(&mut self, symbol: &str, what: &'static str) -> Result<(), FormulaParseError> {
        if self.is_next(symbol) {
            Ok(())
        } else {
            Err(self.fault(what))
        }
    }

    /// A name or a number: letters, digits, and other characters of names.
    fn word(&mut self) -> &'t str {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default();
        self.at += end;
        word
    }

    fn push(&mut self, node: Node) -> Result<NodeId, FormulaParseError> {
        let pushed = self.builder.push(node);
        self.bounded(pushed)
    }

    fn number(&mut self, number: u64) -> Result<NodeId, FormulaParseError> {
        let pushed = self.builder.number(number);
        self.bounded(pushed)
    }

    fn bounded(&self, pushed: Result<NodeId, TooLarge>) -> Result<NodeId, FormulaParseError> {
        pushed.map_err(|TooLarge| self.fault("the formula is too large"))
    }

    /// Operands, with operators between them that bind at least this tightly.
    fn sum(&mut self, least: u8) -> Result<NodeId, FormulaParseError> {
        let mut left = self.operand()?;
        while let Some(op) = self.operator().filter(|op| op.precedence >= least) {
            self.at += op.symbol.len();
            let right = self.sum(op.precedence + 1)?;
            let sum = self.builder.binary(op, left, right);
            left = self.bounded(sum)?;
        }
        Ok(left)
    }

    /// The next operator.
    fn operator(&mut self) -> Option<&'static BinaryOperator> {
        let rest = self.rest();
        let mut infix = super::OPERATORS.iter().filter(|op| op.precedence != 0);
        infix.find(|op| rest.starts_with(op.symbol))
    }

    /// An operand with its prefixes. The parser recurses through here.
    fn operand(&mut self) -> Result<NodeId, FormulaParseError> {
        if self.depth >= 2 * MAX_DEPTH {
            return Err(self.fault("it is nested too deeply"));
        }
        self.depth += 1;
        let operand = self.operand_within();
        self.depth -= 1;
        operand
    }

    fn operand_within(&mut self) -> Result<NodeId, FormulaParseError> {
        let start = self.rest().chars().next();
        match start {
            Some('*') => {
                self.at += 1;
                let size = self.load_size()?;
                let address = self.operand()?;
                self.push(Node::Load(size, address))
            }
            Some('-') => {
                self.at += 1;
                if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
                    let number = self.literal()?;
                    return self.number(number.wrapping_neg());
                }
                let value = self.operand()?;
                self.push(Node::Unary(operation::DW_OP_NEG, value))
            }
            Some('~') => {
                self.at += 1;
                let value = self.operand()?;
                self.push(Node::Unary(operation::DW_OP_NOT, value))
            }
            Some('!') => {
                self.at += 1;
                let value = self.operand()?;
                let zero = self.number(0)?;
                let equal = operator(operation::DW_OP_EQ).ok_or(self.fault(OPERAND))?;
                self.push(Node::Binary(equal, value, zero))
            }
            Some('(') => {
                self.at += 1;
                let inner = self.sum(0)?;
                self.expect(")", "`)` is missing")?;
                Ok(inner)
            }
            Some('[') => {
                self.at += 1;
                let address = self.sum(0)?;
                self.expect("]", "`]` is missing")?;
                self.push(Node::Load(None, address))
            }
            Some('0'..='9') => {
                let number = self.literal()?;
                self.number(number)
            }
            Some('%') => {
                self.at += 1;
                self.register()
            }
            _ => self.named(),
        }
    }

    /// The `u32` of `*u32 E`, as a number of bytes.
    fn load_size(&mut self) -> Result<Option<u8>, FormulaParseError> {
        let start = self.at;
        let word = self.word();
        let bits = word.strip_prefix('u');
        let bits = bits.filter(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(bits) = bits.filter(|bits| !bits.is_empty()) else {
            self.at = start;
            return Ok(None);
        };
        let word = self.builder.abi.arch.spec().address_size.bytes();
        let bytes = bits.parse::<u8>().ok().filter(|bits| bits % 8 == 0);
        match bytes.map(|bits| bits / 8) {
            Some(bytes) if (1..=word).contains(&bytes) => Ok(Some(bytes)),
            _ => {
                self.at = start;
                Err(self.fault("memory is read by `u8` to a word, in whole bytes"))
            }
        }
    }

    fn literal(&mut self) -> Result<u64, FormulaParseError> {
        self.rest();
        let start = self.at;
        let word = self.word();
        let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        let number = match digits {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        let mask = self.builder.abi.arch.spec().address_size.mask();
        number.ok().filter(|number| number & !mask == 0).ok_or({
            let what = "expected a number that fits into a word, as 16 or 0x10";
            FormulaParseError { at: start, what }
        })
    }

    fn register(&mut self) -> Result<NodeId, FormulaParseError> {
        self.rest();
        let start = self.at;
        let word = self.word();
        match self.builder.abi.arch.register_named(word) {
            Some(register) => self.push(Node::Register(register)),
            None => {
                self.at = start;
                let what = match word {
                    "" => OPERAND,
                    _ => "no register has this name; numbers stand as `reg77`",
                };
                Err(self.fault(what))
            }
        }
    }

    fn named(&mut self) -> Result<NodeId, FormulaParseError> {
        let start = self.at;
        match self.word() {
            "cfa" if self.initial == InitialStack::Nothing => {
                self.at = start;
                Err(self.fault(
                    "the CFA is what is to be computed: only registers and memory are known",
                ))
            }
            "cfa" => self.push(Node::Cfa),
            "abs" if self.is_next("(") => {
                let value = self.sum(0)?;
                self.expect(")", "`)` is missing")?;
                self.push(Node::Unary(operation::DW_OP_ABS, value))
            }
            "shra" if self.is_next("(") => {
                let value = self.sum(0)?;
                self.expect(",", "expected `,` and by how many bits")?;
                let bits = self.sum(0)?;
                self.expect(")", "`)` is missing")?;
                let shra = operator(operation::DW_OP_SHRA).ok_or(self.fault(OPERAND))?;
                self.push(Node::Binary(shra, value, bits))
            }
            "addr" if self.is_next("(") => {
                let address = self.literal()?;
                self.expect(")", "`)` is missing")?;
                self.push(Node::Address(address))
            }
            _ => {
                self.at = start;
                self.register()
            }
        }
    }
}
