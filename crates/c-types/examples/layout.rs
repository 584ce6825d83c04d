//! A C type written as BTF, read again, and its holes: `cargo run -p unspool-c-types --example
//! layout`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use unspool_c_types::{BtfReading, BtfWriter, Endian, Graph, Member, Number, Tag, Type, TypeKind};

fn main() -> Result<(), Box<dyn Error>> {
    const POINTER_BYTES: u64 = 8;
    let mut graph = Graph::new(POINTER_BYTES);
    let char = Number::with_size(1, Number::SIGNED | Number::CHAR);
    let char = graph.add(Type::named("char", TypeKind::Integer(char)));
    let long = Number::with_size(8, Number::SIGNED);
    let long = graph.add(Type::named("long", TypeKind::Integer(long)));
    let member = |name: &'static str, ty, offset| Member {
        name: name.into(),
        ty,
        offset, // in bits
        bits: None,
    };
    let members = vec![member("tag", char, 0), member("value", long, 64)];
    let tag = Tag::Struct;
    let size = 16;
    let record = TypeKind::Record { tag, size, members };
    graph.add(Type::named("tagged", record));

    let endian = Endian::Little;
    let (bytes, _unsaid) = BtfWriter { endian }.write(&graph);
    let again = BtfReading::parse(&bytes, POINTER_BYTES)?.graph;
    for (id, _) in again.named("tagged") {
        println!("{}", again.define(id));
    }
    Ok(())
}
