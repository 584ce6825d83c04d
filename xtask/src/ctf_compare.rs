//! `cargo xtask ctf-compare`: the types of real programs, linked by GNU ld and by `unspool ctf
//! link`, and made from DWARF.
//!
//! The sources are Debian's. They are fetched and built below the target folder, and stay there.

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object as _, ObjectSection as _};
use unspool_c_types::{Agreement, CtfSection, ElfContext, Gcc, Graph, Quirk, TypeKind};

use crate::{Error, debian};

mod dwarf;

/// The help of `cargo xtask ctf-compare`.
pub const HELP: &str = "\
usage: cargo xtask ctf-compare [--only TEXT] [--unspool PATH]

Fetches Debian's sources of zlib, lua5.4, libzstd, sqlite3, coreutils, Emacs 28.2 and binutils, builds programs of them with
`gcc -O2 -g -gctf` below the target folder, and prints of each: bytes of types in the objects that are linked,
what ld makes of them, what `unspool ctf link` does, with the same symbols and with all; the processor time
of ld with types and without, and of unspool; and of how many files (the objects, ld's output and ours)
`unspool ctf dump --as objdump` does not have the lines of `objdump --ctf`; and how many of the types that
the units name are not the same any more in what we link; and of how many types, functions and data
`unspool ctf from-dwarf` says something else than gcc does in CTF of the same compilation; and the bytes
of BTF that `unspool ctf to-btf` and pahole make of the linked program's DWARF. With --only, programs whose
name contains TEXT. --unspool names the binary; without it one is built, optimised.
";

/// The most differences to print for each program.
const MAX_DIFFERENCES_PRINTED: usize = 20;
/// The compiler flags for the sources.
const FLAGS: &str = "-O2 -g -gctf";

/// A program to build.
struct CtfProgram {
    /// Debian's source package, and the release with this version.
    package: &'static str,
    release: &'static str,
    /// The build command, run in the source folder.
    build: &'static str,
    /// The folder in which it is linked.
    folder: &'static str,
    /// The link command, without `-o`.
    link: &'static str,
}

const PROGRAMS: &[CtfProgram] = &[
    CtfProgram {
        package: "zlib",
        release: "bookworm",
        build: "CFLAGS=\"$FLAGS -fPIC\" ./configure && make libz.so.1.2.13",
        folder: ".",
        link: "gcc -shared -Wl,-soname,libz.so.1,--version-script,zlib.map *.lo -lc",
    },
    CtfProgram {
        package: "lua5.4",
        release: "trixie",
        build: "cd src && echo '#define DEB_HOST_MULTIARCH \"\"' > lua5.4-deb-multiarch.h && \
                for f in *.c; do gcc -std=gnu99 $FLAGS -DLUA_COMPAT_5_3 -DLUA_USE_LINUX -c $f; done && rm luac.o",
        folder: ".",
        link: "gcc src/*.o -lm -Wl,-E",
    },
    CtfProgram {
        package: "libzstd",
        release: "trixie",
        build: "make -C programs zstd CFLAGS=\"$FLAGS\" HAVE_LZMA=0 HAVE_LZ4=0",
        folder: ".",
        link: "gcc programs/obj/*/*.o -lz -lpthread",
    },
    CtfProgram {
        package: "sqlite3",
        release: "trixie",
        build: "./configure --disable-tcl CFLAGS=\"$FLAGS\" && make sqlite3.c shell.c && \
                gcc $FLAGS -c sqlite3.c shell.c",
        folder: ".",
        link: "gcc sqlite3.o shell.o -lm",
    },
    CtfProgram {
        package: "coreutils",
        release: "trixie",
        build: "FORCE_UNSAFE_CONFIGURE=1 ./configure --enable-single-binary=symlinks --disable-nls --with-openssl=no --without-libgmp --without-selinux CFLAGS=\"$FLAGS\" && make",
        folder: ".",
        link: "gcc src/coreutils-coreutils.o -Wl,--start-group src/lib*.a lib/libcoreutils.a -Wl,--end-group",
    },
    CtfProgram {
        package: "emacs",
        release: "bookworm",
        build: "./autogen.sh autoconf && ./configure --without-all --without-x --without-libgmp --with-dumping=none CFLAGS=\"$FLAGS\" && \
                make -C lib && make -C src temacs",
        folder: "src",
        link: "gcc [a-z]*.o ../lib/libgnu.a -ltinfo -lanl -lm",
    },
    CtfProgram {
        package: "binutils",
        release: "trixie",
        build: "mkdir -p b && cd b && ../configure --disable-gdb --disable-gdbserver --disable-sim --disable-gprofng \
                --disable-gprof --disable-gold --disable-nls --disable-werror \
                --enable-targets=x86_64-linux-gnu,aarch64-linux-gnu --with-zstd=no --disable-shared \
                CFLAGS=\"$FLAGS\" && make all-ld MAKEINFO=true",
        folder: "b/ld",
        link: "gcc ldgram.o ldlex-wrapper.o lexsup.o ldlang.o mri.o ldctor.o ldmain.o ldwrite.o ldexp.o ldemul.o ldver.o \
               ldmisc.o ldfile.o ldcref.o plugin.o ldbuildid.o e*.o ldelf.o ldelfgen.o ../bfd/.libs/libbfd.a \
               ../libctf/.libs/libctf.a ../libsframe/.libs/libsframe.a ../libiberty/libiberty.a -L../zlib -lz",
    },
];

/// Compares them; returns whether all dumps are equal and none of unspool's is larger than ld's.
///
/// # Errors
///
/// A source cannot be fetched or built, or a command fails.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<bool, Error> {
    let (mut only, mut binary) = (String::new(), None);
    while let Some(option) = args.next() {
        match (option.to_str(), args.next()) {
            (Some("--only"), Some(text)) => only = text.to_string_lossy().into_owned(),
            (Some("--unspool"), Some(path)) => binary = Some(std::path::absolute(path)?),
            _ => return Err(HELP.into()),
        }
    }
    let binary = binary.map_or_else(release_binary, Ok)?;
    let unspool = format!("{} ctf", binary.display());
    let (_, target) = folders()?;
    let folder = target.join("ctf-compare");
    let mut is_good = true;
    writeln!(
        out,
        "program     objects      types   ld's bytes  ours, the same  ours, all symbols  ld CPU s (without)  ours  lines differ"
    )?;
    for program in PROGRAMS
        .iter()
        .filter(|program| program.package.contains(&only))
    {
        let source = source(&folder, program)?;
        let place = source.join(program.folder);
        let row = CtfRow::measure(&place, program, &unspool)?;
        is_good &= row.different == 0 && row.changed == 0 && row.same <= row.ld;
        is_good &= row.dwarf.different.is_empty();
        writeln!(
            out,
            "{:<10} {:>8} {:>10} {:>12} {:>15} {:>18} {:>10} ({:>5})  {:>6}  {:>6} of {}  {:>6} of {}",
            program.package,
            row.objects,
            row.types,
            row.ld,
            row.same,
            row.all,
            row.ld_time,
            row.bare_time,
            row.time,
            row.different,
            row.objects + 2,
            row.changed,
            row.named
        )?;
        for what in row.dwarf.different.iter().take(MAX_DIFFERENCES_PRINTED) {
            writeln!(out, "  not as gcc says it: {what}")?;
        }
        writeln!(
            out,
            "  from DWARF: {} types and {} functions and data, {} not as gcc says them, {} that gcc does not have; {} bytes with all symbols",
            row.dwarf.types,
            row.dwarf.symbols,
            row.dwarf.different.len(),
            row.dwarf.more,
            row.dwarf_size
        )?;
        let (ours, pahole) = row.btf;
        is_good &= ours * 100 <= pahole * 105;
        writeln!(out, "  BTF: {ours} bytes, pahole's {pahole}")?;
        out.flush()?;
    }
    Ok(is_good)
}

/// The workspace, and its target folder.
pub(crate) fn folders() -> Result<(&'static Path, PathBuf), Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("no workspace")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok((root, std::path::absolute(target)?))
}

/// The release build of the command.
pub(crate) fn release_binary() -> Result<PathBuf, Error> {
    let (root, target) = folders()?;
    shell(root, "cargo build --release -p unspool-cli")?;
    Ok(target.join("release/unspool"))
}

/// The printed results for a program.
struct CtfRow {
    objects: usize,
    types: u64,
    ld: u64,
    same: u64,
    all: u64,
    ld_time: String,
    bare_time: String,
    time: String,
    different: usize,
    named: usize,
    changed: usize,
    /// The comparison of `from-dwarf` on the objects with their CTF.
    dwarf: dwarf::DwarfComparison,
    dwarf_size: u64,
    /// The bytes of BTF of the linked program: unspool's, and pahole's.
    btf: (u64, u64),
}

impl CtfRow {
    fn measure(place: &Path, program: &CtfProgram, unspool: &str) -> Result<CtfRow, Error> {
        let trace = shell(place, &format!("{} -o ctf-ld -Wl,-t,-t", program.link))?;
        let objects = objects(place, &trace)?;
        let list = objects.join(" ");
        let (ld_time, _) = timed(place, &format!("{} -o ctf-ld", program.link))?;
        let link = |symbols: &str| {
            format!(
                "cp ctf-ld ctf-{symbols}; {unspool} link {list} --into ctf-{symbols} --symbols {symbols}"
            )
        };
        let (_, same) = (shell(place, &link("dynsym"))?, size(place, "ctf-dynsym")?);
        let (_, all) = (shell(place, &link("symtab"))?, size(place, "ctf-symtab")?);
        let (time, _) = timed(
            place,
            &format!("{unspool} link {list} -o ctf-out --symbols names"),
        )?;
        let mut types = 0;
        let mut different = 0;
        for object in &objects {
            types += size(place, object)?;
        }
        for file in objects
            .iter()
            .map(String::as_str)
            .chain(["ctf-ld", "ctf-symtab"])
        {
            let command = format!(
                "cmp <(objdump --ctf {file} | tail -n +5) <({unspool} dump --as objdump {file})"
            );
            let status = Command::new("bash")
                .args(["-c", &command])
                .current_dir(place)
                .output()?;
            different += usize::from(!status.status.success());
        }
        let (named, changed) = meaning(place, &objects)?;
        // The same objects without types, linked in the same run.
        shell(
            place,
            &format!(
                "rm -rf ctf-bare; mkdir ctf-bare; for o in {list}; do objcopy -R .ctf $o ctf-bare/$(echo $o | tr / _); done"
            ),
        )?;
        let (bare_time, _) = timed(
            place,
            "gcc -shared -Wl,-z,notext,--unresolved-symbols=ignore-all,--allow-multiple-definition ctf-bare/*.o -o ctf-bare/out",
        )?;
        Ok(CtfRow {
            objects: objects.len(),
            types,
            ld: size(place, "ctf-ld")?,
            same,
            all,
            ld_time,
            bare_time,
            time,
            different,
            named,
            changed,
            dwarf: dwarf::compare(place, &objects, unspool)?,
            dwarf_size: dwarf::size(place, unspool)?,
            btf: dwarf::btf(place, unspool)?,
        })
    }
}

/// The objects with types in a trace of ld; archive members are extracted.
fn objects(place: &Path, trace: &str) -> Result<Vec<String>, Error> {
    shell(place, "rm -rf ctf-members; mkdir ctf-members")?;
    let mut objects = Vec::new();
    for line in trace.lines() {
        let object = match line.strip_prefix('(').and_then(|line| line.split_once(')')) {
            Some((archive, member)) => {
                let name = archive.rsplit('/').next().unwrap_or(archive);
                let to = format!("ctf-members/{name}-{member}");
                shell(place, &format!("ar p {archive} {member} > {to}"))?;
                to
            }
            None => line.to_owned(),
        };
        let is_object = object.ends_with(".o") || object.ends_with(".lo");
        if is_object && !objects.contains(&object) && size(place, &object)? > 0 {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// The number of types that the units name, and of those that differ in unspool's output. A unit is
/// compared with its child, or without one with the shared types. Of several children with one file
/// name, the best match is used.
fn meaning(place: &Path, objects: &[String]) -> Result<(usize, usize), Error> {
    let elf = ElfContext::BARE_64;
    let linked = fs::read(place.join("ctf-out"))?;
    let linked = CtfSection::open(&linked, elf)?;
    let parents = linked.parents();
    let children = linked.children(&parents).collect::<Result<Vec<_>, _>>()?;
    let (mut named, mut changed) = (0, 0);
    for object in objects {
        shell(
            place,
            &format!("objcopy --dump-section .ctf=ctf-part {object} /dev/null"),
        )?;
        let bytes = fs::read(place.join("ctf-part"))?;
        let section = CtfSection::open(&bytes, elf)?;
        for unit in section.parents() {
            let graph = &unit.reading.graph;
            let own = children
                .iter()
                .filter(|child| child.reading.graph.unit == graph.unit);
            let views = own.chain(&parents);
            let graph = with_declared_arrays(&place.join(object), graph)?;
            let compared = views.map(|view| compare_unit(&graph, &view.reading.graph));
            let best = compared.min_by_key(|(_, changed)| *changed);
            let (all, other) = best.ok_or("nothing was linked")?;
            (named, changed) = (named + all, changed + other);
        }
    }
    Ok((named, changed))
}

/// The intended types of an object file: some gcc versions store multidimensional arrays in
/// reverse.
pub(crate) fn with_declared_arrays<'g>(
    object: &Path,
    graph: &Graph<'g>,
) -> Result<Graph<'g>, Error> {
    let bytes = fs::read(object)?;
    let file = object::File::parse(&*bytes)?;
    let comment = file.section_by_name(".comment");
    let comment = comment.map_or(Ok(&[][..]), |section| section.data())?;
    let comment = String::from_utf8_lossy(comment);
    let mut gccs = comment.split('\0').filter_map(Gcc::from_comment);
    Ok(
        if gccs.any(|gcc| gcc.quirk() == Some(Quirk::ReversedArrays)) {
            graph.with_reversed_arrays()
        } else {
            graph.clone()
        },
    )
}

/// The number of types that a unit names, and of those that its view lacks or has differently.
pub(crate) fn compare_unit(graph: &Graph<'_>, view: &Graph<'_>) -> (usize, usize) {
    let mut names = HashSet::new();
    let mut changed = 0;
    for (id, ty) in graph.types() {
        let Some(space) = ty.name_space().filter(|_| !ty.is_hidden) else {
            continue;
        };
        if !names.insert((space, &ty.name)) {
            continue;
        }
        let mut found = view
            .named(&ty.name)
            .filter(|(_, other)| other.name_space() == Some(space));
        let is_same = found.next().is_some_and(|(other, found)| {
            let is_lost = matches!(found.kind, TypeKind::Forward(_))
                && !matches!(ty.kind, TypeKind::Forward(_));
            !is_lost && graph.agrees(id, view, other, Agreement::Same).is_ok()
        });
        changed += usize::from(!is_same);
    }
    (names.len(), changed)
}

/// The bytes of the section `.ctf`; 0 without one.
fn size(place: &Path, file: &str) -> Result<u64, Error> {
    let text = shell(place, &format!("readelf -SW {file}"))?;
    let line = text.lines().find_map(|line| line.split_once(" .ctf "));
    let size = line.and_then(|(_, rest)| rest.split_whitespace().nth(3));
    Ok(size
        .map(|size| u64::from_str_radix(size, 16))
        .transpose()?
        .unwrap_or(0))
}

/// The built source of a program.
fn source(folder: &Path, program: &CtfProgram) -> Result<PathBuf, Error> {
    let source = folder.join(program.package);
    if source.join("ctf-built").exists() {
        return Ok(source);
    }
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    debian::patched_source(folder, program.release, program.package)?;
    shell(
        &source,
        &format!(
            "FLAGS='{FLAGS}'; {} && touch {}/ctf-built",
            program.build,
            source.display()
        ),
    )?;
    Ok(source)
}

/// Runs a shell line and returns its output.
fn shell(place: &Path, line: &str) -> Result<String, Error> {
    let output = Command::new("bash")
        .args(["-c", line])
        .current_dir(place)
        .output()?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

/// The CPU time of a command in seconds, the least of three, and its output.
fn timed(place: &Path, line: &str) -> Result<(String, String), Error> {
    let script = format!("TIMEFORMAT='%U %S'; time {{ {line} >/dev/null 2>&1; }} 2>&1");
    let mut best: Option<(f64, String)> = None;
    for _ in 0..3 {
        let output = Command::new("bash")
            .args(["-c", &script])
            .current_dir(place)
            .output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let parts = text.split_whitespace().map(str::parse::<f64>);
        let seconds: f64 = parts.collect::<Result<Vec<_>, _>>()?.iter().sum();
        if best.as_ref().is_none_or(|(least, _)| seconds < *least) {
            best = Some((seconds, text));
        }
    }
    let (seconds, text) = best.ok_or("nothing was run")?;
    Ok((format!("{seconds:.3}"), text))
}
