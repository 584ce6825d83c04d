//! `unspool view`: a profile as a page, served to browsers of this machine.

mod server;

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;

use crate::args::{Filters, ViewArgs};
use crate::commands::recording::{named_or_default, status};
use crate::commands::{in_path, report};
use crate::output;
use server::PageServer;

pub(crate) fn run(args: &ViewArgs) -> anyhow::Result<ExitCode> {
    let path = named_or_default(args.file.as_deref())?;
    show(path, &args.filters, args.no_open)
}

/// Serves the page of a profile until the process is interrupted.
pub(super) fn show(path: &Path, filters: &Filters, no_open: bool) -> anyhow::Result<ExitCode> {
    let Some(page) = report::page(path, filters)? else {
        return Ok(status(false));
    };
    let server = PageServer::new(page).context("cannot serve the page")?;
    output::print(format!("{}\n", server.address()).as_bytes())?;
    let connection = env::var("SSH_CONNECTION").unwrap_or_default();
    // The address of this machine, as the other one sees it.
    match connection.split(' ').nth(2) {
        Some(host) => output::notice(&format_args!(
            "to open it on your machine, run there: ssh -N -L {0}:127.0.0.1:{0} {host}",
            server.port()
        )),
        None if no_open => {}
        None => open(&server),
    }
    output::notice(&"the page is served until Ctrl-C");
    server.run().context("cannot serve the page")?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the page in the user's browser.
fn open(server: &PageServer) {
    let Some(opener) = in_path("xdg-open".as_ref()).next() else {
        return output::notice(&"xdg-open: not found: open the address in a browser");
    };
    let mut command = Command::new(opener);
    // Other users can read the arguments of processes, but get no page (`server::owner_of`).
    command.arg(server.address()).stdin(Stdio::null());
    // Ctrl-C ends the server, not the browser.
    command.process_group(0);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        output::notice(&format_args!(
            "cannot run xdg-open: {error}: open the address in a browser"
        ));
    }
}
