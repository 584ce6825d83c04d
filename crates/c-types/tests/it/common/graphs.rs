//! Generated graphs.

use proptest::prelude::*;
use unspool_c_types::{
    Enumerator, Graph, Member, Number, Parameter, Qualifier, Tag, Type, TypeId, TypeKind,
    TypedSymbol,
};

fn name() -> impl Strategy<Value = String> {
    "[a-c]{1,3}"
}

fn tag() -> impl Strategy<Value = Tag> {
    prop_oneof![Just(Tag::Struct), Just(Tag::Union), Just(Tag::Enum)]
}

/// A type with references among the first `count`.
fn kind(count: u32) -> impl Strategy<Value = TypeKind<'static>> {
    let id = (0..=count).prop_map(TypeId);
    let qualifier = prop_oneof![
        Just(Qualifier::Const),
        Just(Qualifier::Volatile),
        Just(Qualifier::Restrict)
    ];
    let member = (name(), id.clone(), any::<u32>()).prop_map(|(name, ty, offset)| Member {
        name: name.into(),
        ty,
        offset: u64::from(offset),
        bits: None,
    });
    let parameter = (1..=count).prop_map(|id| Parameter {
        name: "".into(),
        ty: TypeId(id),
    });
    let enumerator = (name(), any::<i32>()).prop_map(|(name, value)| Enumerator {
        name: name.into(),
        value: i128::from(value),
    });
    let number = (0u64..1 << 33, any::<u8>(), any::<u8>(), any::<u16>());
    let number = number.prop_map(|(size, format, offset, bits)| Number {
        size,
        format,
        offset,
        bits,
    });
    prop_oneof![
        number.clone().prop_map(TypeKind::Integer),
        number.prop_map(TypeKind::Float),
        id.clone().prop_map(TypeKind::Pointer),
        id.clone().prop_map(TypeKind::Typedef),
        (qualifier, id.clone()).prop_map(|(qualifier, id)| TypeKind::Qualified(qualifier, id)),
        tag().prop_map(TypeKind::Forward),
        (id.clone(), id.clone(), any::<u32>()).prop_map(|(element, index, count)| {
            TypeKind::Array {
                element,
                index,
                count: u64::from(count),
            }
        }),
        (
            id.clone(),
            proptest::collection::vec(parameter, 0..4),
            any::<bool>()
        )
            .prop_map(|(returns, parameters, is_variadic)| TypeKind::Function {
                returns,
                parameters,
                is_variadic
            }),
        (
            any::<bool>(),
            0u64..1 << 34,
            proptest::collection::vec(member, 0..4)
        )
            .prop_map(|(is_union, size, members)| TypeKind::Record {
                tag: if is_union { Tag::Union } else { Tag::Struct },
                size,
                members
            }),
        (0u64..9, proptest::collection::vec(enumerator, 0..4)).prop_map(|(size, enumerators)| {
            TypeKind::Enum {
                size,
                is_signed: Enumerator::any_negative(&enumerators),
                enumerators,
            }
        }),
        (id, 0u64..9, any::<u16>(), any::<u16>()).prop_map(|(of, size, offset, bits)| {
            TypeKind::Slice {
                of,
                size,
                offset,
                bits,
            }
        }),
    ]
}

/// A graph with types of every kind, functions and variables.
pub(crate) fn graph() -> impl Strategy<Value = Graph<'static>> {
    (1u32..12).prop_flat_map(|count| {
        let ty = (name(), any::<bool>(), kind(count));
        let size = usize::try_from(count).unwrap();
        let types = proptest::collection::vec(ty, size);
        let names = || proptest::collection::btree_map("[a-z]{1,4}", 1..=count, 0..4);
        (types, names(), names()).prop_map(|(types, functions, variables)| {
            let mut graph = Graph::new(8);
            for (name, is_hidden, kind) in types {
                let name = name.into();
                graph.add(Type {
                    name,
                    is_hidden,
                    kind,
                });
            }
            let symbol = |(name, id): (String, u32)| TypedSymbol::new(name, TypeId(id));
            graph.functions = functions.into_iter().map(symbol).collect();
            graph.variables = variables.into_iter().map(symbol).collect();
            graph
        })
    })
}
