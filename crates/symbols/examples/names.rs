//! Functions and lines of addresses: `cargo run -p unspool-symbols --example names [FILE
//! ADDRESS…]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_rows::Vaddr;
use unspool_symbols::{NameDetail, Symbolizer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next();
    let file = Arc::new(ElfFile::open(path.as_deref().unwrap_or("/proc/self/exe"))?);
    let mut addresses = arguments
        .map(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).map(Vaddr))
        .collect::<Result<Vec<_>, _>>()?;
    if addresses.is_empty() {
        addresses.push(file.entry());
    }
    let symbolizer = Symbolizer::from_environment(NameDetail::Lines);
    let requests = addresses.iter().map(|address| (&file, *address));
    let names = symbolizer.look_up_in_files(requests, None);
    for address in addresses {
        println!("{address}");
        let name = names.get((&file, address));
        for frame in name.into_iter().flat_map(|name| name.frames()) {
            let function = frame.function.unwrap_or("??");
            let (source, line) = (frame.file.unwrap_or("??"), frame.line.unwrap_or_default());
            println!("  {function} at {source}:{line}");
        }
    }
    Ok(())
}
