//! Expressions (Itanium C++ ABI §5.1.6).

use super::Parser;
use crate::node::{LiteralForm, NameNode, NameNodeId};
use crate::operators::{Operands, operator};

impl<'a> Parser<'a> {
    /// `<expression>`.
    pub(super) fn expression(&mut self) -> Option<NameNodeId> {
        self.nested(Self::one_expression)
    }

    fn one_expression(&mut self) -> Option<NameNodeId> {
        let code = self.rest().as_bytes().get(..2)?;
        let digit_follows = || {
            self.rest()
                .as_bytes()
                .get(2)
                .is_some_and(u8::is_ascii_digit)
        };
        match code {
            [b'L', _] => self.primary(),
            [b'T', _] => self.template_parameter(),
            [b'f', b'p'] => self.function_parameter(),
            [b'f', b'L'] if digit_follows() => self.function_parameter(),
            [b'f', b'l' | b'r' | b'L' | b'R'] => self.fold(),
            b"sr" => self.unresolved(),
            b"sp" => {
                self.at += 2;
                let pattern = self.expression()?;
                Some(self.add(NameNode::PackExpansion(pattern)))
            }
            b"gs" => {
                self.at += 2;
                let name = self.expression()?;
                Some(self.add(NameNode::Global(name)))
            }
            b"il" | b"tl" => {
                self.at += 2;
                let type_ = match code {
                    b"tl" => Some(self.type_()?),
                    _ => None,
                };
                let list = self.until_end(Self::expression)?;
                Some(self.add(NameNode::Braced(type_, list)))
            }
            b"di" | b"dx" | b"dX" => self.designated(),
            b"dn" => {
                self.at += 2;
                let name = match self.peek()? {
                    b'0'..=b'9' => self.simple_name()?,
                    _ => self.type_()?,
                };
                Some(self.add(NameNode::Prefix("~", name)))
            }
            b"on" | [b'0'..=b'9', _] => self.simple_name(),
            [b'u', b'0'..=b'9'] => {
                self.at += 1;
                let name = self.source_name()?;
                let arguments = self.until_end(Self::template_argument)?;
                let arguments = self.add(NameNode::List(arguments));
                Some(self.add(NameNode::Call(name, arguments)))
            }
            _ => self.operation(),
        }
    }

    fn operation(&mut self) -> Option<NameNodeId> {
        if self.take("cv") {
            return self.cast();
        }
        let (code, text, operands) = *operator(self.rest().get(..2)?)?;
        self.at += 2;
        let node = match operands {
            Operands::Prefix => NameNode::Prefix(text, self.expression()?),
            Operands::OfType => NameNode::Prefix(text, self.type_()?),
            Operands::Step => {
                if self.take("_") {
                    NameNode::Prefix(text, self.expression()?)
                } else {
                    NameNode::Suffix(self.expression()?, text)
                }
            }
            Operands::Binary => NameNode::Binary(text, self.expression()?, self.expression()?),
            Operands::NamedCast => NameNode::NamedCast(text, self.type_()?, self.expression()?),
            Operands::Special => self.special_operation(code, text)?,
        };
        Some(self.add(node))
    }

    fn special_operation(&mut self, code: &str, text: &'static str) -> Option<NameNode<'a>> {
        Some(match code {
            "cl" => {
                let function = self.expression()?;
                let arguments = self.until_end(Self::expression)?;
                NameNode::Call(function, self.add(NameNode::List(arguments)))
            }
            "ix" => NameNode::Subscript(self.expression()?, self.expression()?),
            "dt" | "pt" => {
                let object = self.expression()?;
                let member = if self.rest().starts_with("sr") {
                    self.unresolved()?
                } else {
                    self.simple_name()?
                };
                NameNode::Binary(text, object, member)
            }
            "qu" => {
                NameNode::Conditional(self.expression()?, self.expression()?, self.expression()?)
            }
            "nw" | "na" => return self.new_expression(),
            "sZ" => NameNode::SizeofPack(match self.peek()? {
                b'T' => self.template_parameter()?,
                _ => self.function_parameter()?,
            }),
            "sP" => NameNode::SizeofArguments(self.until_end(Self::template_argument)?),
            "tr" => NameNode::Name(text),
            _ => return None,
        })
    }

    fn cast(&mut self) -> Option<NameNodeId> {
        let type_ = self.type_()?;
        let operand = if self.take("_") {
            let arguments = self.until_end(Self::expression)?;
            self.add(NameNode::List(arguments))
        } else {
            self.expression()?
        };
        Some(self.add(NameNode::Cast(type_, operand)))
    }

    fn new_expression(&mut self) -> Option<NameNode<'a>> {
        let mut placement = Vec::new();
        while !self.take("_") {
            placement.push(self.expression()?);
        }
        let type_ = self.type_()?;
        let initializer = if self.take("E") {
            None
        } else if self.take("pi") {
            let arguments = self.until_end(Self::expression)?;
            Some(self.add(NameNode::List(arguments)))
        } else {
            Some(self.expression()?)
        };
        Some(NameNode::New {
            placement,
            type_,
            initializer,
        })
    }

    fn designated(&mut self) -> Option<NameNodeId> {
        let code = self.rest().as_bytes().get(1).copied()?;
        self.at += 2;
        let node = match code {
            b'i' => {
                let name = self.source_name()?;
                NameNode::Designated(name, self.expression()?)
            }
            b'x' => NameNode::DesignatedIndex(self.expression()?, self.expression()?),
            _ => NameNode::DesignatedRange(
                self.expression()?,
                self.expression()?,
                self.expression()?,
            ),
        };
        Some(self.add(node))
    }

    fn fold(&mut self) -> Option<NameNodeId> {
        let kind = self.rest().as_bytes().get(1).copied()?;
        self.at += 2;
        let (_, operator, _) = *operator(self.rest().get(..2)?)?;
        self.at += 2;
        let first = self.expression()?;
        let second = match kind {
            b'L' | b'R' => Some(self.expression()?),
            _ => None,
        };
        let is_left = kind == b'l';
        Some(self.add(NameNode::Fold {
            operator,
            first,
            second,
            is_left,
        }))
    }

    /// `<function-param>`: 0 is `this`.
    fn function_parameter(&mut self) -> Option<NameNodeId> {
        if self.take("fpT") {
            return Some(self.add(NameNode::FunctionParameter(0)));
        }
        if !self.take("fp") {
            self.expect("fL")?;
            self.digits();
            self.expect("p")?;
        }
        self.cv_qualifiers();
        let number = self.index()?.checked_add(1)?;
        Some(self.add(NameNode::FunctionParameter(number)))
    }

    /// `<expr-primary>`: a literal, or an entity.
    pub(super) fn primary(&mut self) -> Option<NameNodeId> {
        self.nested(|parser| {
            parser.expect("L")?;
            if parser.take("_Z") || parser.take("Z") {
                let entity = parser.encoding()?;
                parser.expect("E")?;
                return Some(entity);
            }
            let type_ = parser.type_()?;
            let form = match parser.tree.get(type_) {
                Some(NameNode::Builtin("decltype(nullptr)")) if parser.peek() == Some(b'E') => {
                    parser.at += 1;
                    return Some(type_);
                }
                Some(NameNode::Builtin(name)) => literal_form(name),
                _ => LiteralForm::Cast,
            };
            let is_negative = parser.take("n");
            let value = parser.rest();
            let value = value.get(..value.find('E')?)?;
            parser.at += value.len() + 1;
            Some(parser.add(NameNode::Literal {
                type_,
                form,
                value,
                is_negative,
            }))
        })
    }

    /// `<unresolved-name>` from its `sr` on.
    fn unresolved(&mut self) -> Option<NameNodeId> {
        self.expect("sr")?;
        // The ABI has the names of namespaces and classes up to an `E` here, but gcc writes a type.
        let of_levels = |parser: &mut Self| {
            let mut scope = parser.simple_name()?;
            while !parser.take("E") {
                let level = parser.simple_name()?;
                scope = parser.add(NameNode::Qualified(scope, level));
            }
            let name = parser.unqualified_name(None)?.0;
            let name = parser.add(NameNode::Qualified(scope, name));
            parser.with_arguments(name)
        };
        if matches!(self.peek(), Some(b'0'..=b'9'))
            && let Some(name) = self.attempt(of_levels)
        {
            return Some(name);
        }
        let scope = self.type_()?;
        self.member_of(scope)
    }

    fn member_of(&mut self, scope: NameNodeId) -> Option<NameNodeId> {
        let name = if self.take("dn") {
            let name = self.simple_name()?;
            self.add(NameNode::Prefix("~", name))
        } else {
            self.simple_name()?
        };
        Some(self.add(NameNode::Qualified(scope, name)))
    }

    /// A name or an operator, perhaps with template arguments.
    fn simple_name(&mut self) -> Option<NameNodeId> {
        self.nested(|parser| {
            parser.take("on");
            let (name, _) = parser.unqualified_name(None)?;
            parser.with_arguments(name)
        })
    }

    fn with_arguments(&mut self, name: NameNodeId) -> Option<NameNodeId> {
        if self.peek() != Some(b'I') {
            return Some(name);
        }
        let arguments = self.template_arguments(false)?;
        Some(self.add(NameNode::Template(name, arguments)))
    }
}

fn literal_form(type_: &str) -> LiteralForm {
    match type_ {
        "int" => LiteralForm::Suffix(""),
        "unsigned int" => LiteralForm::Suffix("u"),
        "long" => LiteralForm::Suffix("l"),
        "unsigned long" => LiteralForm::Suffix("ul"),
        "long long" => LiteralForm::Suffix("ll"),
        "unsigned long long" => LiteralForm::Suffix("ull"),
        "bool" => LiteralForm::Bool,
        "float" | "double" | "long double" | "__float128" => LiteralForm::Float,
        _ => LiteralForm::Cast,
    }
}
