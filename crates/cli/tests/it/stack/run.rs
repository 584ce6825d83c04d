//! Runs the test programs.

use unspool_testing::{Running, limitless};

use crate::stack::build::Program;

/// Starts a program in its own folder, allowed to dump core.
pub(crate) fn start(program: &Program, arguments: &[&str]) -> Running {
    let mut command = limitless(&program.path);
    Running::start(command.args(arguments).current_dir(&program.directory))
}

/// Starts a program and waits until it says that it stands where it should, and does.
pub(crate) fn ready(program: &Program, arguments: &[&str]) -> Running {
    let mut running = start(program, arguments);
    running.await_ready();
    running
}
