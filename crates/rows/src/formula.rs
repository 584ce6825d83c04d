//! DWARF expressions as formulas, which people can read and write: `*(rbp-8)+8`.
//!
//! | text | operation |
//! |---|---|
//! | `8` · `0x1f` · `-8` | a constant |
//! | `rsp` · `%rsp` · `reg77` | a register of this frame; `rip` is the address of the code |
//! | `cfa` | the CFA: what is on the stack when a register's rule is evaluated |
//! | `addr(0x4010)` | an address as linked, `DW_OP_addr` |
//! | `*E` · `[E]` | the word in memory at E, `DW_OP_deref` |
//! | `*u32 E` | the 4 bytes there, zero-extended, `DW_OP_deref_size`; `u8` to `u64` |
//! | `-E` `~E` `!E` `abs(E)` | negated, all bits turned, whether it is 0, without its sign |
//! | `*` `/` `%` `+` `-` `<<` `>>` `&` `^` <code>&#124;</code> | as in C, with C's precedence |
//! | `shra(E, E)` | a shift to the right that keeps the sign |
//! | `==` `!=` `<` `<=` `>` `>=` | 1 if it is so, else 0 |
//!
//! Operators are those of DWARF 5 §2.5.1.4 and §2.5.1.5: comparisons and `/` are signed, `%` and
//! `>>` unsigned.
//!
//! [`Formula::parse`] reads the text, [`Formula::assemble`] writes operations, and
//! [`Formula::from_expression`] lifts operations to a formula. All are bounded: a formula that is
//! written out has at most [`MAX_NODES`] nodes, nested at most [`MAX_DEPTH`] deep. [`Statement`] is
//! a whole line, `rbx = *(cfa-16)`.

use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use crate::arch::{Abi, RegisterName};
use crate::expression::{Expression, ExpressionError, MAX_STACK_VALUES, Operand, operation};
use crate::leb128::{put_signed, put_unsigned};
use crate::register::Register;
use crate::text::assemble;

mod parse;
mod statement;

pub use parse::FormulaParseError;
pub use statement::{ExpressionUse, OperationsText, Statement};

/// The limit of nodes in a formula that is written out.
pub const MAX_NODES: u32 = 1024;

/// The limit of nesting. Evaluation takes at most this many values on the stack, and the CFA.
pub const MAX_DEPTH: u8 = 60;

/// A node of a formula, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodeId(usize);

/// An operator with two operands.
#[derive(Debug, PartialEq, Eq)]
struct BinaryOperator {
    opcode: u8,
    symbol: &'static str,
    /// Binds tighter if greater; 0 is written as a function.
    precedence: u8,
}

const SUM: u8 = 9;

/// Those with two characters first: `<` begins `<<`.
static OPERATORS: [BinaryOperator; 17] = [
    binary(operation::DW_OP_SHL, "<<", 8),
    binary(operation::DW_OP_SHR, ">>", 8),
    binary(operation::DW_OP_LE, "<=", 7),
    binary(operation::DW_OP_GE, ">=", 7),
    binary(operation::DW_OP_EQ, "==", 6),
    binary(operation::DW_OP_NE, "!=", 6),
    binary(operation::DW_OP_LT, "<", 7),
    binary(operation::DW_OP_GT, ">", 7),
    binary(operation::DW_OP_MUL, "*", 10),
    binary(operation::DW_OP_DIV, "/", 10),
    binary(operation::DW_OP_MOD, "%", 10),
    binary(operation::DW_OP_PLUS, "+", SUM),
    binary(operation::DW_OP_MINUS, "-", SUM),
    binary(operation::DW_OP_AND, "&", 5),
    binary(operation::DW_OP_XOR, "^", 4),
    binary(operation::DW_OP_OR, "|", 3),
    binary(operation::DW_OP_SHRA, "shra", 0),
];

const fn binary(opcode: u8, symbol: &'static str, precedence: u8) -> BinaryOperator {
    BinaryOperator {
        opcode,
        symbol,
        precedence,
    }
}

fn operator(opcode: u8) -> Option<&'static BinaryOperator> {
    OPERATORS.iter().find(|known| known.opcode == opcode)
}

/// Operations with one operand, and how they are written.
static UNARY: [(u8, &str); 3] = [
    (operation::DW_OP_NEG, "-"),
    (operation::DW_OP_NOT, "~"),
    (operation::DW_OP_ABS, "abs"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Number(u64),
    Address(u64),
    Register(Register),
    Cfa,
    /// A load from memory: a word, or this many bytes.
    Load(Option<u8>, NodeId),
    /// An operation, by its opcode.
    Unary(u8, NodeId),
    Binary(&'static BinaryOperator, NodeId, NodeId),
}

impl Node {
    fn operands(self) -> impl Iterator<Item = NodeId> {
        let (first, second) = match self {
            Node::Number(_) | Node::Address(_) | Node::Register(_) | Node::Cfa => (None, None),
            Node::Load(_, of) | Node::Unary(_, of) => (Some(of), None),
            Node::Binary(_, a, b) => (Some(a), Some(b)),
        };
        first.into_iter().chain(second)
    }
}

/// A node with its size and depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MeasuredNode {
    node: Node,
    depth: u8,
    size: u32,
}

/// An expression as a formula. Nodes stand after their operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formula {
    nodes: Vec<MeasuredNode>,
    root: NodeId,
    abi: Abi,
}

/// Why an expression has no formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormulaError {
    /// It cannot be evaluated.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// It branches.
    #[error("the operation at byte {offset} branches")]
    Branch {
        /// Offset of the operation, in bytes.
        offset: usize,
    },
    /// It computes something that its value does not depend on, and that may have no value.
    #[error("a value is computed and not used")]
    Unused,
    /// It is larger than [`MAX_NODES`], or deeper than [`MAX_DEPTH`].
    #[error("the formula would be too large")]
    TooLarge,
}

/// A formula that would be larger than [`MAX_NODES`], or deeper than [`MAX_DEPTH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TooLarge;

impl From<TooLarge> for FormulaError {
    fn from(TooLarge: TooLarge) -> Self {
        FormulaError::TooLarge
    }
}

/// Nodes that become a formula.
struct FormulaBuilder {
    nodes: Vec<MeasuredNode>,
    abi: Abi,
}

impl FormulaBuilder {
    fn new(abi: Abi) -> FormulaBuilder {
        FormulaBuilder {
            nodes: Vec::new(),
            abi,
        }
    }

    fn part(&self, id: NodeId) -> Option<MeasuredNode> {
        self.nodes.get(id.0).copied()
    }

    fn number_at(&self, id: NodeId) -> Option<i64> {
        match self.part(id)?.node {
            Node::Number(number) => Some(signed(number, self.abi)),
            _ => None,
        }
    }

    fn push(&mut self, node: Node) -> Result<NodeId, TooLarge> {
        let (mut depth, mut size) = (0_u8, 1_u32);
        for part in node.operands().filter_map(|id| self.part(id)) {
            depth = depth.max(part.depth);
            size = size.saturating_add(part.size);
        }
        let depth = depth + 1; // of operands at most `MAX_DEPTH` deep
        if depth > MAX_DEPTH || size > MAX_NODES {
            return Err(TooLarge);
        }
        self.nodes.push(MeasuredNode { node, depth, size });
        Ok(NodeId(self.nodes.len() - 1))
    }

    fn number(&mut self, number: u64) -> Result<NodeId, TooLarge> {
        self.push(Node::Number(
            number & self.abi.arch.spec().address_size.mask(),
        ))
    }

    /// Two operands; `a + -8` is `a - 8`.
    fn binary(
        &mut self,
        op: &'static BinaryOperator,
        a: NodeId,
        b: NodeId,
    ) -> Result<NodeId, TooLarge> {
        let turned = match op.opcode {
            operation::DW_OP_PLUS => operator(operation::DW_OP_MINUS),
            operation::DW_OP_MINUS => operator(operation::DW_OP_PLUS),
            _ => None,
        };
        let negative = self.number_at(b).filter(|number| *number < 0);
        match turned.zip(negative.and_then(i64::checked_neg)) {
            Some((turned, number)) => {
                let b = self.number(number.cast_unsigned())?;
                self.push(Node::Binary(turned, a, b))
            }
            None => self.push(Node::Binary(op, a, b)),
        }
    }

    fn finish(self, root: NodeId) -> Formula {
        Formula {
            nodes: self.nodes,
            root,
            abi: self.abi,
        }
    }
}

/// A word as a signed number.
fn signed(number: u64, abi: Abi) -> i64 {
    operation::sign_extend(number, abi.arch.spec().address_size.bytes()).cast_signed()
}

impl Formula {
    /// Reads a formula.
    ///
    /// # Errors
    ///
    /// [`FormulaParseError`], with the position in the text.
    pub fn parse(text: &str, abi: Abi) -> Result<Formula, FormulaParseError> {
        parse::formula(text, 0, abi, InitialStack::Cfa)
    }

    /// The formula of an expression that is evaluated with the CFA on the stack, or with nothing.
    ///
    /// # Errors
    ///
    /// [`FormulaError`] if there is none.
    pub fn from_expression(
        expression: Expression<'_>,
        abi: Abi,
        initial: InitialStack,
    ) -> Result<Formula, FormulaError> {
        let mut reading = FormulaReader {
            builder: FormulaBuilder::new(abi),
            stack: Vec::new(),
        };
        if initial == InitialStack::Cfa {
            let cfa = reading.builder.push(Node::Cfa)?;
            reading.stack.push(cfa);
        }
        for operation in expression.operations(abi) {
            let operation = operation?;
            reading.read(&operation)?;
            if reading.stack.len() > MAX_STACK_VALUES {
                let offset = operation.offset;
                return Err(ExpressionError::Overflow { offset }.into());
            }
        }
        let root = reading.stack.pop().ok_or(ExpressionError::Empty)?;
        let formula = reading.builder.finish(root);
        if formula.uses_all() {
            Ok(formula)
        } else {
            Err(FormulaError::Unused)
        }
    }

    /// Whether the value depends on everything that is computed, except constants.
    fn uses_all(&self) -> bool {
        let mut used = Vec::new();
        used.resize(self.nodes.len(), false);
        if let Some(root) = used.get_mut(self.root.0) {
            *root = true;
        }
        for (at, part) in self.nodes.iter().enumerate().rev() {
            let is_used = used.get(at) == Some(&true);
            match part.node {
                _ if is_used => {}
                Node::Number(_) | Node::Address(_) | Node::Cfa => continue,
                _ => return false,
            }
            for operand in part.node.operands() {
                if let Some(operand) = used.get_mut(operand.0) {
                    *operand = true;
                }
            }
        }
        true
    }

    /// The formula that loads a word from the address that this one computes.
    ///
    /// # Errors
    ///
    /// [`FormulaError::TooLarge`].
    pub(crate) fn loaded(mut self) -> Result<Formula, FormulaError> {
        let abi = self.abi;
        let nodes = core::mem::take(&mut self.nodes);
        let mut builder = FormulaBuilder { nodes, abi };
        let root = builder.push(Node::Load(None, self.root))?;
        Ok(builder.finish(root))
    }

    /// The address that the formula loads a word from, if it is such a load.
    #[must_use]
    pub fn address(&self) -> Option<Formula> {
        match self.node(self.root) {
            Node::Load(None, address) => Some(Formula {
                nodes: self.nodes.clone(),
                root: address,
                abi: self.abi,
            }),
            _ => None,
        }
    }

    /// A register, or the CFA (`None`), plus a number of bytes, if the formula is just that.
    #[must_use]
    pub fn as_sum(&self) -> Option<(Option<Register>, i64)> {
        let base = |id| match self.node(id) {
            Node::Register(register) => Some(Some(register)),
            Node::Cfa => Some(None),
            _ => None,
        };
        match self.node(self.root) {
            Node::Binary(op, a, b) => {
                let Node::Number(number) = self.node(b) else {
                    return None;
                };
                let number = signed(number, self.abi);
                let bytes = match op.opcode {
                    operation::DW_OP_PLUS => number,
                    operation::DW_OP_MINUS => number.checked_neg()?,
                    _ => return None,
                };
                Some((base(a)?, bytes))
            }
            _ => Some((base(self.root)?, 0)),
        }
    }

    /// How often the formula mentions the CFA: at most [`MAX_NODES`] times.
    fn count_cfa(&self, id: NodeId) -> u32 {
        match self.node(id) {
            Node::Cfa => 1,
            node => node.operands().map(|operand| self.count_cfa(operand)).sum(),
        }
    }

    fn node(&self, id: NodeId) -> Node {
        let part = self.nodes.get(id.0);
        part.map_or(Node::Number(0), |part| part.node)
    }

    /// Operations with this value, in bytes: the shortest constants, `DW_OP_bregN` with its offset,
    /// `DW_OP_plus_uconst`. They are evaluated with the CFA on the stack if the formula mentions
    /// it.
    #[must_use]
    pub fn assemble(&self) -> Vec<u8> {
        let mut writing = FormulaWriter {
            formula: self,
            out: Vec::new(),
            values: 1,
            takes_initial: self.count_cfa(self.root) == 1,
        };
        writing.put(self.root);
        writing.out
    }
}

/// The stack before an expression is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialStack {
    /// Nothing, for a CFA.
    Nothing,
    /// The CFA, for a register's rule.
    Cfa,
}

/// Operations that become a formula: the stack holds nodes instead of values.
struct FormulaReader {
    builder: FormulaBuilder,
    stack: Vec<NodeId>,
}

impl FormulaReader {
    fn read(&mut self, operation: &operation::Operation) -> Result<(), FormulaError> {
        use operation::*;
        let offset = operation.offset;
        let opcode = operation.opcode;
        let node = match opcode {
            DW_OP_ADDR => Node::Address(operation.unsigned()),
            DW_OP_CONST1U..=DW_OP_CONSTS => return self.push_number(operation.unsigned()),
            DW_OP_LIT0..=DW_OP_LIT31 => return self.push_number(u64::from(opcode - DW_OP_LIT0)),
            DW_OP_BREG0..=DW_OP_BREG31 => {
                let register = Register(u16::from(opcode - DW_OP_BREG0));
                return self.push_register(register, operation.signed());
            }
            DW_OP_BREGX => {
                let register = u16::try_from(operation.unsigned())
                    .map_err(|_| ExpressionError::UnknownRegister(Register(u16::MAX)))?;
                return self.push_register(Register(register), operation.second_signed());
            }
            DW_OP_DUP | DW_OP_DROP | DW_OP_OVER | DW_OP_PICK | DW_OP_SWAP | DW_OP_ROT => {
                return Ok(self.rearrange(operation)?);
            }
            DW_OP_DEREF => Node::Load(None, self.pop(offset)?),
            DW_OP_DEREF_SIZE => {
                let size = u8::try_from(operation.unsigned()).unwrap_or(0);
                if size == 0 || size > self.builder.abi.arch.spec().address_size.bytes() {
                    return Err(ExpressionError::Illegal { opcode, offset }.into());
                }
                Node::Load(Some(size), self.pop(offset)?)
            }
            DW_OP_PLUS_UCONST => {
                let value = self.pop(offset)?;
                return self.push_sum(value, operation.unsigned());
            }
            DW_OP_ABS | DW_OP_NEG | DW_OP_NOT => Node::Unary(opcode, self.pop(offset)?),
            DW_OP_SKIP | DW_OP_BRA => return Err(FormulaError::Branch { offset }),
            DW_OP_NOP => return Ok(()),
            _ => {
                let op = operator(opcode).ok_or(ExpressionError::Illegal { opcode, offset })?;
                let (b, a) = (self.pop(offset)?, self.pop(offset)?);
                let sum = self.builder.binary(op, a, b)?;
                self.stack.push(sum);
                return Ok(());
            }
        };
        let id = self.builder.push(node)?;
        self.stack.push(id);
        Ok(())
    }

    fn push_number(&mut self, number: u64) -> Result<(), FormulaError> {
        let number = self.builder.number(number)?;
        self.stack.push(number);
        Ok(())
    }

    fn push_register(&mut self, register: Register, bytes: i64) -> Result<(), FormulaError> {
        let register = self.builder.push(Node::Register(register))?;
        match bytes {
            0 => self.stack.push(register),
            _ => self.push_sum(register, bytes.cast_unsigned())?,
        }
        Ok(())
    }

    fn push_sum(&mut self, to: NodeId, number: u64) -> Result<(), FormulaError> {
        let number = self.builder.number(number)?;
        if let Some(plus) = operator(operation::DW_OP_PLUS) {
            let sum = self.builder.binary(plus, to, number)?;
            self.stack.push(sum);
        }
        Ok(())
    }

    fn pop(&mut self, offset: usize) -> Result<NodeId, ExpressionError> {
        self.stack
            .pop()
            .ok_or(ExpressionError::Underflow { offset })
    }

    /// The value `depth` entries below the top.
    fn peek(&self, depth: u64, offset: usize) -> Result<NodeId, ExpressionError> {
        let depth = usize::try_from(depth).ok();
        let place = depth.and_then(|depth| self.stack.len().checked_sub(depth)?.checked_sub(1));
        let value = place.and_then(|place| self.stack.get(place).copied());
        value.ok_or(ExpressionError::Underflow { offset })
    }

    fn rearrange(&mut self, operation: &operation::Operation) -> Result<(), ExpressionError> {
        use operation::*;
        let offset = operation.offset;
        match operation.opcode {
            DW_OP_DUP => self.stack.push(self.peek(0, offset)?),
            DW_OP_OVER => self.stack.push(self.peek(1, offset)?),
            DW_OP_PICK => self.stack.push(self.peek(operation.unsigned(), offset)?),
            DW_OP_DROP => drop(self.pop(offset)?),
            DW_OP_SWAP => {
                let (top, second) = (self.pop(offset)?, self.pop(offset)?);
                self.stack.extend([top, second]);
            }
            // The top becomes third, the second the top, the third the second.
            _ => {
                let (top, second) = (self.pop(offset)?, self.pop(offset)?);
                let third = self.pop(offset)?;
                self.stack.extend([top, third, second]);
            }
        }
        Ok(())
    }
}

/// A formula that becomes operations.
struct FormulaWriter<'f> {
    formula: &'f Formula,
    out: Vec<u8>,
    /// How many values are on the stack, including the initial one.
    values: u8,
    /// Whether the initial value is used in place, because it is the first that is used.
    takes_initial: bool,
}

impl FormulaWriter<'_> {
    /// Recurses at most [`MAX_DEPTH`] deep.
    fn put(&mut self, id: NodeId) {
        match self.formula.node(id) {
            Node::Number(number) => {
                self.constant(number);
                self.values += 1;
            }
            Node::Address(address) => {
                self.operation(operation::DW_OP_ADDR, Operand::Address, address);
                self.values += 1;
            }
            Node::Register(register) => {
                self.register(register, 0);
                self.values += 1;
            }
            Node::Cfa => self.initial(),
            Node::Load(size, address) => {
                self.put(address);
                match size {
                    None => self.out.push(operation::DW_OP_DEREF),
                    Some(size) => self.out.extend([operation::DW_OP_DEREF_SIZE, size]),
                }
            }
            Node::Unary(opcode, value) => {
                self.put(value);
                self.out.push(opcode);
            }
            Node::Binary(op, a, b) => self.binary(op, a, b),
        }
    }

    fn binary(&mut self, op: &BinaryOperator, a: NodeId, b: NodeId) {
        let abi = self.formula.abi;
        let added = match (op.opcode, self.formula.node(b)) {
            (operation::DW_OP_PLUS, Node::Number(number)) => Some(signed(number, abi)),
            (operation::DW_OP_MINUS, Node::Number(number)) => signed(number, abi).checked_neg(),
            _ => None,
        };
        match (self.formula.node(a), added) {
            (Node::Register(register), Some(added)) => {
                self.register(register, added);
                self.values += 1;
            }
            (_, Some(added @ 0..)) => {
                self.put(a);
                let added = added.cast_unsigned();
                self.operation(operation::DW_OP_PLUS_UCONST, Operand::Uleb, added);
            }
            _ => {
                self.put(a);
                self.put(b);
                self.out.push(op.opcode);
                self.values -= 1;
            }
        }
    }

    fn initial(&mut self) {
        match self.values {
            1 if self.takes_initial => return,
            1 => self.out.push(operation::DW_OP_DUP),
            2 => self.out.push(operation::DW_OP_OVER),
            values => self.out.extend([operation::DW_OP_PICK, values - 1]),
        }
        self.values += 1;
    }

    fn operation(&mut self, opcode: u8, operand: Operand, value: u64) {
        assemble(&mut self.out, opcode, operand, (value, 0), self.formula.abi);
    }

    fn register(&mut self, register: Register, bytes: i64) {
        match u8::try_from(register.0) {
            Ok(number @ 0..=31) => {
                self.out.push(operation::DW_OP_BREG0 + number);
            }
            _ => {
                self.out.push(operation::DW_OP_BREGX);
                put_unsigned(&mut self.out, register.0.into());
            }
        }
        put_signed(&mut self.out, bytes);
    }

    /// The shortest operation that pushes the number; among several, the one with the fixed size.
    fn constant(&mut self, number: u64) {
        use operation::*;
        let abi = self.formula.abi;
        if let Ok(literal @ 0..=31) = u8::try_from(number) {
            return self.out.push(DW_OP_LIT0 + literal);
        }
        let encoded = (DW_OP_CONST1U..=DW_OP_CONSTS).filter_map(|opcode| {
            let operand = operation::operand_of(opcode)?;
            let value = match operand {
                Operand::Signed(_) | Operand::Sleb => signed(number, abi).cast_unsigned(),
                _ => number,
            };
            let mut bytes = Vec::new();
            assemble(&mut bytes, opcode, operand, (value, 0), abi);
            crate::text::fits(operand, value, abi).then_some(bytes)
        });
        if let Some(shortest) = encoded.min_by_key(Vec::len) {
            self.out.extend(shortest);
        }
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(self.root, f)
    }
}

impl Formula {
    fn print(&self, id: NodeId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node(id) {
            Node::Number(number) => match signed(number, self.abi) {
                small @ -0xffff..1024 => write!(f, "{small}"),
                _ => write!(f, "{number:#x}"),
            },
            Node::Address(address) => write!(f, "addr({address:#x})"),
            Node::Register(register) => f.write_str(&self.register_name(register)),
            Node::Cfa => f.write_str("cfa"),
            Node::Load(None, of) => {
                f.write_char('*')?;
                self.print_operand(of, f)
            }
            Node::Load(Some(size), of) => {
                write!(f, "*u{} ", u32::from(size) * 8)?;
                self.print_operand(of, f)
            }
            Node::Unary(opcode, of) => self.print_unary(opcode, of, f),
            Node::Binary(op, a, b) if op.precedence == 0 => {
                write!(f, "{}(", op.symbol)?;
                self.print(a, f)?;
                f.write_str(", ")?;
                self.print(b, f)?;
                f.write_char(')')
            }
            Node::Binary(op, a, b) => {
                let is_chain = |id| match self.node(id) {
                    Node::Binary(first, ..) => op.precedence == SUM && first.precedence == SUM,
                    _ => false,
                };
                if is_chain(a) {
                    self.print(a, f)?;
                } else {
                    self.print_operand(a, f)?;
                }
                match op.precedence {
                    SUM => f.write_str(op.symbol)?,
                    _ => write!(f, " {} ", op.symbol)?,
                }
                self.print_operand(b, f)
            }
        }
    }

    fn print_unary(&self, opcode: u8, of: NodeId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = UNARY.iter().find(|(known, _)| *known == opcode);
        let symbol = known.map_or("?", |(_, symbol)| symbol);
        f.write_str(symbol)?;
        // `-8` is a number, `-(8)` the negation of one.
        if opcode == operation::DW_OP_ABS || matches!(self.node(of), Node::Number(_)) {
            f.write_char('(')?;
            self.print(of, f)?;
            return f.write_char(')');
        }
        self.print_operand(of, f)
    }

    /// In parentheses, unless the operand is obvious. Two operators get parentheses even where
    /// precedence would do, except in `a+b-c`.
    fn print_operand(&self, id: NodeId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node(id) {
            Node::Binary(op, ..) if op.precedence != 0 => {
                f.write_char('(')?;
                self.print(id, f)?;
                f.write_char(')')
            }
            _ => self.print(id, f),
        }
    }

    /// The code address gets the machine's name for it, not that of the return address.
    fn register_name(&self, register: Register) -> alloc::string::String {
        let spec = self.abi.arch.spec();
        let mut names = spec.names.iter().rev();
        let name = names.find(|(number, _)| register == spec.pc && *number == register.0);
        match name {
            Some((_, name)) => alloc::string::String::from(*name),
            None => alloc::format!("{}", RegisterName(register, self.abi.arch)),
        }
    }
}

#[cfg(test)]
mod tests;
