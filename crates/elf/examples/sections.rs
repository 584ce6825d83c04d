//! The headers and sections of an ELF file: `cargo run -p unspool-elf --example sections [FILE]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use unspool_elf::{DebugFiles, ElfFile, SearchRoots, Symbols};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1);
    let file = ElfFile::open(path.unwrap_or_else(|| "/proc/self/exe".into()))?;
    match file.build_id() {
        Some(id) => println!("build ID {id}"),
        None => println!("no build ID"),
    }
    for section in file.eh_frames()? {
        println!(
            "{} bytes of .eh_frame at {}",
            section.data.len(),
            section.address
        );
    }
    let debug = DebugFiles::locate(&file, &SearchRoots::from_environment());
    let symbols = Symbols::new(&file, debug.debug.as_deref());
    println!("{} symbols", symbols.len());
    if let Some(symbol) = symbols.lookup(file.entry()) {
        println!("it begins in {}", symbol.name);
    }
    Ok(())
}
