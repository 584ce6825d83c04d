//! `cargo xtask seeds`: first inputs of the fuzz targets, made by compilers and by hand. A target
//! begins with real input then, and need not guess a file's magic.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use unspool_testing::Folder;

use crate::{Error, packages};

/// An input: its name, and its bytes.
pub(crate) struct SeedFile {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// Files of a small program in all forms, made by Debian's compiler.
pub(crate) fn files(folder: &Folder) -> Result<Vec<SeedFile>, Error> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/attack/library.c");
    let source = source.to_str().ok_or("a path that is not text")?;
    let forms: [(&str, &[&str]); 7] = [
        ("library", &["-O2", "-g", "-shared", "-fPIC"]),
        ("object", &["-O1", "-g", "-c"]),
        (
            "frames",
            &["-O0", "-c", "-fno-asynchronous-unwind-tables", "-g"],
        ),
        ("sframe", &["-O1", "-c", "-Wa,--gsframe"]),
        ("ctf", &["-O1", "-c", "-gctf"]),
        ("btf", &["-O1", "-c", "-gbtf"]),
        ("packed", &["-O1", "-g", "-c", "-gz=zlib"]),
    ];
    let mut inputs = Vec::new();
    for (name, options) in forms {
        let words = [options, &[source, "-o", name]].concat();
        run(folder, "/usr/bin/gcc", &words)?;
        inputs.push(SeedFile {
            name,
            bytes: fs::read(folder.join(name))?,
        });
    }
    run(
        folder,
        "/usr/bin/ar",
        &["rcs", "archive", "object", "frames"],
    )?;
    run(folder, "/usr/bin/gzip", &["-k", "object"])?;
    run(folder, "/usr/bin/xz", &["-k", "object"])?;
    for name in ["archive", "object.gz", "object.xz"] {
        let bytes = fs::read(folder.join(name))?;
        inputs.push(SeedFile { name, bytes });
    }
    Ok(inputs)
}

fn run(folder: &Folder, tool: &str, words: &[&str]) -> Result<(), Error> {
    let mut command = Command::new(packages::path(tool)?);
    if command
        .args(words)
        .current_dir(folder.path())
        .status()?
        .success()
    {
        Ok(())
    } else {
        Err(format!("{tool} {words:?} failed").into())
    }
}

/// A section of an object file.
fn section(folder: &Folder, name: &str, file: &str) -> Result<Vec<u8>, Error> {
    let dump = format!("{name}=section");
    run(
        folder,
        "/usr/bin/objcopy",
        &["--dump-section", &dump, file, "/dev/null"],
    )?;
    Ok(fs::read(folder.join("section"))?)
}

/// Targets that read whole files.
const FILE_TARGETS: &[&str] = &[
    "elf_file",
    "check",
    "container",
    "synthesize",
    "variables",
    "libunwind_image",
];

/// Writes the inputs into `fuzz/corpus`, where `cargo fuzz` looks for them.
///
/// # Errors
///
/// A tool is missing, or a file cannot be written.
pub fn run_all(out: &mut impl Write) -> Result<(), Error> {
    let folder = Folder::new();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut count = 0;
    let mut put = |target: &str, name: &str, parts: &[&[u8]]| -> Result<(), Error> {
        fs::create_dir_all(corpus.join(target))?;
        fs::write(corpus.join(target).join(name), parts.concat())?;
        count += 1;
        Ok(())
    };
    for input in files(&folder)? {
        for target in FILE_TARGETS {
            put(target, input.name, &[&input.bytes])?;
        }
    }
    let eh_frame = section(&folder, ".eh_frame", "library")?;
    for choice in 0..8 {
        put(
            "cfi_section",
            &format!("eh-frame-{choice}"),
            &[&[choice, 0], &eh_frame],
        )?;
    }
    let sframe = section(&folder, ".sframe", "sframe")?;
    put("sframe", "sframe", &[&[0], &sframe])?;
    put("ctf", "ctf", &[&[0; 16], &section(&folder, ".ctf", "ctf")?])?;
    put("btf", "btf", &[&section(&folder, ".BTF", "btf")?])?;
    put("libunwind_maps", "own", &[&fs::read("/proc/self/maps")?])?;
    put("symbol_lists", "perf-map", &[b"1000 10 f\n1008 8 a name\n"])?;
    put(
        "symbol_lists",
        "kallsyms",
        &[b"ffffffff81000000 T _text\nffffffff81000040 t f\t[m]\n"],
    )?;
    put("demangle", "cxx", &[b"_ZN1aIiE1fERKSt6vectorIiSaIiEE"])?;
    put("demangle", "rust", &[b"_RNvCs1234_7mycrate3foo"])?;
    put("formula", "formula", &[b"\0cfa = rsp + 8"])?;
    put(
        "expression",
        "expression",
        &[&[0, 0, 0x77, 8, 6, 0x23, 0x10]],
    )?;
    put("texts", "table", &[unspool_rows::text::EXAMPLE.as_bytes()])?;
    put(
        "texts",
        "source",
        &[b"f:\n\t.cfi_startproc\n\tpush %rbx\n\tret\n\t.cfi_endproc\n"],
    )?;
    put("texts", "suppressions", &[b"CFI001 a.s:f known\n"])?;
    put("native_object", "changed", &[&[1, 0, 0, 1]])?;
    put("compiled_table_lookup", "made", &[&[2; 64]])?;
    writeln!(out, "{count} inputs in fuzz/corpus")?;
    Ok(())
}
