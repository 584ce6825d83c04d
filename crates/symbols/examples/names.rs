//! Functions and lines of addresses: `cargo run -p unspool-symbols --example names [FILE
//! ADDRESS…]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_rows::Vaddr;
use unspool_symbols::{ModuleFinder, ModuleSource, NameDetail, SymbolRequest, Symbolizer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next();
    let file = ElfFile::open(path.as_deref().unwrap_or("/proc/self/exe"))?;
    let mut addresses = arguments
        .map(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).map(Vaddr))
        .collect::<Result<Vec<_>, _>>()?;
    if addresses.is_empty() {
        addresses.push(file.entry());
    }
    let module = ModuleSource::Open {
        file: Arc::new(file),
        root: None,
    };
    let symbolizer = Symbolizer::new(ModuleFinder::from_environment(), NameDetail::Lines);
    let names = symbolizer.look_up(vec![SymbolRequest {
        module,
        addresses: addresses.clone(),
    }]);
    for address in addresses {
        println!("{:#x}", address.0);
        for frame in names
            .get(0, address)
            .into_iter()
            .flat_map(|name| name.frames())
        {
            let function = frame.function.unwrap_or("??");
            let (file, line) = (frame.file.unwrap_or("??"), frame.line.unwrap_or_default());
            println!("  {function} at {file}:{line}");
        }
    }
    Ok(())
}
