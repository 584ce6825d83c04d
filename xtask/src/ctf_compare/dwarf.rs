//! Compares the output of `unspool ctf from-dwarf` for an object with gcc's CTF from the same
//! compilation.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use unspool_c_types::{
    Agreement, CtfSection, ElfContext, Graph, NameSpace, Type, TypeId, TypeKind, TypedSymbol,
};

use super::{shell, with_declared_arrays};
use crate::Error;

/// The comparison of two descriptions of the same types.
#[derive(Debug, Default)]
pub(super) struct DwarfComparison {
    /// Named types in DWARF.
    pub(super) types: usize,
    /// Functions and data that are defined in the objects, and have a type in gcc's CTF.
    pub(super) symbols: usize,
    /// Types that gcc's CTF does not have: they are used only in code, or gcc cannot represent
    /// them.
    pub(super) more: usize,
    /// Types and symbols that differ from gcc's CTF, or that only gcc has: each with the
    /// difference.
    pub(super) different: Vec<String>,
}

/// Compares the two for each of the objects.
pub(super) fn compare(
    place: &Path,
    objects: &[String],
    unspool: &str,
) -> Result<DwarfComparison, Error> {
    let mut all = DwarfComparison::default();
    for object in objects {
        shell(
            place,
            &format!(
                "rm -f ctf-part; objcopy --dump-section .ctf=ctf-part {object} /dev/null; \
                 {unspool} from-dwarf {object} -o ctf-dwarf --symbols names; \
                 nm --defined-only {object} > ctf-symbols"
            ),
        )?;
        let (theirs, ours) = (
            fs::read(place.join("ctf-part"))?,
            fs::read(place.join("ctf-dwarf"))?,
        );
        let (theirs, ours) = (open(&theirs)?, open(&ours)?);
        let (theirs, ours) = (theirs.parents(), ours.parents());
        let one = theirs.first().zip(ours.first());
        let (theirs, ours) = one.ok_or_else(|| format!("{object}: no types"))?;
        let theirs = with_declared_arrays(&place.join(object), &theirs.reading.graph)?;
        let symbols = fs::read_to_string(place.join("ctf-symbols"))?;
        let defined = symbols.lines().filter_map(|line| line.rsplit(' ').next());
        all.add(object, &theirs, &ours.reading.graph, defined);
    }
    Ok(all)
}

fn open(bytes: &[u8]) -> Result<CtfSection<'_>, Error> {
    let elf = ElfContext::BARE_64;
    Ok(CtfSection::open(bytes, elf)?)
}

impl DwarfComparison {
    fn add<'s>(
        &mut self,
        object: &str,
        theirs: &Graph<'_>,
        ours: &Graph<'_>,
        defined: impl Iterator<Item = &'s str>,
    ) {
        let named = by_name(theirs);
        for (id, ty) in ours.types() {
            let Some(space) = ty.name_space().filter(|_| !ty.is_hidden) else {
                continue;
            };
            self.types += 1;
            let others = named
                .get(&(space, &*ty.name))
                .map_or(&[][..], Vec::as_slice);
            // Types that gcc cannot represent are unknown there.
            if others.iter().all(|other| theirs.resolve(*other).is_none()) {
                self.more += 1;
                continue;
            }
            // gcc keeps a forward declaration beside a definition.
            let compared = others.iter().map(|other| same(ours, id, theirs, *other));
            if let Err(what) = compared.fold(Err(String::new()), Result::or) {
                let kind = ours.declare(id, "");
                self.different.push(format!("{object}: {kind}: {what}"));
            }
        }
        for name in defined {
            self.symbol(
                object,
                name,
                (ours, &ours.functions),
                (theirs, &theirs.functions),
            );
            self.symbol(
                object,
                name,
                (ours, &ours.objects),
                (theirs, &theirs.objects),
            );
        }
    }

    fn symbol(
        &mut self,
        object: &str,
        name: &str,
        (ours, our_symbols): (&Graph<'_>, &[TypedSymbol<'_>]),
        (theirs, their_symbols): (&Graph<'_>, &[TypedSymbol<'_>]),
    ) {
        let find = |symbols: &[TypedSymbol<'_>]| {
            let found = symbols.iter().find(|symbol| symbol.name == name);
            found.map(|symbol| symbol.ty)
        };
        let Some(their) = find(their_symbols) else {
            return;
        };
        self.symbols += 1;
        let what = match find(our_symbols) {
            Some(our) => same(ours, our, theirs, their).err(),
            None => Some("only gcc has its type".to_owned()),
        };
        if let Some(what) = what {
            self.different.push(format!("{object}: {name}: {what}"));
        }
    }
}

/// The types of a graph by their lookup key.
fn by_name<'g>(graph: &'g Graph<'_>) -> HashMap<(NameSpace, &'g str), Vec<TypeId>> {
    let mut named: HashMap<_, Vec<_>> = HashMap::new();
    let all = graph.types().filter(|(_, ty)| !ty.is_hidden);
    for (id, ty) in all {
        if let Some(space) = ty.name_space() {
            named.entry((space, &*ty.name)).or_default().push(id);
        }
    }
    named
}

/// Whether two types are the same, including all types that they refer to.
fn same(ours: &Graph<'_>, our: TypeId, theirs: &Graph<'_>, their: TypeId) -> Result<(), String> {
    let is_forward =
        |ty: Option<&Type<'_>>| ty.is_some_and(|ty| matches!(ty.kind, TypeKind::Forward(_)));
    if is_forward(ours.get(our)) && !is_forward(theirs.get(their)) {
        return Err("DWARF has only a forward".to_owned());
    }
    let agreed = ours.agrees(our, theirs, their, Agreement::Same);
    agreed.map_err(|difference| difference.to_string())
}

/// The size of `from-dwarf`'s output for the linked program, with the types of all symbols, in
/// bytes.
pub(super) fn size(place: &Path, unspool: &str) -> Result<u64, Error> {
    shell(
        place,
        &format!("cp ctf-ld ctf-all; {unspool} from-dwarf ctf-ld --into ctf-all --symbols symtab"),
    )?;
    super::size(place, "ctf-all")
}

/// The bytes of BTF that `to-btf` and pahole make from the linked program's DWARF: types and
/// functions in both.
pub(super) fn btf(place: &Path, unspool: &str) -> Result<(u64, u64), Error> {
    shell(
        place,
        &format!(
            "objcopy -R .ctf ctf-ld ctf-debug; rm -f ctf-btf ctf-pahole; \
             {unspool} to-btf ctf-debug --without-data -o ctf-btf || test -s ctf-btf; \
             pahole --btf_gen_floats --btf_encode_detached ctf-pahole ctf-debug || pahole --btf_encode_detached ctf-pahole ctf-debug; \
             bpftool btf dump file ctf-btf > /dev/null"
        ),
    )?;
    let size = |name: &str| fs::metadata(place.join(name)).map(|file| file.len());
    Ok((size("ctf-btf")?, size("ctf-pahole")?))
}
