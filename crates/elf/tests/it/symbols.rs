//! Symbols of real files, compared with nm and objdump.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::common::{PROGRAM, binutils, compile, directory};
use unspool_elf::{Binding, DebugFiles, ElfFile, Preference, SearchRoots, Symbols};
use unspool_rows::Vaddr;
use unspool_testing::hex;

fn nm(path: &Path, options: &[&str]) -> BTreeMap<String, (u64, u64)> {
    nm_list(path, options).into_iter().collect()
}

/// Code symbols with a size as printed by nm: name and (address, size).
fn nm_list(path: &Path, options: &[&str]) -> Vec<(String, (u64, u64))> {
    let mut arguments = vec!["-S", "--defined-only"];
    arguments.extend(options);
    arguments.push(path.to_str().unwrap());
    binutils("nm", arguments)
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [address, size, kind, name] = fields[..] else {
                return None;
            };
            let name = name.split('@').next().unwrap_or(name);
            "tTwWi"
                .contains(kind)
                .then(|| (name.to_owned(), (hex(address), hex(size))))
        })
        .filter(|(_, (_, size))| *size > 0)
        .collect()
}

fn ours(symbols: &Symbols) -> BTreeMap<String, (u64, u64)> {
    symbols
        .iter()
        .filter(|symbol| symbol.size > 0 && !symbol.name.ends_with("@plt"))
        .map(|symbol| (symbol.name.into_owned(), (symbol.address.0, symbol.size)))
        .collect()
}

fn name_at(symbols: &Symbols, addr: u64) -> String {
    symbols
        .lookup(Vaddr(addr))
        .map_or("-".to_owned(), |symbol| symbol.name.into_owned())
}

/// Looks the addresses up in groups of several sizes; each must have its name among all symbols.
fn check_near(file: &ElfFile, debug: Option<&ElfFile>, addresses: &[Vaddr]) {
    let all = Symbols::new(file, debug);
    for size in [1, 7, 300, addresses.len()] {
        // Every n-th, so that a group is spread over the file.
        let groups = addresses.len().div_ceil(size);
        for group in (0..groups).step_by(groups.div_ceil(20)) {
            let group: Vec<Vaddr> = addresses[group..].iter().step_by(groups).copied().collect();
            let near = Symbols::for_addresses(file, debug, &group);
            for address in group {
                let expected = all.lookup(address);
                assert_eq!(
                    near.lookup(address),
                    expected,
                    "{address} with {size} others"
                );
            }
        }
    }
}

#[test]
fn symbols_near_some_addresses_decide_as_all_do() {
    let dir = directory("symbols_near");
    let assembly = "asm(\".globl a\\na: nop\\nnop\\n.globl b\\nb: nop\\nnop\\n.size b, 1\\n\
                    .type b, @function\\nc: .globl cc\\ncc: nop\\n.Lhidden: nop\\nd: nop\\n.size d, 3\\nnop\\n\");";
    let object = compile(&dir, "object", assembly, &["-c"]);
    let object = ElfFile::open(&object).unwrap();
    check_near(&object, None, &(0..12).map(Vaddr).collect::<Vec<_>>());
    let program = compile(&dir, "program", PROGRAM, &[]);
    let program = ElfFile::open(&program).unwrap();
    let code = program.executable_ranges()[0].clone();
    let every = |range: std::ops::Range<Vaddr>| (range.start.0..range.end.0).map(Vaddr);
    check_near(&program, None, &every(code).collect::<Vec<_>>());
    for path in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    ] {
        let file = ElfFile::open(path).unwrap();
        let debug = DebugFiles::locate(&file, &SearchRoots::default()).debug;
        let code = file.executable_ranges()[0].clone();
        let addresses: Vec<Vaddr> = every(code).step_by(331).collect();
        check_near(&file, debug.as_deref(), &addresses);
    }
}

#[test]
fn every_function_that_nm_lists() {
    let dir = directory("every_function_that_nm_lists");
    for (name, arguments) in [
        ("pie", &["-pie"][..]),
        ("fixed", &["-no-pie"]),
        ("i386", &["-m32", "-c"]),
        ("object", &["-c"]),
    ] {
        let path = compile(&dir, name, PROGRAM, arguments);
        let file = ElfFile::open(&path).unwrap();
        let expected = nm(&path, &[]);
        assert!(expected.contains_key("local"), "{expected:?}");
        assert_eq!(ours(file.symbols()), expected);
        assert!(file.symbols().problems().is_empty());
        for (name, (address, size)) in expected {
            assert_eq!(name_at(file.symbols(), address), name);
            assert_eq!(name_at(file.symbols(), address + size - 1), name);
        }
    }
}

#[test]
fn the_dynamic_symbols_of_a_stripped_library_with_and_without_section_headers() {
    let dir = directory("dynamic_symbols");
    for style in ["gnu", "sysv"] {
        let hash = format!("-Wl,--hash-style={style}");
        let path = compile(&dir, style, PROGRAM, &["-shared", "-fpic", "-s", &hash]);
        let file = ElfFile::open(&path).unwrap();
        let expected = nm(&path, &["-D"]);
        assert!(expected.contains_key("outer") && !expected.contains_key("local"));
        assert_eq!(ours(file.symbols()), expected);

        let mut bytes = std::fs::read(&path).unwrap();
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
        let headerless = ElfFile::from_bytes("headerless", bytes).unwrap();
        assert_eq!(ours(headerless.symbols()), expected, "{style}");
    }
}

#[test]
fn stubs_that_call_other_modules() {
    let dir = directory("stubs");
    for (name, arguments) in [
        ("lazy", &["-Wl,-z,lazy", "-fcf-protection=none"][..]),
        (
            "branch",
            &["-Wl,-z,lazy", "-Wl,-z,ibtplt", "-fcf-protection=full"],
        ),
        ("now", &["-Wl,-z,now"]),
        (
            "full",
            &["-Wl,-z,now", "-Wl,-z,ibtplt", "-fcf-protection=full"],
        ),
    ] {
        let path = compile(&dir, name, PROGRAM, arguments);
        let file = ElfFile::open(&path).unwrap();
        let code = binutils("objdump", ["-d".as_ref(), path.as_os_str()]);
        let mut seen = 0;
        for line in code.lines().filter(|line| line.ends_with("@plt>:")) {
            let (address, name) = line.trim_end_matches(">:").split_once(" <").unwrap();
            // binutils also give the name to the lazy part of an IBT stub.
            let found = name_at(file.symbols(), hex(address));
            seen += usize::from(found == name);
        }
        assert!(seen >= 3, "{code}");
        assert_eq!(file.symbols().named("printf@plt").count(), 1);
    }
}

#[test]
fn stripped_into_a_debug_file() {
    let dir = directory("stripped_into_a_debug_file");
    let path = compile(&dir, "program", PROGRAM, &["-g"]);
    let expected = nm(&path, &[]);
    let (debug, stripped) = (dir.join("program.debug"), dir.join("stripped"));
    binutils("objcopy", [Path::new("--only-keep-debug"), &path, &debug]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    binutils(
        "objcopy",
        [
            "--strip-all".as_ref(),
            link.as_ref(),
            path.as_os_str(),
            stripped.as_os_str(),
        ],
    );
    let file = ElfFile::open(&stripped).unwrap();
    assert!(!ours(file.symbols()).contains_key("local"));
    let files = DebugFiles::locate(&file, &SearchRoots::default());
    let symbols = Symbols::new(&file, files.debug.as_deref());
    assert_eq!(ours(&symbols), expected);
    assert_eq!(symbols.named("printf@plt").count(), 1);
}

#[test]
fn the_embedded_symbol_file() {
    let dir = directory("the_embedded_symbol_file");
    let path = compile(&dir, "program", PROGRAM, &[]);
    let (mini, stripped) = (dir.join("mini"), dir.join("stripped"));
    binutils(
        "objcopy",
        ["-S", "--keep-symbol=local", "--remove-section=.comment"]
            .map(AsRef::as_ref)
            .into_iter()
            .chain([path.as_os_str(), mini.as_os_str()]),
    );
    binutils(
        "xz",
        ["--keep".as_ref(), "--force".as_ref(), mini.as_os_str()],
    );
    let add = format!(
        "--add-section=.gnu_debugdata={}",
        dir.join("mini.xz").display()
    );
    binutils(
        "objcopy",
        [
            "-S".as_ref(),
            add.as_ref(),
            path.as_os_str(),
            stripped.as_os_str(),
        ],
    );
    let file = ElfFile::open(&stripped).unwrap();
    let local = nm(&path, &[])["local"];
    assert_eq!(ours(file.symbols()).get("local"), Some(&local));
    assert_eq!(name_at(file.symbols(), local.0), "local");
    assert!(file.symbols().problems().is_empty());

    let broken = dir.join("broken");
    std::fs::write(dir.join("rubbish"), b"\xfd7zXZ\0rubbish").unwrap();
    let add = format!(
        "--add-section=.gnu_debugdata={}",
        dir.join("rubbish").display()
    );
    binutils(
        "objcopy",
        [
            "-S".as_ref(),
            add.as_ref(),
            path.as_os_str(),
            broken.as_os_str(),
        ],
    );
    let file = ElfFile::open(&broken).unwrap();
    assert_eq!(file.symbols().problems().len(), 1);
    assert!(
        file.symbols().problems()[0]
            .to_string()
            .contains(".gnu_debugdata")
    );
}

#[test]
fn assembly_without_sizes() {
    let dir = directory("assembly_without_sizes");
    let source = "asm(\".text\\n.globl first\\nfirst: nop\\nnop\\nnop\\n.Lhidden: nop\\n\
                  second: nop\\n.size second, 1\\n.type second, @function\\nnop\\n\
                  .section .text.other,\\\"ax\\\"\\nthird: nop\\n\");";
    let path = compile(&dir, "object", source, &["-c"]);
    let file = ElfFile::open(&path).unwrap();
    let symbols = file.symbols();
    let names: Vec<String> = (0..8).map(|addr| name_at(symbols, addr)).collect();
    assert_eq!(
        names,
        [
            "first", "first", "first", "first", "second", "-", "third", "-"
        ]
    );
    let first = symbols.lookup(Vaddr(0)).unwrap();
    assert_eq!(
        (first.size, first.is_function, first.binding),
        (0, false, Binding::Global)
    );
}

#[test]
fn names_have_an_order_of_preference() {
    let dir = directory("preferred_names");
    let function = |name: &str, binding: &str| {
        let binding = binding.replace("NAME", name);
        format!("{binding}\\n.type {name}, @function\\n{name}:\\n.size {name}, 1\\n")
    };
    let (global, weak) = (".globl NAME", ".weak NAME");
    // Each group of names has its own address. perf's choice is the output of `perf script` for
    // libc's `getrandom`, `fork` and `__libc_start_main`.
    let groups = [
        [
            function("getrandom", weak),
            function("__GI___getrandom", ""),
        ],
        [function("__fork", global), function("__libc_fork", global)],
        [
            function("a_long_one", global),
            function("__a_longer_one", global),
        ],
        [function("zz", global), function("aa", global)],
        // Demangled names have no underscores.
        [function("_ZN5alphaC1Ev", global), function("beta", global)],
    ];
    let code: String = groups
        .iter()
        .map(|group| group.concat() + "nop\\n")
        .collect();
    let source = format!("asm(\".text\\n{code}\");");
    let file = ElfFile::open(compile(&dir, "object", &source, &["-c"])).unwrap();
    let addresses: Vec<_> = (0..5).map(Vaddr).collect();
    let names = |preference| -> Vec<String> {
        let symbols = Symbols::for_addresses_preferring(preference, &file, None, &addresses);
        addresses
            .iter()
            .map(|addr| name_at(&symbols, addr.0))
            .collect()
    };
    assert_eq!(
        names(Preference::Visible),
        ["getrandom", "__fork", "a_long_one", "aa", "beta"]
    );
    let first = nm_list(file.path(), &["-p"]);
    let first = first.iter().find(|(name, _)| name == "zz" || name == "aa");
    assert_eq!(
        names(Preference::Perf),
        [
            "__GI___getrandom",
            "__libc_fork",
            "a_long_one",
            &first.unwrap().0,
            "_ZN5alphaC1Ev"
        ]
    );
}

#[test]
fn a_broken_symbol_table_costs_only_itself() {
    let dir = directory("a_broken_symbol_table");
    let path = compile(&dir, "program", PROGRAM, &[]);
    let whole = ElfFile::open(&path).unwrap();
    let index = whole
        .sections()
        .find(|s| s.name == ".symtab")
        .unwrap()
        .index;
    let mut bytes = whole.bytes().to_vec();
    let table = usize::try_from(u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap())).unwrap();
    let offset = table + index * 64 + 0x18;
    bytes[offset..offset + 8].copy_from_slice(&0x7fff_ffff_u64.to_le_bytes());
    let file = ElfFile::from_bytes("broken", bytes).unwrap();
    let problem = file.symbols().problems()[0].to_string();
    assert!(
        problem.contains("section .symtab at offset 0x7fffffff"),
        "{problem}"
    );
    assert_eq!(
        file.eh_frames().unwrap()[0].data,
        whole.eh_frames().unwrap()[0].data
    );
    // The dynamic symbols and the stubs are still there.
    assert_eq!(file.symbols().named("printf@plt").count(), 1);
}

#[test]
fn the_vdso_of_this_process() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
    let (start, end) = (hex(start), hex(end));
    let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, start).unwrap();
    let file = ElfFile::from_bytes("[vdso]", bytes).unwrap();
    assert!(file.build_id().is_some());
    assert_eq!(file.eh_frames().unwrap().len(), 1);
    assert!(
        file.symbols()
            .named("__vdso_clock_gettime")
            .next()
            .is_some()
    );
}

#[test]
fn libc_as_a_whole() {
    // Every function listed by nm must be found at its address, by one of its names.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().find_map(|l| {
        l.find("/")
            .filter(|_| l.contains("libc.so"))
            .map(|at| l[at..].to_owned())
    });
    let path = path.unwrap();
    let file = Arc::new(ElfFile::open(&path).unwrap());
    let symbols = file.symbols();
    let mut by_address: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (name, (address, _)) in nm_list(Path::new(&path), &["-D"]) {
        by_address.entry(address).or_default().push(name);
    }
    assert!(by_address.len() > 1000);
    for (address, names) in by_address {
        let found = name_at(symbols, address);
        assert!(
            names.contains(&found),
            "{address:#x}: {found} is none of {names:?}"
        );
    }
}

/// Of a program that keeps its relocations, the symbols that readelf lists as undefined, except those
/// of its dynamic symbol table.
#[test]
fn unresolved_symbols_are_those_that_readelf_lists() {
    let directory = directory("unresolved_symbols");
    let source = "void lacking(void); int strlen(const char *); extern int variable;
        extern __thread int of_thread; __attribute__((weak)) void perhaps(void);
        void _start(void) { lacking(); if (perhaps) perhaps(); variable = strlen(\"\") + of_thread; }";
    // The dynamic linker is asked for weak symbols.
    for (linkage, lacks_weak) in [("-no-pie", false), ("-nostdlib", true)] {
        let options = [
            "-nostartfiles",
            "-no-pie",
            linkage,
            "-fno-builtin",
            "-Wl,--unresolved-symbols=ignore-all,--emit-relocs",
        ];
        let program = compile(&directory, "unresolved", source, &options);
        let list = |option: &str| -> BTreeSet<String> {
            let path = program.to_str().unwrap();
            let text = binutils("readelf", ["-W", option, path]);
            let undefined = text.lines().filter_map(|line| line.split_once(" UND "));
            let names =
                undefined.filter_map(|(_, name)| name.split([' ', '@']).find(|it| !it.is_empty()));
            names.map(str::to_owned).collect()
        };
        let wanted = &list("--syms") - &list("--dyn-syms");
        let file = ElfFile::open(&program).unwrap();
        let ours = file.unresolved_symbols().unwrap();
        let names: BTreeSet<String> = ours.iter().map(|it| it.name.to_string()).collect();
        assert_eq!(names, wanted);
        assert!(names.contains("lacking") && names.contains("variable"));
        let mut weak = ours.iter().filter(|it| it.is_weak);
        assert_eq!(weak.any(|it| it.name == "perhaps"), lacks_weak, "{names:?}");
        let of_threads = ours.iter().filter(|it| it.is_thread_local);
        let of_threads: Vec<&str> = of_threads.map(|it| &*it.name).collect();
        assert_eq!(of_threads, ["of_thread"]);
    }
}
