//! Corrupt files: object files of the corpus with random bytes changed are checked without a hang
//! or panic.

use std::num::NonZeroUsize;

use unspool_check::{CheckReport, CheckSubject, CodeOrigin, DeclaredTable};
use unspool_elf::ElfFile;
use unspool_testing::{Finish, tool};
use xtask::corpus::pair;

/// Checks a file, if it is one. Returns whether its rows were checked.
fn check(bytes: &[u8]) -> bool {
    let Ok(file) = ElfFile::from_bytes("changed", bytes) else {
        return false;
    };
    let Ok(declarations) = DeclaredTable::read(&file) else {
        return false;
    };
    let Ok(mut subject) = CheckSubject::new(&file, &declarations, CodeOrigin::from_file(&file))
    else {
        return false;
    };
    let totals = CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {}).totals;
    let judged = totals.proven + totals.refuted + totals.unproven + totals.unreached;
    assert_eq!(judged, totals.rows);
    true
}

#[test]
fn changed_files_are_checked_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("object.o");
    let mut state = 1_u64;
    let mut below = |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % limit
    };
    let mut checked = 0;
    for pair in pair::all().unwrap().iter().step_by(9) {
        tool("as").arg("-o").arg(&object).arg(&pair.path).succeed();
        let whole = std::fs::read(&object).unwrap();
        assert!(check(&whole), "{}", pair.name);
        for _ in 0..200 {
            let mut bytes = whole.clone();
            for _ in 0..=below(8) {
                let at = below(bytes.len());
                bytes[at] = u8::try_from(below(256)).unwrap();
            }
            bytes.truncate(bytes.len() - below(2) * below(64));
            checked += usize::from(check(&bytes));
        }
    }
    assert!(checked > 500, "{checked}");
}
