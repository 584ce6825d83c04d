//! BTF that is read and written again says to bpftool and pahole what it said before: tags, sections,
//! linkage, signs, and the types of modules beyond their base.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use unspool_c_types::{
    BtfBase, BtfReading, BtfWriter, Declarations, Endian, Graph, Type, TypeKind,
};
use unspool_dwarf_types::LoadedDicts;

use crate::type_folder::TypeFolder;

/// Each type in bpftool's dump of BTF, with the names of the types that it refers to in place of
/// their ids.
fn types(folder: &TypeFolder, words: &str) -> BTreeSet<String> {
    let text = folder.tool("bpftool", &format!("{words} format raw"));
    let mut names = BTreeMap::from([("0", "void".to_owned())]);
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        match line
            .strip_prefix('[')
            .and_then(|line| line.split_once("] "))
        {
            Some((id, rest)) => {
                let words: Vec<&str> = rest.splitn(3, ' ').collect();
                names.insert(id, words[..2].join(" "));
                blocks.push(vec![rest]);
            }
            None => blocks.last_mut().unwrap().push(line),
        }
    }
    let named = |line: &str| -> String {
        let words = line
            .split(' ')
            .map(|word| match word.split_once("type_id=") {
                // The types of a base are not in the dump, and have the same ids in all.
                Some((before, id)) => match names.get(id.trim_end_matches(',')) {
                    Some(name) => format!("{before}type={name}"),
                    None => format!("{before}type={id}"),
                },
                None => word.to_owned(),
            });
        words.collect::<Vec<_>>().join(" ")
    };
    let block = |lines: Vec<&str>| lines.into_iter().map(named).collect::<Vec<_>>().join("\n");
    blocks.into_iter().map(block).collect()
}

fn object(folder: &TypeFolder, name: &str, compiler: &str, text: &str) {
    folder.write(&format!("{name}.c"), text);
    let (compiler, flags) = compiler.split_once(' ').unwrap();
    folder.tool(compiler, &format!("{flags} -c {name}.c -o {name}.o"));
}

/// Values beyond the signed ones keep their sign, from gcc's and clang's DWARF and from BTF.
#[test]
fn enumerators_of_64_bits_keep_their_signs() {
    let folder = TypeFolder::new();
    let text = "enum big { ONE = 1, TOP = 1UL << 63, ALL = ~0UL } big;
                enum low { NEG = -1 - 0x7fffffffffffffff, UP = 5 } low;
                enum high { HI = 0xffffffffU } high; enum none { SMALL } none;";
    for compiler in ["gcc", "clang"] {
        for version in [4, 5] {
            object(&folder, "a", &format!("{compiler} -gdwarf-{version}"), text);
            folder.tool("pahole", "--btf_encode_detached theirs.btf a.o");
            folder.write("ours.btf", folder.to_btf("a.o", true).0);
            folder.write("again.btf", folder.to_btf("ours.btf", true).0);
            let enums = |file: &str| {
                let mut all = types(&folder, &format!("btf dump file {file}"));
                all.retain(|ty| ty.starts_with("ENUM"));
                all
            };
            let theirs = enums("theirs.btf");
            assert_eq!(theirs.len(), 4, "{theirs:?}");
            assert_eq!(enums("ours.btf"), theirs, "{compiler} {version}");
            assert_eq!(enums("again.btf"), theirs, "{compiler} {version}");
            let big = folder.definition("big", "ours.btf").0;
            assert!(big.contains("    ALL = 18446744073709551615,\n"), "{big}");
        }
    }
}

/// What BPF programs tell the kernel of their declarations is kept.
#[test]
fn tags_sections_and_linkage_are_kept() {
    let folder = TypeFolder::new();
    let text = "
        #define tag(x) __attribute__((btf_decl_tag(x)))
        #define type_tag(x) __attribute__((btf_type_tag(x)))
        #define in(x) __attribute__((section(x), used))
        struct inner { int x; };
        struct outer { struct inner type_tag(\"user\") *p; int type_tag(\"rcu\") *q; long v tag(\"of_member\"); } tag(\"of_type\");
        struct outer shared in(\".data\") tag(\"of_data\");
        static int own[2] in(\"license\") = { 1, 2 };
        extern int helper(struct outer *o) in(\".ksyms\");
        static __attribute__((noinline)) int quiet(struct outer *o) { return o->p->x + own[0]; }
        int shown(struct outer *o) tag(\"of_function\");
        int shown(struct outer *o tag(\"of_parameter\")) { return helper(o) + quiet(o) + shared.v; }";
    object(&folder, "a", "clang -target bpf -O1 -g", text);
    let theirs = types(&folder, "btf dump file a.o");
    for part in [
        "DECL_TAG 'of_member'",
        "TYPE_TAG 'rcu'",
        "DATASEC",
        "linkage=extern",
        "component_idx=2",
    ] {
        assert!(
            theirs.iter().any(|ty| ty.contains(part)),
            "{part}: {theirs:#?}"
        );
    }
    folder.write("ours.btf", folder.to_btf("a.o", true).0);
    assert_eq!(types(&folder, "btf dump file ours.btf"), theirs);
    let outer = folder.definition("outer", "a.o").0;
    assert!(
        outer.contains("    int __attribute__((btf_type_tag(\"rcu\"))) *q; "),
        "{outer}"
    );
}

const BASE: &str = "struct base { int a; long b; }; int of_base(struct base *b) { return b->a; }";
const MODULE: &str = "struct base { int a; long b; };
    struct mine { struct base *p; struct base v; int own; };
    int of_mine(struct mine *m) { return m->v.a; }";

/// The error of a file's dictionaries.
fn refusal(folder: &TypeFolder, name: &str) -> String {
    let (found, _) = folder.dictionaries(name, |_| String::new());
    found.unwrap_err().to_string()
}

/// BTF of a module is read with its base, and refused without.
#[test]
fn types_of_modules_continue_those_of_their_base() {
    let mut folder = TypeFolder::new();
    object(&folder, "base", "gcc -g", BASE);
    object(&folder, "mod", "gcc -g", MODULE);
    folder.tool("pahole", "-J base.o");
    folder.tool("pahole", "--btf_base=base.o -J mod.o");
    let (loaded, _) = folder.load(|loader| loader.types(&folder.join("mod.o"), |_| ()));
    for error in [refusal(&folder, "mod.o"), loaded.unwrap_err().to_string()] {
        assert!(error.contains("--base"), "{error}");
    }
    folder.base = Some(folder.join("base.o"));
    let (mine, _) = folder.definition("mine", "mod.o");
    for line in [
        "    struct base *p;                          /* at 0, 8 bytes */",
        "    struct base v;                           /* at 8, 16 bytes */",
        "    int own;                                 /* at 24, 4 bytes */",
    ] {
        assert!(mine.contains(line), "{mine}");
    }
    let of_mine = "int of_mine(struct mine *m);\n";
    assert_eq!(folder.symbol("of_mine", "mod.o"), of_mine);
    folder.write("ours.btf", folder.to_btf("mod.o", true).0);
    let theirs = types(&folder, "-B base.o btf dump file mod.o");
    assert!(
        theirs.iter().any(|ty| ty.starts_with("STRUCT 'mine'")),
        "{theirs:?}"
    );
    assert_eq!(types(&folder, "-B base.o btf dump file ours.btf"), theirs);
    let (found, is_clean) = folder.changes("mod.o", "mod.o");
    assert!(found.changes.is_empty() && is_clean);
    // A module of another kernel is not read with the running one's types.
    folder.write("modinfo", "license=GPL\0vermagic=1.2.3-none SMP\0");
    folder.tool("objcopy", "--add-section .modinfo=modinfo mod.o mod.ko");
    assert_eq!(folder.definition("mine", "mod.ko").0, mine);
    folder.base = None;
    let error = refusal(&folder, "mod.ko");
    assert!(error.contains("a module of Linux 1.2.3-none"), "{error}");
    // A base must have BTF.
    folder.base = Some(folder.write("none.c", ""));
    refusal(&folder, "mod.ko");
    // Nor is it read with those of another build, which has other types before these.
    let other = format!("struct extra {{ int z; }} extra; {BASE}");
    object(&folder, "other", "gcc -g", &other);
    folder.tool("pahole", "-J other.o");
    folder.base = Some(folder.join("other.o"));
    let error = refusal(&folder, "mod.o");
    assert!(error.contains("the base is another one"), "{error}");
}

/// The types of a base without their members, as in `.BTF.base`.
fn distilled(base: &Graph<'_>) -> Vec<u8> {
    let mut graph = Graph::new(8);
    for (_, ty) in base.types() {
        let kind = match &ty.kind {
            TypeKind::Record { tag, size, .. } => TypeKind::Record {
                tag: *tag,
                size: *size,
                members: Vec::new(),
            },
            TypeKind::Integer(number) if number.size > 0 => TypeKind::Integer(*number),
            _ => continue,
        };
        graph.add(Type::named(ty.name.to_string(), kind));
    }
    BtfWriter {
        endian: Endian::Little,
    }
    .write(&graph)
    .0
}

/// A module can have the names and sizes of its base's types itself, which are then found in any
/// base.
#[test]
fn a_base_in_the_module_is_found_in_others() {
    let mut folder = TypeFolder::new();
    object(&folder, "base", "gcc -g", BASE);
    // Other ids, and one more type.
    object(
        &folder,
        "other",
        "gcc -g",
        &format!("union first {{ char c; }} first; {BASE}"),
    );
    object(
        &folder,
        "wrong",
        "gcc -g",
        &BASE.replace("long b", "long b[2]"),
    );
    for name in ["base", "other", "wrong"] {
        folder.tool(
            "pahole",
            &format!("--btf_encode_detached {name}.btf {name}.o"),
        );
    }
    let bytes = folder.bytes("base.btf");
    let small = distilled(&BtfReading::parse(&bytes, 8).unwrap().graph);
    folder.write("small.btf", &small);
    object(&folder, "mod", "gcc -g", MODULE);
    folder.tool(
        "pahole",
        "--btf_encode_detached split.btf --btf_base=small.btf mod.o",
    );
    let split = folder.bytes("split.btf");
    let base = BtfBase::new(BtfReading::parse(&small, 8).unwrap()).unwrap();
    assert!(BtfReading::is_split(&split));
    assert_eq!(
        BtfReading::parse_all(&split, 8, Some(&base)).unwrap()[0].problems,
        []
    );
    folder.tool(
        "objcopy",
        "--add-section .BTF=split.btf --add-section .BTF.base=small.btf mod.o mod.ko",
    );
    let (alone, _) = folder.definition("mine", "mod.ko");
    assert!(alone.contains("/* at 8, 16 bytes */"), "{alone}");
    for base in ["base.btf", "other.btf"] {
        folder.base = Some(folder.join(base));
        assert_eq!(folder.definition("mine", "mod.ko").0, alone);
        folder.to_btf("mod.ko", true);
    }
    folder.base = Some(folder.join("wrong.btf"));
    let error = refusal(&folder, "mod.ko");
    assert!(
        error.contains("none of its types is struct base"),
        "{error}"
    );
}

/// `ld -r` appends the BTF of objects to each other.
#[test]
fn all_parts_of_a_section_are_read() {
    let folder = TypeFolder::new();
    object(
        &folder,
        "one",
        "gcc -gbtf",
        "struct one { char a; } one; struct both { int b[2][3]; } x;",
    );
    object(
        &folder,
        "two",
        "gcc -gbtf",
        "struct two { long a; } two; struct both { int b[2][3]; } y;",
    );
    folder.tool("ld", "-r one.o two.o -o together.o");
    let declared = |found: &LoadedDicts<'_>| {
        let all = found.dictionaries.iter();
        all.map(|one| Declarations(&one.graph).to_string())
            .collect()
    };
    let dump = folder.dictionaries("together.o", declared).0.unwrap();
    for part in [
        "struct one {",
        "struct two {",
        "struct one one;",
        "struct two two;",
    ] {
        assert!(dump.contains(part), "{dump}");
    }
    assert!(dump.contains("int b[2][3];"), "{dump}");
    folder.write("ours.btf", folder.to_btf("together.o", true).0);
    let ours = types(&folder, "btf dump file ours.btf");
    let structs = |name: &str| {
        ours.iter()
            .filter(|ty| ty.starts_with(&format!("STRUCT '{name}'")))
            .count()
    };
    assert_eq!(["one", "two", "both"].map(structs), [1; 3], "{ours:#?}");
}

/// gcc's BTF of objects is linked as its CTF of the same objects.
#[test]
fn btf_of_objects_is_linked() {
    let folder = TypeFolder::new();
    for (name, text) in [
        (
            "one",
            "struct both { int b[2][3]; } x; struct own { char a; } one; int f(struct both *b) { return 0; }",
        ),
        (
            "two",
            "struct both { int b[2][3]; } y; struct own { long a; } two; int main(void) { return 0; }",
        ),
    ] {
        object(&folder, name, "gcc -gbtf", text);
        object(&folder, &format!("{name}-ctf"), "gcc -gctf", text);
    }
    folder.link(&["one.o", "two.o"], "btf.ctf");
    folder.link(&["one-ctf.o", "two-ctf.o"], "ctf.ctf");
    let definitions = |name: &str| {
        let (found, _) = folder.dictionaries(name, |found| {
            let graphs = found.dictionaries.iter().map(|one| &one.graph);
            let define = |graph: &Arc<Graph<'_>>| {
                let own = graph.types().map(|(id, _)| graph.define(id).to_string());
                own.filter(|text| text.starts_with("struct "))
                    .collect::<Vec<_>>()
            };
            let all: BTreeSet<String> = graphs.flat_map(define).collect();
            let count = found.dictionaries.len();
            format!("{count} {}", Vec::from_iter(all).concat())
        });
        found.unwrap()
    };
    assert_eq!(definitions("btf.ctf"), definitions("ctf.ctf"));
    let symbol = folder.symbol("x", "btf.ctf");
    assert_eq!(symbol, "struct both x;\n");
    let (both, _) = folder.definition("both", "btf.ctf");
    assert!(both.contains("int b[2][3];"), "{both}");
}

/// Another format of the same name is refused by its own.
#[test]
fn the_ctf_of_illumos_is_named() {
    let folder = TypeFolder::new();
    folder.write("bare", [0xf1, 0xcf, 2, 0, 0, 0, 0, 0].repeat(8));
    folder.write("a.c", "int a;");
    folder.tool("gcc", "-c a.c -o a.o");
    folder.tool("objcopy", "--add-section .SUNW_ctf=bare a.o kernel.o");
    folder.tool("objcopy", "--add-section .ctf=bare a.o section.o");
    for file in ["bare", "kernel.o", "section.o"] {
        let error = refusal(&folder, file);
        assert!(error.contains("FreeBSD and illumos"), "{file}: {error}");
    }
}
