//! The unwind table of a file as text: `cargo run -p unspool-cfi --example rows [FILE]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use object::{Object, ObjectSection};
use unspool_cfi::{CfiSection, SectionKind, read_table};
use unspool_rows::{Abi, Vaddr};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1);
    let data = std::fs::read(path.unwrap_or_else(|| "/proc/self/exe".into()))?;
    let file = object::File::parse(&*data)?;
    let section = file.section_by_name(".eh_frame").ok_or("no .eh_frame")?;
    let reading = read_table(&CfiSection {
        kind: SectionKind::EhFrame,
        data: section.data()?,
        address: Vaddr(section.address()),
        text_base: None,
        data_base: None,
        abi: Abi::X86_64,
    });
    print!("{}", reading.table);
    for problem in reading.problems {
        println!("# {problem}");
    }
    Ok(())
}
