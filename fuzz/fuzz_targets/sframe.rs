//! Any bytes as a `.sframe`: nothing panics, what is read is bounded by the size, the in-place search says what the functions
//! say, and what is written of them is read back, as a whole and a row at a time.
//!
//! The first byte chooses the machine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_cfi::sframe::{
    self, SframeAbi, SframeError, SframeFunction, SframeImage, SframeLookup, SframeVersion,
    SframeWriteError, SubSections,
};
use unspool_rows::{Register, Row, Vaddr};

const SECTION: Vaddr = Vaddr(0x10_0000);

/// How many functions are searched for.
const MAX_SEARCHES: usize = 64;

fuzz_target!(|data: &[u8]| {
    let [choice, section @ ..] = data else {
        return;
    };
    let machines = [
        SframeAbi::Amd64,
        SframeAbi::Aarch64Little,
        SframeAbi::Aarch64Big,
        SframeAbi::S390x,
    ];
    let machine = machines[usize::from(*choice) % machines.len()];
    let reading = sframe::read(section, SECTION, machine);
    let rows: usize = reading.functions.iter().map(|f| f.rows.len()).sum();
    assert!(rows <= section.len() + (1 << 20));
    let repaired = sframe::repair(&reading.functions);
    for pair in repaired.windows(2) {
        assert!(pair[0].end() <= pair[1].start);
    }
    let (table, _) = sframe::table(&reading.functions, machine);
    let _ = sframe::functions(&table, machine, SframeVersion::V3);
    let lookup = SframeLookup::new(section, SECTION, machine);
    for function in reading.functions.iter().take(MAX_SEARCHES) {
        let _ = lookup.row(function.start, &mut Row::new(Register(0)));
    }

    // Where one part is in order, the search in place finds what the functions say.
    if let (Some((_, Ok(part))), None) = (
        SubSections::new(section, SECTION).next(),
        reading.sub_sections.get(1),
    ) && reading.problems.is_empty()
        && reading.disorder(1).is_empty()
    {
        for function in reading
            .functions
            .iter()
            .filter(|f| f.size > 0)
            .take(MAX_SEARCHES)
        {
            if let Ok(Some(found)) = part.find(function.start)
                && found.offset == function.origin
            {
                assert_eq!(
                    found.frame(function.start),
                    Ok(function.frame(function.start))
                );
            }
        }
    }
    for version in [SframeVersion::V2, SframeVersion::V3] {
        let fitting = sframe::fit(&reading.functions, machine, version).functions;
        let bytes = match SframeImage::new(&fitting, machine, version) {
            Ok(image) => image.bytes_at(SECTION),
            Err(error) => Err(error),
        };
        match bytes {
            Ok(bytes) => {
                let back = sframe::read(&bytes, SECTION, machine);
                assert_eq!(back.problems, []);
                assert_eq!(without_origin(&back.functions), without_origin(&fitting));
                check_lookups(&bytes, &fitting, machine);
            }
            Err(SframeWriteError::Far { .. } | SframeWriteError::TooLarge) => {}
            Err(error) => panic!("{error}"),
        }
    }
});

/// The rows of addresses in a section that was written, one by one, are those of the table of its functions.
fn check_lookups(section: &[u8], functions: &[SframeFunction], abi: SframeAbi) {
    let (table, problems) = sframe::table(functions, abi);
    if !problems.is_empty() {
        return; // too many repeated blocks
    }
    let lookup = SframeLookup::new(section, SECTION, abi);
    for span in table.spans().take(MAX_SEARCHES) {
        let mut row = Row::new(Register(0));
        match lookup.row(span.start, &mut row) {
            Ok(Some(_)) => assert_eq!(Some(row), table.row(span.row)),
            Err(SframeError::NotReady { .. }) => {}
            other => panic!("{}: {other:?}", span.start),
        }
    }
}

/// Functions without where they are from.
fn without_origin(functions: &[SframeFunction]) -> Vec<SframeFunction> {
    let functions = functions.iter().cloned();
    functions
        .map(|function| SframeFunction {
            origin: 0,
            ..function
        })
        .collect()
}
