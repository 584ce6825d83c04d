//! The C types of a file, from its CTF, BTF or DWARF: `cargo run -p unspool-dwarf-types --example
//! declarations FILE`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::error::Error;
use std::path::PathBuf;

use unspool_c_types::Declarations;
use unspool_dwarf_types::TypeLoader;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os()
        .nth(1)
        .ok_or("usage: declarations FILE")?;
    let loader = TypeLoader::new(&|notice| eprintln!("{notice}"));
    for file in loader.open(&PathBuf::from(path))? {
        let found = loader.dictionaries(&file, |found| {
            for dictionary in &found.dictionaries {
                println!("/* {} */", dictionary.name);
                print!("{}", Declarations(&dictionary.graph));
            }
        })?;
        found.ok_or("no types: compile with -g, -gctf or -gbtf")?;
    }
    Ok(())
}
