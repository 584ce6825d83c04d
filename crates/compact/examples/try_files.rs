#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    missing_docs
)]
use object::{Object, ObjectSection, ObjectSegment};
use std::time::Instant;
use unspool_cfi::*;
use unspool_compact::*;
use unspool_ir::*;
fn main() {
    for path in std::env::args().skip(1) {
        let data = std::fs::read(&path).unwrap();
        let f = object::File::parse(&*data).unwrap();
        let s = f.section_by_name(".eh_frame").unwrap();
        let hdr = f.section_by_name(".eh_frame_hdr").unwrap().size();
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
        let t = Instant::now();
        let r = read_table(&section);
        let read = t.elapsed();
        let code = Code { ranges: f.segments().filter(|s| matches!(s.flags(), object::SegmentFlags::Elf { p_flags, .. } if p_flags.0 & 1 != 0)).map(|s| (Vaddr(s.address()), s.data().unwrap())).collect() };
        let t = Instant::now();
        let e = encode(&r.table, Key::BuildId(&[1; 20]), &code).unwrap();
        let enc = t.elapsed();
        let c = Compiled::open(&e.bytes).unwrap();
        let t = Instant::now();
        let cmp = compare(&r.table, &c, &code);
        let ver = t.elapsed();
        let eh = (bytes.len() as u64 + hdr) as f64;
        println!(
            "{path}: eh {} rows {} read {read:?} enc {enc:?} ver {ver:?}",
            eh,
            r.table.row_count()
        );
        for p in [Part::Header, Part::Rows, Part::Entries, Part::Calls] {
            print!("  {p:?} {:.4}", e.part(p) as f64 / eh);
        }
        println!("  whole {:.4}", e.bytes.len() as f64 / eh);
        println!(
            "  {:?}",
            Comparison {
                mismatches: vec![],
                ..cmp.clone()
            }
        );
        for m in cmp.mismatches.iter().take(5) {
            println!("    {:?}", m);
        }
    }
}
