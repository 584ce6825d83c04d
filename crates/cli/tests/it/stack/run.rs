//! Runs the test programs.

use unspool_testing::{RunningProgram, limitless};

use crate::stack::build::BuiltProgram;

/// Starts a program in its own folder, with core files enabled.
pub(crate) fn start(program: &BuiltProgram, arguments: &[&str]) -> RunningProgram {
    let mut command = limitless(&program.path);
    RunningProgram::start(command.args(arguments).current_dir(&program.directory))
}

/// Starts a program and waits until it reports that it is in place, and is.
pub(crate) fn ready(program: &BuiltProgram, arguments: &[&str]) -> RunningProgram {
    let mut running = start(program, arguments);
    running.await_ready();
    running
}
