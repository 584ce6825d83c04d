//! The recorded arguments of functions.

use std::fmt;
use std::num::NonZero;

/// The ID of a list of arguments in its profile; equal lists have equal IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArgumentsId(NonZero<u32>);

impl ArgumentsId {
    /// The ID after this many others. Memory cannot hold more than it can count.
    pub(crate) fn from_index(others: usize) -> ArgumentsId {
        let next = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
        ArgumentsId(NonZero::new(next).unwrap_or(NonZero::<u32>::MAX))
    }

    /// Its index.
    pub(crate) fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// The argument of a function for one of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Argument {
    /// The parameter's name; `#` and its number, from 1 on, if it has none.
    pub name: String,
    /// Its type in C syntax.
    pub type_name: String,
    /// The value in C syntax; empty if unknown.
    pub value: String,
    /// Its certainty.
    pub certainty: ArgumentCertainty,
}

/// The certainty of an argument's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArgumentCertainty {
    /// The function was called with it.
    Exact,
    /// It may differ: it was read from memory that the program may have changed.
    Likely,
    /// It was no longer available.
    Lost,
    /// It was left out, because the function was called with too many others.
    Omitted,
}

impl ArgumentCertainty {
    /// All of them.
    pub const ALL: [ArgumentCertainty; 4] = [
        ArgumentCertainty::Exact,
        ArgumentCertainty::Likely,
        ArgumentCertainty::Lost,
        ArgumentCertainty::Omitted,
    ];

    /// The name used in reports: `exact`, `likely`, `lost`, `not-recorded`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ArgumentCertainty::Exact => "exact",
            ArgumentCertainty::Likely => "likely",
            ArgumentCertainty::Lost => "lost",
            ArgumentCertainty::Omitted => "not-recorded",
        }
    }
}

/// `tries=3`; `tries~3` if that is likely, `tries=?` if it is lost, `tries=...` if it was left out.
impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.certainty {
            ArgumentCertainty::Exact => write!(f, "={}", self.value),
            ArgumentCertainty::Likely => write!(f, "~{}", self.value),
            ArgumentCertainty::Lost => f.write_str("=?"),
            ArgumentCertainty::Omitted => f.write_str("=..."),
        }
    }
}

/// A function's name with its arguments: `serve(path="a", tries~3)`.
pub(crate) fn with_arguments(function: &str, arguments: &[Argument]) -> String {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    format!("{function}({})", arguments.join(", "))
}
