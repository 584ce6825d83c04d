//! A table compiled, compared with its rows, and looked up in place:
//! `cargo run -p unspool-compiled-table --example lookup`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use unspool_compiled_table::{CompiledTable, ExecutableCode, ModuleKey, compare, encode};
use unspool_rows::{Vaddr, text};

const TABLE: &str = "\
arch x86-64 little
fn 0x1000..0x1040
  0x1000  cfa=rsp+8   ra=[cfa-8]
  0x1008  cfa=rsp+32  ra=[cfa-8]  rbp=[cfa-16]
";

fn main() -> Result<(), Box<dyn Error>> {
    let table = text::parse(TABLE)?;
    // With the module's code the call-site part serves return addresses faster; without it, the
    // full table serves all.
    let code = ExecutableCode::default();
    let key = ModuleKey {
        build_id: b"example",
        content: &[0; 20],
    };
    let encoded = encode(&table, key, &code, &[])?;

    let compiled = CompiledTable::open(&encoded.bytes)?;
    let comparison = compare(&table, &compiled, &code);
    println!(
        "{} bytes, equal: {}",
        encoded.bytes.len(),
        comparison.is_equal()
    );

    let hit = compiled.lookup(Vaddr(0x1010))?.ok_or("a hole")?;
    let row = compiled.row(hit.row)?;
    println!("{:#x}..{:#x}: {:?}", hit.start.0, hit.end.0, row.cfa);
    Ok(())
}
