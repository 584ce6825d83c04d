//! `unspool ctf type` and `unspool ctf symbol`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;

use serde_json::{Value, json};
use unspool_c_types::{Graph, TypeId, TypedSymbol};
use unspool_dwarf_types::{ArrayView, TypeFile, elf_context};

use super::{each_file, json, loader};
use crate::args::Format;
use crate::args::ctf::{CtfSource, CtfSymbolArgs, CtfTypeArgs};
use crate::output::{self, EscapedText, ExitCodes};
use crate::text::names;

/// The JSON kind of functions and data.
const SYMBOL: &str = "ctf-symbol";

pub(crate) fn about_type(args: &CtfTypeArgs) -> anyhow::Result<ExitCode> {
    let find = |graph: &Graph<'_>| {
        let own = graph
            .named(&args.name)
            .map(|(id, _)| id)
            .filter(|id| id.0 > graph.base());
        let plain = graph.with_escaped_names();
        let ids: Vec<TypeId> = if args.with_needed {
            graph.in_order_of_definition(own)
        } else {
            own.collect()
        };
        let ids = ids.into_iter();
        ids.map(|id| (plain.define(id).to_string(), json::definition(graph, id)))
            .collect()
    };
    let near = |graph: &Graph<'_>| {
        graph
            .types()
            .map(|(_, ty)| ty.own_name().to_owned())
            .collect()
    };
    answer(
        &args.source,
        args.format,
        ("ctf-type", "types", &args.name),
        (&find, &near),
    )
}

pub(crate) fn about_symbol(args: &CtfSymbolArgs) -> anyhow::Result<ExitCode> {
    let find = |graph: &Graph<'_>| {
        let plain = graph.with_escaped_names();
        let lists = [&graph.functions, &graph.objects, &graph.variables];
        let found = lists
            .into_iter()
            .flatten()
            .filter(|symbol| symbol.name == args.name);
        let mut lines: Vec<_> = found
            .map(|symbol| (line(&plain, symbol), json::symbol(graph, symbol)))
            .collect();
        lines.dedup();
        lines
    };
    let near = |graph: &Graph<'_>| {
        let lists = [&graph.functions, &graph.objects, &graph.variables];
        let all = lists.into_iter().flatten();
        all.map(|symbol| symbol.name.to_string()).collect()
    };
    answer(
        &args.source,
        args.format,
        (SYMBOL, "symbols", &args.name),
        (&find, &near),
    )
}

/// Whether files have a function or data of that name.
fn is_symbol_of(inputs: &[TypeFile], name: &str) -> anyhow::Result<bool> {
    for input in inputs {
        let TypeFile::Elf(file) = input else { continue };
        let context = elf_context(file)?;
        let mut symbols = context.symbols(false).chain(context.symbols(true));
        if symbols.any(|symbol| symbol.name == name) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn line(graph: &Graph<'_>, symbol: &TypedSymbol<'_>) -> String {
    let name = EscapedText(&symbol.name).to_string();
    format!("{};\n", graph.declare_with_bodies(symbol.ty, &name))
}

/// The results for a dictionary, as text and as JSON.
type Find<'f> = &'f dyn Fn(&Graph<'_>) -> Vec<(String, Value)>;

/// The names in a dictionary.
type Names<'f> = &'f dyn Fn(&Graph<'_>) -> Vec<String>;

/// Prints a function's results for each dictionary, as text or as JSON. If there is none, names
/// like the wanted one are suggested.
fn answer(
    source: &CtfSource,
    format: Format,
    (schema, list, name): (&str, &str, &str),
    (find, names_in): (Find<'_>, Names<'_>),
) -> anyhow::Result<ExitCode> {
    let mut out = output::text();
    let (mut all, mut known) = (Vec::new(), Vec::new());
    if !source.file.exists() && Path::new(name).is_file() {
        let (file, action) = (source.file.display(), schema.replace('-', " "));
        bail!("cannot read {file}: the name comes first: `unspool {action} {file} {name}`");
    }
    let inputs = loader().open(&source.file)?;
    let is_clean = each_file(&inputs, source, ArrayView::AsDeclared, |input, shown| {
        for dictionary in &shown.dictionaries {
            for (text, mut value) in find(&dictionary.graph) {
                if format == Format::Text {
                    if shown.is_archive {
                        writeln!(out, "/* {} */", EscapedText(&dictionary.name))?;
                    }
                    write!(out, "{text}")?;
                }
                if let Some(object) = value.as_object_mut() {
                    object.insert("file".to_owned(), json!(input.path().to_string_lossy()));
                    object.insert("dictionary".to_owned(), json!(dictionary.name));
                }
                all.push(value);
            }
            if all.is_empty() {
                known.extend(names_in(&dictionary.graph));
            }
        }
        Ok(())
    })?;
    let is_found = !all.is_empty();
    if format == Format::Json {
        output::document(schema, &json!({ list: all }))?;
    }
    out.flush()?;
    if !is_found {
        let path = source.file.display();
        if schema == SYMBOL && is_symbol_of(&inputs, name)? {
            output::error(&format_args!(
                "{path}: the symbol {name:?} has no type there. GNU ld keeps the types of exported symbols only; `unspool ctf link *.o --into {path}` \
             puts those of all into it, and `unspool ctf from-dwarf {path} --into {path}` does, if it was built with -g"
            ));
        } else {
            let near = names::suggest(known.iter().map(String::as_str), name);
            output::error(&format_args!("{path}: nothing is named {name:?}{near}"));
        }
    }
    Ok(if is_found && is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}
