//! Writes the CFI directives that an assembly source file lacks: `cargo run -p unspool-assembly
//! --example annotate [FILE]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_assembly::{Assemble, AssembleError, annotate};

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
            if gas.current_dir(&folder).status()?.success() {
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
        None => "\t.globl f\nf:\tpush %rbx\n\tcall g\n\tpop %rbx\n\tret\n".to_owned(),
    };
    let annotated = annotate(&path.unwrap_or_else(|| "f.s".into()), &text, &Gas)?;
    annotated.proof?;
    print!("{}", annotated.text);
    Ok(())
}
