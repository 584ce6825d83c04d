//! Adds rows to a program's `.eh_frame` for code that it does not cover: `cargo run -p
//! unspool-table-store --example complete_table [FILE [OUT]]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use unspool_elf::{DebugFiles, ElfFile, SearchRoots, Symbols};
use unspool_table_store::{TableSource, eh_frame, read, synthesize};

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = std::env::args_os().skip(1);
    let file = ElfFile::open(paths.next().unwrap_or("/bin/true".into()))?;
    let own = read(&file, TableSource::Auto)?.table;
    let debug = DebugFiles::locate(&file, &SearchRoots::from_environment());
    let symbols = Symbols::new(&file, debug.debug.as_deref());
    let made = synthesize(&file, &symbols, &own)?;
    println!(
        "{} entries, and {} made of the code",
        own.fdes().len(),
        made.table.fdes().len()
    );
    // The result is read back, and has these rows.
    let written = eh_frame::add_entries(&file, &own, &made.table)?;
    println!("{} bytes of tables", written.table_bytes);
    if let Some(out) = paths.next() {
        std::fs::write(out, written.elf)?;
    }
    Ok(())
}
