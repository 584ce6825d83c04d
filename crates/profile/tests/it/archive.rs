//! An archive is the profile, and has the names, the code and the sources that it was given.

use unspool_elf::SearchRoots;
use unspool_profile::output::View;
use unspool_profile::{
    CodeInstruction, FrameId, FunctionCode, FunctionId, ModuleId, NamedProfile, Profile,
    ProfileNames, SampledCode, SourceExcerpt, SourceFile, SourceFrame, archive,
};
use unspool_rows::Vaddr;
use unspool_symbols::{ModuleFinder, NameDetail, SourceFinder, Symbolizer};

use crate::made::{self, AppNames, LEAF, STARTS};

fn code() -> SampledCode {
    let frame = |function: &str, line| SourceFrame {
        function: function.into(),
        file: Some("/src/3.c".into()),
        line,
    };
    let instruction = |address, target, location| CodeInstruction {
        address: Vaddr(address),
        length: 4,
        text: format!("jmp {address:#x}"),
        target,
        location,
        weight: 0,
        samples: 0,
    };
    let start = STARTS[LEAF] + made::offset(LEAF);
    let leaf = FunctionCode {
        module: ModuleId(0),
        range: Vaddr(start)..Vaddr(start + 12),
        instructions: vec![
            instruction(start, Some(2), Some(0)),
            instruction(start + 4, None, None),
            instruction(start + 8, Some(0), Some(1)),
        ],
        locations: vec![
            vec![frame("leaf", Some(10))],
            vec![frame("inner", None), frame("leaf", Some(12))],
        ],
    };
    let long = SourceExcerpt {
        file: "/src/3.c".into(),
        first_line: 7,
        lines: vec![
            "\tx".repeat(30_000),
            String::new(),
            "y".repeat(30_000),
            "end".into(),
        ],
        is_newer: true,
    };
    SampledCode {
        functions: vec![(FunctionId(0), Ok(vec![leaf]))],
        sources: vec![long],
    }
}

#[test]
fn an_archive_has_what_it_was_given() {
    let profile = made::profile(&made::samples());
    let named = NamedProfile::new(&profile, &AppNames);
    let samples: Vec<_> = profile.samples().iter().collect();
    let view = View {
        named: &named,
        samples,
    };
    let mut file = Vec::new();
    archive::write(&mut file, &view, &AppNames, &code()).unwrap();
    let read = Profile::read(&file[..]).unwrap();
    assert_eq!(read.meta(), profile.meta());
    assert_eq!(read.modules(), profile.modules());
    assert_eq!(read.processes(), profile.processes());
    assert_eq!(read.threads(), profile.threads());
    assert_eq!(read.frames(), profile.frames());
    assert_eq!(read.stacks(), profile.stacks());
    assert_eq!(read.samples(), profile.samples());
    assert_eq!(read.lost(), profile.lost());
    assert_eq!(read.symbols(), profile.symbols());
    assert_eq!(read.ending(), profile.ending());

    let finder = ModuleFinder::new(SearchRoots::default());
    let symbolizer = Symbolizer::new(finder, NameDetail::Lines);
    let names = ProfileNames::look_up(&read, &symbolizer);
    let again = NamedProfile::new(&read, &names);
    assert_eq!(again.functions(), named.functions());
    for (id, _) in (0..).map(FrameId).zip(profile.frames()) {
        assert_eq!(again.lines_of(id), named.lines_of(id));
        assert_eq!(again.offset(id), named.offset(id));
    }
    let view = View {
        named: &again,
        samples: read.samples().iter().collect(),
    };
    let leaf = again
        .functions()
        .iter()
        .position(|function| function.name == "leaf");
    let leaf = FunctionId(leaf.unwrap() as u32);
    let found = FunctionCode::look_up(&view, &names, &symbolizer, &[leaf], u64::MAX);
    let mut expected = code().functions.remove(0).1.unwrap();
    let of_leaf = made::samples();
    let of_leaf = of_leaf
        .iter()
        .filter(|it| it.stack.first().is_some_and(|(n, _)| *n == LEAF));
    let hit = &mut expected[0].instructions[0];
    (hit.weight, hit.samples) = of_leaf.fold((0, 0), |(w, n), it| (w + it.weight, n + 1));
    assert_eq!(found[0].as_ref().unwrap(), &expected);
    let sources = SourceFinder::default();
    let source = (ModuleId(0), "/src/3.c");
    let source = SourceFile::read(&read, &names, &sources, source, &|_| {}).unwrap();
    for (line, text) in (7..).zip(&code().sources[0].lines) {
        assert_eq!(source.line(line), Some(text.as_str()));
    }
    assert_eq!(
        (source.line(6), source.line(11), source.is_newer),
        (None, None, true)
    );
}
