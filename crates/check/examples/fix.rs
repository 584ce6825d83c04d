//! Writes the CFI directives that the findings of an assembly source file call for: `cargo run -p
//! unspool-check --example fix [FILE]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_assembly::{Assemble, AssembleError};
use unspool_check::{FixOptions, Severity, fix_source};

/// The GNU assembler.
struct Gas;

impl Assemble for Gas {
    fn assemble(&self, text: &str, path: &Path) -> Result<Vec<u8>, AssembleError> {
        let assemble = || -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
            let folder = tempfile::tempdir()?;
            let copy = folder.path().join(path.file_name().ok_or("no file name")?);
            std::fs::write(&copy, text)?;
            let mut gas = Command::new("as");
            gas.args(["-g", "-o", "a.out"]).arg(&copy);
            if gas.current_dir(&folder).output()?.status.success() {
                Ok(std::fs::read(folder.path().join("a.out"))?)
            } else {
                Err("the assembler rejects the text".into())
            }
        };
        Ok(assemble()?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let text = match &path {
        Some(path) => std::fs::read_to_string(path)?,
        None => "f:\t.cfi_startproc\n\tpush %rdi\n\tcall g\n\tpop %rdi\n\tret\n\t.cfi_endproc\n"
            .to_owned(),
    };
    let options = FixOptions {
        minimum_severity: Severity::Unproven,
        max_drafts: 100,
    };
    let fixed = fix_source(&path.unwrap_or_else(|| "f.s".into()), &text, options, &Gas)?;
    print!("{}", fixed.source.diff("f.s"));
    for refused in &fixed.refused {
        println!("{:?}: {refused}", refused.line);
    }
    Ok(())
}
