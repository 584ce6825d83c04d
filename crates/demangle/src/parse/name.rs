//! Names (Itanium C++ ABI §5.1.3, §5.1.5, §5.1.7, §5.1.8).

use super::{MAX_PARSE_DEPTH, ParsedName, Parser};
use crate::node::{LambdaParameter, NameNode, NameNodeId, Qualifiers, Reference, TemplateContext};
use crate::operators::operator;

impl<'a> Parser<'a> {
    /// `<name>`.
    pub(super) fn name(&mut self) -> Option<ParsedName> {
        self.nested(|parser| match parser.peek()? {
            b'N' => parser.nested_name(),
            b'Z' => parser.local_name(),
            _ => parser.unscoped_name(),
        })
    }

    fn unscoped_name(&mut self) -> Option<ParsedName> {
        let is_substitution = self.peek() == Some(b'S') && !self.rest().starts_with("St");
        let (id, is_plain) = if is_substitution {
            (self.substitution(false)?, false)
        } else {
            let scope = self.take("St").then_some("std");
            let scope = scope.map(|name| self.add(NameNode::Name(name)));
            self.unqualified_name(scope)?
        };
        if self.peek() != Some(b'I') {
            return Some(ParsedName::plain(id));
        }
        if !is_substitution {
            self.add_substitution(id);
        }
        let arguments = self.template_arguments(true)?;
        let template = self.add(NameNode::Template(id, arguments));
        Some(ParsedName {
            has_return_type: is_plain || is_substitution,
            ..ParsedName::plain(template)
        })
    }

    /// `<nested-name>`.
    fn nested_name(&mut self) -> Option<ParsedName> {
        self.expect("N")?;
        self.take("H"); // An explicit object parameter.
        let mut qualifiers = self.cv_qualifiers();
        qualifiers.reference = self.reference_qualifier();
        let (id, has_return_type) = self.prefix()?;
        Some(ParsedName {
            id,
            qualifiers,
            has_return_type,
        })
    }

    /// A nested name up to its `E`, and whether it names a function that has its return type.
    fn prefix(&mut self) -> Option<(NameNodeId, bool)> {
        let mut scope: Option<NameNodeId> = None;
        let mut has_return_type = false;
        let mut is_plain = true;
        loop {
            let mut is_known = false;
            let id = match (self.peek()?, scope) {
                (b'E', Some(whole)) => {
                    self.at += 1;
                    return Some((whole, has_return_type));
                }
                (b'M', Some(_)) => {
                    self.at += 1; // A member's initializer.
                    continue;
                }
                (b'I', Some(name)) => {
                    let arguments = self.template_arguments(true)?;
                    has_return_type = is_plain;
                    self.add(NameNode::Template(name, arguments))
                }
                (b'S', None) => {
                    is_known = true;
                    if self.take("St") {
                        self.add(NameNode::Name("std"))
                    } else {
                        self.substitution(true)?
                    }
                }
                (b'T', None) => self.template_parameter()?,
                (b'D', None) if matches!(self.rest().as_bytes(), [_, b't' | b'T', ..]) => {
                    self.decltype()?
                }
                (_, scope) => {
                    has_return_type = false;
                    let (name, plain) = self.unqualified_name(scope)?;
                    is_plain = plain;
                    name
                }
            };
            scope = Some(id);
            if !is_known && self.peek() != Some(b'E') {
                self.add_substitution(id);
            }
        }
    }

    /// `<local-name>`.
    fn local_name(&mut self) -> Option<ParsedName> {
        self.expect("Z")?;
        let function = self.encoding()?;
        self.expect("E")?;
        // An enclosing function has no return type.
        if let Some(NameNode::Function(function)) = self.tree.get_mut(function) {
            function.returns = None;
        }
        if self.take("s") {
            self.discriminator();
            let entity = self.add(NameNode::Name("string literal"));
            let id = self.add(NameNode::Local(function, entity));
            return Some(ParsedName::plain(id));
        }
        let argument = if self.take("d") {
            Some(self.index()?.checked_add(1)?)
        } else {
            None
        };
        let entity = self.name()?;
        if !matches!(
            self.tree.get(entity.id),
            Some(NameNode::Lambda(..) | NameNode::UnnamedType(_))
        ) {
            self.discriminator();
        }
        let id = match argument {
            Some(number) => self.add(NameNode::DefaultArgument(number, entity.id)),
            None => entity.id,
        };
        let id = self.add(NameNode::Local(function, id));
        Some(ParsedName { id, ..entity })
    }

    /// Skips a `<discriminator>`, if there is one.
    fn discriminator(&mut self) {
        self.attempt(|parser| {
            parser.expect("_")?;
            let is_long = parser.take("_");
            let digits = parser.digits();
            if digits.is_empty() {
                return None;
            }
            if is_long && digits.len() > 1 {
                parser.expect("_")?;
            }
            Some(())
        });
    }

    /// `<unqualified-name>` in a scope, and whether templates of that name have their return type.
    pub(super) fn unqualified_name(
        &mut self,
        scope: Option<NameNodeId>,
    ) -> Option<(NameNodeId, bool)> {
        let module = self.module_scope()?;
        self.take("F"); // A friend.
        let (mut name, is_plain) = self.untagged_name(scope)?;
        if let Some(module) = module {
            name = self.add(NameNode::InModule(name, module));
        }
        let name = self.tags(name)?;
        let name = match scope {
            Some(scope) => self.add(NameNode::Qualified(scope, name)),
            None => name,
        };
        Some((name, is_plain))
    }

    fn untagged_name(&mut self, scope: Option<NameNodeId>) -> Option<(NameNodeId, bool)> {
        let rest = self.rest();
        Some(match self.peek()? {
            b'0'..=b'9' => (self.source_name()?, true),
            b'L' => {
                self.at += 1;
                let name = self.source_name()?;
                self.discriminator();
                (name, true)
            }
            b'U' if rest.starts_with("Ul") => (self.lambda()?, true),
            b'U' if rest.starts_with("Ut") => {
                self.at += 2;
                let number = self.index()?.checked_add(1)?;
                let id = self.add(NameNode::UnnamedType(number));
                (id, true)
            }
            b'D' if rest.starts_with("DC") => {
                self.at += 2;
                let names = self.until_end(Self::source_name)?;
                (self.add(NameNode::StructuredBinding(names)), true)
            }
            b'C' | b'D' => {
                scope?;
                (self.constructor()?, false)
            }
            b'a'..=b'z' => self.operator_name()?,
            _ => return None,
        })
    }

    fn constructor(&mut self) -> Option<NameNodeId> {
        let class = self.state.class;
        let is_destructor = self.next()? == b'D';
        let is_inherited = !is_destructor && self.take("I");
        let kind = self.next()?;
        if !matches!(
            (is_destructor, kind),
            (false, b'1'..=b'5') | (true, b'0'..=b'5')
        ) {
            return None;
        }
        if is_inherited {
            self.type_()?;
        }
        Some(self.add(if is_destructor {
            NameNode::Destructor(class)
        } else {
            NameNode::Constructor(class)
        }))
    }

    /// `<operator-name>`, and whether templates of it have their return type: conversions do not.
    pub(super) fn operator_name(&mut self) -> Option<(NameNodeId, bool)> {
        if self.take("cv") {
            let outer = self.state.context.replace(TemplateContext::FORWARD);
            self.state.is_conversion = true;
            let type_ = self.type_()?;
            self.state.is_conversion = false;
            self.state.context = outer;
            let id = self.add(NameNode::Conversion(type_));
            return Some((id, false));
        }
        if self.take("li") {
            let name = self.identifier()?;
            return Some((self.add(NameNode::LiteralOperator(name)), true));
        }
        if let [b'v', b'0'..=b'9', ..] = self.rest().as_bytes() {
            self.at += 2;
            let name = self.identifier()?;
            return Some((self.add(NameNode::VendorOperator(name)), true));
        }
        let (_, text, _) = operator(self.rest().get(..2)?)?;
        self.at += 2;
        Some((self.add(NameNode::Operator(text.trim_end())), true))
    }

    /// `<source-name>`, which also names constructors.
    pub(super) fn source_name(&mut self) -> Option<NameNodeId> {
        let name = self.identifier()?;
        self.state.class = name;
        Some(self.add(NameNode::Name(name)))
    }

    fn identifier(&mut self) -> Option<&'a str> {
        let length: usize = self.digits().parse().ok()?;
        let name = self.rest().get(..length).filter(|name| !name.is_empty())?;
        self.at += length;
        let is_anonymous = matches!(
            name.as_bytes(),
            [
                b'_',
                b'G',
                b'L',
                b'O',
                b'B',
                b'A',
                b'L',
                b'_',
                b'.' | b'_' | b'$',
                b'N',
                ..
            ]
        );
        Some(if is_anonymous {
            "(anonymous namespace)"
        } else {
            name
        })
    }

    /// ABI tags.
    fn tags(&mut self, mut name: NameNodeId) -> Option<NameNodeId> {
        while self.take("B") {
            let class = self.state.class;
            let tag = self.identifier()?;
            self.state.class = class;
            name = self.add(NameNode::Tagged(name, tag));
        }
        Some(name)
    }

    /// `W` and the parts of a module's name (C++20), each a candidate for substitutions.
    fn module_scope(&mut self) -> Option<Option<NameNodeId>> {
        if self.peek() != Some(b'W') {
            return Some(None);
        }
        self.module_name().map(Some)
    }

    pub(super) fn module_name(&mut self) -> Option<NameNodeId> {
        let mut module = None;
        while self.take("W") {
            let separator = if self.take("P") { ":" } else { "." };
            let part = NameNode::Module(module, separator, self.identifier()?);
            let part = self.add(part);
            module = Some(self.add_substitution(part));
        }
        module
    }

    /// `<closure-type-name>`.
    fn lambda(&mut self) -> Option<NameNodeId> {
        self.expect("Ul")?;
        let outer = self.state.context.replace(TemplateContext::LAMBDA);
        let mut declared = Vec::new();
        while let Some(parameter) = self.lambda_parameter()? {
            declared.push(parameter);
        }
        let parameters = self.parameters()?;
        self.state.context = outer;
        self.expect("E")?;
        let number = self.index()?.checked_add(1)?;
        Some(self.add(NameNode::Lambda(declared, parameters, number)))
    }

    /// `<template-param-decl>`; `Some(None)` if none is declared here.
    fn lambda_parameter(&mut self) -> Option<Option<LambdaParameter>> {
        self.nested(|parser| {
            Some(Some(if parser.take("Ty") {
                LambdaParameter::Type
            } else if parser.take("Tn") {
                LambdaParameter::Value(parser.type_()?)
            } else if parser.take("Tt") {
                let mut inner = Vec::new();
                while !parser.take("E") {
                    inner.push(parser.lambda_parameter()??);
                }
                LambdaParameter::Template(inner)
            } else if parser.take("Tp") {
                LambdaParameter::Pack(Box::new(parser.lambda_parameter()??))
            } else {
                return Some(None);
            }))
        })
    }

    pub(super) fn cv_qualifiers(&mut self) -> Qualifiers {
        Qualifiers {
            restrict: self.take("r"),
            volatile: self.take("V"),
            constant: self.take("K"),
            reference: None,
        }
    }

    pub(super) fn reference_qualifier(&mut self) -> Option<Reference> {
        if self.take("R") {
            return Some(Reference::LValue);
        }
        self.take("O").then_some(Reference::RValue)
    }

    /// `<substitution>`. As a prefix before a constructor, a standard one is written in full.
    pub(super) fn substitution(&mut self, is_prefix: bool) -> Option<NameNodeId> {
        self.expect("S")?;
        let (short, whole, class) = match self.peek()? {
            b'_' | b'0'..=b'9' | b'A'..=b'Z' => {
                let number = usize::try_from(self.sequence()?).ok()?;
                let (id, context) = *self.substitutions.get(number)?;
                if matches!(self.tree.get(id), Some(NameNode::Module(..))) {
                    return None; // This is another name in the module.
                }
                self.state.class = self.class_of(id).unwrap_or(self.state.class);
                return Some(match self.state.context {
                    Some(here) if context != self.state.context && self.tree.is_dependent(id) => {
                        self.in_context(id, here)
                    }
                    _ => id,
                });
            }
            b'a' => ("std::allocator", "std::allocator", "allocator"),
            b'b' => ("std::basic_string", "std::basic_string", "basic_string"),
            b's' => ("std::string", STRING, "basic_string"),
            b'i' => ("std::istream", ISTREAM, "basic_istream"),
            b'o' => ("std::ostream", OSTREAM, "basic_ostream"),
            b'd' => ("std::iostream", IOSTREAM, "basic_iostream"),
            _ => return None,
        };
        self.at += 1;
        self.state.class = class;
        let is_whole = is_prefix && matches!(self.peek(), Some(b'C' | b'D'));
        let name = self.add(NameNode::Standard(if is_whole { whole } else { short }));
        let tagged = self.tags(name)?;
        Some(if tagged == name {
            name
        } else {
            self.add_substitution(tagged)
        })
    }

    /// A substitution means the same text in another context.
    fn in_context(&mut self, id: NameNodeId, context: TemplateContext) -> NameNodeId {
        match self.tree.get(id) {
            Some(NameNode::Parameter(index, _)) if context == TemplateContext::FORWARD => {
                let parameter = NameNode::Parameter(*index, context);
                let id = self.tree.add_foreign(parameter);
                self.forward_references.push(id);
                id
            }
            Some(NameNode::Parameter(index, _)) => {
                let parameter = NameNode::Parameter(*index, context);
                self.tree.add_foreign(parameter)
            }
            _ if context == TemplateContext::FORWARD => id,
            _ => self.tree.add_foreign(NameNode::InContext(id, context)),
        }
    }

    /// The name of a class's constructors.
    fn class_of(&self, mut id: NameNodeId) -> Option<&'a str> {
        for _ in 0..MAX_PARSE_DEPTH {
            id = match self.tree.get(id)? {
                NameNode::Name(name) => return Some(name),
                NameNode::Qualified(_, name)
                | NameNode::Local(_, name)
                | NameNode::Template(name, _)
                | NameNode::Tagged(name, _) => *name,
                _ => return None,
            };
        }
        None
    }

    /// `<template-args>`; a name's arguments determine the meaning of later parameters.
    pub(super) fn template_arguments(&mut self, is_of_name: bool) -> Option<Vec<NameNodeId>> {
        self.nested(|parser| {
            parser.expect("I")?;
            let class = parser.state.class;
            let is_conversion = std::mem::take(&mut parser.state.is_conversion);
            let arguments = parser.until_end(Self::template_argument)?;
            parser.state.is_conversion = is_conversion;
            parser.state.class = class;
            if is_of_name {
                parser.state.context = Some(TemplateContext(parser.tree.contexts.len()));
                parser.tree.contexts.push(arguments.clone());
            }
            Some(arguments)
        })
    }

    /// `<template-arg>`.
    pub(super) fn template_argument(&mut self) -> Option<NameNodeId> {
        self.nested(|parser| match parser.peek()? {
            b'X' => {
                parser.at += 1;
                let expression = parser.expression()?;
                parser.expect("E")?;
                Some(expression)
            }
            b'L' => parser.primary(),
            b'J' | b'I' => {
                parser.at += 1;
                let arguments = parser.until_end(Self::template_argument)?;
                Some(parser.add(NameNode::ArgumentPack(arguments)))
            }
            b'T' if parser.lambda_parameter()?.is_some() => parser.template_argument(),
            _ => parser.type_(),
        })
    }
}

const STRING: &str = "std::basic_string<char, std::char_traits<char>, std::allocator<char> >";
const ISTREAM: &str = "std::basic_istream<char, std::char_traits<char> >";
const OSTREAM: &str = "std::basic_ostream<char, std::char_traits<char> >";
const IOSTREAM: &str = "std::basic_iostream<char, std::char_traits<char> >";
