//! Expressions, and types that are not part of a declarator.

use super::{ParameterScope, Printer};
use crate::node::{LiteralForm, NameNode, NameNodeId, Qualifiers};

impl<'t> Printer<'t> {
    /// Writes an expression, or a type without a declared name inside.
    pub(super) fn expression(&mut self, node: &'t NameNode<'t>) -> Option<()> {
        match node {
            NameNode::BitInt(is_unsigned, width) => {
                self.put(if *is_unsigned {
                    "unsigned _BitInt("
                } else {
                    "_BitInt("
                })?;
                self.print_node(*width)?;
                self.put(")")
            }
            NameNode::Decltype(expression) => {
                self.put("decltype (")?;
                self.print_node(*expression)?;
                self.put(")")
            }
            NameNode::PackExpansion(pattern) => self.expansion(*pattern),
            NameNode::ArgumentPack(list) | NameNode::List(list) => self.list(list),
            NameNode::Literal {
                type_,
                form,
                value,
                is_negative,
            } => self.literal(*type_, *form, value, *is_negative),
            NameNode::FunctionParameter(0) => self.put("this"),
            NameNode::FunctionParameter(number) => self.numbered("{parm#", *number),
            NameNode::Prefix(operator, operand) => self.prefix(operator, *operand),
            NameNode::Suffix(operand, operator) => {
                self.operand(*operand)?;
                self.put(operator)
            }
            NameNode::Binary(operator, a, b) => self.binary(operator, *a, *b),
            NameNode::Conditional(condition, a, b) => {
                self.operand(*condition)?;
                self.put("?")?;
                self.operand(*a)?;
                self.put(" : ")?;
                self.operand(*b)
            }
            NameNode::Cast(type_, operand) => {
                self.put("(")?;
                self.print_node(*type_)?;
                self.put(")")?;
                self.operand(*operand)
            }
            NameNode::NamedCast(operator, type_, operand) => {
                self.put(operator)?;
                self.put("<")?;
                self.print_node(*type_)?;
                self.put(">(")?;
                self.print_node(*operand)?;
                self.put(")")
            }
            NameNode::Call(function, arguments) => {
                // Without the types of the parameters.
                let callee = match self.node(*function)? {
                    NameNode::Function(function) => function.name,
                    _ => *function,
                };
                self.operand(callee)?;
                self.operand(*arguments)
            }
            NameNode::Subscript(array, index) => {
                self.operand(*array)?;
                self.put("[")?;
                self.print_node(*index)?;
                self.put("]")
            }
            NameNode::Braced(type_, list) => {
                if let Some(type_) = type_ {
                    self.print_node(*type_)?;
                }
                self.enclosed("{", list, "}")
            }
            NameNode::New {
                placement,
                type_,
                initializer,
            } => self.new_expression(placement, *type_, *initializer),
            NameNode::SizeofPack(pack) => {
                let length = self.pack_length(*pack);
                self.put_number(u64::try_from(length.unwrap_or(0)).unwrap_or(u64::MAX))
            }
            NameNode::SizeofArguments(list) => {
                let mut count = 0;
                for argument in list {
                    count += match self.node(*argument)? {
                        NameNode::PackExpansion(pattern) => self.pack_length(*pattern)?,
                        _ => 1,
                    };
                }
                self.put_number(u64::try_from(count).ok()?)
            }
            NameNode::Designated(name, value) => {
                self.put(".")?;
                self.print_node(*name)?;
                self.designated(*value)
            }
            NameNode::DesignatedIndex(index, value) => {
                self.put("[")?;
                self.print_node(*index)?;
                self.put("]")?;
                self.designated(*value)
            }
            NameNode::DesignatedRange(from, to, value) => {
                self.put("[")?;
                self.print_node(*from)?;
                self.put(" ... ")?;
                self.print_node(*to)?;
                self.put("]")?;
                self.designated(*value)
            }
            NameNode::Fold {
                operator,
                first,
                second,
                is_left,
            } => self.fold(operator, *first, *second, *is_left),
            NameNode::Global(name) => {
                self.put("::")?;
                self.print_node(*name)
            }
            _ => None,
        }
    }

    /// Writes an operand: in parentheses, unless it is a name or a list in braces.
    fn operand(&mut self, id: NameNodeId) -> Option<()> {
        let is_simple = matches!(
            self.node(id)?,
            NameNode::Name(_)
                | NameNode::Qualified(..)
                | NameNode::Standard(_)
                | NameNode::Braced(..)
                | NameNode::FunctionParameter(_)
        );
        if is_simple {
            return self.print_node(id);
        }
        self.put("(")?;
        self.print_node(id)?;
        self.put(")")
    }

    fn literal(
        &mut self,
        type_: NameNodeId,
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
                self.print_node(type_)?;
                self.put(")")?;
                self.put(sign)?;
                let is_float = form == LiteralForm::Float;
                self.put(if is_float { "[" } else { "" })?;
                self.put(value)?;
                self.put(if is_float { "]" } else { "" })
            }
        }
    }

    fn prefix(&mut self, operator: &str, operand: NameNodeId) -> Option<()> {
        self.put(operator)?;
        match (operator, self.node(operand)?) {
            // For the address of a member function, its name.
            ("&", NameNode::Function(function))
                if function.qualifiers == Qualifiers::default()
                    && matches!(self.node(function.name)?, NameNode::Qualified(..)) =>
            {
                self.print_node(function.name)
            }
            ("sizeof " | "noexcept" | "typeid " | "alignof ", _) => {
                self.put("(")?;
                self.print_node(operand)?;
                self.put(")")
            }
            _ => self.operand(operand),
        }
    }

    fn binary(&mut self, operator: &str, a: NameNodeId, b: NameNodeId) -> Option<()> {
        // It must not end template arguments.
        let is_greater = operator == ">";
        self.put(if is_greater { "(" } else { "" })?;
        self.operand(a)?;
        self.put(operator)?;
        self.operand(b)?;
        self.put(if is_greater { ")" } else { "" })
    }

    fn new_expression(
        &mut self,
        placement: &[NameNodeId],
        type_: NameNodeId,
        initializer: Option<NameNodeId>,
    ) -> Option<()> {
        self.put("new ")?;
        if !placement.is_empty() {
            self.enclosed("(", placement, ") ")?;
        }
        self.print_node(type_)?;
        match initializer {
            Some(initializer) => self.operand(initializer),
            None => Some(()),
        }
    }

    fn designated(&mut self, value: NameNodeId) -> Option<()> {
        match self.node(value)? {
            NameNode::Designated(..)
            | NameNode::DesignatedIndex(..)
            | NameNode::DesignatedRange(..) => self.print_node(value),
            _ => {
                self.put("=")?;
                self.operand(value)
            }
        }
    }

    /// Writes a fold, with complete packs.
    fn fold(
        &mut self,
        operator: &str,
        first: NameNodeId,
        second: Option<NameNodeId>,
        is_left: bool,
    ) -> Option<()> {
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
    fn expansion(&mut self, pattern: NameNodeId) -> Option<()> {
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
            self.print_node(pattern)?;
        }
        self.scope.pack_index = outer;
        Some(())
    }

    /// The number of arguments of the first pack in a pattern.
    fn pack_length(&self, pattern: NameNodeId) -> Option<usize> {
        let scope = ParameterScope {
            pack_index: None,
            ..self.scope
        };
        let mut open = vec![(pattern, scope)];
        let mut parts = Vec::new();
        while let Some((id, scope)) = open.pop() {
            self.step()?;
            match self.node(id)? {
                NameNode::Parameter(..) => {
                    let (argument, _) = self.resolve(id, scope)?;
                    if let NameNode::ArgumentPack(arguments) = self.node(argument)? {
                        return Some(arguments.len());
                    }
                }
                NameNode::InContext(id, context) => {
                    let context = Some(*context);
                    open.push((*id, ParameterScope { context, ..scope }));
                }
                // They have their own packs.
                NameNode::Function(_) | NameNode::PackExpansion(_) => {}
                node => {
                    node.parts(&mut parts);
                    open.extend(parts.drain(..).rev().map(|part| (part, scope)));
                }
            }
        }
        None
    }
}
