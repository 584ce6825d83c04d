//! The tree that a name is read into.

/// Where a node is in [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(pub(crate) usize);

/// What template parameters stand for: an index in [`Tree::contexts`], or one of the constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context(pub(crate) usize);

impl Context {
    /// They are those of a lambda.
    pub(crate) const LAMBDA: Context = Context(usize::MAX);
    /// What follows says it: in the type of a conversion operator.
    pub(crate) const LATER: Context = Context(usize::MAX - 1);
}

/// The nodes of a name. A substitution has more than one parent.
#[derive(Debug, Default)]
pub(crate) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    /// For each node: whether what it means depends on the context that it is in.
    dependent: Vec<bool>,
    /// The arguments of templates.
    pub(crate) contexts: Vec<Vec<Id>>,
    /// Whether a substitution was met in a context that is not its own.
    has_foreign_parameter: bool,
    /// Kept for its memory.
    parts: Vec<Id>,
}

impl<'a> Tree<'a> {
    pub(crate) fn add(&mut self, node: Node<'a>) -> Id {
        self.parts.clear();
        node.parts(&mut self.parts);
        let mut parts = self.parts.iter();
        let is_dependent = match node {
            Node::Parameter(..) => true,
            // Their parameters are their own.
            Node::Function(_) | Node::Lambda(..) | Node::InContext(..) => false,
            _ => parts.any(|part| self.is_dependent(*part)),
        };
        self.nodes.push(node);
        self.dependent.push(is_dependent);
        Id(self.nodes.len() - 1)
    }

    pub(crate) fn get(&self, id: Id) -> Option<&Node<'a>> {
        self.nodes.get(id.0)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut Node<'a>> {
        self.nodes.get_mut(id.0)
    }

    /// Adds a substitution that was met in a context that is not its own.
    pub(crate) fn add_foreign(&mut self, node: Node<'a>) -> Id {
        self.has_foreign_parameter = true;
        self.add(node)
    }

    pub(crate) fn has_foreign_parameter(&self) -> bool {
        self.has_foreign_parameter
    }

    pub(crate) fn is_dependent(&self, id: Id) -> bool {
        self.dependent.get(id.0).copied().unwrap_or(false)
    }
}

/// The qualifiers of a type or of a member function (§5.1.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Qualifiers {
    pub(crate) restrict: bool,
    pub(crate) volatile: bool,
    pub(crate) constant: bool,
    /// Of a member function.
    pub(crate) reference: Option<Reference>,
}

/// What refers to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    LValue,
    RValue,
}

/// How the value of a literal is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LiteralForm {
    /// The type in parentheses before it.
    Cast,
    /// The bytes of a number, in brackets.
    Float,
    /// A suffix says the type.
    Suffix(&'static str),
    Bool,
}

#[derive(Debug)]
pub(crate) enum Node<'a> {
    /// A name, or a text that stands for one.
    Name(&'a str),
    /// A template parameter, by its index.
    Parameter(u64, Context),
    /// A substitution that stands for the same text in another context.
    InContext(Id, Context),
    /// `std::string` and the others (§5.1.10): short, whole, and the name of its constructors.
    Standard(&'static str),
    Qualified(Id, Id),
    /// What is in a function: the function, and the entity.
    Local(Id, Id),
    /// In a default argument, counted from the last.
    DefaultArgument(u64, Id),
    Tagged(Id, &'a str),
    Template(Id, Vec<Id>),
    Constructor(&'a str),
    Destructor(&'a str),
    Operator(&'static str),
    LiteralOperator(&'a str),
    VendorOperator(&'a str),
    Conversion(Id),
    Lambda(Vec<LambdaParameter>, Vec<Id>, u64),
    UnnamedType(u64),
    StructuredBinding(Vec<Id>),
    /// The module it is a part of, the separator, and its name.
    Module(Option<Id>, &'static str, &'a str),
    InModule(Id, Id),
    /// A name with the parameters of its function.
    Function(Box<Function>),
    /// A text before a name.
    Special(&'static str, Id),
    ConstructionVtable(Id, Id),
    ReferenceTemporary(Id, u64),
    Clone(Id, &'a str),
    // Types.
    Pointer(Id),
    Reference(Reference, Id),
    Postfixed(Id, &'static str),
    VendorQualified(Id, Id),
    Cv(Id, Qualifiers),
    FunctionType(Box<FunctionType>),
    Array(Id, Option<Id>),
    MemberPointer(Id, Id),
    Vector(Id, Id),
    Builtin(&'a str),
    BitInt(bool, Id),
    Decltype(Id),
    PackExpansion(Id),
    /// `J…E` among template arguments.
    ArgumentPack(Vec<Id>),
    // Expressions (§5.1.6).
    Literal {
        type_: Id,
        form: LiteralForm,
        value: &'a str,
        is_negative: bool,
    },
    FunctionParameter(u64),
    Prefix(&'static str, Id),
    Suffix(Id, &'static str),
    Binary(&'static str, Id, Id),
    Conditional(Id, Id, Id),
    Cast(Id, Id),
    NamedCast(&'static str, Id, Id),
    Call(Id, Id),
    Subscript(Id, Id),
    List(Vec<Id>),
    Braced(Option<Id>, Vec<Id>),
    New {
        placement: Vec<Id>,
        type_: Id,
        initializer: Option<Id>,
    },
    SizeofPack(Id),
    /// With the arguments that were captured.
    SizeofArguments(Vec<Id>),
    Designated(Id, Id),
    DesignatedIndex(Id, Id),
    DesignatedRange(Id, Id, Id),
    Fold {
        operator: &'static str,
        first: Id,
        second: Option<Id>,
        is_left: bool,
    },
    Global(Id),
}

/// A template parameter that a lambda declares.
#[derive(Debug)]
pub(crate) enum LambdaParameter {
    Type,
    Value(Id),
    Template(Vec<LambdaParameter>),
    Pack(Box<LambdaParameter>),
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Id,
    /// The return type, where the mangled name has it.
    pub(crate) returns: Option<Id>,
    pub(crate) parameters: Vec<Id>,
    pub(crate) qualifiers: Qualifiers,
}

#[derive(Debug)]
pub(crate) struct FunctionType {
    pub(crate) returns: Id,
    pub(crate) parameters: Vec<Id>,
    pub(crate) reference: Option<Reference>,
    pub(crate) exceptions: Option<Exceptions>,
    pub(crate) is_transaction_safe: bool,
}

/// What a function type says of exceptions.
#[derive(Debug)]
pub(crate) enum Exceptions {
    Noexcept(Option<Id>),
    Throw(Vec<Id>),
}

impl Node<'_> {
    /// The nodes below one, in their order.
    pub(crate) fn parts(&self, parts: &mut Vec<Id>) {
        match self {
            Node::Qualified(a, b)
            | Node::Local(a, b)
            | Node::MemberPointer(a, b)
            | Node::Vector(a, b)
            | Node::VendorQualified(a, b)
            | Node::Binary(_, a, b)
            | Node::Cast(a, b)
            | Node::NamedCast(_, a, b)
            | Node::Call(a, b)
            | Node::Designated(a, b)
            | Node::DesignatedIndex(a, b)
            | Node::ConstructionVtable(a, b)
            | Node::InModule(a, b)
            | Node::Subscript(a, b) => parts.extend([a, b]),
            Node::Conditional(a, b, c) | Node::DesignatedRange(a, b, c) => parts.extend([a, b, c]),
            Node::Pointer(a)
            | Node::Reference(_, a)
            | Node::Postfixed(a, _)
            | Node::Cv(a, _)
            | Node::Decltype(a)
            | Node::Prefix(_, a)
            | Node::Suffix(a, _)
            | Node::Tagged(a, _)
            | Node::Conversion(a)
            | Node::PackExpansion(a)
            | Node::SizeofPack(a)
            | Node::BitInt(_, a)
            | Node::DefaultArgument(_, a)
            | Node::Special(_, a)
            | Node::ReferenceTemporary(a, _)
            | Node::Clone(a, _)
            | Node::InContext(a, _)
            | Node::Global(a) => parts.push(*a),
            Node::Template(name, arguments) => {
                parts.push(*name);
                parts.extend(arguments);
            }
            Node::Array(element, bound) => {
                parts.push(*element);
                parts.extend(bound);
            }
            Node::FunctionType(function) => {
                parts.push(function.returns);
                parts.extend(&function.parameters);
                match &function.exceptions {
                    Some(Exceptions::Noexcept(condition)) => parts.extend(condition),
                    Some(Exceptions::Throw(types)) => parts.extend(types),
                    None => {}
                }
            }
            Node::Function(function) => {
                parts.push(function.name);
                parts.extend(&function.parameters);
            }
            Node::List(list)
            | Node::Lambda(_, list, _)
            | Node::ArgumentPack(list)
            | Node::SizeofArguments(list)
            | Node::StructuredBinding(list) => parts.extend(list),
            Node::Fold { first, second, .. } => {
                parts.push(*first);
                parts.extend(second);
            }
            Node::Braced(type_, list) => {
                parts.extend(type_);
                parts.extend(list);
            }
            Node::New {
                placement,
                type_,
                initializer,
            } => {
                parts.extend(placement);
                parts.push(*type_);
                parts.extend(initializer);
            }
            Node::Literal { type_, .. } => parts.push(*type_),
            Node::Module(of, ..) => parts.extend(of),
            Node::Name(_)
            | Node::Parameter(..)
            | Node::Standard(_)
            | Node::Constructor(_)
            | Node::Destructor(_)
            | Node::Operator(_)
            | Node::LiteralOperator(_)
            | Node::VendorOperator(_)
            | Node::UnnamedType(_)
            | Node::Builtin(_)
            | Node::FunctionParameter(_) => {}
        }
    }
}
