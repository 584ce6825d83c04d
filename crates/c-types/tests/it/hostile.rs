//! Bad input yields an error with place and reason, and never a panic, a hang, or memory out of
//! proportion to the input.

use std::sync::Arc;

use crate::common::{Ctf, CtfFolder};
use proptest::prelude::*;
use unspool_c_types::{
    ARCHIVE_MAGIC, Agreement, BtfReading, BtfWriter, Compress, CtfError, CtfSection, CtfWriter,
    ElfContext, ElfStrings, Exports, Graph, Interface, InterfaceDiff, LinkOptions, LinkUnit,
    Member, Number, ObjdumpText, Parameter, Qualifier, Tag, Type, TypeId, TypeKind, TypedSymbol,
    diff, link, reverse_arrays,
};

/// The type behind typedefs and qualifiers, found step by step.
fn behind(graph: &Graph<'_>, id: TypeId) -> Option<TypeId> {
    let mut at = id;
    for _ in 0..=graph.last() {
        match graph.get(at)?.kind {
            TypeKind::Typedef(to) | TypeKind::Qualified(_, to) => at = to,
            TypeKind::Unknown => return None,
            _ => return Some(at),
        }
    }
    None
}

/// Mostly typedefs of the previous type, some of any other.
fn chains(graph: &mut Graph<'_>, steps: &[(u8, u32)], last: u32) {
    for (kind, to) in steps {
        let before = TypeId(graph.last());
        let any = TypeId(to % (last + 1));
        let kind = match kind {
            0 => TypeKind::Integer(Number::with_size(4, Number::SIGNED)),
            1 => TypeKind::Unknown,
            2..=8 => TypeKind::Typedef(any),
            9..=80 => TypeKind::Qualified(Qualifier::Const, before),
            _ => TypeKind::Typedef(before),
        };
        graph.add(Type::named("name", kind));
    }
}

proptest! {
    /// Long chains of typedefs are resolved together, with the same results as step by step, also
    /// in cycles and in children.
    #[test]
    fn long_chains_lead_where_their_steps_lead(
        shared in prop::collection::vec((any::<u8>(), any::<u32>()), 0..200),
        own in prop::collection::vec((any::<u8>(), any::<u32>()), 1..200),
    ) {
        let mut parent = Graph::new(8);
        let last = u32::try_from(shared.len()).unwrap();
        chains(&mut parent, &shared, last);
        let mut graph = Graph::with_parent(Arc::new(parent));
        chains(&mut graph, &own, last + 250);
        for round in 0..2 {
            for id in (0..graph.last() + 4).map(TypeId) {
                prop_assert_eq!(graph.resolve(id), behind(&graph, id), "{} in round {}", id.0, round);
            }
            // Changed types are resolved again.
            let number = TypeKind::Integer(Number::with_size(2, Number::SIGNED));
            graph.set(TypeId(graph.base() + 1), Type::named("other", number));
        }
    }
}

/// A chain of typedefs takes no quadratic time: this one would take minutes.
#[test]
fn chains_of_names_are_followed_once() {
    let mut graph = Graph::new(8);
    graph.add(Type::named(
        "int",
        TypeKind::Integer(Number::with_size(4, Number::SIGNED)),
    ));
    for _ in 0..200_000 {
        let before = TypeId(graph.last());
        graph.add(Type::named("name", TypeKind::Typedef(before)));
    }
    let sizes = (1..=graph.last()).map(|id| graph.size(TypeId(id)).zip(graph.align(TypeId(id))));
    assert!(sizes.into_iter().all(|size| size == Some((4, 4))));
    let (bytes, unsaid) = BtfWriter::default().write(&graph);
    assert!(unsaid.is_empty());
    let read = BtfReading::parse(&bytes, 8).unwrap().graph;
    let names = read
        .types()
        .filter(|(_, ty)| matches!(ty.kind, TypeKind::Typedef(_)));
    assert_eq!(names.count(), 200_000);
    graph.objects = vec![TypedSymbol::new("last", TypeId(graph.last()))];
    let interface = Interface {
        graph: &graph,
        exports: &Exports::with_types(&graph),
        private: None,
    };
    assert_eq!(diff(interface, interface).changes, []);
}

/// objdump writes all types reachable from each type of a chain. That takes the square of its
/// length, and for arrays the cube. Of long chains, less is shown. objdump never ends for cycles.
#[test]
fn dumps_of_long_ways_have_a_bounded_size() {
    let before = |kind: &dyn Fn(TypeId) -> TypeKind<'static>, graph: &mut Graph<'_>| {
        for _ in 0..2_500 {
            let before = TypeId(graph.last());
            let name = format!("name{}", before.0);
            graph.add(Type::named(name, kind(before)));
        }
    };
    let array = |of| TypeKind::Array {
        element: of,
        index: TypeId(1),
        count: 1,
    };
    let record = |of| TypeKind::Record {
        tag: Tag::Struct,
        size: 4,
        members: vec![Member {
            name: "member".into(),
            offset: 0,
            bits: None,
            ty: of,
        }],
    };
    let parameter = |ty| Parameter {
        name: "".into(),
        ty,
    };
    let taker = |of| TypeKind::Function {
        returns: TypeId(1),
        parameters: vec![parameter(of), parameter(of)],
        is_variadic: false,
    };
    let circle = |graph: &mut Graph<'_>| {
        let to = TypeId(graph.last() + 2_500);
        graph.add(Type::unnamed(TypeKind::Pointer(to)));
        before(&TypeKind::Pointer, graph);
    };
    let itself = |graph: &mut Graph<'_>| {
        let own = TypeId(graph.last() + 1);
        let takes = TypeKind::Function {
            returns: TypeId(1),
            parameters: vec![parameter(own), parameter(own)],
            is_variadic: false,
        };
        graph.add(Type::unnamed(takes));
    };
    type Fill<'f> = &'f dyn Fn(&mut Graph<'_>);
    let fill: [(&str, Fill<'_>); 7] = [
        ("names", &(|graph| before(&TypeKind::Typedef, graph))),
        ("pointers", &(|graph| before(&TypeKind::Pointer, graph))),
        ("arrays", &(|graph| before(&array, graph))),
        ("structures", &(|graph| before(&record, graph))),
        ("takers", &(|graph| before(&taker, graph))),
        ("circle", &circle),
        ("itself", &itself),
    ];
    for (what, fill) in fill {
        let mut graph = Graph::new(8);
        let number = Number::with_size(4, Number::SIGNED);
        graph.add(Type::named("int", TypeKind::Integer(number)));
        fill(&mut graph);
        let linked = link(&[LinkUnit::new(Arc::new(graph))], LinkOptions::default());
        let bytes = CtfWriter::default().write(&linked);
        let section = CtfSection::open(&bytes, ElfContext::BARE_64).unwrap();
        let [unit] = &*section.parents() else {
            panic!("{what}");
        };
        let dump = ObjdumpText {
            dict: unit.dict,
            reading: &unit.reading,
        };
        let length = dump.to_string().len();
        // 64 steps for each type, and the budget beyond.
        assert!(length < 2_500 * 64 * 200 + (1 << 26), "{what}: {length}");
    }
}

/// Runs all operations on CTF.
fn use_all(bytes: &[u8]) {
    let Ok(section) = CtfSection::open(bytes, ElfContext::BARE_64) else {
        return;
    };
    let parents = section.parents();
    let children: Vec<_> = section.children(&parents).flatten().collect();
    let mut units = Vec::new();
    let all: Vec<_> = section.units().unwrap_or_default();
    // Ids of children change if their parent has more types.
    let mut others: Vec<_> = section.units().unwrap_or_default();
    reverse_arrays(&mut others, |_| true);
    for (unit, turned) in all.iter().zip(&others) {
        let (graph, turned) = (&unit.reading.graph, &turned.reading.graph);
        let pairs = graph.types().zip(turned.types());
        for ((id, ty), (other, _)) in pairs {
            assert_eq!(turned.size(other), graph.size(id));
            let _ = turned.declare(other, &ty.name);
        }
    }
    for unit in parents.iter().chain(&children) {
        let graph = &unit.reading.graph;
        for (id, ty) in graph.types() {
            let _ = (
                graph.size(id),
                graph.align(id),
                graph.layout(id),
                graph.resolve(id),
            );
            let _ = (graph.declare(id, &ty.name), graph.define(id).to_string());
            let _ = graph.agrees(id, graph, id, Agreement::Abi);
        }
        let _ = graph.with_reversed_arrays();
        let dump = ObjdumpText {
            dict: unit.dict,
            reading: &unit.reading,
        };
        let _ = dump.to_string();
        units.push(LinkUnit::new(Arc::clone(graph)));
    }
    let linked = link(&units, LinkOptions::default());
    let again = CtfWriter::default().write(&linked);
    CtfSection::open(&again, ElfContext::BARE_64).unwrap();
}

fn archive() -> Vec<u8> {
    let folder = CtfFolder::new();
    folder.compile(&["kinds", "one", "two", "three"]);
    let objects: Vec<_> = ["kinds", "one", "two", "three"]
        .iter()
        .map(|name| folder.ctf(&format!("{name}.o")))
        .collect();
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = sections
        .iter()
        .flat_map(CtfSection::parents)
        .map(|unit| LinkUnit::new(unit.reading.graph));
    let linked = link(&units.collect::<Vec<_>>(), LinkOptions::default());
    CtfWriter {
        compress: Compress::No,
        ..CtfWriter::default()
    }
    .write(&linked)
}

#[test]
fn an_archive_that_is_cut_off_or_changed_anywhere_is_read_as_far_as_it_goes() {
    let bytes = archive();
    for end in (0..bytes.len()).step_by(13) {
        use_all(&bytes[..end]);
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        // The whole output is large; a part of the cases suffices.
        if at % 11 == 0 || at < 400 {
            use_all(&bytes);
        }
    }
}

/// A dictionary of these types, from the numbers of each.
fn dict(types: &[u32]) -> Vec<u8> {
    let size = u32::try_from(types.len()).unwrap() * 4;
    let header = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, size, 1];
    let mut bytes = vec![0xf2, 0xdf, 4, 2];
    bytes.extend(
        header
            .iter()
            .chain(types)
            .flat_map(|word| word.to_le_bytes()),
    );
    bytes.push(0);
    bytes
}

const ROOT: u32 = 1 << 25;

fn problems(bytes: &[u8]) -> Vec<CtfError> {
    let section = CtfSection::open(bytes, ElfContext::BARE_64).unwrap();
    section
        .parents()
        .into_iter()
        .flat_map(|unit| unit.reading.problems)
        .collect()
}

#[test]
fn errors_say_where_and_what() {
    // A pointer to a missing type, behind a good one.
    let pointer = 3 << 26 | ROOT;
    let found = problems(&dict(&[0, pointer, 2, 0, pointer, 77]));
    assert_eq!(
        found,
        [CtfError::Reference {
            what: "type",
            offset: 64,
            id: 77
        }]
    );
    let found = problems(&dict(&[0, pointer, 1, 0, 20 << 26, 0]));
    assert_eq!(
        found,
        [CtfError::Kind {
            id: 2,
            offset: 64,
            kind: 20
        }]
    );
    // A structure with more members than bytes.
    let found = problems(&dict(&[0, 6 << 26 | ROOT | 0xff_ffff, 8]));
    let needed = 12 + 12 * 0xff_ffff;
    assert_eq!(
        found,
        [CtfError::Truncated {
            what: "type",
            offset: 52,
            needed,
            end: 64
        }]
    );
    // A name behind the end of the table, and one in a missing table.
    let mut bytes = dict(&[9, pointer, 0, 1 << 31 | 5, pointer, 0]);
    bytes[3] |= 8; // the flag of names in .dynstr
    let found = problems(&bytes);
    let name = |offset, name, table, size| CtfError::Name {
        what: "type",
        offset,
        name,
        table,
        size,
    };
    assert_eq!(
        found,
        [name(52, 9, "dictionary's", 1), name(64, 5, "ELF file's", 0)]
    );
}

/// Names in `.strtab` and an unlabelled order of `.symtab` may have changed since they were written.
#[test]
fn what_depends_on_symtab_is_refused() {
    let int = [0, 1 << 26 | ROOT, 4, 1 << 24 | 32];
    let mut named = int;
    named[0] = 1 << 31 | 1;
    let strtab = b"\0int\0first\0";
    let symbol = [5, 0, 0, 0, 0x12, 0, 1, 0].into_iter().chain([0; 16]); // a function
    let symtab: Vec<u8> = symbol.collect();
    let elf = ElfContext {
        strings: ElfStrings {
            strtab,
            ..ElfStrings::default()
        },
        symtab: &symtab,
        ..ElfContext::BARE_64
    };
    let bytes = dict(&named);
    let section = CtfSection::open(&bytes, elf).unwrap();
    let (units, problems) = section.read();
    let refused = CtfError::StrtabNames { offset: 0 };
    assert_eq!((units.len(), problems), (0, vec![refused.clone()]));
    assert_eq!(section.units().unwrap_err(), refused);
    // The types of functions are between the header and the types: one, of the first function.
    let mut bytes = dict(&int);
    bytes.splice(52..52, 1u32.to_le_bytes());
    for field in 6..=10 {
        bytes[4 + field * 4] += 4;
    }
    for symtab in [&*symtab, &[]] {
        let section = CtfSection::open(&bytes, ElfContext { symtab, ..elf }).unwrap();
        let (units, problems) = section.read();
        assert_eq!(problems, []);
        let reading = &units[0].reading;
        let order = CtfError::SymbolOrder {
            what: "function symbol",
            offset: 0,
            table: ".symtab",
            reason: "which may have changed since",
        };
        assert_eq!(reading.problems, [order]);
        assert_eq!(reading.graph.functions, []);
        assert_eq!(reading.graph.size(TypeId(1)), Some(4));
    }
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let open = |bytes: &[u8]| CtfSection::open(bytes, ElfContext::BARE_64).unwrap_err();
    let mut good = dict(&[]);
    assert!(matches!(
        open(&good[..40]),
        CtfError::Truncated {
            what: "CTF header",
            ..
        }
    ));
    for (bytes, found) in [(&b"\x7fELF0000"[..], 0x457f), (b"abc", 0x6261), (b"", 0)] {
        assert_eq!(open(bytes), CtfError::Magic { offset: 0, found });
    }
    good[2] = 9;
    assert_eq!(
        open(&good),
        CtfError::Version {
            offset: 2,
            version: 9
        }
    );
    let mut crossed = dict(&[]);
    crossed[16..20].copy_from_slice(&8u32.to_le_bytes());
    assert!(matches!(open(&crossed), CtfError::Part { offset: 0, .. }));
}

#[test]
fn a_bomb_is_refused_before_memory_is_taken() {
    let mut bomb = dict(&[]);
    bomb[3] = 1 | 2;
    bomb[44..48].copy_from_slice(&0xf000_0000u32.to_le_bytes());
    let error = CtfSection::open(&bomb, ElfContext::BARE_64).unwrap_err();
    assert!(
        matches!(error, CtfError::Part { .. } | CtfError::Bomb { .. }),
        "{error}"
    );
    bomb[40..44].copy_from_slice(&0u32.to_le_bytes());
    let error = CtfSection::open(&bomb, ElfContext::BARE_64).unwrap_err();
    assert_eq!(
        error,
        CtfError::Bomb {
            offset: 52,
            compressed: 1,
            announced: 0xf000_0001
        }
    );
}

#[test]
fn a_child_needs_its_parent() {
    let mut child = dict(&[]);
    child[8..12].copy_from_slice(&1u32.to_le_bytes());
    child[48..52].copy_from_slice(&9u32.to_le_bytes());
    child.extend(b".parent\0");
    let section = CtfSection::open(&child, ElfContext::BARE_64).unwrap();
    let parents = section.parents();
    assert!(parents.is_empty());
    let error = section.children(&parents).next().unwrap().unwrap_err();
    assert_eq!(
        error,
        CtfError::NoParent {
            offset: 0,
            parent: ".parent".to_owned()
        }
    );
}

#[test]
fn members_of_an_archive_may_not_lie_over_each_other() {
    let dict = dict(&[]);
    let mut bytes: Vec<u8> = [ARCHIVE_MAGIC, 2, 2, 40 + 32, 40 + 32 + 8]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    bytes.extend([0u64, 0, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    bytes.extend(b".ctf\0\0\0\0");
    bytes.extend((dict.len() as u64).to_le_bytes());
    bytes.extend(&dict);
    let section = CtfSection::open(&bytes, ElfContext::BARE_64).unwrap();
    assert_eq!(section.dicts().count(), 1);
    assert_eq!(
        section.problems,
        [CtfError::Overlap {
            index: 1,
            offset: 80,
            other: 80
        }]
    );
    // A million members in a few bytes.
    bytes[16..24].copy_from_slice(&1_000_000u64.to_le_bytes());
    let error = CtfSection::open(&bytes, ElfContext::BARE_64).unwrap_err();
    assert!(matches!(
        error,
        CtfError::Truncated {
            what: "table of an archive",
            ..
        }
    ));
}

#[test]
fn circles_end() {
    let (typedef, array, pointer) = (10 << 26 | ROOT, 4 << 26 | ROOT, 3 << 26 | ROOT);
    for types in [
        vec![0, typedef, 1],
        vec![0, typedef, 2, 0, typedef, 1],
        vec![0, array, 0, 1, 1, 9],
        vec![0, pointer, 2, 0, 12 << 26 | ROOT, 1],
        // A structure that contains itself.
        vec![0, 6 << 26 | ROOT | 1, 8, 0, 0, 1],
        // A structure with three members of its own type, and a union of it.
        vec![
            0,
            6 << 26 | ROOT | 3,
            8,
            0,
            0,
            1,
            0,
            0,
            2,
            0,
            0,
            2,
            0,
            7 << 26 | ROOT | 3,
            8,
            0,
            0,
            1,
            0,
            0,
            1,
            0,
            0,
            2,
        ],
        // A function with two parameters of its own type.
        vec![0, 5 << 26 | ROOT | 2, 1, 1, 1],
        // A slice of itself.
        vec![0, 14 << 26 | ROOT, 1, 1, 0],
    ] {
        use_all(&dict(&types));
    }
    let bytes = dict(&[0, typedef, 2, 0, typedef, 1]);
    let section = CtfSection::open(&bytes, ElfContext::BARE_64).unwrap();
    let parents = section.parents();
    assert_eq!(parents[0].reading.graph.resolve(TypeId(1)), None);
}

/// Versions 1 and 2, by their definition since no producer is available: a pointer to an integer,
/// in each form.
#[test]
fn older_versions_say_the_same() {
    let strings = b"\0int\0";
    let header = |version: u8, types: u32| {
        let mut bytes = vec![0xf2, 0xdf, version, 0];
        let fields = [
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            types,
            u32::try_from(strings.len()).unwrap(),
        ];
        bytes.extend(fields.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    };
    let signed = 1 << 24 | 32u32;
    let mut one = header(1, 20);
    one.extend(1u32.to_le_bytes());
    one.extend((1u16 << 11 | 1 << 10).to_le_bytes());
    one.extend(4u16.to_le_bytes());
    one.extend(signed.to_le_bytes());
    one.extend(0u32.to_le_bytes());
    one.extend((3u16 << 11 | 1 << 10).to_le_bytes());
    one.extend(1u16.to_le_bytes());
    one.extend(strings);
    let mut two = header(3, 28);
    two.extend(
        [1, 1 << 26 | ROOT, 4, signed, 0, 3 << 26 | ROOT, 1]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    two.extend(strings);
    for bytes in [one, two] {
        let section = CtfSection::open(&bytes, ElfContext::BARE_64).unwrap();
        let parents = section.parents();
        let reading = &parents[0].reading;
        assert!(reading.problems.is_empty(), "{:?}", reading.problems);
        assert_eq!(reading.graph.declare(TypeId(2), "p"), "int *p");
        assert_eq!(reading.graph.size(TypeId(1)), Some(4));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn arbitrary_types_are_read(words in proptest::collection::vec(prop_oneof![0u32..20, any::<u32>(), (0u32..16, 0u32..4).prop_map(|(kind, count)| kind << 26 | ROOT | count)], 0..60)) {
        use_all(&dict(&words));
    }

    #[test]
    fn written_ctf_reads_back(graph in crate::common::graphs::graph()) {
        for endian in [unspool_c_types::Endian::Little, unspool_c_types::Endian::Big] {
            for compress in [Compress::No, Compress::SmallestUpTo(0), Compress::SmallestUpTo(usize::MAX)] {
                let bytes = CtfWriter { endian, compress, ..CtfWriter::default() }.dict(&graph);
                let section = CtfSection::open(&bytes, ElfContext::BARE_64).unwrap();
                let parents = section.parents();
                let read = &parents[0].reading;
                prop_assert_eq!(&read.problems, &Vec::<CtfError>::new());
                let types = |graph: &Graph<'_>| graph.types().map(|(_, ty)| format!("{ty:?}")).collect::<Vec<_>>();
                prop_assert_eq!(types(&read.graph), types(&graph));
                prop_assert_eq!(&read.graph.functions, &graph.functions);
                prop_assert_eq!(&read.graph.variables, &graph.variables);
                let is_kept = read.graph.types().all(|(id, _)| graph.agrees(id, &read.graph, id, Agreement::Same).is_ok());
                prop_assert!(is_kept);
            }
        }
    }
}

/// A member that is a bit-field itself, as in BTF and DWARF, becomes a slice in CTF.
#[test]
fn bit_fields_become_slices() {
    let mut graph = Graph::new(8);
    let int = graph.add(unspool_c_types::Type::named(
        "int",
        TypeKind::Integer(unspool_c_types::Number::with_size(4, 1)),
    ));
    let member = |name: &'static str, offset, bits| unspool_c_types::Member {
        name: name.into(),
        ty: int,
        offset,
        bits,
    };
    let members = vec![
        member("a", 0, Some(3)),
        member("b", 3, Some(9)),
        member("c", 32, None),
    ];
    graph.add(unspool_c_types::Type::named(
        "s",
        TypeKind::Record {
            tag: unspool_c_types::Tag::Struct,
            size: 8,
            members,
        },
    ));
    let bytes = CtfWriter::default().dict(&graph);
    let section = CtfSection::open(&bytes, ElfContext::BARE_64).unwrap();
    let parents = section.parents();
    let layout = parents[0].reading.graph.layout(TypeId(2)).unwrap();
    let places: Vec<_> = layout
        .members
        .iter()
        .map(|member| (member.offset, member.bits, member.is_bit_field))
        .collect();
    assert_eq!(
        places,
        [
            (0, Some(3), true),
            (3, Some(9), true),
            (32, Some(32), false)
        ]
    );
}

/// A ring of pointers of some length, and the interface of its first.
fn ring(length: u32) -> Graph<'static> {
    let mut graph = Graph::new(8);
    for nth in 1..=length {
        graph.add(Type::unnamed(TypeKind::Pointer(TypeId(nth % length + 1))));
    }
    graph.objects = vec![TypedSymbol::new("first", TypeId(1))];
    graph
}

fn difference(old: &Graph<'_>, new: &Graph<'_>) -> InterfaceDiff {
    let exports = [old, new].map(Exports::with_types);
    let interface = |graph, exports| Interface {
        graph,
        exports,
        private: None,
    };
    diff(interface(old, &exports[0]), interface(new, &exports[1]))
}

/// Two rings have as many pairs as the product of their lengths: here 6,399,920,000.
#[test]
fn a_comparison_has_a_bounded_number_of_pairs() {
    let found = difference(&ring(80_000), &ring(79_999));
    assert!(found.is_cut && !found.is_complete());
    let found = difference(&ring(80_000), &ring(80_000));
    assert!(!found.is_cut && found.is_complete() && found.changes.is_empty());
}

/// A chain of structures that all changed has paths of 100,000 steps; the names that lead to them
/// are shared.
#[test]
fn texts_of_changes_have_a_bounded_size() {
    const LENGTH: u32 = 100_000;
    let chain = |size| {
        let mut graph = Graph::new(8);
        for nth in 0..LENGTH {
            let member = Member {
                name: "a_long_name_of_the_next_one".into(),
                offset: 0,
                bits: None,
                ty: TypeId(2 * nth + 2),
            };
            let record = TypeKind::Record {
                tag: Tag::Struct,
                size,
                members: vec![member],
            };
            graph.add(Type::named(format!("s{nth}"), record));
            let next = (2 * nth + 3) % (2 * LENGTH);
            graph.add(Type::unnamed(TypeKind::Pointer(TypeId(next))));
        }
        let names = (0..LENGTH).map(|nth| TypedSymbol::new(format!("e{nth}"), TypeId(2 * nth + 1)));
        graph.objects = names.collect();
        graph
    };
    let found = difference(&chain(8), &chain(16));
    assert_eq!(found.changes.len(), LENGTH as usize);
    for change in &found.changes {
        assert!(
            change.path.len() < 1100 && change.subject.len() < 1100,
            "{change:?}"
        );
        assert_eq!(change.exports.len(), LENGTH as usize);
    }
    let chain = |size| {
        let mut graph = chain(size);
        graph.objects.truncate(1);
        graph
    };
    let found = difference(&chain(8), &chain(16));
    let last = found.changes.last().unwrap();
    assert!(last.path.starts_with("e0….a_long_name"), "{}", last.path);
    assert!(last.path.len() < 1100, "{}", last.path);
}

/// Names may overlap: each type can have nearly all of the strings as its name.
#[test]
fn names_are_cut() {
    for filler in [b'a', 0xff] {
        let mut strings = vec![filler; 1 << 20];
        strings[0] = 0;
        strings.push(0);
        let count: u32 = 50_000;
        let words = [0x0001_eb9f, 24, 0, count * 12, count * 12, (1 << 20) + 1];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        for nth in 0..count {
            // A forward declaration of a structure.
            let record = [nth + 1, 7 << 24, 0];
            bytes.extend(record.into_iter().flat_map(u32::to_le_bytes));
        }
        bytes.extend(strings);
        let graph = BtfReading::parse(&bytes, 8).unwrap().graph;
        let size: usize = graph.types().map(|(_, ty)| ty.name.len()).sum();
        let is_borrowed = |ty: &Type<'_>| matches!(ty.name, std::borrow::Cow::Borrowed(_));
        let copied = graph.types().filter(|(_, ty)| !is_borrowed(ty));
        let copied: usize = copied.map(|(_, ty)| ty.name.len()).sum();
        assert!(size > 10 << 20 && copied < 50 << 20, "{size} {copied}");
    }
}
