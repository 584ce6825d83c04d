//! Programs that tests and tasks build and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use unspool_testing::scratch;

use crate::Error;

/// Compiles a source with `compiler`, followed by `libraries`, to a unique path in `folder`.
///
/// # Errors
///
/// It does not compile or link.
pub fn build(
    mut compiler: Command,
    source: &Path,
    libraries: &[String],
    folder: &Path,
) -> Result<PathBuf, Error> {
    let name = source.file_stem().ok_or("a source without a name")?;
    let program = scratch(folder, &name.to_string_lossy());
    compiler.arg("-o").arg(&program).arg(source).args(libraries);
    stdout(&mut compiler)?;
    Ok(program)
}

/// The output of a command.
///
/// # Errors
///
/// It fails; the message has all its output.
pub fn stdout(command: &mut Command) -> Result<String, Error> {
    let output = command.output()?;
    let Output { status, stdout, .. } = output;
    let stdout = String::from_utf8(stdout)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if status.success() {
        Ok(stdout)
    } else {
        Err(format!("{command:?}: {status}\n{stdout}\n{stderr}").into())
    }
}

/// Fails if a program needs more stack than the table of a document in `docs` says, for each
/// function that it lists without an argument. Run with a function's name, it prints bytes, a line
/// for each column of the table.
///
/// # Errors
///
/// It needs more, or fails; a function is not in the table.
pub fn check_stack_table(
    document: &str,
    run: impl Fn(&[&str]) -> Result<String, Error>,
) -> Result<(), Error> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(document);
    let text = fs::read_to_string(path)?;
    let names = run(&[])?;
    if names.is_empty() {
        return Err("the program names no function".into());
    }
    for name in names.lines() {
        let row = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("| `{name}` | ")));
        let row = row.ok_or_else(|| format!("docs/{document}: no row of `{name}`"))?;
        let row = row.trim_end_matches(" |").replace(',', "");
        let needed = run(&[name])?;
        let (mut most, mut lines) = (row.split(" | "), needed.lines());
        while let (Some(needed), Some(most)) = (lines.next(), most.next()) {
            if needed.parse::<u32>()? > most.parse::<u32>()? {
                return Err(format!("{name} needs {needed} bytes of stack, of {most}").into());
            }
        }
    }
    Ok(())
}
