//! The rule of a frame's address, found through the client's callbacks.

use core::ops::ControlFlow;

use unspool_rows::{CodeAddr, LoadBias, Row};
use unspool_unwind::ModuleSlot;

use crate::abi::Error;
use crate::client::Client;
use crate::guess::{self, GuessInput};
use crate::own_process;
use crate::remote_cfi;
use crate::rule::OwnedStepRule;

/// The rule at an address, common to all frames there; `None` if there is none, and only
/// [`guess_rule`] may find one.
///
/// # Errors
///
/// The client's own, [`Error::BAD_FRAME`] for a bad entry.
pub(crate) fn rule(client: Client<'_>, code: CodeAddr) -> Result<Option<OwnedStepRule>, Error> {
    let memory = client.memory();
    let (address, pc) = (code.address().0, code.lookup().0);
    let info = match client.find_proc_info(pc) {
        Ok(info) => info,
        Err(Error::NO_INFO) => {
            let is_interrupted = matches!(code, CodeAddr::Instruction(_));
            let row = guess::code(&memory, address, is_interrupted);
            return row.as_ref().map(OwnedStepRule::from_row).transpose();
        }
        Err(error) => return Err(error),
    };
    // A handler returns to the first byte of its trampoline, not to the byte behind a call: the
    // entry that covers the preceding byte may be the previous function's.
    if matches!(code, CodeAddr::Return(_))
        && address == info.end_ip
        && let Some(row) = guess::trampoline_at(&memory, address)
    {
        return OwnedStepRule::from_row(&row).map(Some);
    }
    let mut found = None;
    remote_cfi::rows(&memory, &info, |at| {
        if !(at.start..at.end).contains(&pc) {
            return Ok(ControlFlow::Continue(()));
        }
        found = Some(OwnedStepRule::from_row(at.row)?);
        Ok(ControlFlow::Break(()))
    })?;
    found.ok_or(Error::NO_INFO).map(Some)
}

/// The rule of one frame, if there is none at its address; `None` if it is assumed to be the
/// outermost.
///
/// # Errors
///
/// [`Error::NO_MEMORY`].
pub(crate) fn guess_rule(
    client: Client<'_>,
    input: &GuessInput,
) -> Result<Option<OwnedStepRule>, Error> {
    let row = guess::frame(&client.memory(), input);
    row.as_ref().map(OwnedStepRule::from_row).transpose()
}

/// The module of a row of the own process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    /// The load bias of its module.
    pub(crate) bias: LoadBias,
    /// The number of its module; none for a guess.
    pub(crate) slot: Option<ModuleSlot>,
}

impl Owner {
    /// A guess has no module.
    const NOBODY: Owner = Owner {
        bias: LoadBias(0),
        slot: None,
    };
}

/// Makes `row` the one at an address of the own process; `None` if the frame is assumed to be the
/// outermost. Allocates nothing.
///
/// # Errors
///
/// [`Error::BAD_FRAME`] for a bad entry.
pub(crate) fn own_row(
    client: Client<'_>,
    code: CodeAddr,
    known: impl FnOnce() -> GuessInput,
    row: &mut Row<'static>,
) -> Result<Option<Owner>, Error> {
    match own_process::row(code.lookup(), row) {
        Ok(found) => {
            let address = code.address();
            let is_behind = matches!(code, CodeAddr::Return(_)) && address == found.end;
            if is_behind && own_trampoline(client, address.0, row) {
                return Ok(Some(Owner::NOBODY));
            }
            Ok(Some(Owner {
                bias: found.bias,
                slot: found.slot,
            }))
        }
        Err(Error::NO_INFO) => {
            let is_known = own_guess(client, &known(), row);
            Ok(is_known.then_some(Owner::NOBODY))
        }
        Err(error) => Err(error),
    }
}

/// Makes `row` that of a signal handler's trampoline; returns whether one begins at the address.
#[cold]
#[inline(never)]
fn own_trampoline(client: Client<'_>, address: u64, row: &mut Row<'static>) -> bool {
    let trampoline = guess::trampoline_at(&client.memory(), address);
    trampoline.map(|found| *row = found).is_some()
}

/// Makes `row` that of a frame that no entry covers; false if it is assumed to be the outermost.
#[cold]
#[inline(never)]
fn own_guess(client: Client<'_>, input: &GuessInput, row: &mut Row<'static>) -> bool {
    let guessed = guess::row(&client.memory(), input);
    guessed.map(|found| *row = found).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use unspool_rows::{PackedRow, RuntimeAddr, encoding};

    use crate::remote_cfi::tests::{BASE, target};
    use crate::sys::fake_target::{self, FakeTarget};

    const FUNCTION: u64 = BASE + 0x1000;
    const BEHIND: u64 = FUNCTION + 16;

    /// A function, followed by these bytes, which no entry covers.
    fn target_with(behind: [u8; 16]) -> FakeTarget {
        let (mut bytes, table) = target(&[FUNCTION]);
        bytes.resize(0x1010, 0x90);
        bytes.extend(behind);
        bytes.extend([0x90; 16]);
        let words = bytes.chunks_exact(8);
        let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        FakeTarget {
            start: BASE,
            words: Mutex::new(words.collect()),
            registers: Mutex::new([0; 17]),
            table,
        }
    }

    fn resolved(target: &FakeTarget, code: CodeAddr) -> Result<Option<OwnedStepRule>, Error> {
        let client = Client {
            space: fake_target::space(),
            argument: target.argument(),
        };
        rule(client, code)
    }

    fn is_signal_frame(rule: &OwnedStepRule) -> bool {
        match rule {
            OwnedStepRule::Encoded(bytes) => encoding::decode(bytes).unwrap().signal_frame,
            OwnedStepRule::Simple(simple) => simple.row() == PackedRow::SIGNAL,
        }
    }

    #[test]
    fn a_call_at_the_end_of_a_function_is_not_the_trampoline_behind_it() {
        let mut trampoline = [0x90; 16];
        trampoline[..9].copy_from_slice(&[0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05]);
        for (behind, is_trampoline) in [(trampoline, true), ([0x90; 16], false)] {
            let target = target_with(behind);
            // A handler returns to the trampoline's first byte; so does the function's last call.
            let returned = CodeAddr::Return(RuntimeAddr(BEHIND));
            let rule = resolved(&target, returned).unwrap().unwrap();
            assert_eq!(is_signal_frame(&rule), is_trampoline);
            // An interrupted frame there has no entry.
            let there = CodeAddr::Instruction(RuntimeAddr(BEHIND));
            let rule = resolved(&target, there).unwrap();
            assert_eq!(rule.as_ref().is_some_and(is_signal_frame), is_trampoline);
            // In the kernel, the address is the one behind the trampoline. No call returns there.
            let end = RuntimeAddr(BEHIND + 9);
            let rule = resolved(&target, CodeAddr::Instruction(end)).unwrap();
            assert_eq!(rule.as_ref().is_some_and(is_signal_frame), is_trampoline);
            let rule = resolved(&target, CodeAddr::Return(end)).unwrap();
            assert!(rule.is_none());
            // Within the function, the bytes do not matter.
            for code in [
                CodeAddr::Return(RuntimeAddr(BEHIND - 1)),
                CodeAddr::Instruction(RuntimeAddr(BEHIND - 1)),
            ] {
                let rule = resolved(&target, code).unwrap();
                assert!(matches!(rule, Some(OwnedStepRule::Simple(_))));
            }
        }
    }

    /// The row of a return address is that of the preceding call.
    #[test]
    fn an_instruction_and_a_return_address_have_rows_of_their_own() {
        let target = target_with([0x90; 16]);
        let cfa_offset = |code| match resolved(&target, code) {
            Ok(Some(OwnedStepRule::Simple(simple))) => simple.row().cfa_offset(),
            other => panic!("{other:?}"),
        };
        let second = RuntimeAddr(FUNCTION + 1);
        assert_eq!(cfa_offset(CodeAddr::Return(second)), 8);
        assert_eq!(cfa_offset(CodeAddr::Instruction(second)), 16);
    }
}
