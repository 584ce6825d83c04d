//! Reads a mangled name into a tree.

mod expression;
mod name;
mod types;

use crate::node::{FunctionNode, NameNode, NameNodeId, Qualifiers, TemplateContext, Tree};

/// The deepest nesting of a name.
const MAX_PARSE_DEPTH: usize = 160;
/// The most attempts to parse a part. Parts are parsed more than once where the grammar is
/// ambiguous.
const MAX_PARSE_STEPS: usize = 512 * 1024;

/// A name, and the properties that an enclosing encoding needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParsedName {
    pub(crate) id: NameNodeId,
    /// For a member function.
    pub(crate) qualifiers: Qualifiers,
    /// Whether the mangled name of such a function has its return type.
    pub(crate) has_return_type: bool,
}

impl ParsedName {
    /// Without qualifiers and return type.
    fn plain(id: NameNodeId) -> ParsedName {
        ParsedName {
            id,
            qualifiers: Qualifiers::default(),
            has_return_type: false,
        }
    }
}

pub(crate) struct Parser<'a> {
    text: &'a str,
    at: usize,
    tree: Tree<'a>,
    /// The candidates, and the contexts in which they were found.
    substitutions: Vec<(NameNodeId, Option<TemplateContext>)>,
    /// Parameters of conversion operators, with arguments that follow later.
    forward_references: Vec<NameNodeId>,
    state: ParseState<'a>,
    depth: usize,
    parts: usize,
}

/// The context that determines the meaning of the next part.
#[derive(Debug, Clone, Copy, Default)]
struct ParseState<'a> {
    /// The meaning of `T_`, `T0_` and so on.
    context: Option<TemplateContext>,
    /// Whether template arguments may be those of the conversion operator whose type is being
    /// parsed.
    is_conversion: bool,
    /// The class name for constructors and destructors.
    class: &'a str,
}

/// A state to rewind to.
struct Checkpoint<'a> {
    at: usize,
    substitutions: usize,
    forward_references: usize,
    state: ParseState<'a>,
}

impl<'a> Parser<'a> {
    /// Parses the part of a name after `_Z`.
    pub(crate) fn new(text: &'a str) -> Parser<'a> {
        Parser {
            text,
            at: 0,
            tree: Tree::default(),
            substitutions: Vec::new(),
            forward_references: Vec::new(),
            state: ParseState::default(),
            depth: 0,
            parts: 0,
        }
    }

    /// The tree of the whole name, and its root.
    pub(crate) fn symbol(mut self) -> Option<(Tree<'a>, NameNodeId)> {
        let mut root = self.encoding()?;
        while let Some(suffix) = self.clone_suffix() {
            root = self.add(NameNode::Clone(root, suffix));
        }
        (self.at == self.text.len()).then_some((self.tree, root))
    }

    /// A compiler's suffix for its own clone of a function: `.cold`, `.part.0`.
    fn clone_suffix(&mut self) -> Option<&'a str> {
        let rest = self.rest().strip_prefix('.')?;
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let bytes = rest.as_bytes();
        let count = |from: usize, is: fn(u8) -> bool| {
            bytes.iter().skip(from).take_while(|b| is(**b)).count()
        };
        let mut end = count(0, is_word);
        if end == 0 {
            return None;
        }
        while bytes.get(end) == Some(&b'.') {
            let digits = count(end + 1, |byte| byte.is_ascii_digit());
            if digits == 0 {
                break;
            }
            end += 1 + digits;
        }
        let suffix = self.rest().get(..=end)?;
        self.at += suffix.len();
        Some(suffix)
    }

    /// `<encoding>` (§5.1.2).
    fn encoding(&mut self) -> Option<NameNodeId> {
        self.nested(|parser| {
            let context = parser.state.context.take();
            let forward = std::mem::take(&mut parser.forward_references);
            let encoding = match parser.peek() {
                Some(b'G' | b'T') => parser.special_name(),
                _ => parser.function_or_data(),
            };
            parser.state.context = context;
            parser.forward_references = forward;
            encoding
        })
    }

    fn function_or_data(&mut self) -> Option<NameNodeId> {
        let name = self.name()?;
        self.resolve_forward_references()?;
        if matches!(self.peek(), None | Some(b'E' | b'.')) {
            return Some(if name.qualifiers == Qualifiers::default() {
                name.id
            } else {
                self.add(NameNode::Cv(name.id, name.qualifiers))
            });
        }
        let returns = if name.has_return_type {
            Some(self.type_()?)
        } else {
            None
        };
        let parameters = self.parameters()?;
        Some(self.add(NameNode::Function(Box::new(FunctionNode {
            name: name.id,
            returns,
            parameters,
            qualifiers: name.qualifiers,
        }))))
    }

    /// Sets the context of parameters that were found before their arguments.
    fn resolve_forward_references(&mut self) -> Option<()> {
        for id in std::mem::take(&mut self.forward_references) {
            let Some(NameNode::Parameter(index, _)) = self.tree.get(id) else {
                return None;
            };
            let parameter = self.parameter(*index)?;
            *self.tree.get_mut(id)? = parameter;
        }
        Some(())
    }

    /// A template parameter in the current context.
    fn parameter(&self, index: u64) -> Option<NameNode<'a>> {
        let context = self.state.context?;
        let at = usize::try_from(index).ok()?;
        let is_known = |context: TemplateContext| self.tree.contexts.get(context.0)?.get(at);
        if context != TemplateContext::LAMBDA && context != TemplateContext::FORWARD {
            is_known(context)?;
        }
        Some(NameNode::Parameter(index, context))
    }

    /// The types of parameters, up to an `E` or the end.
    fn parameters(&mut self) -> Option<Vec<NameNodeId>> {
        let mut parameters = Vec::new();
        while !matches!(self.peek(), None | Some(b'E' | b'.'))
            && !matches!(self.rest().as_bytes(), [b'R' | b'O', b'E', ..])
        {
            parameters.push(self.type_()?);
        }
        if parameters.is_empty() {
            return None;
        }
        if let [only] = parameters.as_slice()
            && matches!(self.tree.get(*only), Some(NameNode::Builtin("void")))
        {
            parameters.clear();
        }
        Some(parameters)
    }

    /// `<special-name>` (§5.1.4).
    fn special_name(&mut self) -> Option<NameNodeId> {
        const OF_TYPES: [(&str, &str); 5] = [
            ("TV", "vtable for "),
            ("TT", "VTT for "),
            ("TI", "typeinfo for "),
            ("TS", "typeinfo name for "),
            ("TF", "typeinfo fn for "),
        ];
        const OF_NAMES: [(&str, &str); 3] = [
            ("TH", "TLS init function for "),
            ("TW", "TLS wrapper function for "),
            ("GV", "guard variable for "),
        ];
        const OF_ENCODINGS: [(&str, &str); 3] = [
            ("GA", "hidden alias for "),
            ("GTt", "transaction clone for "),
            ("GTn", "non-transaction clone for "),
        ];
        for (code, text) in OF_TYPES {
            if self.take(code) {
                let type_ = self.type_()?;
                return Some(self.add(NameNode::Special(text, type_)));
            }
        }
        for (code, text) in OF_NAMES {
            if self.take(code) {
                let name = self.name()?.id;
                return Some(self.add(NameNode::Special(text, name)));
            }
        }
        for (code, text) in OF_ENCODINGS {
            if self.take(code) {
                let encoding = self.encoding()?;
                return Some(self.add(NameNode::Special(text, encoding)));
            }
        }
        if self.take("TC") {
            let derived = self.type_()?;
            self.number()?;
            self.expect("_")?;
            let base = self.type_()?;
            return Some(self.add(NameNode::ConstructionVtable(base, derived)));
        }
        if self.take("TA") {
            let argument = self.template_argument()?;
            return Some(self.add(NameNode::Special(
                "template parameter object for ",
                argument,
            )));
        }
        if self.take("GR") {
            let name = self.name()?.id;
            let number = match self.peek() {
                None => 0,
                Some(_) => self.sequence()?,
            };
            return Some(self.add(NameNode::ReferenceTemporary(name, number)));
        }
        if self.take("GI") {
            let module = self.module_name()?;
            return Some(self.add(NameNode::Special("initializer for module ", module)));
        }
        let text = self.thunk()?;
        let target = self.encoding()?;
        Some(self.add(NameNode::Special(text, target)))
    }

    /// A thunk's pointer adjustment, which is not shown.
    fn thunk(&mut self) -> Option<&'static str> {
        if self.take("Tc") {
            self.call_offset()?;
            self.call_offset()?;
            return Some("covariant return thunk to ");
        }
        self.expect("T")?;
        self.call_offset()
    }

    fn call_offset(&mut self) -> Option<&'static str> {
        let is_virtual = match self.next()? {
            b'h' => false,
            b'v' => true,
            _ => return None,
        };
        self.number()?;
        self.expect("_")?;
        if !is_virtual {
            return Some("non-virtual thunk to ");
        }
        self.number()?;
        self.expect("_")?;
        Some("virtual thunk to ")
    }

    // The text.

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, text: &str) -> bool {
        let is_next = self
            .text
            .as_bytes()
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(text.as_bytes()));
        self.at += if is_next { text.len() } else { 0 };
        is_next
    }

    fn expect(&mut self, text: &str) -> Option<()> {
        self.take(text).then_some(())
    }

    fn digits(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// `<number>`, whose sign is `n`; its digits and whether it is negative.
    fn number(&mut self) -> Option<(&'a str, bool)> {
        let is_negative = self.take("n");
        let digits = self.digits();
        (!digits.is_empty()).then_some((digits, is_negative))
    }

    /// `_` is 0, `0_` is 1, and so on.
    fn index(&mut self) -> Option<u64> {
        if self.take("_") {
            return Some(0);
        }
        let number: u64 = self.digits().parse().ok()?;
        self.expect("_")?;
        number.checked_add(1)
    }

    /// `<seq-id>` (§5.1.10): the same in base 36.
    fn sequence(&mut self) -> Option<u64> {
        let mut number: Option<u64> = None;
        loop {
            let digit = match self.next()? {
                b'_' => return number.map_or(Some(0), |number| number.checked_add(1)),
                byte @ b'0'..=b'9' => byte - b'0',
                byte @ b'A'..=b'Z' => byte - b'A' + 10,
                _ => return None,
            };
            let before = number.unwrap_or(0).checked_mul(36)?;
            number = Some(before.checked_add(u64::from(digit))?);
        }
    }

    // The tree.

    fn add(&mut self, node: NameNode<'a>) -> NameNodeId {
        self.tree.add(node)
    }

    /// Makes a node a candidate for substitutions.
    fn add_substitution(&mut self, id: NameNodeId) -> NameNodeId {
        self.substitutions.push((id, self.state.context));
        id
    }

    /// Parses a part that can contain parts of its kind.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.parts += 1;
        if self.depth >= MAX_PARSE_DEPTH || self.parts > MAX_PARSE_STEPS {
            return None;
        }
        self.depth += 1;
        let part = read(self);
        self.depth -= 1;
        part
    }

    /// Parses a part, or rewinds.
    fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mark = self.checkpoint();
        let part = read(self);
        if part.is_none() {
            self.rewind(&mark);
        }
        part
    }

    fn checkpoint(&self) -> Checkpoint<'a> {
        Checkpoint {
            at: self.at,
            substitutions: self.substitutions.len(),
            forward_references: self.forward_references.len(),
            state: self.state,
        }
    }

    fn rewind(&mut self, checkpoint: &Checkpoint<'a>) {
        self.at = checkpoint.at;
        self.substitutions.truncate(checkpoint.substitutions);
        self.forward_references
            .truncate(checkpoint.forward_references);
        self.state = checkpoint.state;
    }

    /// Parses a list up to its `E`.
    fn until_end(
        &mut self,
        read: impl Fn(&mut Self) -> Option<NameNodeId>,
    ) -> Option<Vec<NameNodeId>> {
        let mut list = Vec::new();
        while !self.take("E") {
            list.push(read(self)?);
        }
        Some(list)
    }
}
