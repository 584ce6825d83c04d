//! Runs the test programs.

use unspool_testing::{RunningProgram, limitless};

use crate::stack::build::BuiltProgram;

/// Starts a program in its own folder, allowed to dump core.
pub(crate) fn start(program: &BuiltProgram, arguments: &[&str]) -> RunningProgram {
    let mut command = limitless(&program.path);
    RunningProgram::start(command.args(arguments).current_dir(&program.directory))
}

/// Starts a program and waits until it says that it stands where it should, and does.
pub(crate) fn ready(program: &BuiltProgram, arguments: &[&str]) -> RunningProgram {
    let mut running = start(program, arguments);
    running.await_ready();
    running
}
