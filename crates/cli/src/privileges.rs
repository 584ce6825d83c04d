//! Gives up what a command does not need before it reads files that strangers may have made.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};

use crate::args::Command;

/// The files of other users, as input and as output, and the kernel's addresses.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SYSLOG);

/// Whether a command works on files only. Others run programs, or look at processes.
fn works_on_files(command: &Command) -> bool {
    match command {
        Command::Record(_) | Command::Doctor(_) | Command::View(_) => false,
        Command::Stack(stack) => stack.core.is_some(),
        Command::Check(check) => !check.runs_a_program(),
        _ => true,
    }
}

/// For a command that works on files, drops all capabilities except [`KEPT`], for programs that it
/// starts as well. Must be called while there is one thread.
pub(crate) fn restrict(command: &Command) -> io::Result<()> {
    if !works_on_files(command) {
        return Ok(());
    }
    set_no_new_privs(true)?;
    let held = capabilities(None)?;
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: held.effective & KEPT,
            permitted: held.permitted & KEPT,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}
