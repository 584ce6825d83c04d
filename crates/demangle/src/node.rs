//! The tree of a name.

/// The index of a node in [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameNodeId(pub(crate) usize);

/// The meaning of template parameters: an index in [`Tree::contexts`], or one of the constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TemplateContext(pub(crate) usize);

impl TemplateContext {
    /// The parameters of a lambda.
    pub(crate) const LAMBDA: TemplateContext = TemplateContext(usize::MAX);
    /// A forward reference: in the type of a conversion operator.
    pub(crate) const FORWARD: TemplateContext = TemplateContext(usize::MAX - 1);
}

/// The nodes of a name. A substitution has more than one parent.
#[derive(Debug, Default)]
pub(crate) struct Tree<'a> {
    nodes: Vec<NameNode<'a>>,
    /// For each node: whether its meaning depends on its context.
    dependent: Vec<bool>,
    /// The arguments of templates.
    pub(crate) contexts: Vec<Vec<NameNodeId>>,
    /// Whether a substitution was found in a foreign context.
    has_foreign_parameter: bool,
    /// Kept to reuse its memory.
    parts: Vec<NameNodeId>,
}

impl<'a> Tree<'a> {
    pub(crate) fn add(&mut self, node: NameNode<'a>) -> NameNodeId {
        self.parts.clear();
        node.parts(&mut self.parts);
        let mut parts = self.parts.iter();
        let is_dependent = match node {
            NameNode::Parameter(..) => true,
            // They have their own parameters.
            NameNode::Function(_) | NameNode::Lambda(..) | NameNode::InContext(..) => false,
            _ => parts.any(|part| self.is_dependent(*part)),
        };
        self.nodes.push(node);
        self.dependent.push(is_dependent);
        NameNodeId(self.nodes.len() - 1)
    }

    pub(crate) fn get(&self, id: NameNodeId) -> Option<&NameNode<'a>> {
        self.nodes.get(id.0)
    }

    pub(crate) fn get_mut(&mut self, id: NameNodeId) -> Option<&mut NameNode<'a>> {
        self.nodes.get_mut(id.0)
    }

    /// Adds a substitution that was found in a foreign context.
    pub(crate) fn add_foreign(&mut self, node: NameNode<'a>) -> NameNodeId {
        self.has_foreign_parameter = true;
        self.add(node)
    }

    pub(crate) fn has_foreign_parameter(&self) -> bool {
        self.has_foreign_parameter
    }

    pub(crate) fn is_dependent(&self, id: NameNodeId) -> bool {
        self.dependent.get(id.0).copied().unwrap_or(false)
    }
}

/// The qualifiers of a type or of a member function (§5.1.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Qualifiers {
    pub(crate) restrict: bool,
    pub(crate) volatile: bool,
    pub(crate) constant: bool,
    /// For a member function.
    pub(crate) reference: Option<Reference>,
}

/// A reference to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    LValue,
    RValue,
}

/// The form of a literal's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LiteralForm {
    /// The type in parentheses before it.
    Cast,
    /// The bytes of a number, in brackets.
    Float,
    /// A suffix for the type.
    Suffix(&'static str),
    Bool,
}

#[derive(Debug)]
pub(crate) enum NameNode<'a> {
    /// A name, or a fixed text.
    Name(&'a str),
    /// A template parameter, by its index.
    Parameter(u64, TemplateContext),
    /// A substitution that denotes the same text in another context.
    InContext(NameNodeId, TemplateContext),
    /// `std::string` and the others (§5.1.10): short, full, and the name of its constructors.
    Standard(&'static str),
    Qualified(NameNodeId, NameNodeId),
    /// An entity in a function: the function, and the entity.
    Local(NameNodeId, NameNodeId),
    /// An entity in a default argument, counted from the last.
    DefaultArgument(u64, NameNodeId),
    Tagged(NameNodeId, &'a str),
    Template(NameNodeId, Vec<NameNodeId>),
    Constructor(&'a str),
    Destructor(&'a str),
    Operator(&'static str),
    LiteralOperator(&'a str),
    VendorOperator(&'a str),
    Conversion(NameNodeId),
    Lambda(Vec<LambdaParameter>, Vec<NameNodeId>, u64),
    UnnamedType(u64),
    StructuredBinding(Vec<NameNodeId>),
    /// The enclosing module, the separator, and its name.
    Module(Option<NameNodeId>, &'static str, &'a str),
    InModule(NameNodeId, NameNodeId),
    /// A name with the parameters of its function.
    Function(Box<FunctionNode>),
    /// A text before a name.
    Special(&'static str, NameNodeId),
    ConstructionVtable(NameNodeId, NameNodeId),
    ReferenceTemporary(NameNodeId, u64),
    Clone(NameNodeId, &'a str),
    // Types.
    Pointer(NameNodeId),
    Reference(Reference, NameNodeId),
    Postfixed(NameNodeId, &'static str),
    VendorQualified(NameNodeId, NameNodeId),
    Cv(NameNodeId, Qualifiers),
    FunctionType(Box<FunctionType>),
    Array(NameNodeId, Option<NameNodeId>),
    MemberPointer(NameNodeId, NameNodeId),
    Vector(NameNodeId, NameNodeId),
    Builtin(&'a str),
    BitInt(bool, NameNodeId),
    Decltype(NameNodeId),
    PackExpansion(NameNodeId),
    /// `J…E` among template arguments.
    ArgumentPack(Vec<NameNodeId>),
    // Expressions (§5.1.6).
    Literal {
        type_: NameNodeId,
        form: LiteralForm,
        value: &'a str,
        is_negative: bool,
    },
    FunctionParameter(u64),
    Prefix(&'static str, NameNodeId),
    Suffix(NameNodeId, &'static str),
    Binary(&'static str, NameNodeId, NameNodeId),
    Conditional(NameNodeId, NameNodeId, NameNodeId),
    Cast(NameNodeId, NameNodeId),
    NamedCast(&'static str, NameNodeId, NameNodeId),
    Call(NameNodeId, NameNodeId),
    Subscript(NameNodeId, NameNodeId),
    List(Vec<NameNodeId>),
    Braced(Option<NameNodeId>, Vec<NameNodeId>),
    New {
        placement: Vec<NameNodeId>,
        type_: NameNodeId,
        initializer: Option<NameNodeId>,
    },
    SizeofPack(NameNodeId),
    /// With the captured arguments.
    SizeofArguments(Vec<NameNodeId>),
    Designated(NameNodeId, NameNodeId),
    DesignatedIndex(NameNodeId, NameNodeId),
    DesignatedRange(NameNodeId, NameNodeId, NameNodeId),
    Fold {
        operator: &'static str,
        first: NameNodeId,
        second: Option<NameNodeId>,
        is_left: bool,
    },
    Global(NameNodeId),
}

/// A template parameter that a lambda declares.
#[derive(Debug)]
pub(crate) enum LambdaParameter {
    Type,
    Value(NameNodeId),
    Template(Vec<LambdaParameter>),
    Pack(Box<LambdaParameter>),
}

#[derive(Debug)]
pub(crate) struct FunctionNode {
    pub(crate) name: NameNodeId,
    /// The return type, if the mangled name has it.
    pub(crate) returns: Option<NameNodeId>,
    pub(crate) parameters: Vec<NameNodeId>,
    pub(crate) qualifiers: Qualifiers,
}

#[derive(Debug)]
pub(crate) struct FunctionType {
    pub(crate) returns: NameNodeId,
    pub(crate) parameters: Vec<NameNodeId>,
    pub(crate) reference: Option<Reference>,
    pub(crate) exceptions: Option<ExceptionSpec>,
    pub(crate) is_transaction_safe: bool,
}

/// The exception specification of a function type.
#[derive(Debug)]
pub(crate) enum ExceptionSpec {
    Noexcept(Option<NameNodeId>),
    Throw(Vec<NameNodeId>),
}

impl NameNode<'_> {
    /// The children of a node, in their order.
    pub(crate) fn parts(&self, parts: &mut Vec<NameNodeId>) {
        match self {
            NameNode::Qualified(a, b)
            | NameNode::Local(a, b)
            | NameNode::MemberPointer(a, b)
            | NameNode::Vector(a, b)
            | NameNode::VendorQualified(a, b)
            | NameNode::Binary(_, a, b)
            | NameNode::Cast(a, b)
            | NameNode::NamedCast(_, a, b)
            | NameNode::Call(a, b)
            | NameNode::Designated(a, b)
            | NameNode::DesignatedIndex(a, b)
            | NameNode::ConstructionVtable(a, b)
            | NameNode::InModule(a, b)
            | NameNode::Subscript(a, b) => parts.extend([a, b]),
            NameNode::Conditional(a, b, c) | NameNode::DesignatedRange(a, b, c) => {
                parts.extend([a, b, c]);
            }
            NameNode::Pointer(a)
            | NameNode::Reference(_, a)
            | NameNode::Postfixed(a, _)
            | NameNode::Cv(a, _)
            | NameNode::Decltype(a)
            | NameNode::Prefix(_, a)
            | NameNode::Suffix(a, _)
            | NameNode::Tagged(a, _)
            | NameNode::Conversion(a)
            | NameNode::PackExpansion(a)
            | NameNode::SizeofPack(a)
            | NameNode::BitInt(_, a)
            | NameNode::DefaultArgument(_, a)
            | NameNode::Special(_, a)
            | NameNode::ReferenceTemporary(a, _)
            | NameNode::Clone(a, _)
            | NameNode::InContext(a, _)
            | NameNode::Global(a) => parts.push(*a),
            NameNode::Template(name, arguments) => {
                parts.push(*name);
                parts.extend(arguments);
            }
            NameNode::Array(element, bound) => {
                parts.push(*element);
                parts.extend(bound);
            }
            NameNode::FunctionType(function) => {
                parts.push(function.returns);
                parts.extend(&function.parameters);
                match &function.exceptions {
                    Some(ExceptionSpec::Noexcept(condition)) => parts.extend(condition),
                    Some(ExceptionSpec::Throw(types)) => parts.extend(types),
                    None => {}
                }
            }
            NameNode::Function(function) => {
                parts.push(function.name);
                parts.extend(&function.parameters);
            }
            NameNode::List(list)
            | NameNode::Lambda(_, list, _)
            | NameNode::ArgumentPack(list)
            | NameNode::SizeofArguments(list)
            | NameNode::StructuredBinding(list) => parts.extend(list),
            NameNode::Fold { first, second, .. } => {
                parts.push(*first);
                parts.extend(second);
            }
            NameNode::Braced(type_, list) => {
                parts.extend(type_);
                parts.extend(list);
            }
            NameNode::New {
                placement,
                type_,
                initializer,
            } => {
                parts.extend(placement);
                parts.push(*type_);
                parts.extend(initializer);
            }
            NameNode::Literal { type_, .. } => parts.push(*type_),
            NameNode::Module(of, ..) => parts.extend(of),
            NameNode::Name(_)
            | NameNode::Parameter(..)
            | NameNode::Standard(_)
            | NameNode::Constructor(_)
            | NameNode::Destructor(_)
            | NameNode::Operator(_)
            | NameNode::LiteralOperator(_)
            | NameNode::VendorOperator(_)
            | NameNode::UnnamedType(_)
            | NameNode::Builtin(_)
            | NameNode::FunctionParameter(_) => {}
        }
    }
}
