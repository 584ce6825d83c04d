//! Any bytes as CTF: nothing panics, everything that is read can be shown and compared, and what is linked of it and written is
//! read again without a problem, with types that agree.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use unspool_c_types::{
    Agreement, CtfSection, CtfWriter, ElfContext, ElfStrings, LinkOptions, LinkUnit, ObjdumpText,
    link,
};

fuzz_target!(|data: &[u8]| {
    let (strings, bytes) = data.split_at(data.len().min(16));
    let elf = ElfContext {
        strings: ElfStrings {
            strtab: strings,
            dynstr: strings,
        },
        ..ElfContext::BARE_64
    };
    let Ok(section) = CtfSection::open(bytes, elf) else {
        return;
    };
    let parents = section.parents();
    let children: Vec<_> = section.children(&parents).flatten().collect();
    let mut units = Vec::new();
    for unit in parents.iter().chain(&children) {
        let graph = &unit.reading.graph;
        for (id, ty) in graph.types() {
            let _ = (
                graph.size(id),
                graph.layout(id),
                graph.declare(id, &ty.name),
            );
            assert_eq!(graph.agrees(id, graph, id, Agreement::Same), Ok(()));
        }
        let text = ObjdumpText {
            dict: unit.dict,
            reading: &unit.reading,
        };
        let _ = text.to_string();
        units.push(LinkUnit::new(Arc::clone(graph)));
    }
    let linked = link(&units, LinkOptions::default());
    let bytes = CtfWriter::default().write(&linked);
    let again = CtfSection::open(
        &bytes,
        ElfContext::BARE_64,
    );
    let again = again.expect("what is written is CTF");
    let parents = again.parents();
    for unit in &parents {
        assert_eq!(unit.reading.problems, []);
        for (id, _) in linked.shared.types() {
            let agreed = linked
                .shared
                .agrees(id, &unit.reading.graph, id, Agreement::Same);
            assert_eq!(agreed, Ok(()));
        }
    }
});
