//! Instructions and source lines as JSON.

use serde_json::{Value, json};
use unspool_profile::ProfileFunction;

use super::*;
use crate::commands::report::total;
use crate::output::{JsonLayout, address};

/// Writes the instructions of each function.
pub(in crate::commands::report) fn print_disassembly(
    out: &mut dyn Write,
    view: &View<'_>,
    disassembly: &Disassembly,
) -> io::Result<()> {
    let function = |(function, code): &(FunctionId, FunctionCode)| {
        let instruction = |instruction: &CodeInstruction| {
            json!({
                "address": address(instruction.address.0),
                "length": instruction.length,
                "text": instruction.text,
                "target": instruction.target,
                "location": instruction.location,
                "self_weight": instruction.weight,
                "samples": instruction.samples,
            })
        };
        let frame = |frame: &SourceFrame| json!({ "function": frame.function, "file": frame.file, "line": frame.line });
        let location = |frames: &Vec<SourceFrame>| frames.iter().map(frame).collect::<Value>();
        let path = view
            .named
            .profile
            .module(code.module)
            .map(|module| module.path.to_string_lossy());
        let name = view.named.function(*function);
        json!({
            "function": name.map(ProfileFunction::plain_name),
            "module": name.map(|name| &name.module),
            "path": path,
            "start": address(code.range.start.0),
            "end": address(code.range.end.0),
            "instructions": code.instructions.iter().map(instruction).collect::<Value>(),
            "locations": code.locations.iter().map(location).collect::<Value>(),
        })
    };
    let body = json!({
        "weight": total(view),
        "unit": view.unit(),
        "functions": disassembly.functions.iter().map(function).collect::<Value>(),
    });
    output::write_document(out, JsonLayout::Pretty, "report-disasm", &body)
}

/// Writes the source lines of each function.
pub(in crate::commands::report) fn print_source(
    out: &mut dyn Write,
    view: &View<'_>,
    listing: &SourceListing<'_>,
    files: &mut SourceFiles<'_>,
) -> io::Result<()> {
    let mut functions = Vec::new();
    for (function, lines) in &listing.functions {
        let module = lines.modules.first().copied();
        let mut listed = Vec::new();
        for ((file, line), weight) in &lines.lines {
            let found = module.and_then(|module| files.file(module, file));
            listed.push(json!({
                "file": file,
                "line": line,
                "text": found.and_then(|found| found.line(*line)),
                "file_is_newer": found.map(|found| found.is_newer),
                "self_weight": weight.own,
                "total_weight": weight.total,
                "samples": weight.samples,
            }));
        }
        let name = view.named.function(*function);
        functions.push(json!({
            "function": name.map(ProfileFunction::plain_name),
            "module": name.map(|name| &name.module),
            "self_weight": lines.all.own,
            "total_weight": lines.all.total,
            "lines": listed,
        }));
    }
    let body = json!({ "weight": total(view), "unit": view.unit(), "functions": functions });
    output::write_document(out, JsonLayout::Pretty, "report-source", &body)
}
