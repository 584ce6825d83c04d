//! The operators (Itanium C++ ABI §5.1.3).

/// The operands after an operator's code in an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operands {
    /// One expression.
    Prefix,
    /// One expression, and whether it is before or after the operator.
    Step,
    /// A type.
    OfType,
    Binary,
    /// A type and an expression.
    NamedCast,
    /// Others, handled in [`crate::parse`].
    Special,
}

/// An operator: its code, its text, and its operands.
pub(crate) type OperatorEntry = (&'static str, &'static str, Operands);

/// The operator for a code.
pub(crate) fn operator(code: &str) -> Option<&'static OperatorEntry> {
    let at = OPERATORS.binary_search_by(|entry| entry.0.cmp(code));
    OPERATORS.get(at.ok()?)
}

use Operands::{Binary, NamedCast, OfType, Prefix, Special, Step};

/// By code.
static OPERATORS: [OperatorEntry; 66] = [
    ("aN", "&=", Binary),
    ("aS", "=", Binary),
    ("aa", "&&", Binary),
    ("ad", "&", Prefix),
    ("an", "&", Binary),
    ("at", "alignof ", OfType),
    ("aw", "co_await ", Prefix),
    ("az", "alignof ", Prefix),
    ("cc", "const_cast", NamedCast),
    ("cl", "()", Special),
    ("cm", ",", Binary),
    ("co", "~", Prefix),
    ("dV", "/=", Binary),
    ("da", "delete[] ", Prefix),
    ("dc", "dynamic_cast", NamedCast),
    ("de", "*", Prefix),
    ("dl", "delete ", Prefix),
    ("ds", ".*", Binary),
    ("dt", ".", Special),
    ("dv", "/", Binary),
    ("eO", "^=", Binary),
    ("eo", "^", Binary),
    ("eq", "==", Binary),
    ("ge", ">=", Binary),
    ("gt", ">", Binary),
    ("ix", "[]", Special),
    ("lS", "<<=", Binary),
    ("le", "<=", Binary),
    ("ls", "<<", Binary),
    ("lt", "<", Binary),
    ("mI", "-=", Binary),
    ("mL", "*=", Binary),
    ("mi", "-", Binary),
    ("ml", "*", Binary),
    ("mm", "--", Step),
    ("na", "new[]", Special),
    ("ne", "!=", Binary),
    ("ng", "-", Prefix),
    ("nt", "!", Prefix),
    ("nw", "new", Special),
    ("nx", "noexcept", Prefix),
    ("oR", "|=", Binary),
    ("oo", "||", Binary),
    ("or", "|", Binary),
    ("pL", "+=", Binary),
    ("pl", "+", Binary),
    ("pm", "->*", Binary),
    ("pp", "++", Step),
    ("ps", "+", Prefix),
    ("pt", "->", Special),
    ("qu", "?", Special),
    ("rM", "%=", Binary),
    ("rS", ">>=", Binary),
    ("rc", "reinterpret_cast", NamedCast),
    ("rm", "%", Binary),
    ("rs", ">>", Binary),
    ("sP", "sizeof...", Special),
    ("sZ", "sizeof...", Special),
    ("sc", "static_cast", NamedCast),
    ("ss", "<=>", Binary),
    ("st", "sizeof ", OfType),
    ("sz", "sizeof ", Prefix),
    ("te", "typeid ", Prefix),
    ("ti", "typeid ", OfType),
    ("tr", "throw", Special),
    ("tw", "throw ", Prefix),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(OPERATORS.is_sorted_by(|a, b| a.0 < b.0));
    }
}
