//! Source lines and instructions in the page.
//!
//! The element `code` has base64 of a zlib stream of JSON ([`CodeDocument`]). A function's
//! instructions are numbered from its first part on; column `sample.place` has these numbers.

use std::collections::HashMap;
use std::io;

use serde::Serialize;

use super::content::FunctionNumbers;
use crate::code::{FunctionCode, MissingCode};
use crate::model::CodeLocation;
use crate::names::SourceFrame;
use crate::output::{StringInterner, View};
use crate::sampled_code::SampledCode;
use crate::source_file::SourceExcerpt;

#[derive(Serialize)]
struct CodeDocument<'a> {
    functions: Vec<CodeOfFunction<'a>>,
    /// Names of functions and files in locations.
    names: Vec<String>,
    sources: &'a [SourceExcerpt],
}

#[derive(Serialize)]
struct CodeOfFunction<'a> {
    /// Its index in the profile's functions.
    function: u32,
    /// Why it has no instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    parts: Vec<CodePart<'a>>,
}

#[derive(Serialize)]
struct CodePart<'a> {
    path: String,
    addresses: Vec<u64>,
    texts: Vec<&'a str>,
    /// For each instruction, the one of this part that it jumps to, from 1; 0 for none.
    targets: Vec<usize>,
    /// For each instruction, its index in `locations`, from 1; 0 for none.
    places: Vec<usize>,
    /// Each location: function and file, as indices in `names`, and line; the innermost function
    /// first.
    locations: Vec<Vec<[u32; 3]>>,
}

impl SampledCode {
    /// The place of each sampled instruction in its function's code, from 1.
    pub(super) fn places(&self) -> HashMap<CodeLocation, u64> {
        let mut places = HashMap::new();
        for (_, parts) in &self.functions {
            let mut next = 1;
            for part in parts.iter().flatten() {
                for instruction in &part.instructions {
                    if instruction.samples > 0 {
                        let location = CodeLocation::Module(part.module, instruction.address);
                        places.insert(location, next);
                    }
                    next += 1;
                }
            }
        }
        places
    }

    /// The document.
    pub(super) fn encode(&self, view: &View<'_>, numbers: &FunctionNumbers) -> io::Result<Vec<u8>> {
        let mut names = StringInterner::default();
        let mut functions = Vec::new();
        for (function, parts) in &self.functions {
            let Some(number) = numbers.get(*function) else {
                continue;
            };
            functions.push(CodeOfFunction {
                function: number,
                missing: parts.as_ref().err().map(MissingCode::to_string),
                parts: (parts.iter().flatten())
                    .map(|part| CodePart::new(view, part, &mut names))
                    .collect(),
            });
        }
        Ok(serde_json::to_vec(&CodeDocument {
            functions,
            names: names.all,
            sources: &self.sources,
        })?)
    }
}

impl<'a> CodePart<'a> {
    fn new(view: &View<'_>, code: &'a FunctionCode, names: &mut StringInterner) -> CodePart<'a> {
        let module = view.named.profile.module(code.module);
        let from_1 = |index: Option<usize>| index.map_or(0, |index| index + 1);
        let instructions = &code.instructions;
        let mut frame = |frame: &SourceFrame| {
            let function = names.id(&frame.function);
            [
                function,
                names.id(frame.file.as_deref().unwrap_or_default()),
                frame.line.unwrap_or(0),
            ]
        };
        CodePart {
            path: module.map_or_else(String::new, |module| module.path.display().to_string()),
            addresses: instructions.iter().map(|it| it.address.0).collect(),
            texts: instructions.iter().map(|it| it.text.as_str()).collect(),
            targets: instructions.iter().map(|it| from_1(it.target)).collect(),
            places: instructions.iter().map(|it| from_1(it.location)).collect(),
            locations: (code.locations.iter())
                .map(|frames| frames.iter().map(&mut frame).collect())
                .collect(),
        }
    }
}
