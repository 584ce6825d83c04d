//! Synthesized rows against compilers' rows of the same code, which synthesis does not read.

use std::path::Path;

use unspool_elf::ElfFile;
use unspool_rows::{CfaRule, RegisterRule, Table, Vaddr};
use unspool_synthesis::synthesize;
use unspool_testing::{Finish as _, tool};

/// Comparison of two tables' rows, each at its first instruction.
#[derive(Debug, Default)]
struct TableComparison {
    rows: usize,
    /// The code yields a row.
    there: usize,
    /// It has the CFA, or a register, at another distance from the same register.
    others: Vec<Vaddr>,
}

fn compare(declared: &Table, made: &Table) -> TableComparison {
    let mut compared = TableComparison::default();
    let made_spans: Vec<_> = made.spans().collect();
    for span in declared.spans() {
        compared.rows += 1;
        let place = made_spans.partition_point(|made| made.end <= span.start);
        let here = made_spans
            .get(place)
            .filter(|made| made.start <= span.start);
        let Some(here) = here else { continue };
        compared.there += 1;
        let (a, b) = (declared.row(span.row).unwrap(), made.row(here.row).unwrap());
        let is_other_cfa = match (a.cfa, b.cfa) {
            (
                CfaRule::RegisterOffset {
                    register: x,
                    offset: i,
                },
                CfaRule::RegisterOffset {
                    register: y,
                    offset: j,
                },
            ) => x == y && i != j,
            _ => false,
        };
        // A restored register is also still saved: equal, if both tables give a location.
        let is_other_register = a
            .rules()
            .any(|(register, rule)| match (rule, b.rule(register)) {
                (RegisterRule::Offset(i), Some(RegisterRule::Offset(j))) => i != j,
                _ => false,
            });
        if is_other_cfa || a.cfa == b.cfa && is_other_register {
            compared.others.push(span.start);
        }
    }
    compared
}

pub(crate) fn table_of(file: &ElfFile) -> Table {
    let sections = file.eh_frames().unwrap();
    let sections: Vec<_> = sections
        .iter()
        .map(|section| unspool_cfi::CfiSection {
            kind: unspool_cfi::SectionKind::EhFrame,
            data: section.data,
            address: section.address,
            text_base: file.text_base(),
            data_base: file.data_base(),
            abi: file.abi(),
        })
        .collect();
    unspool_cfi::read_tables(file.abi(), &sections).table
}

fn compared(path: &Path) -> TableComparison {
    let file = ElfFile::open(path).unwrap();
    compare(
        &table_of(&file),
        &synthesize(&file, file.symbols(), &[]).unwrap().table,
    )
}

/// Linkers write a PLT header even without imported functions, and then nothing leads to it.
#[test]
fn the_first_stub_without_others() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    let program = folder.path().join("empty");
    tool("gcc").arg("-o").arg(&program).arg(&source).succeed();
    let file = ElfFile::open(&program).unwrap();
    let sections = file.sections().filter(|section| section.name == ".plt");
    let plt: Vec<_> = sections
        .map(|section| (section.address.unwrap(), section.size))
        .collect();
    let [(start, 16)] = plt[..] else {
        panic!("{plt:?}");
    };
    let cfas = |table: &Table| {
        let spans = table.spans();
        let spans = spans.filter(|span| start <= span.start && span.start.0 < start.0 + 16);
        let cfas = spans.map(|span| (span.start, table.row(span.row).unwrap().cfa));
        cfas.map(|(at, cfa)| format!("{at:?} {cfa:?}"))
            .collect::<Vec<_>>()
    };
    let declared = cfas(&table_of(&file));
    assert_eq!(declared.len(), 2, "the push is between: {declared:?}");
    let made = synthesize(&file, file.symbols(), &[]).unwrap().table;
    assert_eq!(cfas(&made), declared);
}

#[test]
fn compilers_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/functions.c");
    // In a stripped file, nothing marks the starts of functions.
    for (options, stripped) in [
        (&["-O0"][..], 97),
        (&["-O1", "-fno-pie", "-no-pie"], 95),
        (&["-O2"], 97),
        (&["-O2", "-fno-omit-frame-pointer"], 97),
        (&["-O3", "-march=x86-64-v3"], 97),
        (&["-Os", "-fcf-protection=full"], 97),
    ] {
        let program = folder.path().join("program");
        let mut gcc = tool("gcc");
        gcc.args(options)
            .arg(source)
            .arg("-o")
            .arg(&program)
            .succeed();
        let found = compared(&program);
        assert_eq!(found.others, [], "{options:?}");
        assert!(
            found.there * 100 >= found.rows * 97,
            "{options:?}: {found:?}"
        );

        tool("strip").arg(&program).succeed();
        let found = compared(&program);
        assert_eq!(found.others, [], "{options:?}, stripped");
        assert!(
            found.there * 100 >= found.rows * stripped,
            "{options:?}: {found:?}"
        );
    }
}

/// Landing pads, which only LSDAs reveal: their number, how many have a synthesized row, and where
/// its CFA differs from the table's.
fn landed(path: &Path) -> (usize, usize, Vec<Vaddr>) {
    let file = ElfFile::open(path).unwrap();
    let declared = table_of(&file);
    let made = synthesize(&file, file.symbols(), &[]).unwrap().table;
    let mut pads = Vec::new();
    for fde in declared.fdes() {
        if let Some(lsda) = fde.lsda {
            let mut landings = Vec::new();
            unspool_synthesis::landings(&file, lsda, fde.start, &mut landings);
            pads.extend(landings.iter().map(|landing| Vaddr(landing.pad)));
        }
    }
    pads.sort_unstable();
    pads.dedup();
    let cfas = |table: &Table| {
        let spans: Vec<_> = table.spans().collect();
        let cfa = |pad: &Vaddr| {
            let place = spans.partition_point(|span| span.end <= *pad);
            let span = spans.get(place).filter(|span| span.start <= *pad);
            span.map(|span| format!("{:?}", table.row(span.row).unwrap().cfa))
        };
        pads.iter().map(cfa).collect::<Vec<_>>()
    };
    let (declared, made) = (cfas(&declared), cfas(&made));
    let there = made.iter().flatten().count();
    let others = pads.iter().zip(made.iter().zip(&declared));
    let others = others.filter(|(_, (made, declared))| made.is_some() && made != declared);
    let others = others.map(|(pad, _)| *pad).collect();
    (pads.len(), there, others)
}

#[test]
fn exceptions_land_where_the_table_says() {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exceptions.cc");
    for options in [
        &["-O2"][..],
        &["-O2", "-fcf-protection=full", "-fno-omit-frame-pointer"],
        &["-O3", "-fno-pie", "-no-pie"],
        &["-O1"],
    ] {
        let program = folder.path().join("program");
        let mut gcc = tool("g++");
        gcc.args(options)
            .arg(source)
            .arg("-o")
            .arg(&program)
            .succeed();
        tool("strip").arg(&program).succeed();
        assert_eq!(compared(&program).others, [], "{options:?}");
        let (pads, there, others) = landed(&program);
        assert_eq!(others, [], "{options:?}");
        // Areas of parts that are kept elsewhere are not used. GCC 14 keeps more there than 12.
        assert!(there * 3 >= pads * 2, "{options:?}: {there} of {pads}");

        // Without LSDAs, nothing leads to the pads.
        let bare = folder.path().join("bare");
        let mut objcopy = tool("objcopy");
        objcopy.args(["--rename-section", ".gcc_except_table=.other"]);
        objcopy.arg(&program).arg(&bare).succeed();
        assert_eq!(landed(&bare).1, 0, "{options:?}");
    }
}

/// Compilers that use no frame pointer there rely on the removal of arguments, which only the table
/// states.
#[test]
fn exceptions_land_without_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let (object, library) = (folder.path().join("x.o"), folder.path().join("x.so"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/arguments.s");
    tool("as").arg(source).arg("-o").arg(&object).succeed();
    let mut linker = tool("ld");
    linker
        .args(["-shared", "-s", "-o"])
        .arg(&library)
        .arg(&object)
        .succeed();
    assert_eq!(landed(&library), (2, 2, vec![]));
}

/// A call before a `nop` does not end a function, and its callee returns.
#[test]
fn a_nop_behind_a_call_is_not_padding() {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nop.s");
    let program = folder.path().join("program");
    let mut gcc = tool("gcc");
    let options = ["-nostdlib", "-static", "-s", source, "-o"];
    gcc.args(options).arg(&program).succeed();
    let found = compared(&program);
    assert_eq!((found.there, found.others), (found.rows, vec![]));
}

/// Behind a system call that may give a thread another stack, the rows say nothing about the stack,
/// both in synthesis and in the check.
#[test]
fn another_stack_is_not_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clone.s");
    let program = folder.path().join("program");
    let mut gcc = tool("gcc");
    gcc.args(["-nostdlib", "-static", source, "-o"])
        .arg(&program)
        .succeed();
    let file = ElfFile::open(&program).unwrap();
    let named = |name| file.symbols().named(name).next().unwrap().address;
    let table = synthesize(&file, file.symbols(), &[]).unwrap().table;
    let covered: Vec<_> = table.spans().map(|span| (span.start, span.end)).collect();
    let has_row = |at: Vaddr| covered.iter().any(|(start, end)| *start <= at && at < *end);
    let (start, spawn, after) = (named("_start"), named("spawn"), named("after"));
    assert!(has_row(spawn) && has_row(Vaddr(after.0 - 1)));
    assert!(
        (after.0..after.0 + 14).all(|at| !has_row(Vaddr(at))),
        "{covered:x?}"
    );
    // For another call the stack is unchanged: `ud2` follows it.
    assert!(has_row(Vaddr(spawn.0 - 1)), "{start:?} {covered:x?}");
}

/// Debian's libraries only have the names of exported functions.
#[test]
fn libraries_say_the_same() {
    for (path, percent) in [
        ("/lib/x86_64-linux-gnu/libc.so.6", 98),
        ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 99),
    ] {
        let found = compared(Path::new(path));
        assert_eq!(found.others, [], "{path}");
        assert!(
            found.there * 100 >= found.rows * percent,
            "{path}: {} of {}",
            found.there,
            found.rows
        );
    }
    let (pads, there, others) = landed(Path::new("/usr/lib/x86_64-linux-gnu/libstdc++.so.6"));
    assert_eq!(others, []);
    assert!(there * 100 >= pads * 80, "{there} of {pads}");
}
