//! `unspool ctf to-btf`.

use std::process::ExitCode;

use super::with_types;
use crate::args::ctf::CtfToBtfArgs;
use crate::commands;
use crate::output::{self, ExitCodes};

pub(crate) fn run(args: &CtfToBtfArgs) -> anyhow::Result<ExitCode> {
    let (bytes, is_clean) = with_types(&args.file, args.base.as_deref(), |types| {
        let mut graph = types.own_graph()?;
        if args.without_data {
            graph.objects.clear();
        }
        let (bytes, unsaid) = types.write_btf(&graph);
        for unsaid in &unsaid {
            output::notice(&format_args!("{}: {unsaid}", args.file.display()));
        }
        Ok((bytes, types.is_clean && unsaid.is_empty()))
    })?;
    match &args.output {
        Some(path) => commands::write(path, &bytes, None)?,
        None => output::print(&bytes)?,
    }
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}
