//! Linking: what units see of their types afterwards is what they had before, and what ld makes of them says the same.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod common;

use std::sync::Arc;

use common::{Ctf, Folder};
use unspool_ctf::{
    Agreement, ElfContext, Graph, Kind, LinkOptions, LinkUnit, Section, Share, Tag, TypeId, Writer,
    link,
};

const UNITS: [&str; 3] = ["one", "two", "three"];

fn units<'d>(sections: &'d [Section<'d>]) -> Vec<LinkUnit<'d>> {
    let parents = sections.iter().flat_map(Section::parents);
    let unit = |unit: unspool_ctf::Unit<'d>| LinkUnit {
        name: unit.reading.graph.unit.clone().unwrap(),
        graph: unit.reading.graph,
    };
    parents.map(unit).collect()
}

/// What a unit sees in a linked section: its child, or what is shared if it has none.
fn view<'d>(section: &'d Section<'d>, unit: &str) -> Arc<Graph<'d>> {
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

/// The type that a view has under the name of a type of a unit.
fn counterpart(view: &Graph<'_>, graph: &Graph<'_>, id: TypeId) -> Option<TypeId> {
    let ty = graph.get(id)?;
    let space = ty.name_space()?;
    let all = view
        .named(&ty.name)
        .filter(|(_, other)| other.name_space() == Some(space));
    all.map(|(id, _)| id).next()
}

/// Everything that a unit names is in its view, and the same there.
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
        // A type that the unit knows wholly is not only a forward to it now.
        let is_forward = |ty: &unspool_ctf::Type<'_>| matches!(ty.kind, Kind::Forward(_));
        assert!(
            is_forward(ty) || !is_forward(view.get(other).unwrap()),
            "{}",
            ty.name
        );
    }
}

fn compiled(folder: &Folder) -> Vec<Ctf> {
    folder.compile(&UNITS);
    UNITS
        .iter()
        .map(|name| folder.ctf(&format!("{name}.o")))
        .collect()
}

fn linked(units: &[LinkUnit<'_>], options: LinkOptions) -> Vec<u8> {
    Writer::default().write(&link(units, options))
}

#[test]
fn units_see_the_types_that_they_had() {
    let folder = Folder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = units(&sections);
    for share in [Share::Unconflicted, Share::Duplicated] {
        let bytes = linked(&units, LinkOptions { share, threads: 1 });
        let section = Section::open(
            &bytes,
            ElfContext {
                is_64: true,
                ..ElfContext::default()
            },
        )
        .unwrap();
        for unit in &units {
            check(unit, &view(&section, &unit.name));
        }
    }
}

#[test]
fn units_see_in_ours_what_they_see_in_what_ld_links() {
    let folder = Folder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = units(&sections);
    let bytes = linked(&units, LinkOptions::default());
    let ours = Section::open(
        &bytes,
        ElfContext {
            is_64: true,
            ..ElfContext::default()
        },
    )
    .unwrap();
    folder.tool("gcc", "-gctf -rdynamic one.o two.o three.o -o program");
    let program = folder.ctf("program");
    let theirs = program.open();
    for unit in &units {
        let (ours, theirs) = (view(&ours, &unit.name), view(&theirs, &unit.name));
        for (id, ty) in unit
            .graph
            .types()
            .filter(|(_, ty)| ty.name_space().is_some())
        {
            let one = counterpart(&ours, &unit.graph, id).unwrap();
            let two = counterpart(&theirs, &unit.graph, id).unwrap();
            if let Err(difference) = ours.agrees(one, &theirs, two, Agreement::Same) {
                panic!("{}: {}: {difference}", unit.name, ty.name);
            }
        }
    }
    assert!(
        bytes.len() < program.bytes.len(),
        "{} and {} bytes",
        bytes.len(),
        program.bytes.len()
    );
}

#[test]
fn what_units_agree_on_is_there_once() {
    let folder = Folder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = units(&sections);
    let linked = link(&units, LinkOptions::default());
    let has = |graph: &Graph<'_>, name: &str| graph.types().any(|(_, ty)| ty.name == name);
    let is_forward = |graph: &Graph<'_>, name| {
        let mut found = graph.named(name);
        found.all(|(_, ty)| matches!(ty.kind, Kind::Forward(Tag::Struct)))
    };
    for shared in ["common", "plain", "holder", "item", "shelf", "length"] {
        assert!(has(&linked.shared, shared), "{shared}");
    }
    // Two of three agree on it, so that only the third has its own, with all that leads to it.
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
    // The first knows no more than the tag, and the others disagree on it.
    assert!(is_forward(&linked.shared, "hidden"));
    let three = three.unwrap();
    assert!(has(two, "hidden") && has(three, "hidden") && has(three, "box"));
    assert!(!has(three, "item") && !has(three, "holder"));
    assert!(one.is_none_or(|one| one.types().next().is_none()));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let folder = Folder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let units = units(&sections);
    let bytes = linked(&units, LinkOptions::default());
    for threads in [2, 3, 16] {
        let options = LinkOptions {
            threads,
            ..LinkOptions::default()
        };
        assert_eq!(linked(&units, options), bytes, "{threads} threads");
    }
}

#[test]
fn units_of_one_name_have_one_child() {
    let folder = Folder::new();
    let objects = compiled(&folder);
    let sections: Vec<_> = objects.iter().map(Ctf::open).collect();
    let mut units = units(&sections);
    for unit in &mut units {
        unit.name = "all".into();
    }
    let linked = link(&units, LinkOptions::default());
    let names: Vec<&str> = linked.children.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["all"]);
    let child = &linked.children[0].1;
    let own: Vec<_> = child
        .types()
        .filter(|(_, ty)| ty.name == "hidden" && !matches!(ty.kind, Kind::Forward(_)))
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
    let folder = Folder::new();
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
