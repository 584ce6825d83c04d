//! A C type written as BTF, read again, and its holes: `cargo run -p unspool-ctf --example layout`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use unspool_ctf::{BtfReading, BtfWriter, Endian, Graph, Kind, Member, Number, Tag, Type};

fn main() -> Result<(), Box<dyn Error>> {
    const POINTER_BYTES: u64 = 8;
    let mut graph = Graph::new(POINTER_BYTES);
    let char = Number::of_bytes(1, Number::SIGNED | Number::CHAR);
    let char = graph.add(Type::named("char", Kind::Integer(char)));
    let long = Number::of_bytes(8, Number::SIGNED);
    let long = graph.add(Type::named("long", Kind::Integer(long)));
    let member = |name: &'static str, ty, offset| Member {
        name: name.into(),
        ty,
        offset, // in bits
        bits: None,
    };
    let members = vec![member("tag", char, 0), member("value", long, 64)];
    let tag = Tag::Struct;
    let size = 16;
    let record = Kind::Record { tag, size, members };
    graph.add(Type::named("tagged", record));

    let endian = Endian::Little;
    let (bytes, _unsaid) = BtfWriter { endian }.write(&graph);
    let again = BtfReading::of(&bytes, POINTER_BYTES)?.graph;
    for (id, _) in again.named("tagged") {
        println!("{}", again.define(id));
    }
    Ok(())
}
