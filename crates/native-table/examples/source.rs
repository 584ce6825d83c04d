//! An unwind table as a function in C: `cargo run -p unspool-native-table --example source`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use unspool_native_table::{Outline, c};
use unspool_rows::text;

const TABLE: &str = "\
arch x86-64 little
fn 0x1000..0x1040
  0x1000  cfa=rsp+8   ra=[cfa-8]
  0x1008  cfa=rsp+32  ra=[cfa-8]  rbp=[cfa-16]
";

fn main() -> Result<(), Box<dyn Error>> {
    let table = text::parse(TABLE)?;
    let mut source = String::new();
    c::source(&Outline::from_table(&table)?, "an example", &mut source)?;
    print!("{source}");
    Ok(())
}
