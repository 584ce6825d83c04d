//! The command `unspool`: arguments in, reports out. The libraries do the work.

mod args;
mod commands;
mod output;
mod privileges;
mod text;

use std::env;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::FromArgMatches as _;

use args::{Command, CommandLine};
use output::ExitCodes;
use unspool_files::guard;

fn main() -> ExitCode {
    let mut words = env::args_os();
    if let Err(error) = guard::install() {
        output::error(&format_args!("no handler for SIGBUS: {error}"));
        return ExitCode::from(ExitCodes::COULD_NOT_RUN);
    }
    let tool = words.next().and_then(|own| commands::toolchain::name(&own));
    let result = match tool {
        Some(name) => commands::toolchain::run(&name, &words.collect::<Vec<_>>()),
        None => as_unspool(),
    };
    match result {
        Ok(code) => code,
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&format_args!("{error:#}"));
            ExitCode::from(ExitCodes::COULD_NOT_RUN)
        }
    }
}

/// The command under its own name.
fn as_unspool() -> anyhow::Result<ExitCode> {
    let parsed = CommandLine::grouped(false).try_get_matches();
    match parsed.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(arguments) => run(&arguments.command),
        Err(mut usage) if usage.use_stderr() => {
            args::habits::explain(&mut usage);
            usage.exit()
        }
        Err(help) => Ok(output::help(&help).map(|()| ExitCode::SUCCESS)?),
    }
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    privileges::restrict(command).context("cannot give up privileges")?;
    match command {
        Command::Record(record) => commands::record::run(record),
        Command::Doctor(doctor) => commands::doctor::run(doctor),
        Command::Script(script) => commands::script::run(script),
        Command::Stack(stack) => commands::stack::run(stack),
        Command::Report(report) => commands::report::run(report),
        Command::View(view) => commands::view::run(view),
        Command::Diff(diff) => commands::diff::run(diff),
        Command::Show(show) => commands::show::run(show),
        Command::Compile(compile) => commands::compile::run(compile),
        Command::Check(check) => commands::check::run(check),
        Command::Synth(synth) => commands::synth::run(synth),
        Command::Convert(convert) => commands::convert::run(convert),
        Command::Annotate(annotate) => commands::annotate::run(annotate),
        Command::Expr(expr) => commands::expr::run(expr),
        Command::Verify(verify) => commands::verify::run(verify),
        Command::Stats(stats) => commands::stats::run(stats),
        Command::Ctf(ctf) => commands::ctf::run(ctf),
        Command::Gdb(gdb) => commands::gdb::run(gdb),
        Command::Frames => commands::gdb::frames::run(),
        Command::Cache(cache) => commands::cache::run(cache),
        Command::Completions(completions) => commands::generate::completions(completions),
        Command::Man(man) => commands::generate::man(man),
        Command::Help(help) => commands::generate::help(help),
    }
}
