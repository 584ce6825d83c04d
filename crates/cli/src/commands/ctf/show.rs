//! `unspool ctf show`: a value in a process, a core file, a program's file or the kernel, by its
//! type.

mod kernel_memory;
mod print;
mod subject;
mod write;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use serde_json::json;
use unspool_c_types::{Graph, PathPart, TypeId};
use unspool_display_values::{TypedValue, ValuePlace, ValueReader};
use unspool_elf::ElfFile;

use super::with_types;
use crate::args::Format;
use crate::args::ctf::CtfShowArgs;
use crate::output::{self, EscapedText, ExitCodes};
use subject::{SubjectModule, ValueSubject, with_subject};

pub(crate) fn run(args: &CtfShowArgs) -> anyhow::Result<ExitCode> {
    with_subject(args, |subject| match &args.at {
        Some(address) => {
            let wanted = args
                .ty
                .as_deref()
                .ok_or_else(|| anyhow!("--at needs --type"))?;
            let path = PathPart::parse(args.name.as_deref().unwrap_or(""))?;
            let types = types_of(args, subject.types_at(*address))?;
            with_types(types, None, |loaded| {
                let (graph, ty) = type_named(&loaded.graphs, wanted, types)?;
                let at = PathStart {
                    name: format!("*({:#x})", address.0),
                    address: address.0,
                    ty,
                };
                show(args, subject, graph, &at, &path)
            })
        }
        None => {
            let name = args.name.as_deref().unwrap_or("");
            let (file, symbol, rest) = subject.symbol(name)?;
            let path = PathPart::parse(rest)?;
            let types = types_of(args, Some(file))?;
            with_types(types, None, |loaded| {
                let (graph, ty) = type_of(&loaded.graphs, &symbol.name, args.ty.as_deref(), types)?;
                let at = PathStart {
                    name: symbol.name.clone(),
                    address: symbol.address,
                    ty,
                };
                show(args, subject, graph, &at, &path)
            })
        }
    })
}

/// Where a path begins.
struct PathStart {
    name: String,
    address: u64,
    ty: TypeId,
}

/// The file with the types.
fn types_of<'a>(args: &'a CtfShowArgs, module: Option<&'a Path>) -> anyhow::Result<&'a Path> {
    let types = args.types.as_deref().or(module);
    types.ok_or_else(|| anyhow!("no file is mapped: name one with types by --types"))
}

/// The type of a name.
fn type_named<'l, 'd>(
    graphs: &'l [Arc<Graph<'d>>],
    name: &str,
    file: &Path,
) -> anyhow::Result<(&'l Graph<'d>, TypeId)> {
    let mut all = graphs.iter();
    let found = all.find_map(|graph| Some((&**graph, graph.named(name).next()?.0)));
    found.ok_or_else(|| anyhow!("{}: no type is named {name:?}", file.display()))
}

/// The type of a symbol.
fn type_of<'l, 'd>(
    graphs: &'l [Arc<Graph<'d>>],
    symbol: &str,
    wanted: Option<&str>,
    file: &Path,
) -> anyhow::Result<(&'l Graph<'d>, TypeId)> {
    if let Some(wanted) = wanted {
        return type_named(graphs, wanted, file);
    }
    let mut found: Vec<(&Graph<'d>, TypeId, String)> = Vec::new();
    for graph in graphs {
        let data = graph.objects.iter().chain(&graph.variables);
        for one in data.filter(|one| one.name == symbol) {
            // A declaration may leave the size of an array to the definition.
            let declared = graph.declare(one.ty, "");
            if !found.iter().any(|(.., known)| *known == declared) {
                found.push((graph, one.ty, declared));
            }
        }
    }
    found.sort_by_key(|(graph, ty, _)| graph.size(*ty) == Some(0));
    let is_sized = |(graph, ty, _): &&(&Graph<'d>, TypeId, String)| graph.size(*ty) != Some(0);
    match found.iter().filter(is_sized).count() {
        2.. => {
            let types: Vec<_> = found.iter().map(|(.., text)| text.as_str()).collect();
            bail!(
                "{}: units disagree on the type of {symbol}: {}: choose one by --type",
                file.display(),
                EscapedText(&types.join(", "))
            )
        }
        _ => match found.first() {
            Some((graph, ty, _)) => Ok((graph, *ty)),
            None => bail!(
                "{}: the symbol {symbol:?} has no type there: name one by --type, or a file that has it by --types",
                file.display()
            ),
        },
    }
}

/// Shows the value, or writes it.
fn show(
    args: &CtfShowArgs,
    subject: &ValueSubject<'_>,
    graph: &Graph<'_>,
    origin: &PathStart,
    path: &[PathPart<'_>],
) -> anyhow::Result<ExitCode> {
    let reader = ValueReader {
        graph,
        memory: subject.memory,
        arch: subject.arch,
        follow: args.follow,
        elements: args.elements,
    };
    let start = ValuePlace {
        ty: origin.ty,
        address: origin.address,
        field: None,
    };
    let place = reader
        .place(start, path)
        .with_context(|| origin.name.clone())?;
    let place =
        place.map_err(|at| anyhow!("{}: the pointer at {at:#x} cannot be read", origin.name))?;
    let mut name = origin.name.clone();
    for part in path {
        match part {
            PathPart::Member(member) => name.push_str(&format!(".{member}")),
            PathPart::Index(index) => name.push_str(&format!("[{index}]")),
        }
    }
    let value = reader.read(place);
    if let Some(text) = &args.write {
        let bytes = write::encoded(&reader, &place, text).with_context(|| name.clone())?;
        subject
            .write(place.address, &bytes)
            .with_context(|| name.clone())?;
        return report_written(args, subject, &reader, &name, &value);
    }
    match args.format {
        Format::Text => print::text(graph, &name, &value)?,
        Format::Json => {
            output::document("ctf-value", &print::document(subject, graph, &name, &value))?;
        }
    }
    Ok(if print::is_readable(&value) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}

/// Says the old and the new value.
fn report_written(
    args: &CtfShowArgs,
    subject: &ValueSubject<'_>,
    reader: &ValueReader<'_, '_>,
    name: &str,
    old: &TypedValue,
) -> anyhow::Result<ExitCode> {
    let new = subject.read_again(reader, old.place)?;
    match args.format {
        Format::Text => print::change(reader.graph, name, old, &new)?,
        Format::Json => {
            let mut document = print::document(subject, reader.graph, name, &new);
            if let Some(object) = document.as_object_mut() {
                object.insert("old_value".to_owned(), print::json(reader.graph, old));
            }
            output::document("ctf-value", &json!(document))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A file's path in messages.
fn file_name(file: &ElfFile) -> String {
    output::path(file.path())
}

impl SubjectModule {
    /// Whether an address is in one of its segments.
    fn contains(&self, address: u64) -> bool {
        let at = self.bias.to_vaddr(unspool_rows::RuntimeAddr(address));
        self.file
            .segments()
            .any(|segment| segment.range().contains(&at))
    }
}
