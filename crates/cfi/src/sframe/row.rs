//! Conversion of an SFrame row to a row of call frame information.

use unspool_rows::{CfaRule, Expression, RaState, Register, RegisterRule, Row};

use super::error::SframeError;
use super::frame::{FreBase, FreContents, FreRules, FreValue, SframeAbi};

impl FreContents {
    /// Makes `row` equivalent. Registers that SFrame does not describe get no recoverable value.
    /// `express` returns the expression of a location that no other rule can represent: a register
    /// plus an offset, or a load from there.
    pub(super) fn write<'e>(
        self,
        abi: SframeAbi,
        is_signal_frame: bool,
        row: &mut Row<'e>,
        express: &mut impl FnMut(FreValue) -> Result<Expression<'e>, SframeError>,
    ) -> Result<(), SframeError> {
        row.clear(abi.return_address());
        row.signal_frame = is_signal_frame;
        match self {
            FreContents::Outermost => {
                // SFrame has no CFA here, but a row must have one for its other rules to be used.
                row.cfa = CfaRule::RegisterOffset {
                    register: abi.stack_pointer(),
                    offset: 0,
                };
                set(row, abi.return_address(), RegisterRule::Undefined)?;
                set(row, abi.frame_pointer(), RegisterRule::Undefined)?;
            }
            FreContents::Rules(places) => write_places(places, abi, row, express)?,
        }
        for number in abi.untracked_registers() {
            set(row, Register(*number), RegisterRule::Undefined)?;
        }
        Ok(())
    }
}

fn write_places<'e>(
    rules: FreRules,
    abi: SframeAbi,
    row: &mut Row<'e>,
    express: &mut impl FnMut(FreValue) -> Result<Expression<'e>, SframeError>,
) -> Result<(), SframeError> {
    row.cfa = match rules.cfa {
        FreValue {
            base: FreBase::Register(register),
            offset,
            is_loaded: false,
        } => CfaRule::RegisterOffset { register, offset },
        place => CfaRule::Expression(express(place)?),
    };
    if rules.is_signed {
        row.ra_state = RaState::Signed;
    }
    if let Some(place) = rules.return_address {
        set(row, abi.return_address(), rule(place, express)?)?;
    }
    if let Some(place) = rules.frame_pointer {
        set(row, abi.frame_pointer(), rule(place, express)?)?;
    }
    match abi.caller_stack_pointer() {
        0 => Ok(()),
        offset => set(row, abi.stack_pointer(), RegisterRule::ValOffset(offset)),
    }
}

fn set<'e>(
    row: &mut Row<'e>,
    register: Register,
    rule: RegisterRule<'e>,
) -> Result<(), SframeError> {
    let set = row.set_rule(register, Some(rule));
    set.map(drop).map_err(|_| SframeError::TooLarge)
}

fn rule<'e>(
    value: FreValue,
    express: &mut impl FnMut(FreValue) -> Result<Expression<'e>, SframeError>,
) -> Result<RegisterRule<'e>, SframeError> {
    let address = FreValue {
        is_loaded: false,
        ..value
    };
    Ok(match (value.base, value.is_loaded) {
        (FreBase::Cfa, true) => RegisterRule::Offset(value.offset),
        (FreBase::Cfa, false) => RegisterRule::ValOffset(value.offset),
        (FreBase::Register(register), false) if value.offset == 0 => {
            RegisterRule::Register(register)
        }
        (FreBase::Register(_), true) => RegisterRule::Expression(express(address)?),
        (FreBase::Register(_), false) => RegisterRule::ValExpression(express(address)?),
    })
}
