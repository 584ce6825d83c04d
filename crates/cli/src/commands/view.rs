//! `unspool view`: a profile as a page, served to browsers of this machine.

mod server;

use std::fmt::Display;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use anyhow::Context as _;
use unspool_files::environment::variable;
use unspool_files::raw::effective_user;

use crate::args::profiles::{Filters, SourceArgs, ViewArgs};
use crate::commands::recording::{named_or_default, status};
use crate::commands::{in_path, report};
use crate::output;
use server::PageServer;

pub(crate) fn run(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    let path = named_or_default(args.file.as_deref())?;
    let page = report::page(
        path,
        args.before.as_deref(),
        &args.source_args,
        &args.filters,
    )?;
    show(page, args.no_open)
}

/// Serves the page of a recording that was just made.
pub(super) fn show_recording(path: &Path) -> anyhow::Result<ExitCode> {
    let page = report::page(path, None, &SourceArgs::default(), &Filters::default())?;
    show(page, false)
}

/// Serves a page until the process is interrupted.
fn show(page: Option<Vec<u8>>, no_open: bool) -> anyhow::Result<ExitCode> {
    let Some(page) = page else {
        return Ok(status(false));
    };
    let server = PageServer::new(page).context("cannot serve the page")?;
    output::print(format!("{}\n", server.address()).as_bytes())?;
    let connection = variable("SSH_CONNECTION").unwrap_or_default();
    match forwarding(&connection.to_string_lossy(), server.port()) {
        Some(command) => output::notice(&format_args!(
            "to open it on your machine, run there: {command}"
        )),
        None if no_open => {}
        // A browser must not have root's rights.
        None if effective_user() == 0 => output::notice(&format_args!(
            "no browser is started as root: open the address in yours; over ssh, forward port {}",
            server.port()
        )),
        None => open(&server),
    }
    output::notice(&"the page is served until Ctrl-C");
    server.run().context("cannot serve the page")?;
    Ok(ExitCode::SUCCESS)
}

/// The command that forwards a port of this machine to the other end of an ssh connection, by its
/// description in `SSH_CONNECTION` (ssh(1)).
fn forwarding(connection: &str, port: u16) -> Option<String> {
    let mut words = connection.split(' ').skip(2);
    let (host, ssh_port) = (words.next()?, words.next()?);
    let option = match ssh_port {
        "22" => String::new(),
        other => format!("-p {other} "),
    };
    // The address of this machine is what it knows itself.
    Some(format!(
        "ssh -N -L {port}:127.0.0.1:{port} {option}{host} (or the name by which you reach it)"
    ))
}

/// Opens the page in the user's browser.
fn open(server: &PageServer) {
    let failed = |problem: &dyn Display| {
        output::notice(&format_args!(
            "xdg-open: {problem}: open the address in a browser"
        ));
    };
    let Some(opener) = in_path("xdg-open".as_ref()).next() else {
        return failed(&"not found");
    };
    let mut command = Command::new(opener);
    // Other users can read the arguments of processes, but get no page (`server::owner_of`).
    command.arg(server.address()).stdin(Stdio::null());
    // Ctrl-C ends the server, not the browser.
    command.process_group(0);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Err(error) => failed(&error),
        Ok(mut opener) => {
            // It may run as long as the browser.
            thread::spawn(move || match opener.wait() {
                Ok(status) if !status.success() => failed(&status),
                _ => {}
            });
        }
    }
}
