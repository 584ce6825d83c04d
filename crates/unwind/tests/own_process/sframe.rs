//! Libraries that have `.sframe` and no `.eh_frame`, compared with themselves with `.eh_frame`.

use unspool_cfi::sframe::{SframeAbi, SframeImage, SframeVersion, functions};
use unspool_elf::{ElfFile, embed_sframe};
use unspool_table_store::{self as tables, TableSource};
use unspool_testing::{Finish, command, tool, without_eh_frame};

use super::*;

const SOURCE: &str = "sframe.c";

/// The frames of a call in a library: the distance of their addresses from the function. `None` for
/// other frames, which vary.
#[inline(never)]
fn frames(path: &Path, is_aligned: bool) -> Vec<Option<u64>> {
    let library = Library::open(path);
    let mut watcher = Watcher::new();
    // It does not support SFrame.
    watcher.asks_glibc = false;
    library.call("descend", &mut watcher, c_int::from(is_aligned));
    let walk = watcher.walk.unwrap();
    assert_eq!((walk.end, walk.guesses), (End::Outermost, 0), "{path:?}");
    assert_eq!(watcher.found[2..], watcher.again[2..], "{path:?}");
    assert_eq!(watcher.by_cursor, watcher.found.len() - 1, "{path:?}");
    assert_eq!(watcher.errno, 77, "{path:?}");
    let function = library.symbol("descend").addr() as u64;
    let own = function - 0x800..function + 0x800;
    let found = watcher.found.iter().skip(2);
    let found = found.map(|at| own.contains(at).then(|| at.wrapping_sub(function)));
    let found: Vec<_> = found.collect();
    assert_eq!(found.iter().flatten().count(), 3, "{path:?}");
    found
}

/// The assembler writes version 1.
#[test]
fn of_the_assembler() {
    let folder = directory();
    let (with, only) = (folder.join("with.so"), folder.join("only.so"));
    build(SOURCE, &with, &[]);
    let script = without_eh_frame(&folder);
    build(SOURCE, &only, &["-Wa,--gsframe", &script]);
    assert_eq!(sections(&only), [".sframe"]);
    assert_eq!(frames(&only, false), frames(&with, false));
}

/// Tables converted from `.eh_frame`, in the versions that are written.
#[test]
fn converted() {
    let folder = directory();
    let (with, without) = (folder.join("with.so"), folder.join("without.so"));
    build(SOURCE, &with, &[]);
    let script = without_eh_frame(&folder);
    build(SOURCE, &without, &[&script]);
    let file = ElfFile::open(&with).unwrap();
    let table = tables::read(&file, TableSource::EhFrame).unwrap().table;
    let file = ElfFile::open(&without).unwrap();
    for (version, kinds) in [
        (SframeVersion::V2, &[false][..]),
        // Only this one has a row for the function with its CFA on the stack.
        (SframeVersion::V3, &[false, true]),
    ] {
        let functions = functions(&table, SframeAbi::Amd64, version).functions;
        let written = SframeImage::new(&functions, SframeAbi::Amd64, version).unwrap();
        let size = written.len() as u64;
        let bytes = embed_sframe(&file, size, &|at| written.bytes_at(at).unwrap()).unwrap();
        let made = folder.join("made");
        fs::write(&made, bytes).unwrap();
        let only = folder.join(format!("version{}.so", version.number()));
        command("cp").args([&made, &only]).succeed();
        assert_eq!(sections(&only), [".sframe"]);
        for is_aligned in kinds {
            assert_eq!(frames(&only, *is_aligned), frames(&with, *is_aligned));
        }
    }
}

/// The unwind tables of a file.
fn sections(path: &Path) -> Vec<&'static str> {
    let output = tool("readelf").arg("-SW").arg(path).output();
    let output = output.expect("install the Debian package binutils").stdout;
    let text = String::from_utf8(output).unwrap();
    let mut all = vec![".eh_frame", ".sframe"];
    all.retain(|name| text.contains(&format!(" {name} ")));
    all
}
