//! The order of array dimensions, which some gccs store in reverse in CTF.

use std::collections::BTreeSet;

use unspool_c_types::{CtfWriter, Declarations, Gcc, SymbolForm};
use unspool_dwarf_types::ArrayView;

use crate::type_folder::{TypeFolder, open};

/// gdb and unspool show CTF made from DWARF as in the source, whichever gcc compiled the code.
#[test]
fn arrays_are_the_right_way_round() {
    let folder = TypeFolder::new();
    let source = "int m[2][3][4]; struct s { char n[5][6]; } s; int main(void) { return 0; }";
    folder.write("a.c", source);
    folder.tool("gcc", "-g -rdynamic a.c -o a");
    folder.put_dwarf("a", "a", SymbolForm::Dynsym);
    assert_eq!(folder.symbol("m", "a"), "int m[2][3][4];\n");
    folder.tool("strip", "-g a");
    folder.write("ask", "ptype m\n");
    let shown = folder.tool("gdb", "-batch -nx -x ask a");
    assert!(shown.contains("[2][3][4]"), "{shown}");
}

/// The dimensions of arrays in C or gdb output.
fn dimensions(text: &str) -> Vec<String> {
    let arrays = text.lines().filter_map(|line| {
        let (start, end) = (line.find('[')?, line.rfind(']')?);
        Some(line[start..=end].to_owned())
    });
    arrays.filter(|array| array.contains("][")).collect()
}

/// Two units that share types and disagree on one.
const UNITS: [(&str, &str); 2] = [
    (
        "one",
        "struct both { char n[5][6]; int k; }; typedef long grid[7][8];
         struct s { struct both b; short q[2][3][4]; } s; grid g;",
    ),
    (
        "two",
        "struct both { char n[5][6]; int k; }; typedef long grid[7][8];
         struct s { struct both b; short q[2][3][4]; grid gs[3]; int other[9][10]; } t; grid h;",
    ),
];

impl TypeFolder {
    /// The object of a unit as if made by a release of gcc.
    fn object(&self, name: &str, text: &str, release: &str, flags: &str) {
        self.write(&format!("{name}.c"), text);
        self.tool("gcc", &format!("{flags} -S {name}.c"));
        let code = String::from_utf8(self.bytes(&format!("{name}.s"))).unwrap();
        let own = code.split("\"GCC: ").nth(1).unwrap();
        let own = format!("GCC: {}", own.split('"').next().unwrap());
        let version = own.rsplit(' ').next().unwrap();
        let other = format!("GCC: ({release}-1) {release}");
        let code = code.replace(&own, &other);
        // `DW_AT_producer`, after the language standard.
        let code = code.replace(&format!(" {version} -"), &format!(" {release} -"));
        self.write(&format!("{name}.s"), code);
        self.tool("gcc", &format!("-c {name}.s -o {name}.o"));
        let quirk = |line: &str| Gcc::from_comment(line).unwrap().quirk();
        if flags.contains("-gctf") && quirk(&own) != quirk(&other) {
            self.tool("objcopy", &format!("--dump-section .ctf=ctf {name}.o"));
            let ctf = self.bytes("ctf");
            let ctf = open(&ctf);
            let graph = ctf.parents()[0].reading.graph.with_reversed_arrays();
            self.write("ctf", CtfWriter::default().dict(&graph));
            self.tool("objcopy", &format!("--update-section .ctf=ctf {name}.o"));
        }
    }

    /// gdb's dimensions of [`UNITS`].
    fn by_gdb(&self, program: &str, types: &[&str]) -> BTreeSet<String> {
        let asks: Vec<_> = types.iter().map(|ty| format!("ptype {ty}\n")).collect();
        self.write("ask", asks.concat());
        let shown = self.tool("gdb", &format!("-batch -nx -x ask {program}"));
        dimensions(&shown).into_iter().collect()
    }

    /// Unspool's dimensions, and its notices.
    fn by_unspool(&self, program: &str) -> (BTreeSet<String>, String) {
        let types = ["both", "grid", "s"].map(|ty| self.definition(ty, program));
        let found = types.iter().flat_map(|(text, _)| dimensions(text));
        (found.collect(), types[2].1.clone())
    }

    /// The same, as stored.
    fn stored(&mut self, program: &str) -> (BTreeSet<String>, String) {
        self.arrays = ArrayView::AsStored;
        let stored = self.by_unspool(program);
        self.arrays = ArrayView::AsDeclared;
        stored
    }

    /// Whether arrays of a file were corrected.
    fn is_corrected(&self, program: &str) -> bool {
        let (found, _) =
            self.dictionaries(program, |found| format!("{}", found.reversed_by.is_some()));
        found.unwrap() == "true"
    }
}

const UNKNOWN: &str = "which gcc stored the arrays of arrays of .ctf";

/// Whether gcc stored array dimensions in reverse is decided by the gcc versions in `.comment` if
/// they agree, else by each unit's `DW_AT_producer`. In a child dictionary of GNU ld, most arrays
/// are the parent's.
#[test]
fn whether_arrays_are_turned_is_decided_by_the_gcc_that_wrote_them() {
    for release in ["12.2.0", "14.2.0"] {
        let mut folder = TypeFolder::new();
        for (name, text) in UNITS {
            folder.object(name, text, release, "-g -gctf -fPIC");
        }
        folder.tool("gcc", "-shared -nostdlib one.o two.o -o alike");
        let truth = folder.by_gdb("alike", &["struct both", "grid", "s", "t"]);
        let source = ["[2][3][4]", "[3][7][8]", "[5][6]", "[7][8]", "[9][10]"];
        assert_eq!(truth, BTreeSet::from(source.map(str::to_owned)));
        let is_wrong = release == "12.2.0";
        assert_eq!(folder.by_unspool("alike").0, truth, "{release}");
        assert_eq!(folder.is_corrected("alike"), is_wrong, "{release}");
        let (stored, _) = folder.stored("alike");
        assert_eq!(stored == truth, !is_wrong, "{release}: {stored:?}");

        // Such lines are from other tools, and are ignored.
        folder.tool("objcopy", "--dump-section .comment=comment alike");
        let mut comment = folder.bytes("comment");
        comment.extend(b"Linker: LLD 14.0.6\0Debian clang version 14.0.6\0GNU C17 9.1.0\0");
        folder.write("comment", comment);
        folder.tool(
            "objcopy",
            "--strip-debug --update-section .comment=comment alike others",
        );
        let (found, said) = folder.by_unspool("others");
        assert_eq!(
            (found, said.contains(UNKNOWN)),
            (truth.clone(), false),
            "{said}"
        );

        // As from a C library's object compiled by another gcc.
        let another = if is_wrong { "14.2.0" } else { "12.2.0" };
        folder.object("other", "int other;", another, "");
        folder.tool("gcc", "-shared -nostdlib other.o one.o two.o -o mixed");
        let comment = folder.tool("readelf", "-p .comment mixed");
        assert_eq!(comment.matches("GCC: ").count(), 2, "{comment}");
        let (found, said) = folder.by_unspool("mixed");
        assert_eq!(
            (found, said.contains(UNKNOWN)),
            (truth.clone(), false),
            "{said}"
        );

        folder.tool("strip", "-g mixed -o stripped");
        let (found, said) = folder.by_unspool("stripped");
        assert_eq!((&found, said.contains(UNKNOWN)), (&stored, true), "{said}");
        let (found, said) = folder.stored("stripped");
        assert_eq!((&found, said.contains(UNKNOWN)), (&stored, false), "{said}");
    }
}

/// Two gcc versions compiled the input of GNU ld: the order of shared arrays is unknown, that of a
/// unit's own is its gcc's.
#[test]
fn of_two_gccs_each_unit_has_its_own_order() {
    let folder = TypeFolder::new();
    for ((name, text), release) in UNITS.into_iter().zip(["12.2.0", "14.2.0"]) {
        folder.object(name, text, release, "-g -gctf -fPIC");
    }
    folder.tool("gcc", "-shared -nostdlib one.o two.o -o two_gccs");
    let place = folder.path().canonicalize().unwrap();
    for (unit, variable) in [("one", "s"), ("two", "t")] {
        let member = place.join(unit).display().to_string() + ".c";
        let (text, said) = folder.dictionaries("two_gccs", |found| {
            assert!(found.reversed_by.is_some());
            let mut all = found.dictionaries.iter();
            let one = all.find(|one| one.name == member).unwrap();
            Declarations(&one.graph).to_string()
        });
        assert!(said.contains(UNKNOWN), "{said}");
        let mut found = BTreeSet::from_iter(dimensions(&text.unwrap()));
        // GNU ld shares one of the two types of `grid`, but no conflicting structure.
        found.remove("[7][8]");
        let truth = folder.by_gdb("two_gccs", &["struct both", variable]);
        assert_eq!(found, truth, "{unit}");
    }
}

/// Linked types have arrays as in the source, for other readers too, and are marked so. The file
/// that receives them may name no compiler, or another gcc.
#[test]
fn linked_arrays_are_the_right_way_round() {
    for releases in [["12.2.0"; 2], ["14.2.0"; 2], ["12.2.0", "14.2.0"]] {
        let folder = TypeFolder::new();
        for ((name, text), release) in UNITS.into_iter().zip(releases) {
            folder.object(name, text, release, "-g -gctf -fPIC");
        }
        folder.tool("gcc", "-shared -nostdlib one.o two.o -o program");
        let truth = folder.by_gdb("program", &["struct both", "grid", "s", "t"]);
        assert_eq!(truth.len(), 5, "{truth:?}");
        folder.link(&["one.o", "two.o"], "types.ctf");
        // Once more, from the linked types.
        folder.link(&["types.ctf"], "again.ctf");
        folder.tool("strip", "-g program -o stripped");
        folder.link(&["again.ctf"], "stripped");
        for file in ["types.ctf", "again.ctf", "stripped"] {
            let (found, said) = folder.by_unspool(file);
            assert_eq!((&found, &*said), (&truth, ""), "{releases:?} {file}");
        }
        let by_gdb = folder.by_gdb("stripped", &["struct both", "grid"]);
        let source = ["[5][6]", "[7][8]"].map(str::to_owned);
        assert_eq!(by_gdb, BTreeSet::from(source), "{releases:?}");
    }
}

/// If the gcc version is unknown, arrays stay as stored, with a notice, and the file that receives
/// them decides.
#[test]
fn arrays_of_an_unknown_gcc_stay_as_they_are_stored() {
    let folder = TypeFolder::new();
    let (name, text) = UNITS[0];
    folder.object(name, text, "12.2.0", "-g -gctf -fPIC");
    folder.tool("gcc", "-shared -nostdlib one.o -o program");
    let truth = folder.by_gdb("program", &["struct both"]);
    folder.tool("strip", "-g program");
    folder.tool("objcopy", "--dump-section .ctf=bare one.o");
    let both = |file: &str| {
        let (text, said) = folder.definition("both", file);
        (dimensions(&text), said)
    };
    let (stored, said) = both("bare");
    assert_eq!(stored, ["[6][5]"]);
    assert!(said.contains(UNKNOWN), "{said}");
    let said = folder.link(&["bare"], "program");
    assert_eq!(said.matches(UNKNOWN).count(), 1, "{said}");
    let (found, said) = both("program");
    assert_eq!(BTreeSet::from_iter(found), truth);
    assert!(said.is_empty() && folder.is_corrected("program"), "{said}");
    // All types of a file are read in the same way.
    let (_, said) = folder.load(|loader| loader.types(&folder.join("bare"), |_| ()));
    assert!(said.contains(UNKNOWN), "{said}");
}
