//! Any bytes as an ELF file whose table is held against its code: an end, no panic, and no row judged that is
//! not there.
#![no_main]

use std::num::NonZeroUsize;

use libfuzzer_sys::fuzz_target;
use unspool_check::{Declarations, Maker, Report, Subject};
use unspool_module::ElfFile;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = ElfFile::from_bytes("fuzzed", data) else {
        return;
    };
    let Ok(declarations) = Declarations::read(&file) else {
        return;
    };
    for maker in [Maker::People, Maker::Compiler] {
        let Ok(mut subject) = Subject::new(&file, &declarations, maker) else {
            return;
        };
        let totals = Report::of(&mut subject, NonZeroUsize::MIN, |_, _| {}).totals;
        assert!(totals.rows <= declarations.table.row_count() as u64);
        assert!(totals.proven <= totals.proven_cfa);
        let judged = totals.proven + totals.refuted + totals.unproven;
        assert_eq!(judged + totals.unreached, totals.rows);
    }
});
