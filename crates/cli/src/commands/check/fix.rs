//! `unspool check --fix`: what findings ask for, written into assembly source.
//!
//! An edit is tried on a copy, which is assembled and checked. It stays if the finding is gone, and nothing is found
//! that was not found before. Where that leads nowhere, the rows of the whole function are written anew.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use unspool_annotate::{Plan, Source, Syntax};
use unspool_check::{Code, Finding, Maker, Report, Severity, Subject};
use unspool_ir::Vaddr;
use unspool_module::ElfFile;
use unspool_synth::{Analyzer, Machine};

use super::allow::Allows;
use super::source;
use unspool_unwind::tables;

use crate::args::CheckArgs;
use crate::commands::annotate::line_of;
use crate::output::{self, Failure};

/// Prints what `--fix` would change, and changes nothing.
pub(super) fn print_diffs(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut status = 0;
    for path in &args.files {
        match edit(path, args) {
            Ok(diff) if diff.is_empty() => {}
            Ok(diff) => {
                output::print(diff.as_bytes())?;
                status = status.max(Failure::FINDINGS);
            }
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                status = Failure::COULD_NOT_RUN;
            }
        }
    }
    Ok(ExitCode::from(status))
}

/// Writes what mends findings into the text of a file; if it is only to be shown, yields the difference.
pub(super) fn edit(path: &Path, args: &CheckArgs) -> anyhow::Result<String> {
    if !source::is_assembly(path) {
        bail!(
            "{}: --diff shows edits of assembly source only, whose name would end in .s or .S: --fix a copy of this file, and compare what `unspool show` prints",
            path.display()
        );
    }
    let text = super::super::read_text(path)?;
    let least = super::least(args, Maker::People).max(Severity::Unproven);
    let fixed = fix(path, &text, least)?;
    for (line, refusal) in &fixed.refused {
        let line = line.map_or_else(String::new, |line| format!(":{line}"));
        output::notice(&format_args!("{}{line}: {refusal}", path.display()));
    }
    if fixed.gone > 0 || !fixed.refused.is_empty() {
        let (gone, stay) = (fixed.gone, fixed.refused.len());
        output::notice(&format_args!(
            "{}: {gone} findings fixed, {stay} stay",
            path.display()
        ));
    }
    if args.fix && fixed.source.is_changed() {
        let permissions = fs::metadata(path)?.permissions();
        crate::commands::write(path, fixed.source.to_string().as_bytes(), Some(permissions))?;
    }
    Ok(fixed.source.diff(&path.to_string_lossy()))
}

/// What became of a file.
struct Fixed {
    source: Source,
    /// How many findings are gone.
    gone: usize,
    /// The findings that stay: their lines, and why.
    refused: Vec<(Option<u32>, String)>,
}

/// Why nothing is written for a finding.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("no line of the file makes this instruction (it may be from an included file)")]
    NoLine,
    #[error("the line makes several instructions: write the directive between them by hand")]
    OneLine,
    #[error("the line is in a macro, or is repeated: write the directive by hand")]
    Repeated,
    #[error(
        "the function returns without the return address on top of the stack: it is not come into as functions are"
    )]
    NoFunction,
    #[error("the author knows of an agreement that the code does not show")]
    Agreement,
    #[error("no directive was found that mends it and makes nothing else wrong")]
    NothingFound,
}

/// What a finding is of, whatever directives are written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    section: String,
    offset: u64,
    code: Code,
    subject: String,
}

/// A finding of a draft.
#[derive(Debug, Clone)]
struct Problem {
    key: Key,
    /// Where the entry begins that it is in, or it itself if it is in none.
    entry: u64,
    line: Option<u32>,
    /// Whether the instruction before is of the same line.
    shares_line: bool,
    /// Whether it is of a return, and the CFA below where a return address would be.
    is_below_return: bool,
    fix: Option<String>,
}

impl Problem {
    fn is_in(&self, section: &str, entry: u64) -> bool {
        self.key.section == section && self.entry == entry
    }

    /// Why no edit can be right, whatever becomes of the finding.
    fn refusal(&self) -> Option<Refused> {
        match self.key.code {
            _ if self.is_below_return => Some(Refused::NoFunction),
            Code::PrivateConvention if self.fix.is_none() => Some(Refused::Agreement),
            _ => None,
        }
    }

    /// Whether directives about rows may help.
    fn is_of_rows(&self) -> bool {
        !matches!(
            self.key.code,
            Code::NoEntry
                | Code::EntryTooShort
                | Code::HeightsDiffer
                | Code::SignalFrame
                | Code::Unreached
        )
    }
}

/// A text with what is found of it.
#[derive(Debug, Clone)]
struct Draft {
    source: Source,
    problems: Vec<Problem>,
}

impl Draft {
    fn keys(&self) -> BTreeSet<&Key> {
        self.problems.iter().map(|problem| &problem.key).collect()
    }

    /// Whether less is wrong than before, and nothing else.
    fn improves(&self, before: &Draft) -> bool {
        self.problems.len() < before.problems.len() && self.keys().is_subset(&before.keys())
    }

    /// The same as far as an entry up to a finding, and other entries, are concerned: what is wrong further on may only
    /// show now.
    fn improves_up_to(&self, before: &Draft, problem: &Problem) -> bool {
        let is_further = |other: &&Problem| {
            other.is_in(&problem.key.section, problem.entry)
                && other.key.offset > problem.key.offset
        };
        let keys = |draft: &Draft| -> BTreeSet<Key> {
            let counted = draft.problems.iter().filter(|other| !is_further(other));
            counted.map(|problem| problem.key.clone()).collect()
        };
        let (after, before) = (keys(self), keys(before));
        after.len() < before.len() && after.is_subset(&before)
    }
}

/// Writes into the text of a file what mends its findings of a severity and worse.
fn fix(path: &Path, text: &str, least: Severity) -> anyhow::Result<Fixed> {
    let fixer = Fixer {
        path,
        syntax: Syntax::of(text),
        least,
    };
    let mut draft = fixer.examine(Source::new(text))?;
    let found = draft.problems.len();
    for reach in [Reach::Whole, Reach::Part] {
        draft = fixer.all(draft, reach);
    }
    let refusal = |problem: &Problem| {
        let reason = fixer.edits(&draft.source, problem, Reach::Part).err();
        let reason = reason.unwrap_or(Refused::NothingFound);
        (
            problem.line,
            format!("{} stays: {reason}", problem.key.code.id()),
        )
    };
    Ok(Fixed {
        gone: found - draft.problems.len(),
        refused: draft.problems.iter().map(refusal).collect(),
        source: draft.source,
    })
}

/// How far an entry must be mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Nothing is found of it any more.
    Whole,
    /// Less is found. No directive is taken away then: what it says may be right, and may only not be seen to be.
    Part,
}

/// What does not change from draft to draft.
struct Fixer<'p> {
    path: &'p Path,
    syntax: Syntax,
    least: Severity,
}

impl Fixer<'_> {
    /// Assembles and checks a draft.
    fn examine(&self, source: Source) -> anyhow::Result<Draft> {
        let object = source::assemble_text(&source.to_string(), self.path)?;
        let file = Arc::new(ElfFile::from_bytes(self.path, object)?);
        let declarations = super::declarations_of_source(&file)?;
        let lines = source::lines(&file);
        let subject = Subject::new(&file, &declarations, Maker::People)?;
        let mut subject = subject.with_lines(&lines);
        let findings = Report::of(&mut subject, NonZeroUsize::MIN, |_, _| {}).findings;
        let machine = Machine::of(file.abi()).context("no machine")?;
        let mut analyzer = Analyzer::new(machine);
        let line = |at| line_of(&lines, self.path, at);
        let problem = |finding: Finding| {
            let (section, start) = file.section_of(finding.at)?;
            let extent = subject.program().extent_at(finding.at.0);
            let listing = subject.listing(&mut analyzer, finding.at, 1, 1);
            let (before, here): (Vec<_>, Vec<_>) =
                listing.into_iter().partition(|insn| insn.at < finding.at);
            let is_return = here
                .first()
                .is_some_and(|insn| insn.text.starts_with("ret"));
            let own = line(finding.at);
            Some(Problem {
                entry: extent.map_or(finding.at.0, |extent| extent.start) - start.0,
                line: own,
                shares_line: own.is_some()
                    && before.first().is_some_and(|insn| line(insn.at) == own),
                is_below_return: is_return
                    && finding.code == Code::CfaOffset
                    && finding.computed == "rsp",
                fix: finding.fix.map(|fix| self.written(&fix)),
                key: Key {
                    section: section.into_owned(),
                    offset: finding.at.0 - start.0,
                    code: finding.code,
                    subject: finding.subject,
                },
            })
        };
        let allows = Allows::of(&source);
        let told = findings
            .into_iter()
            .filter(|finding| finding.severity >= self.least);
        let is_allowed = |problem: &Problem| {
            let comment = problem
                .line
                .and_then(|line| allows.covering(&source, line, problem.key.code));
            comment.is_some()
        };
        let problems = told
            .filter_map(problem)
            .filter(|problem| !is_allowed(problem))
            .collect();
        Ok(Draft { source, problems })
    }

    /// A directive in the file's syntax.
    fn written(&self, directive: &str) -> String {
        match self.syntax {
            Syntax::Prefixed => directive.to_owned(),
            Syntax::Plain => directive.replace('%', ""),
        }
    }

    /// Mends all entries; what mends one may show that nothing is wrong with another.
    fn all(&self, mut draft: Draft, reach: Reach) -> Draft {
        loop {
            let before = draft.problems.len();
            let places = draft
                .problems
                .iter()
                .map(|problem| (problem.key.section.clone(), problem.entry));
            let places: BTreeSet<(String, u64)> = places.collect();
            for (section, entry) in places {
                draft = self.entry(&draft, &section, entry, reach).unwrap_or(draft);
            }
            if draft.problems.len() == before {
                return draft;
            }
        }
    }

    /// Mends an entry.
    fn entry(&self, draft: &Draft, section: &str, entry: u64, reach: Reach) -> Option<Draft> {
        let mut own = draft
            .problems
            .iter()
            .filter(|problem| problem.is_in(section, entry));
        if own.any(|problem| problem.refusal().is_some()) {
            return None;
        }
        let is_wanted = |after: &Draft| {
            let mut own = after
                .problems
                .iter()
                .filter(|problem| problem.is_in(section, entry));
            after.improves(draft) && (reach == Reach::Part || own.next().is_none())
        };
        let edited = self.step_by_step(draft.clone(), section, entry, reach);
        match reach {
            _ if is_wanted(&edited) => Some(edited),
            Reach::Whole => self.anew(draft, section, entry).find(is_wanted),
            Reach::Part => None,
        }
    }

    /// Mends an entry's findings in the order of the code, as far as that goes.
    fn step_by_step(&self, mut draft: Draft, section: &str, entry: u64, reach: Reach) -> Draft {
        /// Each costs some runs of the assembler.
        const MOST: usize = 200;
        let mut given_up: BTreeSet<Key> = BTreeSet::new();
        for _ in 0..MOST {
            let mut problems = draft.problems.iter();
            let next = problems.find(|problem| {
                problem.is_in(section, entry)
                    && problem.is_of_rows()
                    && !given_up.contains(&problem.key)
            });
            let Some(problem) = next.cloned() else {
                break;
            };
            match self.step(&draft, &problem, reach) {
                Some(better) => draft = better,
                None => drop(given_up.insert(problem.key)),
            }
        }
        draft
    }

    /// The edit after which least is wrong, if one mends a finding.
    fn step(&self, draft: &Draft, problem: &Problem, reach: Reach) -> Option<Draft> {
        let mut best: Option<Draft> = None;
        for edit in self.edits(&draft.source, problem, reach).ok()? {
            let Ok(after) = self.examine(edit) else {
                continue; // it does not assemble: directives contradict each other
            };
            if !after.improves_up_to(draft, problem) {
                continue;
            }
            let left = after.problems.len();
            if best.as_ref().is_none_or(|best| left < best.problems.len()) {
                let is_clean = !after
                    .problems
                    .iter()
                    .any(|other| other.is_in(&problem.key.section, problem.entry));
                best = Some(after);
                if is_clean {
                    break;
                }
            }
        }
        best
    }

    /// Edits that may mend a finding, the likelier first: a directive stands on the wrong side of the instruction, is too
    /// much, says something else than it should, or is missing.
    fn edits(
        &self,
        source: &Source,
        problem: &Problem,
        reach: Reach,
    ) -> Result<Vec<Source>, Refused> {
        if let Some(refusal) = problem.refusal() {
            return Err(refusal);
        }
        let line = problem.line.ok_or(Refused::NoLine)?;
        if problem.shares_line {
            return Err(Refused::OneLine);
        }
        if source.is_repeated(line) {
            return Err(Refused::Repeated);
        }
        let mut edits = Vec::new();
        let mut edit = |change: &dyn Fn(&mut Source)| {
            let mut copy = source.clone();
            change(&mut copy);
            edits.push(copy);
        };
        let places = source.places_before(line);
        let above = source.gap_before(line).directives;
        let (removable, below) = match reach {
            Reach::Whole => (above.as_slice(), source.gap_behind(line).directives),
            Reach::Part => (&[][..], Vec::new()),
        };
        for directive in removable.iter().rev() {
            edit(&|copy| {
                copy.insert(line + 1, [source.directive(*directive)]);
                copy.remove(*directive);
            });
        }
        for directive in &below {
            edit(&|copy| {
                copy.remove(*directive);
                copy.insert(
                    places.first().copied().unwrap_or(line),
                    [source.directive(*directive)],
                );
            });
        }
        for directive in removable.iter().rev() {
            edit(&|copy| copy.remove(*directive));
        }
        let Some(fix) = &problem.fix else {
            return Ok(edits);
        };
        for directive in above.iter().rev() {
            if let Some(corrected) = corrected(source.directive(*directive), fix) {
                edit(&|copy| copy.replace(*directive, &corrected));
            }
        }
        for place in places {
            edit(&|copy| copy.insert(place, [fix.as_str()]));
        }
        Ok(edits)
    }

    /// Takes directives away, and has all be written that the code of an entry needs: with those of the entry itself, of
    /// the one before and the one behind, or of none, so that what is cut in two becomes one.
    fn anew<'s>(
        &'s self,
        draft: &'s Draft,
        section: &'s str,
        entry: u64,
    ) -> impl Iterator<Item = Draft> + 's {
        let mut own = draft
            .problems
            .iter()
            .filter(move |problem| problem.is_in(section, entry));
        let is_known = |problem: &&Problem| {
            problem.is_of_rows() || matches!(problem.key.code, Code::NoEntry | Code::EntryTooShort)
        };
        let problem = own.find(is_known);
        let strips = problem
            .map(|problem| strips(&draft.source, problem))
            .unwrap_or_default();
        strips.into_iter().filter_map(move |entries| {
            let mut bare = draft.source.clone();
            let is_whole = entries.into_iter().rev().all(|entry| bare.strip(entry));
            let at = problem.filter(|_| is_whole)?.key.offset;
            self.annotated(bare, section, at).ok()?
        })
    }

    /// A text with all directives of the function that has an offset, which has none.
    fn annotated(&self, bare: Source, section: &str, offset: u64) -> anyhow::Result<Option<Draft>> {
        let assemble = |source: &Source| -> anyhow::Result<Arc<ElfFile>> {
            let object = source::assemble_text(&source.to_string(), self.path)?;
            Ok(Arc::new(ElfFile::from_bytes(self.path, object)?))
        };
        let file = assemble(&bare)?;
        let lines = source::lines(&file);
        let line = |at: Vaddr| line_of(&lines, self.path, at);
        let mut plan = Plan::of(&file, &tables::read_if_any(&file)?, self.syntax, line);
        plan.retain_around(section, offset);
        let mut source = bare;
        plan.write_into(&mut source);
        source.keep_what_was_said();
        let written = assemble(&source)?;
        let holds = plan.annotated() > 0
            && plan
                .holds(&written, &tables::read_if_any(&written)?)
                .is_ok();
        holds.then(|| self.examine(source)).transpose()
    }
}

/// The entries that may be taken away to write one anew.
fn strips(source: &Source, problem: &Problem) -> Vec<Vec<Range<u32>>> {
    let Some(line) = problem.line else {
        return Vec::new();
    };
    let around = source.entry_around(line);
    let before = source.entry_before(line);
    let behind = source.entry_behind(line);
    let sets = match around {
        Some(around) => vec![vec![Some(around.clone())], vec![Some(around), behind]],
        None => vec![
            vec![],
            vec![before.clone()],
            vec![behind.clone()],
            vec![before, behind],
        ],
    };
    let whole = sets.into_iter().filter_map(|set| set.into_iter().collect());
    // What begins otherwise than a function after a call is no function, or its author knows more.
    let begins = |set: &Vec<Range<u32>>| {
        set.first()
            .is_none_or(|entry| source.begins_as_called(entry))
    };
    whole.filter(begins).collect()
}

/// A directive changed to what another one would mend, if both are about the same.
fn corrected(directive: &str, fix: &str) -> Option<String> {
    let (name, operands) = split(directive)?;
    let (fix_name, fix_operands) = split(fix)?;
    let number = operands.last().and_then(|number| parse(number));
    let is_of_cfa =
        |name: &str| name.starts_with(".cfi_def_cfa") || name == ".cfi_adjust_cfa_offset";
    if let (Some(number), ".cfi_adjust_cfa_offset", true) = (number, fix_name, is_of_cfa(name)) {
        let sum = number + parse(fix_operands.last()?)?;
        let is_nothing = name == fix_name && sum == 0;
        let mut operands: Vec<String> = operands
            .iter()
            .map(|operand| (*operand).to_owned())
            .collect();
        *operands.last_mut()? = sum.to_string();
        return (!is_nothing).then(|| format!("{name} {}", operands.join(", ")));
    }
    let register = |operands: &[&str]| {
        operands
            .first()
            .map(|name| name.trim_start_matches('%').to_owned())
    };
    let is_same = match (is_of_cfa(name), is_of_cfa(fix_name)) {
        (true, true) => true,
        (false, false) => register(&operands) == register(&fix_operands),
        _ => false,
    };
    is_same.then(|| fix.to_owned())
}

/// The name of a directive, and its operands.
fn split(directive: &str) -> Option<(&str, Vec<&str>)> {
    let (name, operands) = directive.split_once(char::is_whitespace)?;
    Some((name, operands.split(',').map(str::trim).collect()))
}

fn parse(number: &str) -> Option<i64> {
    match number.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    }
}
