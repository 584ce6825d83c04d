//! `unspool ctf dump`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;
use unspool_c_types::{Declarations, ObjdumpText, SHARED};
use unspool_dwarf_types::ArrayView;

use super::{each_file, json, loader};
use crate::args::ctf::{CtfDumpArgs, DumpFormat};
use crate::output::{self, EscapedText, ExitCodes, JsonLayout};

pub(crate) fn run(args: &CtfDumpArgs) -> anyhow::Result<ExitCode> {
    let mut out = output::text();
    let arrays = match args.format {
        DumpFormat::Objdump => ArrayView::AsStored,
        DumpFormat::C | DumpFormat::Json => ArrayView::AsDeclared,
    };
    let mut files = Vec::new();
    let inputs = loader().open(&args.source.file)?;
    let is_clean = each_file(&inputs, &args.source, arrays, |input, shown| {
        if args.format == DumpFormat::Json {
            let all: Vec<_> = shown.dictionaries.iter().map(json::dictionary).collect();
            files.push(json!({ "file": input.path().to_string_lossy(), "dictionaries": all }));
            return Ok(());
        }
        for (nth, dictionary) in shown.dictionaries.iter().enumerate() {
            match (args.format, &dictionary.ctf) {
                (DumpFormat::Objdump, Some(unit)) => {
                    if unit.name != SHARED || nth != 0 {
                        writeln!(out, "\nCTF archive member: {}:", EscapedText(unit.name))?;
                    }
                    let (dict, reading) = (unit.dict, &unit.reading);
                    write!(out, "{}", ObjdumpText { dict, reading })?;
                }
                (DumpFormat::Objdump, None) => bail!(
                    "{} has no CTF: `objdump --ctf` has no form for other types",
                    input.path().display()
                ),
                _ => {
                    if shown.is_archive {
                        writeln!(out, "/* {} */\n", EscapedText(&dictionary.name))?;
                    }
                    write!(out, "{}", Declarations(&dictionary.graph))?;
                }
            }
        }
        Ok(())
    })?;
    if args.format == DumpFormat::Json {
        let body = json!({ "files": files });
        output::write_document(&mut output::results(), JsonLayout::Rows, "ctf-dump", &body)?;
    }
    out.flush()?;
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}
