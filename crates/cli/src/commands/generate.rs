//! `unspool completions`, `unspool man` and `unspool help`.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::builder::Resettable;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use unspool_files::output::{create_folder, replace};

use crate::args::{CommandLine, CompletionsArgs, HelpArgs, ManArgs};
use crate::output;

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut CommandLine::command(),
        "unspool",
        &mut script,
    );
    output::print(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = CommandLine::command();
    command.build();
    create_folder(&args.folder)
        .and_then(|()| write_pages(&command, &args.folder))
        .with_context(|| format!("cannot write {}", args.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn help(args: &HelpArgs) -> anyhow::Result<ExitCode> {
    let words = ["unspool"].into_iter();
    let words = words.chain(args.command.iter().map(String::as_str));
    let parsed = CommandLine::grouped(args.all).try_get_matches_from(words.chain(["--help"]));
    match parsed {
        Err(usage) if usage.use_stderr() => usage.exit(),
        Err(help) => output::help(&help)?,
        Ok(_) => anyhow::bail!("help takes the name of a command: `unspool help --all` lists them"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write_pages(subcommand, folder)?;
    }
    // clap_mangen would fill the text after the options into one paragraph.
    let bare = command.clone().after_help(Resettable::Reset);
    let man = Man::new(bare).source(concat!("unspool ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render(&mut page)?;
    if let Some(help) = command.get_after_help() {
        sections(&help.to_string()).to_writer(&mut page)?;
    }
    let path = folder.join(man.get_filename());
    replace(&path, None, |mut file| file.write_all(&page))
}

/// The text after the options, with each paragraph as a section: its title, a colon, and prose or
/// indented lines, which stay as they are.
fn sections(help: &str) -> Roff {
    let mut page = Roff::new();
    for (title, body) in help.split("\n\n").filter_map(|part| part.split_once(':')) {
        page.control("SH", [title.to_uppercase().as_str()]);
        let is_prose = !body.starts_with('\n');
        if is_prose {
            page.text([roman(body.trim_start())]);
            continue;
        }
        page.control("nf", []);
        for line in body.lines().skip(1) {
            page.text([roman(line.strip_prefix(INDENT).unwrap_or(line))]);
        }
        page.control("fi", []);
    }
    page
}

/// The indentation of help lines below a title.
const INDENT: &str = "  ";
