//! Any bytes as an ELF file whose table is held against its code: an end, no panic, and no row judged that is
//! not there.
#![no_main]

use std::num::NonZeroUsize;

use libfuzzer_sys::fuzz_target;
use unspool_check::{CheckReport, CheckSubject, CodeOrigin, DeclaredTable};
use unspool_elf::ElfFile;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = ElfFile::from_bytes("fuzzed", data) else {
        return;
    };
    let Ok(declared) = DeclaredTable::read(&file) else {
        return;
    };
    for origin in [CodeOrigin::HandWritten, CodeOrigin::Compiler] {
        let Ok(mut subject) = CheckSubject::new(&file, &declared, origin) else {
            return;
        };
        let totals = CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {}).totals;
        assert!(totals.rows <= declared.table.row_count() as u64);
        assert!(totals.proven <= totals.proven_cfa);
        let judged = totals.proven + totals.refuted + totals.unproven;
        assert_eq!(judged + totals.unreached, totals.rows);
    }
});
