//! Writes a tree as text.
//!
//! C++ declares a type around a name: `int (*f)(long)`. So a type has a part before the name
//! ([`Printer::left`]) and a part after it ([`Printer::right`]).

mod expression;

use std::cell::Cell;

use crate::node::{
    ExceptionSpec, FunctionNode, FunctionType, LambdaParameter, NameNode, NameNodeId, Qualifiers,
    Reference, TemplateContext, Tree,
};
use crate::{MAX_NAME_BYTES, SignatureDetail};

/// The deepest nesting of nodes. Substitutions nest deeper than the name does.
const MAX_PRINT_DEPTH: usize = 512;
/// The most nodes to visit, including those without text.
const MAX_PRINT_STEPS: usize = 512 * 1024;

/// Writes one name. Its functions return `None` if a limit is exceeded.
pub(crate) struct Printer<'t> {
    tree: &'t Tree<'t>,
    signature: SignatureDetail,
    text: String,
    /// The last byte written, even if it was removed.
    last: u8,
    scope: ParameterScope,
    /// The parameters that the current lambda declares.
    declared: &'t [LambdaParameter],
    depth: usize,
    steps: Cell<usize>,
}

/// The context that determines the meaning of a template parameter.
#[derive(Debug, Clone, Copy, Default)]
struct ParameterScope {
    /// The context of the current substitution; without one, the parameter's own.
    context: Option<TemplateContext>,
    /// The index of the current argument of a pack; without one, all of them.
    pack_index: Option<usize>,
}

impl<'t> Printer<'t> {
    pub(crate) fn new(tree: &'t Tree<'t>, signature: SignatureDetail) -> Printer<'t> {
        Printer {
            tree,
            signature,
            text: String::new(),
            last: 0,
            scope: ParameterScope::default(),
            declared: &[],
            depth: 0,
            steps: Cell::new(0),
        }
    }

    pub(crate) fn print(mut self, root: NameNodeId) -> Option<String> {
        self.symbol(root)?;
        Some(self.text)
    }

    /// Writes a whole symbol, optionally without its function's signature.
    fn symbol(&mut self, root: NameNodeId) -> Option<()> {
        match (self.node(root)?, self.signature) {
            (NameNode::Function(function), SignatureDetail::NameOnly) => {
                self.print_node(function.name)
            }
            (NameNode::Cv(name, _), SignatureDetail::NameOnly) => self.print_node(*name),
            (NameNode::Function(function), SignatureDetail::WithoutReturnType) => {
                self.declared_function(function)
            }
            (NameNode::Clone(symbol, suffix), _) => {
                self.nested(|printer| printer.symbol(*symbol))?;
                self.put(" [clone ")?;
                self.put(suffix)?;
                self.put("]")
            }
            _ => self.print_node(root),
        }
    }

    fn node(&self, id: NameNodeId) -> Option<&'t NameNode<'t>> {
        self.tree.get(id)
    }

    /// The node that another one denotes, and its scope.
    fn resolve(
        &self,
        mut id: NameNodeId,
        mut scope: ParameterScope,
    ) -> Option<(NameNodeId, ParameterScope)> {
        loop {
            self.step()?;
            (id, scope) = match self.node(id)? {
                NameNode::InContext(id, context) => (
                    *id,
                    ParameterScope {
                        context: Some(*context),
                        ..scope
                    },
                ),
                NameNode::Parameter(index, context) => {
                    let context = scope.context.unwrap_or(*context);
                    let Some(arguments) = self.tree.contexts.get(context.0) else {
                        return Some((id, scope)); // A parameter of a lambda.
                    };
                    let argument = *arguments.get(usize::try_from(*index).ok()?)?;
                    match (self.node(argument)?, scope.pack_index) {
                        (NameNode::ArgumentPack(pack), Some(at)) => {
                            (*pack.get(at)?, ParameterScope::default())
                        }
                        _ => (argument, ParameterScope::default()),
                    }
                }
                _ => return Some((id, scope)),
            };
        }
    }

    /// Counts a visited node.
    fn step(&self) -> Option<()> {
        self.steps.set(self.steps.get() + 1);
        (self.steps.get() <= MAX_PRINT_STEPS).then_some(())
    }

    fn within(
        &mut self,
        scope: ParameterScope,
        write: impl FnOnce(&mut Self) -> Option<()>,
    ) -> Option<()> {
        let outer = std::mem::replace(&mut self.scope, scope);
        let written = write(self);
        self.scope = outer;
        written
    }

    fn put(&mut self, text: &str) -> Option<()> {
        if self.text.len() + text.len() > MAX_NAME_BYTES {
            return None;
        }
        self.text.push_str(text);
        self.last = text.bytes().last().unwrap_or(self.last);
        Some(())
    }

    fn put_number(&mut self, number: u64) -> Option<()> {
        self.put(&number.to_string())
    }

    /// Writes all of a node.
    fn print_node(&mut self, id: NameNodeId) -> Option<()> {
        self.left(id)?;
        self.right(id)
    }

    fn nested(&mut self, write: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.step()?;
        if self.depth >= MAX_PRINT_DEPTH {
            return None;
        }
        self.depth += 1;
        let written = write(self);
        self.depth -= 1;
        written
    }

    /// Writes a list. Elements without text, for example empty packs, have no comma at the list's
    /// end; elsewhere they have one, as in binutils.
    fn list(&mut self, list: &[NameNodeId]) -> Option<()> {
        let mut end = self.text.len();
        for (number, id) in list.iter().enumerate() {
            if number > 0 {
                self.put(", ")?;
            }
            let from = self.text.len();
            self.print_node(*id)?;
            if self.text.len() > from {
                end = self.text.len();
            }
        }
        self.text.truncate(end);
        Some(())
    }

    /// Writes the part before a declared name; everything, if there is no part after it.
    fn left(&mut self, id: NameNodeId) -> Option<()> {
        self.nested(|printer| match printer.node(id)? {
            NameNode::Pointer(to) => printer.left_of_declarator(*to, "*"),
            NameNode::Reference(..) => {
                let (kind, to, scope) = printer.collapsed(id)?;
                let text = match kind {
                    Reference::LValue => "&",
                    Reference::RValue => "&&",
                };
                printer.within(scope, |printer| printer.left_of_declarator(to, text))
            }
            NameNode::MemberPointer(class, member) => {
                printer.left(*member)?;
                if printer.opens(*member) {
                    printer.open()?;
                } else {
                    printer.put(" ")?;
                }
                printer.print_node(*class)?;
                printer.put("::*")
            }
            NameNode::Postfixed(type_, text) => {
                printer.left(*type_)?;
                printer.put(text)
            }
            NameNode::Vector(element, size) => {
                printer.left(*element)?;
                printer.put(" __vector(")?;
                printer.print_node(*size)?;
                printer.put(")")
            }
            NameNode::VendorQualified(type_, name) => {
                printer.left(*type_)?;
                printer.put(" ")?;
                printer.print_node(*name)
            }
            NameNode::Cv(type_, qualifiers) => {
                printer.left(*type_)?;
                if printer.is_function(*type_) {
                    Some(())
                } else {
                    printer.qualifiers(printer.new_qualifiers(*type_, *qualifiers)?)
                }
            }
            NameNode::FunctionType(function) => {
                printer.left(function.returns)?;
                printer.put(if printer.declares(function.returns) {
                    ""
                } else {
                    " "
                })
            }
            NameNode::Array(element, _) => printer.left(*element),
            NameNode::Parameter(..) | NameNode::InContext(..) => {
                let (to, scope) = printer.resolve(id, printer.scope)?;
                match printer.node(to)? {
                    NameNode::Parameter(index, _) => printer.lambda_parameter(*index),
                    _ => printer.within(scope, |printer| printer.left(to)),
                }
            }
            NameNode::Function(function) => printer.within(ParameterScope::default(), |printer| {
                printer.function(function)
            }),
            node => printer
                .name(node)
                .unwrap_or_else(|| printer.expression(node)),
        })
    }

    /// Writes the part after a declared name.
    fn right(&mut self, id: NameNodeId) -> Option<()> {
        self.nested(|printer| match printer.node(id)? {
            NameNode::Pointer(to) | NameNode::MemberPointer(_, to) => {
                printer.right_of_declarator(*to)
            }
            NameNode::Reference(..) => {
                let (_, to, scope) = printer.collapsed(id)?;
                printer.within(scope, |printer| printer.right_of_declarator(to))
            }
            NameNode::Cv(type_, qualifiers) if printer.is_function(*type_) => {
                let (function, scope) = printer.resolve(*type_, printer.scope)?;
                match printer.node(function)? {
                    NameNode::FunctionType(function) => {
                        printer.within(scope, |printer| printer.signature(function, *qualifiers))
                    }
                    _ => printer.right(*type_),
                }
            }
            NameNode::Postfixed(type_, _)
            | NameNode::Vector(type_, _)
            | NameNode::VendorQualified(type_, _)
            | NameNode::Cv(type_, _) => printer.right(*type_),
            NameNode::FunctionType(function) => printer.signature(function, Qualifiers::default()),
            NameNode::Array(element, bound) => {
                if printer.last != b']' {
                    printer.put(" ")?;
                }
                printer.put("[")?;
                if let Some(bound) = bound {
                    printer.print_node(*bound)?;
                }
                printer.put("]")?;
                printer.right(*element)
            }
            NameNode::Parameter(..) | NameNode::InContext(..) => {
                let (to, scope) = printer.resolve(id, printer.scope)?;
                match printer.node(to)? {
                    NameNode::Parameter(..) => Some(()),
                    _ => printer.within(scope, |printer| printer.right(to)),
                }
            }
            _ => Some(()),
        })
    }

    fn left_of_declarator(&mut self, to: NameNodeId, text: &str) -> Option<()> {
        self.left(to)?;
        if self.opens(to) {
            self.open()?;
        }
        self.put(text)
    }

    fn right_of_declarator(&mut self, to: NameNodeId) -> Option<()> {
        if self.opens(to) {
            self.put(")")?;
        }
        self.right(to)
    }

    /// Opens the parentheses of a pointer to a function or an array.
    fn open(&mut self) -> Option<()> {
        if !matches!(self.last, b'(' | b' ') {
            self.put(" ")?;
        }
        self.put("(")
    }

    /// Whether a pointer to a type needs parentheses.
    fn opens(&self, id: NameNodeId) -> bool {
        matches!(
            self.bare(id),
            Some(NameNode::FunctionType(_) | NameNode::Array(..))
        )
    }

    fn is_function(&self, id: NameNodeId) -> bool {
        matches!(self.bare(id), Some(NameNode::FunctionType(_)))
    }

    /// A type without qualifiers.
    fn bare(&self, mut id: NameNodeId) -> Option<&'t NameNode<'t>> {
        let mut scope = self.scope;
        loop {
            (id, scope) = self.resolve(id, scope)?;
            match self.node(id)? {
                NameNode::Cv(type_, _) => id = *type_,
                node => return Some(node),
            }
        }
    }

    /// A reference to a reference is one reference (C++ [dcl.ref]).
    fn collapsed(&self, id: NameNodeId) -> Option<(Reference, NameNodeId, ParameterScope)> {
        let NameNode::Reference(mut kind, mut to) = *self.node(id)? else {
            return None;
        };
        let mut scope = self.scope;
        loop {
            let (inner, its) = self.resolve(to, scope)?;
            let NameNode::Reference(other, target) = self.node(inner)? else {
                return Some((kind, to, scope));
            };
            if *other == Reference::LValue {
                kind = Reference::LValue;
            }
            (to, scope) = (*target, its);
        }
    }

    /// The qualifiers that a type's argument does not have already.
    fn new_qualifiers(&self, type_: NameNodeId, qualifiers: Qualifiers) -> Option<Qualifiers> {
        let (argument, _) = self.resolve(type_, self.scope)?;
        let NameNode::Cv(_, known) = self.node(argument)? else {
            return Some(qualifiers);
        };
        Some(Qualifiers {
            restrict: qualifiers.restrict && !known.restrict,
            volatile: qualifiers.volatile && !known.volatile,
            constant: qualifiers.constant && !known.constant,
            ..qualifiers
        })
    }

    fn qualifiers(&mut self, qualifiers: Qualifiers) -> Option<()> {
        for (is_there, text) in [
            (qualifiers.constant, " const"),
            (qualifiers.volatile, " volatile"),
            (qualifiers.restrict, " restrict"),
        ] {
            if is_there {
                self.put(text)?;
            }
        }
        self.reference(qualifiers.reference)
    }

    fn reference(&mut self, reference: Option<Reference>) -> Option<()> {
        match reference {
            Some(Reference::LValue) => self.put(" &"),
            Some(Reference::RValue) => self.put(" &&"),
            None => Some(()),
        }
    }

    /// Writes the parameters of a function type, and the part after them.
    fn signature(&mut self, function: &FunctionType, qualifiers: Qualifiers) -> Option<()> {
        self.put("(")?;
        self.list(&function.parameters)?;
        self.put(")")?;
        self.qualifiers(qualifiers)?;
        self.reference(function.reference)?;
        if function.is_transaction_safe {
            self.put(" transaction_safe")?;
        }
        match &function.exceptions {
            Some(ExceptionSpec::Noexcept(None)) => self.put(" noexcept")?,
            Some(ExceptionSpec::Noexcept(Some(condition))) => {
                self.put(" noexcept(")?;
                self.print_node(*condition)?;
                self.put(")")?;
            }
            Some(ExceptionSpec::Throw(types)) => {
                self.put(" throw(")?;
                self.list(types)?;
                self.put(")")?;
            }
            None => {}
        }
        self.right(function.returns)
    }

    fn function(&mut self, function: &FunctionNode) -> Option<()> {
        if let Some(returns) = function.returns {
            self.left(returns)?;
            // A returned pointer to a function encloses the function in its parentheses.
            self.put(if self.declares(returns) { "" } else { " " })?;
        }
        self.declared_function(function)?;
        match function.returns {
            Some(returns) => self.right(returns),
            None => Some(()),
        }
    }

    /// Writes a function without its return type.
    fn declared_function(&mut self, function: &FunctionNode) -> Option<()> {
        self.print_node(function.name)?;
        self.put("(")?;
        self.list(&function.parameters)?;
        self.put(")")?;
        self.qualifiers(function.qualifiers)
    }

    /// Whether a type is a pointer or a reference to a function or an array.
    fn declares(&self, mut id: NameNodeId) -> bool {
        let mut scope = self.scope;
        while let Some((resolved, its)) = self.resolve(id, scope) {
            scope = its;
            id = match self.node(resolved) {
                Some(
                    NameNode::Cv(to, _)
                    | NameNode::Pointer(to)
                    | NameNode::MemberPointer(_, to)
                    | NameNode::Reference(_, to),
                ) => *to,
                other => {
                    return matches!(other, Some(NameNode::FunctionType(_) | NameNode::Array(..)));
                }
            };
        }
        false
    }

    /// Writes a name, if the node is one.
    fn name(&mut self, node: &'t NameNode<'t>) -> Option<Option<()>> {
        Some(match node {
            NameNode::Name(text)
            | NameNode::Builtin(text)
            | NameNode::Constructor(text)
            | NameNode::Standard(text) => self.put(text),
            NameNode::Destructor(class) => self.put("~").and_then(|()| self.put(class)),
            NameNode::Qualified(scope, name) | NameNode::Local(scope, name) => {
                self.qualified(*scope, *name)
            }
            NameNode::DefaultArgument(number, name) => self.default_argument(*number, *name),
            NameNode::Tagged(name, tag) => self.tagged(*name, tag),
            NameNode::Template(name, arguments) => self.template(*name, arguments),
            NameNode::Operator(text) => self.operator(text),
            NameNode::LiteralOperator(name) => {
                self.put("operator\"\" ").and_then(|()| self.put(name))
            }
            NameNode::VendorOperator(name) => self.put("operator ").and_then(|()| self.put(name)),
            NameNode::Conversion(type_) => {
                self.put("operator ").and_then(|()| self.print_node(*type_))
            }
            NameNode::Lambda(declared, parameters, number) => {
                self.lambda(declared, parameters, *number)
            }
            NameNode::UnnamedType(number) => self.numbered("{unnamed type#", *number),
            NameNode::StructuredBinding(names) => self.enclosed("[", names, "]"),
            NameNode::Module(None, ".", name) => self.put(name),
            NameNode::Module(of, separator, name) => of
                .map_or(Some(()), |of| self.print_node(of))
                .and_then(|()| self.put(separator))
                .and_then(|()| self.put(name)),
            NameNode::InModule(name, module) => self
                .print_node(*name)
                .and_then(|()| self.put("@"))
                .and_then(|()| self.print_node(*module)),
            NameNode::Special(text, name) => self.put(text).and_then(|()| self.print_node(*name)),
            NameNode::ConstructionVtable(base, derived) => self
                .put("construction vtable for ")
                .and_then(|()| self.print_node(*base))
                .and_then(|()| self.put("-in-"))
                .and_then(|()| self.print_node(*derived)),
            NameNode::ReferenceTemporary(name, number) => self
                .put("reference temporary #")
                .and_then(|()| self.put_number(*number))
                .and_then(|()| self.put(" for "))
                .and_then(|()| self.print_node(*name)),
            NameNode::Clone(..) => None,
            _ => return None,
        })
    }

    fn qualified(&mut self, scope: NameNodeId, name: NameNodeId) -> Option<()> {
        self.print_node(scope)?;
        self.put("::")?;
        self.print_node(name)
    }

    fn default_argument(&mut self, number: u64, name: NameNodeId) -> Option<()> {
        self.numbered("{default arg#", number)?;
        self.put("::")?;
        self.print_node(name)
    }

    fn tagged(&mut self, name: NameNodeId, tag: &str) -> Option<()> {
        self.print_node(name)?;
        self.put("[abi:")?;
        self.put(tag)?;
        self.put("]")
    }

    fn template(&mut self, name: NameNodeId, arguments: &[NameNodeId]) -> Option<()> {
        self.print_node(name)?;
        if self.last == b'<' {
            self.put(" ")?;
        }
        self.put("<")?;
        self.list(arguments)?;
        if self.last == b'>' {
            self.put(" ")?;
        }
        self.put(">")
    }

    fn operator(&mut self, text: &str) -> Option<()> {
        self.put("operator")?;
        if text.starts_with(|first: char| first.is_ascii_lowercase()) {
            self.put(" ")?;
        }
        self.put(text)
    }

    fn numbered(&mut self, text: &str, number: u64) -> Option<()> {
        self.put(text)?;
        self.put_number(number)?;
        self.put("}")
    }

    fn enclosed(&mut self, open: &str, list: &[NameNodeId], close: &str) -> Option<()> {
        self.put(open)?;
        self.list(list)?;
        self.put(close)
    }

    fn lambda(
        &mut self,
        declared: &'t [LambdaParameter],
        parameters: &[NameNodeId],
        number: u64,
    ) -> Option<()> {
        self.put("{lambda")?;
        if !declared.is_empty() {
            self.put("<")?;
            for (at, parameter) in declared.iter().enumerate() {
                self.put(if at > 0 { ", " } else { "" })?;
                self.declaration(parameter)?;
                self.put(" ")?;
                self.put(sigil(parameter))?;
                self.put_number(u64::try_from(at).ok()?)?;
            }
            self.put(">")?;
        }
        let outer = std::mem::replace(&mut self.declared, declared);
        self.within(ParameterScope::default(), |printer| {
            printer.enclosed("(", parameters, ")")
        })?;
        self.declared = outer;
        self.numbered("#", number)
    }

    fn declaration(&mut self, parameter: &LambdaParameter) -> Option<()> {
        match parameter {
            LambdaParameter::Type => self.put("typename"),
            LambdaParameter::Value(type_) => self.print_node(*type_),
            LambdaParameter::Template(inner) => {
                self.put("template<")?;
                for (at, parameter) in inner.iter().enumerate() {
                    self.put(if at > 0 { ", " } else { "" })?;
                    self.nested(|printer| printer.declaration(parameter))?;
                }
                self.put("> class")
            }
            LambdaParameter::Pack(of) => {
                self.nested(|printer| printer.declaration(of))?;
                self.put("...")
            }
        }
    }

    /// Writes a template parameter of a lambda: one that it declares, or one for an `auto`.
    fn lambda_parameter(&mut self, index: u64) -> Option<()> {
        let at = usize::try_from(index).ok()?;
        match self.declared.get(at) {
            Some(parameter) => {
                self.put(sigil(parameter))?;
                self.put_number(index)
            }
            None => {
                self.put("auto:")?;
                self.put_number(index.saturating_add(1))
            }
        }
    }
}

/// The prefix of a lambda's template parameters, which have no names of their own.
fn sigil(parameter: &LambdaParameter) -> &'static str {
    match parameter {
        LambdaParameter::Type => "$T",
        LambdaParameter::Value(_) => "$N",
        LambdaParameter::Template(_) => "$TT",
        LambdaParameter::Pack(of) => match **of {
            LambdaParameter::Value(_) => "$N",
            LambdaParameter::Template(_) => "$TT",
            _ => "$T",
        },
    }
}
