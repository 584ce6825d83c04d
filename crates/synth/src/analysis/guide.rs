//! What is asked and told while a unit is followed.

use super::{Analysis, Watch};
use crate::code::InsnId;
use crate::state::State;
use crate::value::Value;

/// Says what the code alone does not: nothing, for who must not believe a table.
pub trait Guide {
    /// Whether control comes to `address` in this state.
    fn comes(&self, by: By, address: u64, state: &State) -> bool {
        let _ = (by, address, state);
        true
    }

    /// The state at `address`, the start of a function, if that is not come into as functions are.
    fn begin(&self, address: u64) -> Option<State> {
        let _ = address;
        None
    }

    /// The state at `address`, the start of a fragment that nothing else leads to.
    fn entry(&self, address: u64) -> Option<State> {
        let _ = address;
        None
    }

    /// Where indirect jumps may lead of which it is not known where they lead, if nothing else leads there.
    fn guesses(&self) -> &[u64] {
        &[]
    }

    /// Whether a function of its own begins at `address`, in the middle of another, to which a call leads.
    fn is_function(&self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// Whether control goes on behind the trap at `address`: a debugger may have it do that.
    fn resumes(&self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// How many bytes of arguments the unwinder takes off the stack when an exception out of the call at
    /// `address` lands, before which the stack pointer is `sp` (`DW_CFA_GNU_args_size`).
    fn args_size(&self, address: u64, sp: Value) -> u64 {
        let _ = (address, sp);
        0
    }
}

/// A way to come somewhere of which it is not certain that it is ever gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Behind a call, if the function called returns.
    Return,
    /// By a jump from another extent.
    Jump,
}

/// Believes the code alone.
#[derive(Debug, Clone, Copy)]
pub struct CodeAlone;

impl Guide for CodeAlone {}

/// Is told what holds before instructions while a unit is followed, as it is known then: perhaps better than it turns out
/// to be, in which case it is told again.
pub trait Observer {
    /// Whether it wants to be told at all.
    const LOOKS: bool;

    /// What must be known of a state at `address` if control comes there by a jump, beside addresses of the stack; the rest
    /// may be forgotten. Bit n stands for register n.
    fn needs(&self, address: u64) -> u64;

    /// What holds before an instruction, as [`Analysis::watch`] has it; `None` gives the unit up.
    fn see(
        &mut self,
        so_far: &Analysis<'_>,
        insn: InsnId,
        state: &State,
        written: u64,
    ) -> Option<Watch>;
}

/// Waits for the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patient;

impl Observer for Patient {
    const LOOKS: bool = false;

    fn needs(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn see(&mut self, _: &Analysis<'_>, _: InsnId, _: &State, _: u64) -> Option<Watch> {
        Some(Watch::ALL)
    }
}
