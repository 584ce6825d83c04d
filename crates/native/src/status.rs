//! What the function returns.

use unspool_ir::expression::ExpressionError;
use unspool_ir::interpret::{RegisterError, StepError};

/// What `unspool_step` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The frame is the caller's.
    Caller,
    /// The same, and the frame that was left had been interrupted.
    Interrupted,
    /// There is no caller.
    Outermost,
    /// The table says nothing of the address.
    NoRow,
    /// The row has no CFA, or no return address.
    NoRule,
    /// One of both needs a register that is not known.
    UnknownRegister,
    /// One of both needs memory that cannot be read.
    Unreadable,
    /// An expression for one of both divides by zero.
    NoValue,
    /// The row has an expression that is not compiled.
    NotCompiled,
}

impl Status {
    /// What is returned where the plain interpreter has this error.
    #[must_use]
    pub fn of(error: &StepError) -> Status {
        let of_expression = |error: &ExpressionError| match error {
            ExpressionError::UnknownRegister(_) => Status::UnknownRegister,
            ExpressionError::Unreadable(_) => Status::Unreadable,
            ExpressionError::DivisionByZero { .. } => Status::NoValue,
            _ => Status::NotCompiled,
        };
        match error {
            StepError::UnknownCfaRegister(_) | StepError::UnknownReturnAddress => {
                Status::UnknownRegister
            }
            StepError::ReturnAddress(RegisterError::Unreadable(_)) => Status::Unreadable,
            StepError::CfaExpression(error)
            | StepError::ReturnAddress(RegisterError::Expression(error)) => of_expression(error),
            _ => Status::NoRule,
        }
    }

    const ALL: [Status; 9] = [
        Status::Caller,
        Status::Interrupted,
        Status::Outermost,
        Status::NoRow,
        Status::NoRule,
        Status::UnknownRegister,
        Status::Unreadable,
        Status::NoValue,
        Status::NotCompiled,
    ];

    /// The status with a number.
    #[inline]
    #[must_use]
    pub fn numbered(number: i32) -> Option<Status> {
        let mut all = Status::ALL.into_iter();
        all.find(|status| status.number() == number)
    }

    /// Its number in the header file.
    #[inline]
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Status::Caller => 0,
            Status::Interrupted => 1,
            Status::Outermost => 2,
            Status::NoRow => -1,
            Status::NoRule => -2,
            Status::UnknownRegister => -3,
            Status::Unreadable => -4,
            Status::NoValue => -5,
            Status::NotCompiled => -6,
        }
    }

    /// Its name in the header file.
    #[cfg(feature = "std")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Caller => "UNSPOOL_CALLER",
            Status::Interrupted => "UNSPOOL_INTERRUPTED",
            Status::Outermost => "UNSPOOL_OUTERMOST",
            Status::NoRow => "UNSPOOL_NO_ROW",
            Status::NoRule => "UNSPOOL_NO_RULE",
            Status::UnknownRegister => "UNSPOOL_UNKNOWN_REGISTER",
            Status::Unreadable => "UNSPOOL_UNREADABLE",
            Status::NoValue => "UNSPOOL_NO_VALUE",
            Status::NotCompiled => "UNSPOOL_NOT_COMPILED",
        }
    }
}
