//! How many stacks reach their root, and why others do not.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use crate::intern::FastMap;
use crate::model::{
    CodeLocation, FrameEvidence, FrameId, Meta, ModuleId, ModuleKind, Profile, ProfileFrame,
    ProfileModule, ProfileRate, ProfileSample, StackEnd,
};
use crate::runtime::Runtime;
use crate::stacks::{StackId, Stacks};

/// How complete the stacks of some samples are. All numbers count samples, except for frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Completeness {
    /// Stacks that reach their root by frames of their own.
    pub complete: u64,
    /// Those of them with a guessed frame.
    pub guessed: u64,
    /// Stacks that reach their root by spliced frames.
    pub spliced: u64,
    /// The reasons of the other user stacks, the most frequent first.
    pub incomplete: Vec<IncompleteStacks>,
    /// Samples of kernel threads, which have no user stack.
    pub kernel_threads: u64,
    /// Samples without user registers.
    pub no_user_registers: u64,
    /// Samples recorded without callers.
    pub no_callers: u64,
    /// The same of 32-bit processes.
    pub thirty_two_bit: u64,
    /// The number of frames by evidence, counted once for each sample.
    pub frames: BTreeMap<FrameEvidence, u64>,
    /// The number of samples lost during the recording, whatever the selection.
    pub lost: u64,
    /// Whether perf recorded them.
    pub is_of_perf: bool,
    /// The sampling rate.
    pub rate: ProfileRate,
    /// The runtimes that frames are of, each with the number of samples whose innermost frame
    /// outside the kernel is in its files.
    pub runtimes: BTreeMap<Runtime, u64>,
    /// Whether frames are in code that a program made at run time.
    pub has_generated_code: bool,
}

/// Stacks that end for the same reason in the same code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncompleteStacks {
    /// The reason.
    pub end: StackEnd,
    /// The location of the outermost frame in most of them; `None` without any frame.
    pub location: Option<CodeLocation>,
    /// Its module; `None` for code in no module.
    pub module: Option<ProfileModule>,
    /// The number of samples.
    pub samples: u64,
}

/// A reason for incomplete stacks as shown to users: for each module, if the location matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncompleteReason<'a> {
    /// The reason.
    pub end: StackEnd,
    /// The location of the outermost frame in most of the samples, if that matters.
    pub location: Option<CodeLocation>,
    /// Its module; `None` for code in no module.
    pub module: Option<&'a ProfileModule>,
    /// The number of samples.
    pub samples: u64,
}

impl Completeness {
    /// Counts samples.
    #[must_use]
    pub fn new(profile: &Profile, samples: &[&ProfileSample]) -> Completeness {
        let mut count = CompletenessCounter::default();
        let (stacks, frames) = (profile.stacks(), profile.frames());
        let mut marks = vec![StackMarks::default()];
        for node in stacks.nodes() {
            let callers = marks.get(node.parent.0 as usize).copied();
            let frame = frames.get(node.frame.0 as usize);
            marks.push(callers.unwrap_or_default().with(frame));
        }
        // The samples of each stack, then those of all that end with it.
        let mut totals = vec![0; marks.len()];
        for sample in samples {
            let place = sample.stack.0 as usize;
            if let (Some(marks), Some(total)) = (marks.get(place), totals.get_mut(place)) {
                count.add_stack(*marks, stacks, frames, sample.stack, sample.end, 1);
                *total += 1;
            }
        }
        for (index, node) in stacks.nodes().enumerate().rev() {
            let samples = totals.get(index + 1).copied().unwrap_or_default();
            if let Some(total) = totals.get_mut(node.parent.0 as usize) {
                *total += samples;
            }
            count.add_frame(frames, node.frame, samples);
        }
        profile
            .lost()
            .iter()
            .for_each(|lost| count.add_lost(lost.count));
        let module = |id| profile.module(id);
        count.completeness(profile.meta(), profile.frames(), module)
    }

    /// The number of stacks that do not reach their root.
    #[must_use]
    pub fn incomplete(&self) -> u64 {
        self.incomplete.iter().map(|why| why.samples).sum()
    }

    /// The reasons, the most frequent first.
    #[must_use]
    pub fn reasons(&self) -> Vec<IncompleteReason<'_>> {
        let mut reasons: Vec<IncompleteReason<'_>> = Vec::new();
        for why in &self.incomplete {
            // A copy that is too short may end anywhere.
            let is_anywhere = matches!(
                why.end,
                StackEnd::NotCopied
                    | StackEnd::CallChain
                    | StackEnd::Limit
                    | StackEnd::CodeReplaced
            );
            let same = |other: &&mut IncompleteReason<'_>| is_anywhere && other.end == why.end;
            match reasons.iter_mut().find(same) {
                Some(same) => same.samples += why.samples,
                None => reasons.push(IncompleteReason {
                    end: why.end,
                    location: why.location.filter(|_| !is_anywhere),
                    module: why.module.as_ref().filter(|_| !is_anywhere),
                    samples: why.samples,
                }),
            }
        }
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.samples));
        reasons
    }

    /// The number of samples with a user stack.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.complete + self.spliced + self.incomplete()
    }

    /// The number of all samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        let others = [
            self.kernel_threads,
            self.no_user_registers,
            self.no_callers,
            self.thirty_two_bit,
        ];
        self.stacks() + others.iter().sum::<u64>()
    }
}

/// The summary line of a recording or a report: "99.97 % of 17,535 stacks are complete; 5
/// incomplete: 3 no unwind table in libfoo.so+0x1234, 2 stack copy too short".
#[derive(Debug, Clone, Copy)]
pub struct CompletenessSummary<'a>(&'a Completeness);

/// The start of that line, without reasons and numbers: "99.97 % of 17,535 stacks are complete",
/// and how many of them are so by spliced frames.
#[derive(Debug, Clone, Copy)]
pub struct Headline<'a>(&'a Completeness);

impl fmt::Display for Headline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.0;
        let stacks = of.stacks();
        let (count, are) = match stacks {
            0 => return f.write_str("no stacks of programs"),
            1 => ("1 stack".to_owned(), "is"),
            _ => (format!("{} stacks", GroupedDigits(stacks)), "are"),
        };
        let complete = share(of.complete + of.spliced, stacks);
        write!(f, "{complete} of {count} {are} complete")?;
        if of.spliced == 0 {
            return Ok(());
        }
        let [direct, spliced] = [of.complete, of.spliced].map(|part| share(part, stacks));
        write!(
            f,
            ": {direct} directly, {spliced} by outer frames spliced in ([s]), because the copied \
             stack was too short"
        )
    }
}

impl Completeness {
    /// The start of the summary line.
    #[must_use]
    pub(crate) fn headline(&self) -> Headline<'_> {
        Headline(self)
    }

    /// The summary line of a recording or a report.
    #[must_use]
    pub fn summary(&self) -> CompletenessSummary<'_> {
        CompletenessSummary(self)
    }
}

/// The most reasons to name.
const MAX_REASONS: usize = 4;

impl fmt::Display for CompletenessSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.0;
        of.headline().fmt(f)?;
        self.incomplete(f)?;
        let others = [
            (of.guessed, "with guessed frames"),
            (of.kernel_threads, "of kernel threads"),
            (of.no_user_registers, "without a user stack"),
            (of.no_callers, "recorded without callers"),
            (of.thirty_two_bit, "of 32-bit processes, without callers"),
            (of.lost, "lost"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "; {} {what}", GroupedDigits(count))?;
        }
        Ok(())
    }
}

impl CompletenessSummary<'_> {
    /// Why stacks do not reach a root.
    fn incomplete(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.0;
        if of.incomplete() == 0 {
            return Ok(());
        }
        write!(f, "; {} incomplete:", GroupedDigits(of.incomplete()))?;
        let reasons = of.reasons();
        for (n, reason) in reasons.iter().take(MAX_REASONS).enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma} {reason}")?;
        }
        let others = reasons
            .iter()
            .skip(MAX_REASONS)
            .map(|reason| reason.samples);
        match others.sum() {
            0 => Ok(()),
            others => write!(f, ", {} for other reasons", GroupedDigits(others)),
        }
    }
}

impl fmt::Display for IncompleteReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", GroupedDigits(self.samples), self.end)?;
        match (self.location, self.module) {
            (Some(place), Some(module)) => {
                let name = crate::names::short_name(&module.path);
                write!(f, " in {name}+{:#x}", place.address())
            }
            (Some(place), None) => write!(f, " at {:#x}", place.address()),
            (None, _) => Ok(()),
        }
    }
}

/// A share in percent, rounded down unless it is the whole: only the whole is 100 %. A share above
/// 0 is never shown as 0.
#[must_use]
pub fn share(part: u64, of: u64) -> String {
    let hundredths = u128::from(part) * 10_000 / u128::from(of.max(1));
    match hundredths {
        0 if part > 0 => "less than 0.01 %".into(),
        10_000 => "100 %".into(),
        _ => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    }
}

/// A number with commas between groups of thousands.
#[derive(Debug, Clone, Copy)]
pub struct GroupedDigits(pub u64);

impl fmt::Display for GroupedDigits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::new();
        for (n, digit) in digits.chars().enumerate() {
            if n > 0 && (digits.len() - n).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad_integral(true, "", &text)
    }
}

/// Counts samples incrementally.
#[derive(Debug, Default)]
pub(crate) struct CompletenessCounter {
    /// All fields other than the ones below.
    all: Completeness,
    /// By the index of the evidence.
    frames: [u64; FrameEvidence::ALL.len()],
    /// The samples by the module of their innermost frame outside the kernel.
    innermost: FastMap<ModuleId, u64>,
    /// The incomplete stacks, by their last frame.
    ends: FastMap<(StackEnd, Option<FrameId>), u64>,
}

/// The certainty of a stack's frames.
#[derive(Debug, Clone, Copy, Default)]
struct StackMarks {
    is_spliced: bool,
    is_guessed: bool,
}

impl StackMarks {
    /// Of the stack with one more frame.
    fn with(self, frame: Option<&ProfileFrame>) -> StackMarks {
        StackMarks {
            is_spliced: self.is_spliced
                || frame.is_some_and(|frame| frame.evidence == FrameEvidence::Spliced),
            is_guessed: self.is_guessed || frame.is_some_and(|frame| frame.evidence.is_guess()),
        }
    }
}

impl CompletenessCounter {
    /// Counts samples of a stack.
    pub(crate) fn add(
        &mut self,
        stacks: &Stacks,
        frames: &[ProfileFrame],
        stack: StackId,
        end: StackEnd,
        samples: u64,
    ) {
        let mut marks = StackMarks::default();
        for frame in stacks.frames(stack) {
            self.add_frame(frames, frame, samples);
            marks = marks.with(frames.get(frame.0 as usize));
        }
        self.add_stack(marks, stacks, frames, stack, end, samples);
    }

    /// Counts a frame of samples.
    fn add_frame(&mut self, frames: &[ProfileFrame], frame: FrameId, samples: u64) {
        let frame = frames.get(frame.0 as usize);
        let count = frame.and_then(|frame| self.frames.get_mut(frame.evidence as usize));
        if let Some(count) = count {
            *count += samples;
        }
    }

    /// Counts samples of a stack, without its frames.
    fn add_stack(
        &mut self,
        marks: StackMarks,
        stacks: &Stacks,
        frames: &[ProfileFrame],
        stack: StackId,
        end: StackEnd,
        samples: u64,
    ) {
        let mut from_innermost = stacks
            .frames(stack)
            .filter_map(|id| frames.get(id.0 as usize));
        let user = from_innermost.find(|frame| frame.evidence != FrameEvidence::Kernel);
        if let Some(module) = user.and_then(ProfileFrame::module) {
            *self.innermost.entry(module).or_default() += samples;
        }
        match end {
            StackEnd::KernelThread => self.all.kernel_threads += samples,
            StackEnd::NoUserRegisters => self.all.no_user_registers += samples,
            StackEnd::NoCallers => self.all.no_callers += samples,
            StackEnd::ThirtyTwoBit => self.all.thirty_two_bit += samples,
            end if end.is_root() && marks.is_spliced => self.all.spliced += samples,
            end if end.is_root() => {
                self.all.complete += samples;
                self.all.guessed += if marks.is_guessed { samples } else { 0 };
            }
            end => {
                let outermost = stacks.frames(stack).last();
                *self.ends.entry((end, outermost)).or_default() += samples;
            }
        }
    }

    /// Adds lost samples.
    pub(crate) fn add_lost(&mut self, samples: u64) {
        self.all.lost = self.all.lost.saturating_add(samples);
    }

    /// The result.
    pub(crate) fn completeness<'m>(
        &self,
        meta: &Meta,
        frames: &[ProfileFrame],
        module: impl Fn(ModuleId) -> Option<&'m ProfileModule>,
    ) -> Completeness {
        let kinds = FrameEvidence::ALL.iter().copied().zip(self.frames);
        let modules: HashSet<ModuleId> = frames.iter().filter_map(ProfileFrame::module).collect();
        let is_generated = |frame: &ProfileFrame| match frame.module() {
            Some(id) => module(id).is_some_and(|module| module.kind == ModuleKind::Jit),
            None => matches!(frame.lookup, CodeLocation::Process(..)),
        };
        let mut runtimes = BTreeMap::new();
        for id in modules {
            let runtime = module(id).and_then(|module| Runtime::from_path(&module.path));
            if let Some(runtime) = runtime {
                *runtimes.entry(runtime).or_default() += self.innermost.get(&id).unwrap_or(&0);
            }
        }
        Completeness {
            runtimes,
            has_generated_code: frames.iter().any(is_generated),
            incomplete: self.by_module(frames, module),
            frames: kinds.filter(|(_, count)| *count > 0).collect(),
            is_of_perf: meta.tool.starts_with("perf "),
            rate: meta.event.rate,
            ..self.all.clone()
        }
    }

    /// Combines ends in one module with one reason.
    fn by_module<'m>(
        &self,
        frames: &[ProfileFrame],
        module: impl Fn(ModuleId) -> Option<&'m ProfileModule>,
    ) -> Vec<IncompleteStacks> {
        let mut joined: BTreeMap<_, Vec<(u64, Option<CodeLocation>)>> = BTreeMap::new();
        for ((end, frame), samples) in &self.ends {
            let frame = frame.and_then(|id| frames.get(id.0 as usize));
            let place = frame.map(ProfileFrame::location);
            let module = frame.and_then(ProfileFrame::module);
            let places = joined.entry((*end, module)).or_default();
            places.push((*samples, place));
        }
        let incomplete =
            |((end, id), places): ((StackEnd, Option<ModuleId>), Vec<_>)| IncompleteStacks {
                end,
                // Among equally frequent ones, the first.
                location: (places.iter())
                    .max_by_key(|(samples, place)| (*samples, std::cmp::Reverse(*place)))
                    .and_then(|(_, place)| *place),
                module: id.and_then(&module).cloned(),
                samples: places.iter().map(|(samples, _)| samples).sum(),
            };
        let mut all: Vec<IncompleteStacks> = joined.into_iter().map(incomplete).collect();
        all.sort_by_key(|why| (std::cmp::Reverse(why.samples), why.end, why.location));
        all
    }
}
