//! The parameters of a file's functions, from a table that is found in the cache, or built and kept
//! there: `cargo run -p unspool-arg-table-builder --example parameters FILE`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use unspool_arg_table_builder::find_or_build;
use unspool_elf::{DebugFiles, ElfFile, SearchRoots};
use unspool_table_store::Store;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: parameters FILE")?;
    let file = ElfFile::open(path)?;
    let debug = DebugFiles::locate(&file, &SearchRoots::from_environment());
    let found = find_or_build(&file, &debug, &Store::from_environment());
    if let Some(error) = found.build_error {
        return Err(error.into());
    }
    let stored = found.table.ok_or("no types: compile with -g")?;
    let table = stored.table().ok_or("not a table")?;
    for code in (0..table.len()).filter_map(|index| table.get(index)) {
        let Some(parameters) = code.parameters() else {
            continue;
        };
        let parameters = parameters.map(|one| format!("{} {}", one.type_name, one.name));
        let parameters: Vec<_> = parameters.collect();
        println!("{:#x}: {}", code.start, parameters.join(", "));
    }
    Ok(())
}
