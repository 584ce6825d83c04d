//! BTF is read back as written, and broken BTF yields errors.

use crate::common::graphs;
use proptest::prelude::*;
use unspool_c_types::{
    Agreement, BtfError, BtfReading, BtfWriter, DataSection, Declaration, DeclarationTag, Endian,
    Enumerator, Graph, Linkage, Member, Number, Parameter, Tag, Type, TypeId, TypeKind,
    TypedSymbol,
};

fn written(graph: &Graph<'_>, endian: Endian) -> Vec<u8> {
    BtfWriter { endian }.write(graph).0
}

/// A graph with BTF's additional facts: names of parameters, values of 64 bits, bit-fields without
/// slices.
fn graph() -> Graph<'static> {
    let mut graph = Graph::new(8);
    let int = Number::with_size(4, Number::SIGNED);
    graph.add(Type::named("int", TypeKind::Integer(int)));
    let field = |name: &'static str, offset, bits| Member {
        name: name.into(),
        ty: TypeId(1),
        offset,
        bits,
    };
    let members = vec![
        field("a", 0, Some(3)),
        field("b", 3, Some(5)),
        field("c", 32, None),
    ];
    let fields = TypeKind::Record {
        tag: Tag::Struct,
        size: 8,
        members,
    };
    graph.add(Type::named("fields", fields));
    graph.add(Type::unnamed(TypeKind::Pointer(TypeId(2))));
    let value = |name: &'static str, value| Enumerator {
        name: name.into(),
        value,
    };
    let signed = vec![value("SMALL", -1), value("LARGE", 1 << 40)];
    let unsigned = vec![value("TOP", 1 << 63), value("ALL", u64::MAX.into())];
    let narrow = vec![value("NONE", 0)];
    for (name, enumerators) in [("signed", signed), ("unsigned", unsigned), ("zero", narrow)] {
        let kind = TypeKind::Enum {
            size: 8,
            is_signed: name == "signed",
            enumerators,
        };
        graph.add(Type::named(name, kind));
    }
    let parameter = |name: &'static str, ty| Parameter {
        name: name.into(),
        ty: TypeId(ty),
    };
    graph.add(Type::unnamed(TypeKind::Function {
        returns: TypeId(1),
        parameters: vec![parameter("fields", 3), parameter("wide", 4)],
        is_variadic: true,
    }));
    let tag = TypeKind::TypeTag {
        of: TypeId(1),
        is_attribute: false,
    };
    let tag = graph.add(Type::named("user", tag));
    graph.add(Type::unnamed(TypeKind::Pointer(tag)));
    let name = |name: &'static str, ty, linkage| TypedSymbol {
        name: name.into(),
        ty: TypeId(ty),
        linkage: Some(linkage),
    };
    graph.functions = vec![
        name("f", 7, Linkage::Global),
        name("g", 7, Linkage::Static),
        name("h", 7, Linkage::Extern),
    ];
    graph.objects = vec![
        name("data", 2, Linkage::Global),
        name("own", 9, Linkage::Static),
    ];
    let tag = |of, component, is_attribute| DeclarationTag {
        name: "checked".into(),
        of,
        component,
        is_attribute,
    };
    graph.declaration_tags = vec![
        tag(Declaration::Type(TypeId(2)), Some(1), false),
        tag(Declaration::Function("g".into()), Some(0), true),
        tag(Declaration::Object("own".into()), None, false),
    ];
    graph.sections = vec![DataSection {
        name: ".data".into(),
        size: 16,
        entries: vec![(Declaration::Object("data".into()), 8, 8)],
    }];
    graph
}

#[test]
fn btf_specific_data_reads_back() {
    let graph = graph();
    for endian in [Endian::Little, Endian::Big] {
        let bytes = written(&graph, endian);
        let again = BtfReading::parse(&bytes, 8).unwrap();
        assert_eq!((again.problems, again.endian), (vec![], endian));
        assert_eq!(again.graph.functions, graph.functions);
        assert_eq!(again.graph.objects, graph.objects);
        assert_eq!(again.graph.declaration_tags, graph.declaration_tags);
        assert_eq!(again.graph.sections, graph.sections);
        for (id, ty) in graph.types() {
            assert_eq!(again.graph.get(id), Some(ty));
        }
    }
}

#[test]
fn every_byte_may_be_missing_or_wrong() {
    let bytes = written(&graph(), Endian::Little);
    for end in 0..bytes.len() {
        let read = BtfReading::parse(&bytes[..end], 8);
        assert!(read.is_err(), "{end} bytes are not all of it");
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut broken = bytes.clone();
            broken[at] = value;
            if let Ok(read) = BtfReading::parse(&broken, 8) {
                for (id, ty) in read.graph.types() {
                    let _ = (
                        read.graph.size(id),
                        read.graph.declare(id, &ty.name),
                        read.graph.layout(id),
                    );
                }
                let _ = written(&Graph::merged(&[&read.graph]), Endian::Little);
            }
        }
    }
}

/// The types part of BTF from these numbers.
fn btf(words: &[u32]) -> Vec<u8> {
    let size = u32::try_from(words.len() * 4).unwrap();
    let header = [0x0001_eb9f, 24, 0, size, size, 1];
    let numbers = header.iter().chain(words);
    let mut bytes: Vec<u8> = numbers.flat_map(|word| word.to_le_bytes()).collect();
    bytes.push(0);
    bytes
}

#[test]
fn errors_name_place_and_reason() {
    let pointer = 2 << 24;
    let tag = 18 << 24;
    let of = |words: &[u32]| BtfReading::parse(&btf(words), 8).unwrap().problems;
    let reference = |from, offset, id, what| BtfError::Reference {
        from,
        offset,
        id,
        what,
    };
    assert_eq!(of(&[0, pointer, 9]), [reference(1, 24, 9, "not there")]);
    assert_eq!(of(&[0, pointer, 2, 0, tag, 2]), []);
    let func = 12 << 24;
    assert_eq!(
        of(&[0, pointer, 2, 0, func, 0]),
        [reference(1, 24, 2, "no type")]
    );
    let kind = BtfError::Kind {
        id: 2,
        offset: 36,
        kind: 21,
    };
    assert_eq!(of(&[0, pointer, 0, 0, 21 << 24, 0]), [kind]);
    let name = BtfError::Name {
        id: 1,
        offset: 24,
        name: 7,
        size: 1,
    };
    assert_eq!(of(&[7, 16 << 24, 8]), [name]);
    let cut = BtfError::Truncated {
        what: "type",
        offset: 24,
        needed: 12 + 12 * 3,
        end: 36,
    };
    assert_eq!(of(&[0, 4 << 24 | 3, 8]), [cut]);
    let wrong = BtfReading::parse(b"\x7fELF", 8).unwrap_err();
    assert_eq!(wrong, BtfError::Magic { found: 0x457f });
    assert_eq!(
        BtfReading::parse(&[0x9f, 0xeb, 2], 8).unwrap_err(),
        BtfError::Version { version: 2 }
    );
}

/// A typedef of itself and a structure in itself can be written.
#[test]
fn circles_are_no_problem() {
    let mut graph = Graph::new(8);
    graph.add(Type::named("one", TypeKind::Typedef(TypeId(2))));
    graph.add(Type::named("two", TypeKind::Typedef(TypeId(1))));
    let members = vec![Member {
        name: "own".into(),
        ty: TypeId(3),
        offset: 0,
        bits: None,
    }];
    graph.add(Type::named(
        "own",
        TypeKind::Record {
            tag: Tag::Struct,
            size: 8,
            members,
        },
    ));
    // A function that returns an array of itself.
    graph.add(Type::unnamed(TypeKind::Function {
        returns: TypeId(5),
        parameters: vec![],
        is_variadic: false,
    }));
    graph.add(Type::unnamed(TypeKind::Array {
        element: TypeId(4),
        index: TypeId::NONE,
        count: 1,
    }));
    graph.functions = vec![TypedSymbol::new("returned", TypeId(4))];
    let merged = Graph::merged(&[&graph, &graph]);
    assert_eq!(merged.last(), 5);
    let (bytes, unsaid) = BtfWriter::default().write(&merged);
    assert_eq!(unsaid.len(), 3, "{unsaid:?}");
    assert_eq!(BtfReading::parse(&bytes, 8).unwrap().problems, []);
}

proptest! {
    /// A graph is read back unchanged, except for reported declarations.
    #[test]
    fn written_btf_reads_back(graph in graphs::graph(), is_big in any::<bool>()) {
        let endian = if is_big { Endian::Big } else { Endian::Little };
        let (bytes, unsaid) = BtfWriter { endian }.write(&graph);
        let again = BtfReading::parse(&bytes, 8).unwrap();
        prop_assert_eq!(&again.problems, &[]);
        let is_whole = |id| {
            let mut is_whole = true;
            graph.walk([id], |id| is_whole &= is_sayable(&graph, id));
            is_whole
        };
        for symbol in &graph.functions {
            let found = again.graph.functions.iter().find(|other| other.name == symbol.name);
            let Some(found) = found else {
                prop_assert!(unsaid.iter().any(|unsaid| unsaid.what == symbol.name));
                continue;
            };
            if unsaid.is_empty() && is_whole(symbol.ty) {
                let agreed = graph.agrees(symbol.ty, &again.graph, found.ty, Agreement::Same);
                prop_assert_eq!(agreed, Ok(()));
            }
        }
        for unsaid in unsaid {
            prop_assert!(!unsaid.reason.is_empty() && !unsaid.what.is_empty());
        }
    }
}

/// Whether BTF represents a type of the generated graphs exactly.
fn is_sayable(graph: &Graph<'_>, id: TypeId) -> bool {
    let Some(ty) = graph.get(id) else {
        return false;
    };
    // BTF has `void` for an unrepresented type.
    let mut is_represented = true;
    ty.each_reference(|id| is_represented &= id != TypeId::NONE);
    let is_exact = match &ty.kind {
        TypeKind::Integer(_) | TypeKind::Float(_) | TypeKind::Slice { .. } | TypeKind::Unknown => {
            false
        }
        TypeKind::Array { element, .. } => graph.size(*element).is_some(),
        TypeKind::Record { size, .. } => u32::try_from(*size).is_ok(),
        TypeKind::Enum { enumerators, .. } => !enumerators.is_empty(),
        TypeKind::Typedef(_) | TypeKind::Qualified(..) => graph.resolve(id).is_some(),
        _ => true,
    };
    is_represented && is_exact
}
