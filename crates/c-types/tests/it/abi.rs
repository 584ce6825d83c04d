//! Argument passing, compared with the parameter locations at function entry in the DWARF of gcc
//! and clang.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::common::CtfFolder;
use unspool_c_types::{Convention, Graph, PassingLocation};

/// Functions with parameters of all kinds.
const FUNCTIONS: usize = 400;

/// Types of parameters.
const TYPES: &str = "
#ifdef __clang__
#define _Float128 __float128
#endif
enum colour { RED, GREEN };
struct pair { int first; long second; };
struct floats { float x, y; };
struct three { float x, y, z; };
struct mixed { double real; int whole; };
struct other { long whole; float real; };
struct doubles { double x, y; };
struct large { long a, b, c; };
struct wide { long double number; };
struct nested { struct floats floats; struct { char c; short s; } rest; };
struct array { int numbers[4]; };
struct chars { char text[11]; };
struct bits { int a : 3; long b : 40; int c : 17; };
struct __attribute__((packed)) packed { char c; long l; };
struct single { char c; };
struct aligned { __int128 number; };
struct __attribute__((aligned(32))) more { char c; };
struct flexible { long number; char text[]; };
union both { double real; long whole; };
union reals { float one; double two; };
union texts { char text[16]; int number; };
typedef struct pair pair_t;
typedef const volatile unsigned short number_t;
typedef int (*callback_t)(struct large, double);
";

/// The parameters' types.
const NAMES: [&str; 41] = [
    "char",
    "signed char",
    "_Bool",
    "short",
    "number_t",
    "int",
    "unsigned",
    "enum colour",
    "long",
    "unsigned long",
    "long long",
    "__int128",
    "float",
    "double",
    "long double",
    "_Complex float",
    "_Complex double",
    "void *",
    "const char *",
    "callback_t",
    "struct pair",
    "pair_t",
    "struct floats",
    "struct three",
    "struct mixed",
    "struct other",
    "struct doubles",
    "struct large",
    "struct wide",
    "struct nested",
    "struct array",
    "struct chars",
    "struct bits",
    "struct packed",
    "struct single",
    "struct aligned",
    "struct more",
    "struct flexible",
    "_Float128",
    "union both",
    "union reals",
];

/// Return types.
const RETURNS: [&str; 7] = [
    "void",
    "int",
    "struct pair",
    "struct large",
    "struct wide",
    "_Complex long double",
    "union texts",
];

/// Pseudo-random numbers, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

fn source() -> String {
    let mut numbers = Numbers(7);
    let mut text = TYPES.to_owned();
    for function in 0..FUNCTIONS {
        let returns = RETURNS[numbers.below(RETURNS.len())];
        let count = 1 + numbers.below(12);
        let parameters: Vec<String> = (0..count)
            .map(|index| format!("{} p{index}", NAMES[numbers.below(NAMES.len())]))
            .collect();
        let body = match returns {
            "void" => String::new(),
            _ => format!("static {returns} got; return got;"),
        };
        let parameters = parameters.join(", ");
        writeln!(text, "{returns} f{function}({parameters}) {{ {body} }}").unwrap();
    }
    text
}

/// The locations of parameters, by the names of function and parameter.
type PassingLocations = HashMap<(String, String), Vec<PassingLocation>>;

/// The location of each parameter by readelf, if it is constant. The CFA is `cfa` bytes above the
/// frame base. Parameters with a location list are left out.
fn places(text: &str, cfa: u32) -> PassingLocations {
    let mut places = HashMap::new();
    let mut function = String::new();
    // Each entry begins with its abbreviation number; the compiler chooses the order of its
    // attributes.
    for entry in text.split("Abbrev Number").skip(1) {
        let line = |attribute: &str| entry.lines().find(|line| line.contains(attribute));
        let Some(name) = line("DW_AT_name") else {
            continue;
        };
        let name = name.rsplit(": ").next().unwrap().trim();
        if entry.contains("DW_TAG_subprogram") {
            name.clone_into(&mut function);
        }
        if let Some(location) = line("DW_AT_location").filter(|line| line.contains("byte block"))
            && entry.contains("DW_TAG_formal_parameter")
        {
            let found = operations(location, cfa);
            if !found.is_empty() {
                places.insert((function.clone(), name.to_owned()), found);
            }
        }
    }
    places
}

/// The registers and stack locations in a location description.
fn operations(line: &str, cfa: u32) -> Vec<PassingLocation> {
    let open = line.find('(').unwrap();
    let operations = line[open + 1..].trim().strip_suffix(')').unwrap();
    let found = operations.split("; ").filter_map(|operation| {
        let number = |text: &str| text.split([' ', ':']).next().unwrap().parse().ok();
        if let Some(rest) = operation.strip_prefix("DW_OP_reg") {
            let register: u8 = number(rest).unwrap();
            return Some(match register {
                17.. => PassingLocation::Vector(register),
                _ => PassingLocation::Register(register),
            });
        }
        let at = operation.strip_prefix("DW_OP_fbreg: ")?;
        // Below the CFA the function itself stored it.
        let at: u32 = at.parse().ok()?;
        at.checked_sub(cfa).map(PassingLocation::Stack)
    });
    found.collect()
}

/// Compares our result with a compiler's, and counts the comparisons by kind and number of pieces.
///
/// For values in several registers, clang 14 names one that may be none of them.
fn compare(
    graph: &Graph<'_>,
    locations: &PassingLocations,
    is_clang: bool,
) -> HashMap<(u8, usize), u32> {
    let mut compared = HashMap::new();
    let mut unknown = 0;
    for function in &graph.functions {
        let signature = graph.signature(function.ty, Convention::Amd64).unwrap();
        for (index, passing) in signature.parameters.iter().enumerate() {
            let key = (function.name.clone().into_owned(), format!("p{index}"));
            let Some(expected) = locations.get(&key) else {
                continue;
            };
            let Some(passing) = passing else {
                unknown += 1;
                continue;
            };
            let found: Vec<PassingLocation> =
                passing.pieces.iter().map(|piece| piece.location).collect();
            if is_clang && found.len() > 1 && !matches!(expected[..], [PassingLocation::Stack(_)]) {
                continue;
            }
            assert_eq!(&found, expected, "{key:?}");
            assert!(!passing.is_by_reference);
            let kind = match expected[0] {
                PassingLocation::Register(_) => 0,
                PassingLocation::Vector(_) => 1,
                PassingLocation::Stack(_) => 2,
            };
            *compared.entry((kind, expected.len())).or_insert(0) += 1;
        }
    }
    let known: u32 = compared.values().sum();
    assert!(unknown * 2 < known, "{unknown} of {known}");
    compared
}

#[test]
fn compilers_pass_arguments_there() {
    let folder = CtfFolder::new();
    std::fs::write(folder.path().join("abi.c"), source()).unwrap();
    folder.tool("gcc", "-O1 -g -gctf -c abi.c -o abi.o");
    folder.tool(
        "clang",
        "-O1 -g -fno-omit-frame-pointer -c abi.c -o clang.o",
    );
    let ctf = folder.ctf("abi.o");
    let section = ctf.open();
    let units = section.parents();
    let graph = &units[0].reading.graph;
    let by = |object, is_clang| {
        let text = folder.tool("readelf", &format!("--debug-dump=info {object}"));
        // Clang's frame base is the value of the frame pointer; gcc's is the CFA.
        let cfa = if is_clang { 16 } else { 0 };
        compare(graph, &places(&text, cfa), is_clang)
    };
    let by_gcc = by("abi.o", false);
    // Registers of both kinds, one and two of them, and memory.
    for wanted in [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)] {
        assert!(
            by_gcc.get(&wanted).is_some_and(|count| *count >= 10),
            "{wanted:?}: {by_gcc:?}"
        );
    }
    let by_clang = by("clang.o", true);
    for wanted in [(0, 1), (2, 1)] {
        assert!(
            by_clang.get(&wanted).is_some_and(|count| *count >= 10),
            "{wanted:?}: {by_clang:?}"
        );
    }
}

/// Types with a decisive property that is not recorded, and similar ones.
const DECEPTIVE: &str = "
typedef union { float *one; int *two; } transparent __attribute__((transparent_union));
struct between { float f; int : 32; float g; };
struct behind { float f; int : 32; };
struct second { long l; long : 64; };
struct __attribute__((aligned(16))) asked { long l; };
struct leading { double d; int : 32; float f; };
struct beside { int i; int : 32; float f; };
struct plain { float f; double d; };
struct tail { double d; float f; };
union plainly { float f; double d; };
#define F(name, type) long name(long p0, type p1, long p2, double p3) { return p2; }
F(f0, transparent) F(f1, struct between) F(f2, struct behind) F(f3, struct second) F(f4, struct leading)
F(f5, struct asked)
F(g0, struct beside) F(g1, struct plain) F(g2, struct tail) F(g3, union plainly)
";

#[test]
fn incomplete_types_make_later_parameters_unknown() {
    let folder = CtfFolder::new();
    std::fs::write(folder.path().join("abi.c"), DECEPTIVE).unwrap();
    folder.tool("gcc", "-O1 -g -gctf -c abi.c -o abi.o");
    let text = folder.tool("readelf", "--debug-dump=info abi.o");
    let places = places(&text, 0);
    let ctf = folder.ctf("abi.o");
    let section = ctf.open();
    let units = section.parents();
    let graph = &units[0].reading.graph;
    // AArch64 passes a value in general-purpose registers regardless of its holes, unless a hole
    // requires an alignment.
    let unknown = |convention| match convention {
        Convention::Amd64 => ["f0", "f1", "f2", "f3", "f4", "f5"].as_slice(),
        Convention::Aarch64 => &["f0", "f3", "f4", "f5"],
    };
    assert_eq!(graph.functions.len(), 10);
    for function in &graph.functions {
        let signature = |convention| graph.signature(function.ty, convention).unwrap().parameters;
        for convention in [Convention::Amd64, Convention::Aarch64] {
            let known: Vec<_> = signature(convention).iter().map(Option::is_some).collect();
            let rest = !unknown(convention).contains(&&*function.name);
            assert_eq!(known, [true, rest, rest, rest], "{function:?}");
        }
        for (index, passing) in signature(Convention::Amd64).iter().enumerate() {
            let key = (function.name.clone().into_owned(), format!("p{index}"));
            // The function may have stored a structure in the frame.
            if let (Some(passing), Some(place)) = (passing, places.get(&key)) {
                let found: Vec<_> = passing.pieces.iter().map(|piece| piece.location).collect();
                assert_eq!(&found, place, "{key:?}");
            }
            assert!(index == 1 || places.contains_key(&key), "{key:?}");
        }
    }
}
