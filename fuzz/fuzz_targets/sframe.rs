//! Any bytes as a `.sframe`: nothing panics, what is read is bounded by the size, the in-place search says what the functions
//! say, and what is written of them is read back.
//!
//! The first byte chooses the machine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_cfi::sframe::{self, Function, Machine, Parts, SframeWriteError, Version, Written};
use unspool_ir::Vaddr;

const SECTION: Vaddr = Vaddr(0x10_0000);

/// How many functions are searched for.
const SEARCHED: usize = 64;

fuzz_target!(|data: &[u8]| {
    let [choice, section @ ..] = data else {
        return;
    };
    let machines = [
        Machine::Amd64,
        Machine::Aarch64Little,
        Machine::Aarch64Big,
        Machine::S390x,
    ];
    let machine = machines[usize::from(*choice) % machines.len()];
    let reading = sframe::read(section, SECTION, machine);
    let rows: usize = reading.functions.iter().map(|f| f.rows.len()).sum();
    assert!(rows <= section.len() + (1 << 20));
    let mended = sframe::repair(&reading.functions);
    for pair in mended.windows(2) {
        assert!(pair[0].end() <= pair[1].start);
    }
    let (table, _) = sframe::table(&reading.functions, machine);
    let _ = sframe::functions(&table, machine, Version::V3);

    // Where one part is in order, the search in place finds what the functions say.
    if let (Some((_, Ok(part))), None) = (Parts::new(section, SECTION).next(), reading.parts.get(1))
        && reading.problems.is_empty()
        && reading.disorder(1).is_empty()
    {
        for function in reading
            .functions
            .iter()
            .filter(|f| f.size > 0)
            .take(SEARCHED)
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
    for version in [Version::V2, Version::V3] {
        let fitting = sframe::fit(&reading.functions, machine, version).functions;
        let bytes = match Written::of(&fitting, machine, version) {
            Ok(written) => written.at(SECTION),
            Err(error) => Err(error),
        };
        match bytes {
            Ok(bytes) => {
                let back = sframe::read(&bytes, SECTION, machine);
                assert_eq!(back.problems, []);
                assert_eq!(plain(&back.functions), plain(&fitting));
            }
            Err(SframeWriteError::Far { .. } | SframeWriteError::TooLarge) => {}
            Err(error) => panic!("{error}"),
        }
    }
});

/// Functions without where they are from.
fn plain(functions: &[Function]) -> Vec<Function> {
    let functions = functions.iter().cloned();
    functions
        .map(|function| Function {
            origin: 0,
            ..function
        })
        .collect()
}
