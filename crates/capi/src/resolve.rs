//! The rule of a frame's address, found through the client's callbacks.

use unspool_ir::CodeAddr;

use crate::abi::Error;
use crate::client::Client;
use crate::guess::{self, Known};
use crate::remote_cfi;
use crate::rule::Rule;

/// The rule at an address; `None` where the frame is taken for the outermost. `known` is asked
/// only where no entry covers the address.
///
/// # Errors
///
/// The client's own, [`Error::BAD_FRAME`] for a bad entry.
pub fn rule(
    client: Client<'_>,
    code: CodeAddr,
    known: impl FnOnce() -> Known,
) -> Result<Option<Rule>, Error> {
    let memory = client.memory();
    let (address, pc) = (code.address().0, code.lookup().0);
    let info = match client.find_proc_info(pc) {
        Ok(info) => info,
        Err(Error::NO_INFO) => {
            return guess::row(&memory, &known())
                .as_ref()
                .map(Rule::from_row)
                .transpose();
        }
        Err(error) => return Err(error),
    };
    // A handler returns to the first byte of its trampoline, not to behind a call: the entry that
    // covers the byte before it may be that of the function before it.
    if matches!(code, CodeAddr::Return(_))
        && address == info.end_ip
        && let Some(row) = guess::trampoline_at(&memory, address)
    {
        return Rule::from_row(&row).map(Some);
    }
    let mut found = None;
    remote_cfi::rows(&memory, &info, |at| {
        if (at.start..at.end).contains(&pc) {
            found = Some(Rule::from_row(at.row)?);
        }
        Ok(())
    })?;
    found.ok_or(Error::NO_INFO).map(Some)
}
