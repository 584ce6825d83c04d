//! Broken DWARF yields errors, and prototypes are found by name and by address.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use unspool_c_types::{Graph, TypeId, TypeKind};
use unspool_dwarf_types::{DwarfPrototypes, ProgramTypes, SplitFiles, TypesError, read_types};
use unspool_elf::{DebugFiles, ElfFile};
use unspool_rows::Vaddr;
use unspool_testing::{Finish as _, tool};

const SOURCE: &str = "
struct node { struct node *next; int a : 3; double d[2][3]; enum color { RED, GREEN } color; };
typedef struct node node_t;
int take(node_t *node, const char *name, float by) { return node->a + name[0] + (int)by; }
static __attribute__((noinline)) long hidden(long x, ...) { return x * 3; }
struct node global;
int main(void) { return take(&global, \"n\", 1) + (int)hidden(global.a); }
";

fn run(folder: &Path, name: &str, words: &str) -> String {
    let mut command = tool(name);
    let command = command.args(words.split_whitespace());
    command.current_dir(folder).succeed()
}

fn built(flags: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.c"), SOURCE).unwrap();
    run(folder.path(), "gcc", &format!("-O1 {flags} a.c -o a"));
    folder
}

/// The types of a file's units, as text.
fn text(file: &ElfFile) -> String {
    let (files, splits) = (DebugFiles::default(), SplitFiles::default());
    let program = read_types(file, &files, &splits).unwrap();
    assert!(program.problems.is_empty(), "{:?}", program.problems);
    text_of(&program)
}

fn text_of(program: &ProgramTypes<'_>) -> String {
    let mut text = String::new();
    for unit in &program.units {
        let graph = &unit.graph;
        graph
            .types()
            .for_each(|(id, _)| text += &graph.define(id).to_string());
        for symbol in graph.functions.iter().chain(&graph.objects) {
            text += &format!("{}\n", graph.declare(symbol.ty, &symbol.name));
        }
    }
    text
}

/// The names in an object file are found by the machine's relocations; a linked file has none.
/// Types of the same source are equal on all machines with equal sizes.
#[test]
fn object_files_of_unknown_machines_are_an_error_and_linked_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.c"), SOURCE).unwrap();
    let made = |target: &str, flags: &str| {
        let words = format!("--target={target}-linux-gnu {flags} -g -O1 -fPIC -c a.c -o {target}");
        run(folder, "clang", &words);
        folder.join(target)
    };
    let linked = |target: &str| {
        run(
            folder,
            "ld.lld",
            &format!("-shared {target} -o {target}.so"),
        );
        text(&ElfFile::open(folder.join(format!("{target}.so"))).unwrap())
    };
    let expected = text(&ElfFile::open(made("x86_64", "")).unwrap());
    assert!(
        expected.contains("node_t *node, const char *name") && expected.contains("double d[2][3];")
    );
    assert_eq!(linked("x86_64"), expected);
    // Programs for the Linux kernel are object files for a machine without floating-point numbers.
    let source = "struct node { struct node *next; int a : 3; } node; int take(struct node *own) { return own->a; }";
    fs::write(folder.join("b.c"), source).unwrap();
    run(folder, "clang", "--target=bpf -g -O1 -c b.c -o bpf");
    run(folder, "clang", "-g -O1 -c b.c -o b");
    let [bpf, native] = ["bpf", "b"].map(|name| ElfFile::open(folder.join(name)).unwrap());
    assert_eq!(text(&bpf), text(&native));
    for (target, flags, name) in [
        ("powerpc64", "", "64-bit PowerPC"),
        ("powerpc64le", "-gdwarf-4", "64-bit PowerPC"),
        ("riscv64", "", "RISC-V"),
        ("s390x", "", "s390"),
        ("mips64", "", "MIPS"),
        ("mips64el", "-gdwarf-4", "MIPS"),
    ] {
        let file = ElfFile::open(made(target, flags)).unwrap();
        let (files, splits) = Default::default();
        let error = read_types(&file, &files, &splits).unwrap_err();
        let TypesError::Relocations { machine, .. } = &error else {
            panic!("{target}: {error}");
        };
        assert_eq!(machine.to_string(), name, "{target}");
        let said = error.to_string();
        assert!(said.contains(target) && said.contains(name), "{said}");
        // lld 14 does not support s390x.
        if target != "s390x" {
            assert_eq!(linked(target), expected, "{target}");
        }
    }
}

#[test]
fn prototypes_are_found_by_name_and_address() {
    let folder = built("-g");
    let file = ElfFile::open(folder.path().join("a")).unwrap();
    let (files, splits) = Default::default();
    let program = read_types(&file, &files, &splits).unwrap();
    assert!(program.problems.is_empty(), "{:?}", program.problems);
    drop(program);
    let prototypes = DwarfPrototypes::read(&file, &DebugFiles::default()).unwrap();
    drop(file);
    let listed = run(folder.path(), "nm", "a");
    for (name, declared) in [
        ("take", "int take(node_t *node, const char *name, float by)"),
        ("hidden", "long int hidden(long int x, ...)"),
        ("main", "int main(void)"),
    ] {
        let line = listed
            .lines()
            .find(|line| line.ends_with(&format!(" {name}")))
            .unwrap();
        let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        let at = prototypes.by_address(Vaddr(address)).unwrap();
        assert_eq!(at.graph.declare(at.ty, name), declared);
        let named: Vec<_> = prototypes.by_name(name).map(|found| found.ty).collect();
        assert_eq!(named, [at.ty]);
        assert!(prototypes.by_address(Vaddr(address + 1)).is_none());
    }
    let take = prototypes.by_name("take").next().unwrap();
    let TypeKind::Function { parameters, .. } = &take.graph.get(take.ty).unwrap().kind else {
        panic!("no function");
    };
    let sizes: Vec<_> = parameters
        .iter()
        .map(|one| take.graph.size(one.ty))
        .collect();
    assert_eq!(sizes, [Some(8), Some(8), Some(4)]);
}

/// The types of a function's parameters do not suffice to determine its prototype.
#[test]
fn other_calling_conventions_have_no_prototypes() {
    let folder = tempfile::tempdir().unwrap();
    let functions = ["ms_abi", "regcall", "preserve_most", "unused"]
        .map(|one| format!("__attribute__(({one})) int {one}_(int a) {{ return a; }}\n"));
    fs::write(folder.path().join("a.c"), functions.concat()).unwrap();
    run(folder.path(), "clang", "-O1 -g -shared -fPIC a.c -o a");
    let file = ElfFile::open(folder.path().join("a")).unwrap();
    let (files, splits) = Default::default();
    let program = read_types(&file, &files, &splits).unwrap();
    let unit = &program.units[0];
    let kind = |name: &str| {
        let mut functions = unit.graph.functions.iter();
        let function = functions.find(|function| function.name == name).unwrap();
        &unit.graph.get(function.ty).unwrap().kind
    };
    assert!(matches!(kind("unused_"), TypeKind::Function { .. }));
    for name in ["ms_abi_", "regcall_", "preserve_most_"] {
        assert_eq!(kind(name), &TypeKind::Unknown, "{name}");
    }
}

/// The types of a folder's program, its prototypes by address, and the missing units.
fn read_folder(folder: &Path) -> (String, Vec<String>, Vec<TypesError>) {
    let file = ElfFile::open(folder.join("a")).unwrap();
    let (files, splits) = (DebugFiles::default(), SplitFiles::default());
    let program = read_types(&file, &files, &splits).unwrap();
    let of_split = |problem: &TypesError| matches!(problem, TypesError::Split { .. });
    assert!(
        program.problems.iter().all(of_split),
        "{:?}",
        program.problems
    );
    let names = program.units.iter().map(|unit| unit.graph.unit.as_deref());
    let text = names.fold(text_of(&program), |text, name| text + name.unwrap() + "\n");
    let prototypes = DwarfPrototypes::read(&file, &files).unwrap();
    assert_eq!(prototypes.missing().len(), program.problems.len());
    let of_unit = |(graph, functions): (&Graph<'static>, Vec<(Vaddr, TypeId)>)| {
        let declare = |(address, ty): (Vaddr, TypeId)| (address, graph.declare(ty, "function"));
        functions.into_iter().map(declare).collect::<Vec<_>>()
    };
    let declared: BTreeMap<Vaddr, String> = prototypes.units().flat_map(of_unit).collect();
    let declared = declared
        .iter()
        .map(|(at, declared)| format!("{:#x} {declared}", at.0));
    (text, declared.collect(), program.problems)
}

/// Compiles two units in a folder, links them, and packs their split parts.
fn build_two(compiler: &str, flags: &str, packer: Option<&str>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("a.c"), SOURCE).unwrap();
    let other = "struct own { long double l; union { int i; float f; } u; }; typedef int (*callback)(struct own *, _Bool);
                 int call(callback which, struct own *with) { return which(with, 1); } const volatile struct own *shared[3][4];";
    fs::write(path.join("b.c"), other).unwrap();
    for unit in ["a", "b"] {
        let words = format!("-O1 {flags} -c {unit}.c -o {unit}.o");
        run(path, compiler, &words);
    }
    run(path, "gcc", "a.o b.o -Wl,--build-id=none -o a");
    if let Some(packer) = packer {
        run(path, packer, "-e a -o a.dwp");
        for unit in ["a", "b"] {
            fs::remove_file(path.join(format!("{unit}.dwo"))).unwrap();
        }
    }
    folder
}

/// Split or packaged units have the same types and prototypes as complete units.
#[test]
fn split_units_say_what_whole_ones_say() {
    // binutils' dwp 2.40 makes no package of DWARF 5, and llvm-dwp 14 makes none of gcc's files.
    for (compiler, version, packer) in [
        ("gcc", 4, Some("dwp")),
        ("gcc", 5, None),
        ("clang", 4, Some("llvm-dwp")),
        ("clang", 5, Some("llvm-dwp")),
    ] {
        for types in ["", "-fdebug-types-section"] {
            let flags = format!("-gdwarf-{version} {types}");
            let what = format!("{compiler} {flags}");
            let expected = read_folder(build_two(compiler, &flags, None).path());
            assert!(expected.0.contains("callback") && expected.1.len() == 4);
            let flags = format!("{flags} -gsplit-dwarf");
            let folder = build_two(compiler, &flags, None);
            assert_same(&expected, &read_folder(folder.path()), &what);
            let file = folder.path().join("a.dwo");
            fs::rename(&file, folder.path().join("elsewhere")).unwrap();
            let (_, declared, missing) = read_folder(folder.path());
            assert_eq!(declared.len(), 1, "{what}");
            let [
                TypesError::Split {
                    unit, file: name, ..
                },
            ] = &*missing
            else {
                panic!("{missing:?}");
            };
            assert!(name.ends_with("a.dwo") && unit.starts_with("the unit at 0x"));
            let message = missing[0].to_string();
            assert!(message.contains(file.to_str().unwrap()), "{message}");
            if packer.is_some() {
                let folder = build_two(compiler, &flags, packer);
                assert_same(
                    &expected,
                    &read_folder(folder.path()),
                    &format!("{what}, packed"),
                );
            }
        }
    }
}

type FolderTypes = (String, Vec<String>, Vec<TypesError>);

/// Compares the results, except for the compilers' folders and the order of entries: in a linked
/// file, type units follow each other.
fn assert_same(expected: &FolderTypes, found: &FolderTypes, what: &str) {
    let sorted = |types: &FolderTypes| {
        let lines = types.0.lines().filter(|line| !line.ends_with(".c"));
        let mut lines: Vec<_> = lines.map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(found), sorted(expected), "{what}");
    assert_eq!(found.1, expected.1, "{what}");
    let names = |types: &FolderTypes| {
        let names = types.0.lines().filter(|line| line.ends_with(".c"));
        let ends = names.map(|name| name.rsplit('/').next().unwrap().to_owned());
        ends.collect::<Vec<_>>()
    };
    assert_eq!(names(found), ["a.c", "b.c"], "{what}");
    assert!(found.2.is_empty(), "{what}: {:?}", found.2);
}

/// The offset and the size of a section in a file.
fn place(folder: &Path, section: &str) -> (usize, usize) {
    let text = run(folder, "readelf", "-SW a");
    let line = text
        .lines()
        .find_map(|line| line.split_once(&format!(" {section} ")))
        .unwrap()
        .1;
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| usize::from_str_radix(words[at], 16).unwrap();
    (number(2), number(3))
}

/// Each byte wrong in turn: no panic, no types except the file's own, and no more types than bytes.
#[test]
fn wrong_bytes_are_errors() {
    for flags in ["-gdwarf-5", "-gdwarf-4 -fdebug-types-section"] {
        let folder = built(flags);
        let bytes = fs::read(folder.path().join("a")).unwrap();
        let mut failed = 0;
        for section in [".debug_info", ".debug_abbrev"] {
            let (start, size) = place(folder.path(), section);
            for at in start..start + size {
                for value in [0, 0x7f, 0xff] {
                    let mut broken = bytes.clone();
                    broken[at] = value;
                    let file = ElfFile::from_bytes("broken", broken).unwrap();
                    let (files, splits) = Default::default();
                    let Ok(program) = read_types(&file, &files, &splits) else {
                        failed += 1;
                        continue;
                    };
                    failed += usize::from(!program.problems.is_empty());
                    for unit in &program.units {
                        let last = unit.graph.last();
                        assert!(usize::try_from(last).unwrap() <= size * 2);
                        for (_, ty) in unit.graph.types() {
                            ty.each_reference(|id| assert!(id <= TypeId(last)));
                        }
                    }
                    let _ = DwarfPrototypes::from_types(program).by_address(Vaddr(0));
                }
            }
        }
        assert!(failed > 100, "{failed}");
    }
}

/// Errors have a location: a type that is behind the end.
#[test]
fn errors_name_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let source = "
        .section .debug_info,\"\",@progbits
        .long end - start
start:  .short 4
        .long 0
        .byte 8
        .uleb128 1
        .byte 12
        .asciz \"a.c\"
        .uleb128 2
        .asciz \"lost\"
        .long 0x1234
        .uleb128 2
        .asciz \"circle\"
        .long circle - start + 4
circle: .uleb128 2
        .asciz \"own\"
        .long circle - start + 4
        .byte 0
end:
        .section .debug_abbrev,\"\",@progbits
        .byte 1, 0x11, 1, 0x13, 0xb, 3, 8, 0, 0
        .byte 2, 0x16, 0, 3, 8, 0x49, 0x13, 0, 0
        .byte 0
";
    fs::write(folder.path().join("a.s"), source).unwrap();
    run(folder.path(), "as", "a.s -o a");
    let file = ElfFile::open(folder.path().join("a")).unwrap();
    let (files, splits) = Default::default();
    let program = read_types(&file, &files, &splits).unwrap();
    let [
        TypesError::Dwarf {
            section: ".debug_info",
            offset: 0x1234,
            ..
        },
    ] = &*program.problems
    else {
        panic!("{:?}", program.problems);
    };
    let graph = &program.units[0].graph;
    let own = graph.named("own").next().unwrap().0;
    assert_eq!((graph.resolve(own), graph.size(own)), (None, None));
}
