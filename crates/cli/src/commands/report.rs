//! `unspool report`.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use regex_lite::Regex;
use unspool_profile::aggregate::{self, Direction};
use unspool_profile::output::flamegraph::{self, FlameGraph};
use unspool_profile::output::{View, firefox, folded, html, perf_script, pprof, speedscope};
use unspool_profile::{
    CodeLimits, CpuState, FunctionId, NamedProfile, Profile, ProfileFunction, ProfileNames,
    SampledCode, Selection, Time, WaitReason, archive,
};

use crate::args::profiles::{
    FileForm, Filters, OnOff, OutputArgs, ReportArgs, ReportFormat, ReportGroup, SourceArgs,
    TreeKind, WaitArg,
};
use crate::commands;
use crate::commands::diff::ProfilePair;
use crate::commands::recording::{Recording, named_or_default, status};
use crate::output;
use crate::text::fit::{without_arguments, without_parameters};
use unspool_symbols::{NameDetail, SourceFinder, Symbolizer};

mod code;
mod empty;
mod json;
mod names;
mod text;

use code::{Disassembly, SourceFiles, SourceListing};
pub(super) use json::complete;
pub(super) use names::{look_up_names, notice_stripped, without_files};
pub(super) use text::{weight_text, width as text_width};

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let path = named_or_default(args.file.as_deref().or(args.input.as_deref()))?;
    let (profile, is_whole) = load(path, &args.output_args.filters)?;
    anyhow::ensure!(
        matches!(
            args.output_args.format(),
            ReportFormat::Text | ReportFormat::Json
        ) || matches!(args.group, ReportGroup::Function | ReportGroup::Wait),
        "--by chooses the list of a text, and other forms have stacks of functions: leave it out"
    );
    let names = look_up_names(&profile, detail(&args.output_args.filters));
    let named = NamedProfile::new(&profile, &names);
    let view = match args.output_args.format() {
        ReportFormat::Html | ReportFormat::Archive => {
            page_view(path, &named, &args.output_args.filters)?
        }
        _ if args.group == ReportGroup::Wait => {
            let filters = Filters {
                state: OnOff::Off,
                ..args.output_args.filters.clone()
            };
            view_of(path, &named, &filters, None)?
        }
        _ => view(path, &named, &args.output_args.filters)?,
    };
    if args.disasm.is_some() || args.source.is_some() {
        print_code(&view, &names, args)?;
        return Ok(status(is_whole && !view.samples.is_empty()));
    }
    let around = args
        .around
        .as_deref()
        .map(|name| find(&named, name))
        .transpose()?;
    let (source_args, filters) = (&args.source_args, &args.output_args.filters);
    write_to(&args.output_args.output, |out| {
        match args.output_args.format() {
            ReportFormat::Text if view.samples.is_empty() => Ok(()),
            ReportFormat::Text => text::print(out, &view, args, around.as_deref()),
            ReportFormat::Json => json::print(out, &view),
            ReportFormat::Folded => folded::write(out, &view),
            ReportFormat::Flamegraph => {
                let direction = match args.tree {
                    TreeKind::Callees | TreeKind::None => Direction::Callees,
                    TreeKind::Callers => Direction::Callers,
                };
                flamegraph::write(out, &view, graph(&args.output_args, direction))
            }
            ReportFormat::Html => {
                let code = sampled_code(&view, &names, source_args, filters, &CodeLimits::PAGE);
                html::write_with_code(out, &view, &code)
            }
            ReportFormat::Archive => {
                let code = sampled_code(&view, &names, source_args, filters, &CodeLimits::ARCHIVE);
                archive::write(out, &view, &names, &code)
            }
            ReportFormat::Pprof => pprof::write(out, &view),
            ReportFormat::Firefox => firefox::write(out, &view),
            ReportFormat::Speedscope => speedscope::write(out, &view),
            ReportFormat::PerfScript => perf_script::write(out, &view),
        }
    })?;
    Ok(status(is_whole && !view.samples.is_empty()))
}

/// The instructions or the source lines of a function.
fn print_code(view: &View<'_>, names: &ProfileNames, args: &ReportArgs) -> anyhow::Result<()> {
    let is_json = match args.output_args.format() {
        ReportFormat::Text => false,
        ReportFormat::Json => true,
        _ => anyhow::bail!("--disasm and --source are text or JSON: leave out --format"),
    };
    let output = &args.output_args.output;
    let mut files = SourceFiles::new(view.named.profile, names, args);
    if let Some(name) = &args.disasm {
        let functions = find(view.named, name)?;
        let disassembly = Disassembly::new(view, names, args, &functions)?;
        write_to(output, |out| {
            if is_json {
                code::disassembly_json(out, view, &disassembly)
            } else {
                code::print_disassembly(out, view, &disassembly, &mut files, args)
            }
        })?;
    }
    if let Some(name) = &args.source {
        let functions = find(view.named, name)?;
        let listing = SourceListing::new(view, &functions)?;
        write_to(output, |out| {
            if is_json {
                code::source_json(out, view, &listing, &mut files)
            } else {
                code::print_source(out, view, &listing, &mut files, args)
            }
        })?;
    }
    Ok(())
}

/// A profile as a page, perhaps compared with an earlier one; `None` if no sample of one of them
/// passes the filters.
pub(super) fn page(
    path: &Path,
    before_path: Option<&Path>,
    source_args: &SourceArgs,
    filters: &Filters,
) -> anyhow::Result<Option<Vec<u8>>> {
    let code = |view: &View<'_>, names: &ProfileNames| {
        sampled_code(view, names, source_args, filters, &CodeLimits::PAGE)
    };
    let mut page = Vec::new();
    if let Some(before_path) = before_path {
        let pair = ProfilePair::load([before_path, path], filters)?;
        let [before, after] = pair.named();
        let before = page_view(before_path, &before, filters)?;
        let after = page_view(path, &after, filters)?;
        if before.samples.is_empty() || after.samples.is_empty() {
            return Ok(None);
        }
        let code = code(&after, pair.names_after());
        html::write_comparison(&mut page, &before, &after, &code)?;
    } else {
        let (profile, _) = load(path, filters)?;
        let names = look_up_names(&profile, detail(filters));
        let named = NamedProfile::new(&profile, &names);
        let view = page_view(path, &named, filters)?;
        if view.samples.is_empty() {
            return Ok(None);
        }
        html::write_with_code(&mut page, &view, &code(&view, &names))?;
    }
    Ok(Some(page))
}

/// The code to keep. Source files are not fetched from servers: there can be many.
pub(super) fn sampled_code(
    view: &View<'_>,
    names: &ProfileNames,
    source_args: &SourceArgs,
    filters: &Filters,
    limits: &CodeLimits,
) -> SampledCode {
    if source_args.no_code {
        return SampledCode::default();
    }
    let mut finder = SourceFinder::new(source_args.source_map.clone());
    if source_args.download_sources {
        finder = finder.with_servers_from_environment();
    }
    let (symbolizer, report) = (code_symbolizer(filters), &names::report_download);
    SampledCode::look_up(view, names, &symbolizer, &finder, limits, report)
}

/// Looks up the lines of instructions. Only those of sampled ones are worth a cache.
fn code_symbolizer(filters: &Filters) -> Symbolizer {
    Symbolizer::from_environment(detail(filters)).with_cache(None)
}

/// The parameters of a flame graph.
pub(super) fn graph<F: FileForm>(output_args: &OutputArgs<F>, direction: Direction) -> FlameGraph {
    FlameGraph {
        direction,
        max_height: output_args.max_height.get(),
    }
}

/// Reads a profile, or imports a recording by perf; and whether it is complete.
pub(super) fn load(path: &Path, filters: &Filters) -> anyhow::Result<(Profile, bool)> {
    let (mut profile, is_whole) = Recording::profile(path, filters.event.as_deref())?;
    if filters.no_args {
        profile.forget_arguments();
    }
    Ok((profile, is_whole))
}

pub(super) fn detail(filters: &Filters) -> NameDetail {
    if filters.no_lines {
        NameDetail::Functions
    } else {
        NameDetail::Lines
    }
}

/// The samples that pass the filters. If none does, a notice says why.
pub(super) fn view<'a>(
    path: &Path,
    named: &'a NamedProfile<'a>,
    filters: &Filters,
) -> anyhow::Result<View<'a>> {
    let mut samples = named.profile.samples().iter();
    let state = if samples.any(|sample| sample.state == CpuState::OnCpu) {
        CpuState::OnCpu
    } else {
        CpuState::OffCpu
    };
    view_of(path, named, filters, Some(state))
}

/// The same with the samples of all states, unless a filter says which: a page selects among them.
pub(super) fn page_view<'a>(
    path: &Path,
    named: &'a NamedProfile<'a>,
    filters: &Filters,
) -> anyhow::Result<View<'a>> {
    view_of(path, named, filters, None)
}

/// The same; without `--state`, the samples of this state, or all.
fn view_of<'a>(
    path: &Path,
    named: &'a NamedProfile<'a>,
    filters: &Filters,
    state: Option<CpuState>,
) -> anyhow::Result<View<'a>> {
    let samples = selection(named, filters, state)?.samples(named);
    if samples.is_empty() {
        let why = empty::why(named, filters)?;
        output::notice(&format_args!("{}: {why}", path.display()));
    }
    Ok(View { named, samples })
}

fn selection<'f>(
    named: &NamedProfile<'_>,
    filters: &'f Filters,
    state: Option<CpuState>,
) -> anyhow::Result<Selection<'f>> {
    let profile = named.profile;
    let start = profile.meta().clock.0;
    let after = |time: Option<std::time::Duration>| {
        let nanos = time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        nanos.map(|nanos| Time(start.saturating_add(nanos)))
    };
    let mut selection = Selection {
        threads: filters.thread.clone(),
        processes: filters.process.clone(),
        time: match (after(filters.since), after(filters.until)) {
            (None, None) => None,
            (since, until) => Some(since.unwrap_or(Time(0))..until.unwrap_or(Time(u64::MAX))),
        },
        state: match filters.state {
            OnOff::On => Some(CpuState::OnCpu),
            OnOff::Off => Some(CpuState::OffCpu),
            OnOff::Auto if !filters.wait.is_empty() => Some(CpuState::OffCpu),
            OnOff::Auto => state,
        },
        waits: filters.wait.iter().copied().map(wait_reason).collect(),
        ..Selection::default()
    };
    if let Some(module) = &filters.module {
        selection.module = Some(Box::new(move |name| name == module));
    }
    if let Some(function) = &filters.function {
        let regex = Regex::new(function).context("--function")?;
        selection.function = Some(Box::new(move |name| regex.is_match(name)));
    }
    Ok(selection)
}

fn wait_reason(wait: WaitArg) -> WaitReason {
    match wait {
        WaitArg::Lock => WaitReason::Lock,
        WaitArg::Sleep => WaitReason::Sleep,
        WaitArg::Events => WaitReason::Events,
        WaitArg::Pipe => WaitReason::Pipe,
        WaitArg::Socket => WaitReason::Socket,
        WaitArg::Terminal => WaitReason::Terminal,
        WaitArg::Disk => WaitReason::Disk,
        WaitArg::Memory => WaitReason::Memory,
        WaitArg::Process => WaitReason::Process,
        WaitArg::Signal => WaitReason::Signal,
        WaitArg::Cpu => WaitReason::Cpu,
        WaitArg::Unknown => WaitReason::Unknown,
    }
}

/// The functions of this name: several modules may have one.
fn find(named: &NamedProfile<'_>, name: &str) -> anyhow::Result<Vec<FunctionId>> {
    let ids = |is_meant: &dyn Fn(&ProfileFunction) -> bool| -> Vec<FunctionId> {
        let all = (0..).map(FunctionId).zip(named.functions());
        let found = all.filter(|(_, function)| is_meant(function));
        found.map(|(id, _)| id).collect()
    };
    let found = ids(&|function| [&function.name, function.plain_name()].contains(&name));
    if !found.is_empty() {
        return Ok(found);
    }
    // Without its parameters, template arguments and namespaces, if they are not needed.
    let is_end = |whole: &str| {
        let before = whole.strip_suffix(name);
        before.is_some_and(|before| before.is_empty() || before.ends_with("::"))
    };
    let shorter: [&dyn Fn(&ProfileFunction) -> bool; 2] = [
        &|function| without_parameters(&function.name) == name,
        &|function| {
            let short = without_parameters(&function.name);
            is_end(short) || is_end(without_arguments(short))
        },
    ];
    let one = shorter.into_iter().map(ids).find(|found| {
        let names = found.iter().map(|id| named.function_name(*id));
        names.collect::<BTreeSet<_>>().len() == 1
    });
    one.with_context(|| {
        let known = named.functions().iter().map(|function| &*function.name);
        let near = crate::text::names::suggest(known, name);
        format!("no sample has a function named `{name}`{near}")
    })
}

/// Writes a result to a file, or to standard output for `-`.
pub(super) fn write_to(
    path: &Path,
    print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        let mut out = output::results();
        print(&mut out)?;
        return Ok(out.flush()?);
    }
    commands::write_by(path, None, |file| {
        let mut out = BufWriter::with_capacity(1 << 16, file);
        print(&mut out)?;
        Ok(out.flush()?)
    })
}

/// The share of a weight, in percent.
#[expect(clippy::cast_precision_loss, reason = "it is shown with two digits")]
pub(super) fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

pub(super) fn total(view: &View<'_>) -> u64 {
    aggregate::total(&view.samples)
}
