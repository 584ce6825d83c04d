//! Types (Itanium C++ ABI §5.1.5).

use super::Parser;
use crate::node::{ExceptionSpec, FunctionType, NameNode, NameNodeId, Reference, TemplateContext};

impl<'a> Parser<'a> {
    /// `<type>`.
    pub(super) fn type_(&mut self) -> Option<NameNodeId> {
        self.nested(Self::one_type)
    }

    fn one_type(&mut self) -> Option<NameNodeId> {
        let first = self.peek()?;
        let type_ = match first {
            b'r' | b'V' | b'K' => {
                let qualifiers = self.cv_qualifiers();
                // The qualifiers of a function are part of its type.
                let type_ = match self.rest().as_bytes() {
                    [b'F', ..] => self.function_type(None, false)?,
                    [b'D', b'o' | b'O' | b'w' | b'x', ..] => self.d_type()?.0,
                    _ => self.type_()?,
                };
                self.add(NameNode::Cv(type_, qualifiers))
            }
            b'P' | b'R' | b'O' | b'C' | b'G' => {
                self.at += 1;
                let type_ = self.type_()?;
                self.add(match first {
                    b'P' => NameNode::Pointer(type_),
                    b'R' => NameNode::Reference(Reference::LValue, type_),
                    b'O' => NameNode::Reference(Reference::RValue, type_),
                    b'C' => NameNode::Postfixed(type_, " _Complex"),
                    _ => NameNode::Postfixed(type_, " _Imaginary"),
                })
            }
            b'F' => self.function_type(None, false)?,
            b'A' => self.array()?,
            b'M' => {
                self.at += 1;
                let class = self.type_()?;
                let member = self.type_()?;
                self.add(NameNode::MemberPointer(class, member))
            }
            b'T' => return self.parameter_or_elaborated(),
            b'S' if !self.rest().starts_with("St") => {
                let known = self.substitution(false)?;
                if self.peek() != Some(b'I') || self.is_forward_conversion() {
                    return Some(known);
                }
                let arguments = self.template_arguments(false)?;
                self.add(NameNode::Template(known, arguments))
            }
            b'U' if self.rest().starts_with("Ul") || self.rest().starts_with("Ut") => {
                self.class_type()?
            }
            b'U' => self.vendor_qualified()?,
            b'D' => match self.d_type()? {
                (type_, true) => type_,
                (builtin, false) => return Some(builtin),
            },
            b'u' => {
                self.at += 1;
                let name = self.source_name()?;
                match self.peek() {
                    Some(b'I') => {
                        let arguments = self.template_arguments(false)?;
                        self.add(NameNode::Template(name, arguments))
                    }
                    _ => name,
                }
            }
            b'a'..=b'z' => {
                let builtin = builtin(first)?;
                self.at += 1;
                return Some(self.add(NameNode::Builtin(builtin)));
            }
            _ => self.class_type()?,
        };
        Some(self.add_substitution(type_))
    }

    /// A class or an enumeration. No parameter refers to its template arguments.
    fn class_type(&mut self) -> Option<NameNodeId> {
        let context = self.state.context;
        let name = self.name()?;
        self.state.context = context;
        Some(name.id)
    }

    fn vendor_qualified(&mut self) -> Option<NameNodeId> {
        self.expect("U")?;
        let mut name = self.source_name()?;
        if self.peek() == Some(b'I') {
            let arguments = self.template_arguments(false)?;
            name = self.add(NameNode::Template(name, arguments));
        }
        let type_ = self.type_()?;
        Some(self.add(NameNode::VendorQualified(type_, name)))
    }

    /// `<array-type>`.
    fn array(&mut self) -> Option<NameNodeId> {
        self.expect("A")?;
        let digits = self.digits();
        let bound = match (digits, self.peek()?) {
            ("", b'_') => None,
            ("", _) => Some(self.expression()?),
            (digits, _) => Some(self.add(NameNode::Name(digits))),
        };
        self.expect("_")?;
        let element = self.type_()?;
        Some(self.add(NameNode::Array(element, bound)))
    }

    /// `<function-type>`, from its `F` on.
    fn function_type(
        &mut self,
        exceptions: Option<ExceptionSpec>,
        is_transaction_safe: bool,
    ) -> Option<NameNodeId> {
        self.expect("F")?;
        self.take("Y"); // `extern "C"`
        let returns = self.type_()?;
        let parameters = self.parameters()?;
        let reference = self.reference_qualifier();
        self.expect("E")?;
        Some(self.add(NameNode::FunctionType(Box::new(FunctionType {
            returns,
            parameters,
            reference,
            exceptions,
            is_transaction_safe,
        }))))
    }

    /// A template parameter, with arguments if it is a template; or a class with its keyword.
    fn parameter_or_elaborated(&mut self) -> Option<NameNodeId> {
        if let [_, b's' | b'u' | b'e', ..] = self.rest().as_bytes() {
            self.at += 2;
            let class = self.class_type()?;
            return Some(self.add_substitution(class));
        }
        let parameter = self.template_parameter()?;
        self.add_substitution(parameter);
        if self.peek() != Some(b'I') || self.is_forward_conversion() {
            return Some(parameter);
        }
        let arguments = self.template_arguments(false)?;
        let template = self.add(NameNode::Template(parameter, arguments));
        Some(self.add_substitution(template))
    }

    /// Whether following template arguments are those of the conversion operator whose type is
    /// being parsed.
    fn is_forward_conversion(&mut self) -> bool {
        self.state.is_conversion && {
            // `operator T<int>` has its own arguments, and then those of the operator.
            let both = |parser: &mut Self| {
                parser.template_arguments(false)?;
                (parser.peek() == Some(b'I')).then_some(())
            };
            let mark = self.checkpoint();
            let has_both = both(self).is_some();
            self.rewind(&mark);
            !has_both
        }
    }

    /// `<template-param>`.
    pub(super) fn template_parameter(&mut self) -> Option<NameNodeId> {
        self.expect("T")?;
        if self.take("L") {
            self.index()?;
        }
        let index = self.index()?;
        let parameter = self.parameter(index)?;
        let id = self.add(parameter);
        if self.state.context == Some(TemplateContext::FORWARD) {
            self.forward_references.push(id);
        }
        Some(id)
    }

    /// A type that starts with `D`, and whether it is a candidate for substitutions.
    fn d_type(&mut self) -> Option<(NameNodeId, bool)> {
        let second = *self.rest().as_bytes().get(1)?;
        let simple = match second {
            b'f' => Some("decimal32"),
            b'd' => Some("decimal64"),
            b'e' => Some("decimal128"),
            b'h' => Some("half"),
            b's' => Some("char16_t"),
            b'u' => Some("char8_t"),
            b'i' => Some("char32_t"),
            b'n' => Some("decltype(nullptr)"),
            b'a' => Some("auto"),
            b'c' => Some("decltype(auto)"),
            _ => None,
        };
        if let Some(name) = simple {
            self.at += 2;
            return Some((self.add(NameNode::Builtin(name)), false));
        }
        Some(match second {
            b'F' => (self.float_type()?, false),
            b't' | b'T' => (self.decltype()?, true),
            b'p' => {
                self.at += 2;
                let type_ = self.type_()?;
                (self.add(NameNode::PackExpansion(type_)), true)
            }
            b'v' => (self.vector()?, true),
            b'B' | b'U' => {
                self.at += 2;
                let digits = self.digits();
                let width = match digits {
                    "" => self.expression()?,
                    digits => self.add(NameNode::Name(digits)),
                };
                self.expect("_")?;
                (self.add(NameNode::BitInt(second == b'U', width)), false)
            }
            b'o' | b'O' | b'w' | b'x' => {
                let exceptions = self.exceptions()?;
                let is_transaction_safe = self.take("Dx");
                (self.function_type(exceptions, is_transaction_safe)?, true)
            }
            _ => return None,
        })
    }

    fn exceptions(&mut self) -> Option<Option<ExceptionSpec>> {
        Some(if self.take("Do") {
            Some(ExceptionSpec::Noexcept(None))
        } else if self.take("DO") {
            let condition = self.expression()?;
            self.expect("E")?;
            Some(ExceptionSpec::Noexcept(Some(condition)))
        } else if self.take("Dw") {
            Some(ExceptionSpec::Throw(self.until_end(Self::type_)?))
        } else {
            None
        })
    }

    fn float_type(&mut self) -> Option<NameNodeId> {
        const FORMATS: [(&str, &str); 8] = [
            ("DF16_", "_Float16"),
            ("DF16b", "std::bfloat16_t"),
            ("DF32_", "_Float32"),
            ("DF64_", "_Float64"),
            ("DF128_", "_Float128"),
            ("DF32x", "_Float32x"),
            ("DF64x", "_Float64x"),
            ("DF128x", "_Float128x"),
        ];
        let (_, name) = FORMATS.iter().find(|(code, _)| self.take(code))?;
        Some(self.add(NameNode::Builtin(name)))
    }

    fn vector(&mut self) -> Option<NameNodeId> {
        self.expect("Dv")?;
        let digits = self.digits();
        let size = match digits {
            "" => {
                self.expect("_")?;
                self.expression()?
            }
            digits => self.add(NameNode::Name(digits)),
        };
        self.expect("_")?;
        let element = self.type_()?;
        Some(self.add(NameNode::Vector(element, size)))
    }

    pub(super) fn decltype(&mut self) -> Option<NameNodeId> {
        self.expect("D")?;
        self.at += 1;
        let expression = self.expression()?;
        self.expect("E")?;
        Some(self.add(NameNode::Decltype(expression)))
    }
}

/// `<builtin-type>` of one letter.
fn builtin(code: u8) -> Option<&'static str> {
    Some(match code {
        b'a' => "signed char",
        b'b' => "bool",
        b'c' => "char",
        b'd' => "double",
        b'e' => "long double",
        b'f' => "float",
        b'g' => "__float128",
        b'h' => "unsigned char",
        b'i' => "int",
        b'j' => "unsigned int",
        b'l' => "long",
        b'm' => "unsigned long",
        b'n' => "__int128",
        b'o' => "unsigned __int128",
        b's' => "short",
        b't' => "unsigned short",
        b'v' => "void",
        b'w' => "wchar_t",
        b'x' => "long long",
        b'y' => "unsigned long long",
        b'z' => "...",
        _ => return None,
    })
}
