//! Linking: each unit finds its types unchanged afterwards, and ld's result is equivalent.

use std::sync::Arc;

use crate::common::{Ctf, CtfFolder};
use unspool_c_types::{
    Agreement, CtfSection, CtfWriter, ElfContext, ElfStrings, Endian, Exports, Graph, Interface,
    LinkOptions, LinkUnit, SHARED, Share, Tag, TypeId, TypeKind, diff, link,
};
use unspool_testing::command;

const UNITS: [&str; 3] = ["one", "two", "three"];

/// The sharing modes, and ld's names for them.
const MODES: [(Share, &str); 2] = [
    (Share::Unconflicted, "share-unconflicted"),
    (Share::Duplicated, "share-duplicated"),
];

/// Tables for sections that are in no file.
const ELF: ElfContext<'_> = ElfContext {
    strings: ElfStrings {
        strtab: &[],
        dynstr: &[],
    },
    symtab: &[],
    dynsym: &[],
    symbol_versions: &[],
    version_definitions: &[],
    endian: Endian::Little,
    is_64: true,
};

fn units<'d>(sections: &'d [CtfSection<'d>]) -> Vec<LinkUnit<'d>> {
    let parents = sections.iter().flat_map(CtfSection::parents);
    parents
        .map(|unit| LinkUnit::new(unit.reading.graph))
        .collect()
}

/// A unit's view of a linked section: its child, or the shared types if it has none.
fn view<'d>(section: &'d CtfSection<'d>, unit: &str) -> Arc<Graph<'d>> {
    let parents = section.parents();
    let children: Vec<_> = section.children(&parents).map(Result::unwrap).collect();
    assert!(
        parents
            .iter()
            .chain(&children)
            .all(|unit| unit.reading.problems.is_empty())
    );
    let child = children.into_iter().find(|child| child.name == unit);
    child.map_or_else(
        || Arc::clone(&parents[0].reading.graph),
        |child| child.reading.graph,
    )
}

/// The type in a view with the name of a unit's type.
fn counterpart(view: &Graph<'_>, graph: &Graph<'_>, id: TypeId) -> Option<TypeId> {
    let ty = graph.get(id)?;
    let space = ty.name_space()?;
    let all = view
        .named(&ty.name)
        .filter(|(_, other)| other.name_space() == Some(space));
    all.map(|(id, _)| id).next()
}

/// Every named type of a unit is in its view, and equal there.
fn check(unit: &LinkUnit<'_>, view: &Graph<'_>) {
    for (id, ty) in unit
        .graph
        .types()
        .filter(|(_, ty)| ty.name_space().is_some() && !ty.is_hidden)
    {
        let other = counterpart(view, &unit.graph, id);
        let other = other.unwrap_or_else(|| panic!("{}: {} is gone", unit.name, ty.name));
        if let Err(difference) = unit.graph.agrees(id, view, other, Agreement::Same) {
            panic!("{}: {}: {difference}", unit.name, ty.name);
        }
        // A complete type of the unit is not only a forward now.
        let is_forward = |ty: &unspool_c_types::Type<'_>| matches!(ty.kind, TypeKind::Forward(_));
        assert!(
            is_forward(ty) || !is_forward(view.get(other).unwrap()),
            "{}",
            ty.name
        );
    }
}

fn compiled(folder: &CtfFolder) -> Vec<Ctf> {
    folder.compile(&UNITS);
    UNITS
        .iter()
        .map(|name| folder.ctf(&format!("{name}.o")))
        .collect()
}

fn linked(units: &[LinkUnit<'_>], options: LinkOptions) -> Vec<u8> {
    CtfWriter::default().write(&link(units, options))
}

#[test]
fn units_see_the_types_that_they_had() {
    let folder = CtfFolder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = units(&sections);
    for share in [Share::Unconflicted, Share::Duplicated] {
        let bytes = linked(&units, LinkOptions { share, threads: 1 });
        let section = CtfSection::open(&bytes, ELF).unwrap();
        for unit in &units {
            check(unit, &view(&section, &unit.name));
        }
    }
}

/// An enumeration of one byte. GNU ld makes one of four.
const LOST_BY_LD: &str = "small";

/// Every named type of a unit is equal in two views of it.
fn check_views(unit: &LinkUnit<'_>, ours: &Graph<'_>, theirs: &Graph<'_>) {
    let types = unit.graph.types();
    for (id, ty) in types.filter(|(_, ty)| ty.name_space().is_some() && ty.name != LOST_BY_LD) {
        let one = counterpart(ours, &unit.graph, id).unwrap();
        let two = counterpart(theirs, &unit.graph, id).unwrap();
        if let Err(difference) = ours.agrees(one, theirs, two, Agreement::Same) {
            panic!("{}: {}: {difference}", unit.name, ty.name);
        }
    }
}

#[test]
fn units_see_in_ours_what_they_see_in_what_ld_links() {
    let folder = CtfFolder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = units(&sections);
    for (share, mode) in MODES {
        let bytes = linked(&units, LinkOptions { share, threads: 1 });
        let ours = CtfSection::open(&bytes, ELF).unwrap();
        let inputs = "-gctf -rdynamic one.o two.o three.o";
        let option = format!("-Wl,--ctf-share-types={mode}");
        folder.tool("gcc", &format!("{inputs} {option} -o {mode}"));
        let program = folder.ctf(mode);
        let theirs = program.open();
        for unit in &units {
            check_views(unit, &view(&ours, &unit.name), &view(&theirs, &unit.name));
        }
        let sizes = (bytes.len(), program.bytes.len());
        assert!(
            sizes.0 < sizes.1,
            "{mode}: {} and {} bytes",
            sizes.0,
            sizes.1
        );
    }
}

/// Whether a type of a unit is in a view, by name or not.
fn is_in(view: &Graph<'_>, graph: &Graph<'_>, id: TypeId) -> bool {
    let ty = graph.get(id).unwrap();
    let mut all = (1..=view.last()).map(TypeId);
    all.any(|other| {
        let found = view.get(other).unwrap();
        found.name == ty.name
            && found.name_space() == ty.name_space()
            && matches!(found.kind, TypeKind::Forward(_)) == matches!(ty.kind, TypeKind::Forward(_))
            && graph.agrees(id, view, other, Agreement::Same).is_ok()
    })
}

/// libctf must put the first two units, which disagree, into one child.
#[test]
fn units_that_have_a_child_together_have_there_what_they_have_in_what_libctf_links() {
    let folder = CtfFolder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let mut units = units(&sections);
    for unit in units.iter_mut().take(2) {
        unit.child = Some("together".into());
    }
    let bytes = linked(&units, LinkOptions::default());
    for object in UNITS {
        let to = format!("--dump-section .ctf={object}.ctf {object}.o /dev/null");
        folder.tool("objcopy", &to);
    }
    let source = crate::common::source("mapped");
    folder.tool("gcc", &format!("{} -lctf -o mapped", source.display()));
    let output = command(folder.path().join("mapped"))
        .args(["theirs.ctf", "one.ctf", "together", "two.ctf", "together"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let their_bytes = std::fs::read(folder.path().join("theirs.ctf")).unwrap();
    let open = |bytes| CtfSection::open(bytes, ELF).unwrap();
    let (ours, theirs) = (open(&bytes), open(&their_bytes));
    for unit in &units {
        let child = unit.child.as_ref().unwrap_or(&unit.name);
        let (ours, theirs) = (view(&ours, child), view(&theirs, child));
        let types = unit.graph.types();
        for (id, ty) in types.filter(|(_, ty)| ty.name_space().is_some()) {
            assert!(
                is_in(&theirs, &unit.graph, id),
                "{}: {} in theirs",
                unit.name,
                ty.name
            );
            assert!(
                is_in(&ours, &unit.graph, id),
                "{}: {} in ours",
                unit.name,
                ty.name
            );
        }
    }
    // Among two types with one name, look-ups find the first unit's.
    check(&units[0], &view(&ours, "together"));
    let sizes = (bytes.len(), their_bytes.len());
    assert!(sizes.0 < sizes.1, "{} and {} bytes", sizes.0, sizes.1);
}

#[test]
fn units_of_one_name_keep_their_own_types() {
    let folder = CtfFolder::new();
    let source = crate::common::source("same");
    let widths = ["1", "2", "3"];
    for width in widths {
        let name = source.display();
        folder.tool(
            "gcc",
            &format!("-gctf -DWIDTH={width} -c {name} -o same{width}.o"),
        );
    }
    let objects = widths.map(|width| folder.ctf(&format!("same{width}.o")));
    let sections = objects.each_ref().map(Ctf::open);
    let units = units(&sections);
    let bytes = linked(&units, LinkOptions::default());
    let ours = CtfSection::open(&bytes, ELF).unwrap();
    folder.tool("gcc", "-shared -gctf same1.o same2.o same3.o -o same.so");
    let program = folder.ctf("same.so");
    let theirs = program.open();
    let name = &units[0].name;
    let numbered = [&**name, &format!("{name}#0"), &format!("{name}#1")];
    let names = |section: &CtfSection<'_>| -> Vec<String> {
        let dicts = section.dicts().map(|(name, _)| name.to_owned());
        dicts.filter(|name| name != SHARED).collect()
    };
    // ld shares none of them; we share the first.
    assert_eq!(names(&theirs), numbered);
    assert_eq!(names(&ours), numbered[..2]);
    for (nth, unit) in units.iter().enumerate() {
        let own = nth.checked_sub(1).map_or(SHARED, |nth| numbered[nth]);
        let ours = view(&ours, own);
        check(unit, &ours);
        check_views(unit, &ours, &view(&theirs, numbered[nth]));
        let held = ours.functions.iter().find(|symbol| symbol.name == "held");
        let width = nth + 1;
        let wanted = format!("long int held(machine *, struct state (*)[{width}])");
        assert_eq!(
            held.map(|symbol| ours.declare(symbol.ty, "held")),
            Some(wanted)
        );
    }
}

#[test]
fn shared_types_are_linked_once() {
    let folder = CtfFolder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = units(&sections);
    let linked = link(&units, LinkOptions::default());
    let has = |graph: &Graph<'_>, name: &str| graph.types().any(|(_, ty)| ty.name == name);
    let is_forward = |graph: &Graph<'_>, name| {
        let mut found = graph.named(name);
        found.all(|(_, ty)| matches!(ty.kind, TypeKind::Forward(Tag::Struct)))
    };
    for shared in ["common", "plain", "holder", "item", "shelf", "length"] {
        assert!(has(&linked.shared, shared), "{shared}");
    }
    // Two of three agree on it, so only the third has its own, with all types that refer to it.
    let children = UNITS.map(|unit| {
        let is_it = |(name, _): &&(_, Graph<'_>)| {
            AsRef::<str>::as_ref(name).ends_with(&format!("{unit}.c"))
        };
        linked.children.iter().find(is_it).map(|(_, graph)| graph)
    });
    let [one, two, three] = children;
    let two = two.unwrap();
    assert!(
        ["item", "shelf", "length"]
            .iter()
            .all(|name| has(two, name))
    );
    assert!(!has(two, "common") && !has(two, "plain") && !has(two, "holder"));
    // The first has only the tag, and the others disagree on it.
    assert!(is_forward(&linked.shared, "hidden"));
    let three = three.unwrap();
    assert!(has(two, "hidden") && has(three, "hidden") && has(three, "box"));
    assert!(!has(three, "item") && !has(three, "holder"));
    assert!(one.is_none_or(|one| one.types().next().is_none()));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let folder = CtfFolder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = units(&sections);
    let bytes = linked(&units, LinkOptions::default());
    for threads in [2, 3, 16] {
        let options = LinkOptions {
            threads,
            ..LinkOptions::default()
        };
        let writer = CtfWriter {
            threads,
            ..CtfWriter::default()
        };
        assert_eq!(
            writer.write(&link(&units, options)),
            bytes,
            "{threads} threads"
        );
    }
}

#[test]
fn units_have_a_child_together_if_they_want() {
    let folder = CtfFolder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let mut units = units(&sections);
    for unit in &mut units {
        unit.child = Some("all".into());
    }
    let linked = link(&units, LinkOptions::default());
    let names: Vec<&str> = linked.children.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["all"]);
    let child = &linked.children[0].1;
    let own: Vec<_> = child
        .types()
        .filter(|(_, ty)| ty.name == "hidden" && !matches!(ty.kind, TypeKind::Forward(_)))
        .collect();
    assert_eq!(own.len(), 2);
    assert_eq!(
        own.iter().filter(|(_, ty)| !ty.is_hidden).count(),
        1,
        "one of them is found by its name"
    );
}

#[test]
fn functions_of_one_name_keep_their_types() {
    let folder = CtfFolder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = units(&sections);
    let linked = link(&units, LinkOptions::default());
    let declared = |graph: &Graph<'_>| {
        let pick = graph.functions.iter().find(|symbol| symbol.name == "pick");
        pick.map(|symbol| graph.declare(symbol.ty, "pick"))
    };
    assert_eq!(
        declared(&linked.shared).unwrap(),
        "struct item *pick(struct shelf *)"
    );
    let two = linked
        .children
        .iter()
        .find(|(name, _)| name.ends_with("two.c"))
        .unwrap();
    assert_eq!(
        declared(&two.1).unwrap(),
        "struct item *pick(struct shelf *, int)"
    );
}

#[test]
fn each_subject_means_the_same_when_it_is_linked() {
    let folder = CtfFolder::new();
    for (case, sources) in crate::common::cases() {
        let mut objects = Vec::new();
        for (nth, source) in sources.iter().enumerate() {
            let object = format!("{case}{nth}.o");
            let source = source.display();
            folder.tool("gcc", &format!("-gctf -fPIC -O1 -c {source} -o {object}"));
            objects.push(object);
        }
        let parts: Vec<_> = objects.iter().map(|object| folder.ctf(object)).collect();
        let sections: Vec<_> = parts.iter().map(Ctf::open).collect();
        let units = units(&sections);
        for (share, mode) in MODES {
            let option = format!("-Wl,--ctf-share-types={mode}");
            let objects = objects.join(" ");
            folder.tool(
                "gcc",
                &format!("-shared -gctf {objects} {option} -o {case}.so"),
            );
            let program = folder.ctf(&format!("{case}.so"));
            let theirs = program.open();
            let bytes = linked(&units, LinkOptions { share, threads: 2 });
            let ours = CtfSection::open(&bytes, ELF).unwrap();
            for unit in &units {
                let ours = view(&ours, &unit.name);
                check(unit, &ours);
                check_views(unit, &ours, &view(&theirs, &unit.name));
            }
        }
    }
}

proptest::proptest! {
    /// Whatever a graph has, it is the same as itself.
    #[test]
    fn nothing_changes_from_a_graph_to_itself(graph in crate::common::graphs::graph()) {
        let exports = Exports::with_types(&graph);
        let interface = Interface { graph: &graph, exports: &exports, private: None };
        proptest::prop_assert_eq!(diff(interface, interface).changes, vec![]);
    }
}
