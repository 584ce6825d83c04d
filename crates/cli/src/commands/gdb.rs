//! `unspool gdb`: gdb with a Python unwinder that asks this program for callers.
//!
//! The unwinder holds no rule and no table. It runs `unspool frames` (`frames.rs`) and asks it about
//! each frame before gdb's own unwinders see it.

pub(crate) mod frames;
mod judged_tables;

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, anyhow};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::json;

use crate::args::programs::GdbArgs;
use crate::output;

/// The unwinder.
const UNWINDER: &str = include_str!("gdb/unspool_gdb.py");

pub(crate) fn run(args: &GdbArgs) -> anyhow::Result<ExitCode> {
    if args.print_unwinder {
        output::print(UNWINDER.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let gdb = super::in_path(OsStr::new("gdb")).next();
    let gdb = gdb.ok_or_else(|| anyhow!("no gdb in PATH: install it (Debian package gdb)"))?;
    let own = env::current_exe().context("cannot find this program")?;
    let unwinder = inherited_file(UNWINDER).context("cannot pass the unwinder to gdb")?;
    // A string of JSON is one of Python.
    let own = json!(own.to_string_lossy());
    let load = format!(
        "python unspool_program = {own}; exec(open('/proc/self/fd/{}').read())",
        unwinder.as_raw_fd()
    );
    let error = Command::new(&gdb)
        .args(["-iex", &load])
        .args(&args.arguments)
        .exec();
    Err(error).with_context(|| format!("cannot run {}", gdb.display()))
}

/// A file without a name that programs started by this one have open, too.
fn inherited_file(text: &str) -> std::io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    fcntl_setfd(&file, FdFlags::empty())?;
    Ok(file)
}
