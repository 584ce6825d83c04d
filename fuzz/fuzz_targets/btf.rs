//! Any bytes as BTF: nothing panics, everything that is read can be shown and merged, and what is written of it is read again without a problem and
//! says of each function what it said.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_c_types::{BtfReading, BtfWriter, Graph};

fuzz_target!(|data: &[u8]| {
    let Ok(read) = BtfReading::parse(data, 8) else {
        return;
    };
    for (id, ty) in read.graph.types() {
        let _ = (
            read.graph.size(id),
            read.graph.layout(id),
            read.graph.declare(id, &ty.name),
        );
    }
    let merged = Graph::merged(&[&read.graph]);
    assert!(merged.last() <= read.graph.last());
    let endian = read.endian;
    let (bytes, omissions) = BtfWriter { endian }.write(&merged);
    let again = BtfReading::parse(&bytes, 8).expect("what is written is BTF");
    assert_eq!(again.problems, []);
    for function in &merged.functions {
        let is_there = again
            .graph
            .functions
            .iter()
            .any(|other| other.name == function.name);
        assert!(
            is_there
                || omissions
                    .iter()
                    .any(|omission| omission.what == function.name)
        );
    }
});
