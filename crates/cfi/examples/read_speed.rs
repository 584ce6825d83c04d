#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs
)]
use object::{Object, ObjectSection};
use std::time::Instant;
use unspool_cfi::*;
use unspool_ir::*;
fn main() {
    for path in std::env::args().skip(1) {
        let data = std::fs::read(&path).unwrap();
        let f = object::File::parse(&*data).unwrap();
        let s = f.section_by_name(".eh_frame").unwrap();
        let abi = Abi {
            arch: Arch::X86_64,
            endian: Endian::Little,
        };
        let bytes = s.data().unwrap();
        let section = Section {
            kind: SectionKind::EhFrame,
            data: bytes,
            address: Vaddr(s.address()),
            text_base: None,
            data_base: None,
            abi,
        };
        for _ in 0..5 {
            let t = Instant::now();
            let r = read_table(&section);
            let e = t.elapsed();
            let t2 = Instant::now();
            let spans = r.table.spans().count();
            let e2 = t2.elapsed();
            println!(
                "{path}: {:?} problems {} in {:?} = {:.1} M rows/s; spans {} in {:?}",
                r.table,
                r.problems.len(),
                e,
                r.table.row_count() as f64 / e.as_secs_f64() / 1e6,
                spans,
                e2
            );
        }
    }
}
