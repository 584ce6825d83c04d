//! Gives up what a command does not need before it reads files that strangers may have made.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};
use unspool_files::raw::effective_user;

use crate::args::Command;

/// The files of other users, as input and as output, and the kernel's addresses.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SYSLOG);

/// Whether a command works on files only. Others run programs, or look at processes.
fn works_on_files(command: &Command) -> bool {
    match command {
        Command::Record(_)
        | Command::Doctor(_)
        | Command::View(_)
        | Command::Gdb(_)
        | Command::Frames => false,
        Command::Stack(stack) => stack.core.is_some(),
        Command::Ctf(ctf) => !ctf.looks_at_a_process(),
        Command::Check(check) => !check.runs_a_program(),
        _ => true,
    }
}

/// Whether a command may run the user's compiler, which can need a privileged program to start.
fn may_run_a_compiler(command: &Command) -> bool {
    matches!(command, Command::Annotate(_) | Command::Check(_))
}

/// Whether an argument names a file of `/proc`: as `/proc/PID/exe` or below `/proc/PID/root`, these
/// are open only to those who may trace the process.
fn names_a_process(mut arguments: impl Iterator<Item = OsString>) -> bool {
    let is_below = env::current_dir().is_ok_and(|folder| folder.starts_with("/proc"));
    is_below
        || arguments.any(|argument| {
            let mut parts = argument.as_bytes().windows(6);
            parts.any(|part| part == b"/proc/")
        })
}

/// For a command that works on files, drops all capabilities except [`KEPT`], for programs that it
/// starts as well. Must be called while there is one thread.
///
/// # Errors
///
/// Capabilities are held and cannot be dropped.
pub(crate) fn restrict(command: &Command) -> io::Result<()> {
    if !works_on_files(command) {
        return Ok(());
    }
    let held = match capabilities(None) {
        Ok(held) => held.permitted,
        // A filter of system calls refuses the question.
        Err(error) if effective_user() == 0 => return Err(error.into()),
        Err(_) => CapabilitySet::empty(),
    };
    if held.is_empty() {
        // A user's own programs need not be kept from this, so a refusal does not matter.
        if !may_run_a_compiler(command) {
            let _ = set_no_new_privs(true);
        }
        return Ok(());
    }
    set_no_new_privs(true)?;
    let mut kept = KEPT & held;
    if names_a_process(env::args_os()) {
        kept |= CapabilitySet::SYS_PTRACE & held;
    }
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}
