//! Return values of the function.

use unspool_rows::expression::ExpressionError;
use unspool_rows::interpret::{RegisterError, StepError};

/// Return value of `unspool_step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStatus {
    /// The frame is the caller's.
    Caller,
    /// The same, and the callee's frame was interrupted.
    Interrupted,
    /// There is no caller.
    Outermost,
    /// The table has no row at the address.
    NoRow,
    /// The row has no CFA, or no return address.
    NoRule,
    /// The CFA or the return address needs an unknown register.
    UnknownRegister,
    /// The CFA or the return address needs unreadable memory.
    Unreadable,
    /// An expression for the CFA or the return address divides by zero.
    NoValue,
    /// The row has an expression that is not compiled.
    NotCompiled,
}

impl StepStatus {
    /// The status for an error of the interpreter.
    #[must_use]
    pub fn from_step_error(error: &StepError) -> StepStatus {
        let of_expression = |error: &ExpressionError| match error {
            ExpressionError::UnknownRegister(_) => StepStatus::UnknownRegister,
            ExpressionError::Unreadable(_) => StepStatus::Unreadable,
            ExpressionError::DivisionByZero { .. } => StepStatus::NoValue,
            _ => StepStatus::NotCompiled,
        };
        match error {
            StepError::UnknownCfaRegister(_) | StepError::UnknownReturnAddress => {
                StepStatus::UnknownRegister
            }
            StepError::ReturnAddress(RegisterError::Unreadable(_)) => StepStatus::Unreadable,
            StepError::CfaExpression(error)
            | StepError::ReturnAddress(RegisterError::Expression(error)) => of_expression(error),
            _ => StepStatus::NoRule,
        }
    }

    const ALL: [StepStatus; 9] = [
        StepStatus::Caller,
        StepStatus::Interrupted,
        StepStatus::Outermost,
        StepStatus::NoRow,
        StepStatus::NoRule,
        StepStatus::UnknownRegister,
        StepStatus::Unreadable,
        StepStatus::NoValue,
        StepStatus::NotCompiled,
    ];

    /// The status with a number.
    #[inline]
    #[must_use]
    pub fn from_number(number: i32) -> Option<StepStatus> {
        let mut all = StepStatus::ALL.into_iter();
        all.find(|status| status.number() == number)
    }

    /// Its number in the header file.
    #[inline]
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            StepStatus::Caller => 0,
            StepStatus::Interrupted => 1,
            StepStatus::Outermost => 2,
            StepStatus::NoRow => -1,
            StepStatus::NoRule => -2,
            StepStatus::UnknownRegister => -3,
            StepStatus::Unreadable => -4,
            StepStatus::NoValue => -5,
            StepStatus::NotCompiled => -6,
        }
    }

    /// Its name in the header file.
    #[cfg(feature = "std")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            StepStatus::Caller => "UNSPOOL_CALLER",
            StepStatus::Interrupted => "UNSPOOL_INTERRUPTED",
            StepStatus::Outermost => "UNSPOOL_OUTERMOST",
            StepStatus::NoRow => "UNSPOOL_NO_ROW",
            StepStatus::NoRule => "UNSPOOL_NO_RULE",
            StepStatus::UnknownRegister => "UNSPOOL_UNKNOWN_REGISTER",
            StepStatus::Unreadable => "UNSPOOL_UNREADABLE",
            StepStatus::NoValue => "UNSPOOL_NO_VALUE",
            StepStatus::NotCompiled => "UNSPOOL_NOT_COMPILED",
        }
    }
}
