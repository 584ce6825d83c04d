//! `unspool ctf from-dwarf`.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use unspool_c_types::{ARRAYS_IN_ORDER, Declarations, link};
use unspool_dwarf_types::SplitFiles;

use super::{loader, target};
use crate::args::ctf::CtfFromDwarfArgs;
use crate::commands;
use crate::output::{self, EscapedText, ExitCodes};

pub(crate) fn run(args: &CtfFromDwarfArgs) -> anyhow::Result<ExitCode> {
    let file = commands::open(&args.file)?;
    let (debug, splits) = (loader().debug_files(&file), SplitFiles::default());
    let (mut units, is_read) = loader().dwarf(&file, &debug, &splits)?;
    if units.is_empty() {
        bail!(
            "{} has no DWARF of units in C: build it with `gcc -g`, or install its debug symbols",
            args.file.display()
        );
    }
    for unit in &mut units {
        Arc::make_mut(&mut unit.graph).reduce_to_ctf();
    }
    let linked = link(
        &units,
        target::options(args.share, unspool_parallel::processors()),
    );
    let lost = linked.wide_enumerators();
    for lost in &lost {
        output::notice(&format_args!("{}: {lost}", args.file.display()));
    }
    if args.target.is_missing() {
        let mut out = output::text();
        for (name, graph) in linked.dictionaries() {
            if !linked.children.is_empty() {
                writeln!(out, "/* {} */\n", EscapedText(name))?;
            }
            write!(out, "{}", Declarations(graph))?;
        }
        out.flush()?;
    }
    target::write(
        &args.target,
        &linked,
        Some(&file),
        ARRAYS_IN_ORDER,
        target::Effort::all(),
    )?;
    Ok(if is_read && lost.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}
