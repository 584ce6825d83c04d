//! What functions were called with, as far as it was recorded.

use std::fmt;
use std::num::NonZero;

/// The number of a list of arguments in its profile, which is the same for an equal one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArgumentsId(NonZero<u32>);

impl ArgumentsId {
    /// The number of what comes after so many others. There is no memory for more than it can count.
    pub(crate) fn from_index(others: usize) -> ArgumentsId {
        let next = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
        ArgumentsId(NonZero::new(next).unwrap_or(NonZero::<u32>::MAX))
    }

    /// How many come before it.
    pub(crate) fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// What a function was called with for one of its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Argument {
    /// The parameter's name; `#` and its number, from 1 on, if it has none.
    pub name: String,
    /// Its type, as C has it.
    pub type_name: String,
    /// The value, as C has it; empty if it is not known.
    pub value: String,
    /// How well it is known.
    pub certainty: ArgumentCertainty,
}

/// How well the value of an argument is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArgumentCertainty {
    /// The function was called with it.
    Exact,
    /// It may be another: it lies where the program may have written since.
    Likely,
    /// Nobody had it any more.
    Lost,
    /// It was left out, because the function was called with so many others.
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

    /// The name used in reports: `exact`, `likely`, `lost`, `omitted`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ArgumentCertainty::Exact => "exact",
            ArgumentCertainty::Likely => "likely",
            ArgumentCertainty::Lost => "lost",
            ArgumentCertainty::Omitted => "omitted",
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

/// The name of a function with what it was called with: `serve(path="a", tries~3)`.
pub(crate) fn with_arguments(function: &str, arguments: &[Argument]) -> String {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    format!("{function}({})", arguments.join(", "))
}
