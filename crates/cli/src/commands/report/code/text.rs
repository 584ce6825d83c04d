//! Instructions and source lines as text.

use std::path::Path;

use unspool_files::EscapedText;

use super::jumps::JumpArrows;
use super::*;
use crate::commands::report::text::width;
use crate::commands::report::{percent, total};

/// Instructions that are shown around a sampled one.
const INSTRUCTIONS_AROUND: usize = 12;
/// Lines that are shown around a sampled one.
const LINES_AROUND: u32 = 3;

/// Prints the instructions of each function. Those far from samples are left out.
pub(in crate::commands::report) fn print_disassembly(
    out: &mut dyn Write,
    view: &View<'_>,
    disassembly: &Disassembly,
    files: &mut SourceFiles<'_>,
    args: &ReportArgs,
) -> io::Result<()> {
    let mut page = CodePage::new(out, view, args);
    for (function, code) in &disassembly.functions {
        page.function_code(*function, code, files)?;
    }
    Ok(())
}

/// Prints the lines of each function that were sampled, with some around them.
pub(in crate::commands::report) fn print_source(
    out: &mut dyn Write,
    view: &View<'_>,
    listing: &SourceListing<'_>,
    files: &mut SourceFiles<'_>,
    args: &ReportArgs,
) -> io::Result<()> {
    let mut page = CodePage::new(out, view, args);
    for (function, lines) in &listing.functions {
        page.source_lines(*function, lines, files)?;
    }
    Ok(())
}

struct CodePage<'a> {
    out: &'a mut dyn Write,
    view: &'a View<'a>,
    total: u64,
    width: usize,
}

impl<'a> CodePage<'a> {
    fn new(out: &'a mut dyn Write, view: &'a View<'_>, args: &ReportArgs) -> CodePage<'a> {
        CodePage {
            out,
            view,
            total: total(view),
            width: width(&args.output_args.output),
        }
    }

    /// A line, cut at the width.
    fn line(&mut self, text: &str) -> io::Result<()> {
        let text = EscapedText(text.trim_end()).to_string();
        let cut = text
            .char_indices()
            .nth(self.width)
            .map_or(text.len(), |(at, _)| at);
        writeln!(self.out, "{}", text.get(..cut).unwrap_or(&text))
    }

    /// The share of all weight in percent; blank for none.
    fn share(&self, weight: u64) -> String {
        match weight {
            0 => format!("{:8}", ""),
            weight => format!("{:6.2} %", percent(weight, self.total)),
        }
    }

    fn heading(&mut self, function: FunctionId, all: LineWeight) -> io::Result<()> {
        let function = self.view.named.function(function);
        let name = function.map_or_else(String::new, ToString::to_string);
        let (own, total) = (percent(all.own, self.total), percent(all.total, self.total));
        let samples = match all.samples {
            1 => "1 sample".to_owned(),
            samples => format!("{samples} samples"),
        };
        self.line(&format!(
            "{name}: own {own:.2} % ({samples}), total {total:.2} %"
        ))
    }

    fn function_code(
        &mut self,
        function: FunctionId,
        code: &FunctionCode,
        files: &mut SourceFiles<'_>,
    ) -> io::Result<()> {
        let all = SourceLines::new(self.view, function).all;
        self.heading(function, all)?;
        if let Some(module) = self.view.named.profile.module(code.module) {
            let (start, end) = (code.range.start.0, code.range.end.0);
            self.line(&format!(
                "{}, {start:#x} to {end:#x}",
                module.path.display()
            ))?;
        }
        self.line("")?;
        self.line("     own  samples  address")?;
        let arrows = JumpArrows::new(&code.instructions);
        let sampled = |(_, instruction): &(usize, &CodeInstruction)| instruction.samples > 0;
        let count = code.instructions.len();
        let sampled = code.instructions.iter().enumerate().filter(sampled);
        let mut shown = near(count, INSTRUCTIONS_AROUND, sampled.map(|(row, _)| row));
        if !shown.contains(&true) {
            shown.fill(true);
        }
        let mut location = None;
        let mut row = 0;
        while let Some(instruction) = code.instructions.get(row) {
            let hidden = shown.iter().skip(row).take_while(|shown| !**shown).count();
            if hidden > 0 {
                self.line(&format!("{:19}… {hidden} instructions without samples", ""))?;
                row += hidden;
                location = None;
                continue;
            }
            if instruction.location != location {
                location = instruction.location;
                let frames = location.and_then(|at| code.locations.get(at));
                self.location(code.module, frames.map_or(&[], Vec::as_slice), files)?;
            }
            let samples = match instruction.samples {
                0 => String::new(),
                samples => samples.to_string(),
            };
            self.line(&format!(
                "{} {samples:>8}  {:>7x} {} {}",
                self.share(instruction.weight),
                instruction.address.0,
                arrows.beside(row),
                instruction.text
            ))?;
            row += 1;
        }
        self.line("")
    }

    /// The source line of the next instructions.
    fn location(
        &mut self,
        module: ModuleId,
        frames: &[SourceFrame],
        files: &mut SourceFiles<'_>,
    ) -> io::Result<()> {
        let [frame, outer @ ..] = frames else {
            return Ok(());
        };
        let (Some(file), Some(line)) = (&frame.file, frame.line) else {
            return Ok(());
        };
        let name = Path::new(file)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let inlined = if outer.is_empty() {
            String::new()
        } else {
            format!(" (inlined: {})", frame.function)
        };
        let text = files.line(module, file, line).unwrap_or_default();
        self.line(&format!("{:19}{name}:{line}{inlined}  {}", "", text.trim()))
    }

    fn source_lines(
        &mut self,
        function: FunctionId,
        lines: &SourceLines<'_>,
        files: &mut SourceFiles<'_>,
    ) -> io::Result<()> {
        self.heading(function, lines.all)?;
        let mut by_file: std::collections::BTreeMap<&str, Vec<(u32, LineWeight)>> =
            std::collections::BTreeMap::new();
        for ((file, line), weight) in &lines.lines {
            by_file.entry(file).or_default().push((*line, *weight));
        }
        for (name, weights) in by_file {
            self.line("")?;
            self.line(name)?;
            self.line("     own    total     line")?;
            let module = lines.modules.first().copied();
            let file = module.and_then(|module| files.file(module, name));
            self.file_lines(&weights, file)?;
        }
        if lines.without_line.total > 0 {
            let (own, total) = (lines.without_line.own, lines.without_line.total);
            let shares = format!("{} {}", self.share(own), self.share(total));
            self.line(&format!("{shares}        ? without a line"))?;
        }
        self.line("")
    }

    /// Sampled lines, with some around them if the text is known.
    fn file_lines(
        &mut self,
        weights: &[(u32, LineWeight)],
        file: Option<&SourceFile>,
    ) -> io::Result<()> {
        let of_line: HashMap<u32, LineWeight> = weights.iter().copied().collect();
        let mut shown: Vec<u32> = of_line.keys().copied().collect();
        for (line, _) in weights {
            let around = line.saturating_sub(LINES_AROUND)..=line.saturating_add(LINES_AROUND);
            let has_text = |line: &u32| file.is_some_and(|file| file.line(*line).is_some());
            shown.extend(around.filter(has_text));
        }
        shown.sort_unstable();
        shown.dedup();
        let mut previous = None;
        for line in shown {
            if previous.is_some_and(|previous| previous + 1 < line) {
                self.line(&format!("{:25}…", ""))?;
            }
            previous = Some(line);
            let weight = of_line.get(&line).copied().unwrap_or_default();
            let text = file.and_then(|file| file.line(line)).unwrap_or_default();
            let text = expand_tabs(text);
            let shares = format!("{} {}", self.share(weight.own), self.share(weight.total));
            self.line(&format!("{shares} {line:>8}  {text}"))?;
        }
        Ok(())
    }
}
