//! Expressions, and types that are none of a declarator's parts.

use super::{Printer, Scope};
use crate::node::{Id, LiteralForm, Node, Qualifiers};

impl<'t> Printer<'t> {
    /// Writes an expression, or a type that a name is not declared within.
    pub(super) fn expression(&mut self, node: &'t Node<'t>) -> Option<()> {
        match node {
            Node::BitInt(is_unsigned, width) => {
                self.put(if *is_unsigned {
                    "unsigned _BitInt("
                } else {
                    "_BitInt("
                })?;
                self.all(*width)?;
                self.put(")")
            }
            Node::Decltype(expression) => {
                self.put("decltype (")?;
                self.all(*expression)?;
                self.put(")")
            }
            Node::PackExpansion(pattern) => self.expansion(*pattern),
            Node::ArgumentPack(list) | Node::List(list) => self.list(list),
            Node::Literal {
                type_,
                form,
                value,
                is_negative,
            } => self.literal(*type_, *form, value, *is_negative),
            Node::FunctionParameter(0) => self.put("this"),
            Node::FunctionParameter(number) => self.numbered("{parm#", *number),
            Node::Prefix(operator, operand) => self.prefix(operator, *operand),
            Node::Suffix(operand, operator) => {
                self.operand(*operand)?;
                self.put(operator)
            }
            Node::Binary(operator, a, b) => self.binary(operator, *a, *b),
            Node::Conditional(condition, a, b) => {
                self.operand(*condition)?;
                self.put("?")?;
                self.operand(*a)?;
                self.put(" : ")?;
                self.operand(*b)
            }
            Node::Cast(type_, operand) => {
                self.put("(")?;
                self.all(*type_)?;
                self.put(")")?;
                self.operand(*operand)
            }
            Node::NamedCast(operator, type_, operand) => {
                self.put(operator)?;
                self.put("<")?;
                self.all(*type_)?;
                self.put(">(")?;
                self.all(*operand)?;
                self.put(")")
            }
            Node::Call(function, arguments) => {
                // Without the types of the parameters.
                let callee = match self.node(*function)? {
                    Node::Function(function) => function.name,
                    _ => *function,
                };
                self.operand(callee)?;
                self.operand(*arguments)
            }
            Node::Subscript(array, index) => {
                self.operand(*array)?;
                self.put("[")?;
                self.all(*index)?;
                self.put("]")
            }
            Node::Braced(type_, list) => {
                if let Some(type_) = type_ {
                    self.all(*type_)?;
                }
                self.enclosed("{", list, "}")
            }
            Node::New {
                placement,
                type_,
                initializer,
            } => self.new_expression(placement, *type_, *initializer),
            Node::SizeofPack(pack) => {
                let length = self.pack_length(*pack);
                self.put_number(u64::try_from(length.unwrap_or(0)).unwrap_or(u64::MAX))
            }
            Node::SizeofArguments(list) => {
                let mut count = 0;
                for argument in list {
                    count += match self.node(*argument)? {
                        Node::PackExpansion(pattern) => self.pack_length(*pattern)?,
                        _ => 1,
                    };
                }
                self.put_number(u64::try_from(count).ok()?)
            }
            Node::Designated(name, value) => {
                self.put(".")?;
                self.all(*name)?;
                self.designated(*value)
            }
            Node::DesignatedIndex(index, value) => {
                self.put("[")?;
                self.all(*index)?;
                self.put("]")?;
                self.designated(*value)
            }
            Node::DesignatedRange(from, to, value) => {
                self.put("[")?;
                self.all(*from)?;
                self.put(" ... ")?;
                self.all(*to)?;
                self.put("]")?;
                self.designated(*value)
            }
            Node::Fold {
                operator,
                first,
                second,
                is_left,
            } => self.fold(operator, *first, *second, *is_left),
            Node::Global(name) => {
                self.put("::")?;
                self.all(*name)
            }
            _ => None,
        }
    }

    /// Writes an operand: in parentheses, unless it is a name or a list in braces.
    fn operand(&mut self, id: Id) -> Option<()> {
        let is_simple = matches!(
            self.node(id)?,
            Node::Name(_)
                | Node::Qualified(..)
                | Node::Standard(_)
                | Node::Braced(..)
                | Node::FunctionParameter(_)
        );
        if is_simple {
            return self.all(id);
        }
        self.put("(")?;
        self.all(id)?;
        self.put(")")
    }

    fn literal(
        &mut self,
        type_: Id,
        form: LiteralForm,
        value: &str,
        is_negative: bool,
    ) -> Option<()> {
        let sign = if is_negative { "-" } else { "" };
        match (form, value, is_negative) {
            (LiteralForm::Bool, "0", false) => self.put("false"),
            (LiteralForm::Bool, "1", false) => self.put("true"),
            (LiteralForm::Suffix(suffix), ..) => {
                self.put(sign)?;
                self.put(value)?;
                self.put(suffix)
            }
            _ => {
                self.put("(")?;
                self.all(type_)?;
                self.put(")")?;
                self.put(sign)?;
                let is_float = form == LiteralForm::Float;
                self.put(if is_float { "[" } else { "" })?;
                self.put(value)?;
                self.put(if is_float { "]" } else { "" })
            }
        }
    }

    fn prefix(&mut self, operator: &str, operand: Id) -> Option<()> {
        self.put(operator)?;
        match (operator, self.node(operand)?) {
            // Of the address of a member function, its name.
            ("&", Node::Function(function))
                if function.qualifiers == Qualifiers::default()
                    && matches!(self.node(function.name)?, Node::Qualified(..)) =>
            {
                self.all(function.name)
            }
            ("sizeof " | "noexcept" | "typeid " | "alignof ", _) => {
                self.put("(")?;
                self.all(operand)?;
                self.put(")")
            }
            _ => self.operand(operand),
        }
    }

    fn binary(&mut self, operator: &str, a: Id, b: Id) -> Option<()> {
        // Not the end of template arguments.
        let is_greater = operator == ">";
        self.put(if is_greater { "(" } else { "" })?;
        self.operand(a)?;
        self.put(operator)?;
        self.operand(b)?;
        self.put(if is_greater { ")" } else { "" })
    }

    fn new_expression(
        &mut self,
        placement: &[Id],
        type_: Id,
        initializer: Option<Id>,
    ) -> Option<()> {
        self.put("new ")?;
        if !placement.is_empty() {
            self.enclosed("(", placement, ") ")?;
        }
        self.all(type_)?;
        match initializer {
            Some(initializer) => self.operand(initializer),
            None => Some(()),
        }
    }

    fn designated(&mut self, value: Id) -> Option<()> {
        match self.node(value)? {
            Node::Designated(..) | Node::DesignatedIndex(..) | Node::DesignatedRange(..) => {
                self.all(value)
            }
            _ => {
                self.put("=")?;
                self.operand(value)
            }
        }
    }

    /// Writes a fold, whose packs are whole.
    fn fold(&mut self, operator: &str, first: Id, second: Option<Id>, is_left: bool) -> Option<()> {
        let index = self.scope.pack_index.take();
        self.put("(")?;
        if is_left {
            self.put("...")?;
            self.put(operator)?;
        }
        self.operand(first)?;
        if !is_left {
            self.put(operator)?;
            self.put("...")?;
        }
        if let Some(second) = second {
            self.put(operator)?;
            self.operand(second)?;
        }
        self.scope.pack_index = index;
        self.put(")")
    }

    /// Writes a pattern for each argument of its pack.
    fn expansion(&mut self, pattern: Id) -> Option<()> {
        let Some(length) = self.pack_length(pattern) else {
            self.operand(pattern)?;
            return self.put("...");
        };
        let outer = self.scope.pack_index;
        for index in 0..length {
            if index > 0 {
                self.put(", ")?;
            }
            self.scope.pack_index = Some(index);
            self.all(pattern)?;
        }
        self.scope.pack_index = outer;
        Some(())
    }

    /// How many arguments the first pack in a pattern has.
    fn pack_length(&self, pattern: Id) -> Option<usize> {
        let scope = Scope {
            pack_index: None,
            ..self.scope
        };
        let mut open = vec![(pattern, scope)];
        let mut parts = Vec::new();
        while let Some((id, scope)) = open.pop() {
            self.step()?;
            match self.node(id)? {
                Node::Parameter(..) => {
                    let (argument, _) = self.resolve(id, scope)?;
                    if let Node::ArgumentPack(arguments) = self.node(argument)? {
                        return Some(arguments.len());
                    }
                }
                Node::InContext(id, context) => {
                    let context = Some(*context);
                    open.push((*id, Scope { context, ..scope }));
                }
                // They have packs of their own.
                Node::Function(_) | Node::PackExpansion(_) => {}
                node => {
                    node.parts(&mut parts);
                    open.extend(parts.drain(..).rev().map(|part| (part, scope)));
                }
            }
        }
        None
    }
}
