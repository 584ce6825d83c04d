//! How many stacks reach their root, and why the others do not.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::{End, Evidence, FrameId, Place, Profile, Sample};
use crate::stacks::StackId;

/// How complete the stacks of some samples are. All numbers count samples, but for those of frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Completeness {
    /// Whose stack reaches its root by frames of its own.
    pub complete: u64,
    /// Of those: whose stack has a guessed frame.
    pub guessed: u64,
    /// Whose stack reaches its root by frames that were spliced in.
    pub spliced: u64,
    /// Why the others with a user's stack do not, the most frequent first.
    pub incomplete: Vec<Incomplete>,
    /// Of threads of the kernel, which have no user's stack.
    pub kernel_threads: u64,
    /// Without registers of the user's code.
    pub no_user_registers: u64,
    /// How many frames were found in which way: each as often as a sample has it.
    pub frames: BTreeMap<Evidence, u64>,
    /// How many samples were lost while recording, whatever is looked at.
    pub lost: u64,
}

/// Samples whose stacks end for the same reason in the same code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incomplete {
    /// The reason.
    pub end: End,
    /// Where the outermost frame stands in the most of them; `None` without any frame.
    pub place: Option<Place>,
    /// How many.
    pub samples: u64,
}

impl Completeness {
    /// Counts.
    #[must_use]
    pub fn new(profile: &Profile, samples: &[&Sample]) -> Completeness {
        let mut all = Completeness {
            lost: profile.lost().iter().map(|lost| lost.count).sum(),
            ..Completeness::default()
        };
        let mut stacks: BTreeMap<(StackId, End), u64> = BTreeMap::new();
        for sample in samples {
            *stacks.entry((sample.stack, sample.end)).or_default() += 1;
        }
        let mut ends: BTreeMap<(End, Option<FrameId>), u64> = BTreeMap::new();
        for ((stack, end), samples) in stacks {
            let (outermost, found) = all.count_frames(profile, stack, samples);
            match end {
                End::KernelThread => all.kernel_threads += samples,
                End::NoUserRegisters => all.no_user_registers += samples,
                end if end.is_root() && found.is_spliced => all.spliced += samples,
                end if end.is_root() => {
                    all.complete += samples;
                    all.guessed += if found.is_guessed { samples } else { 0 };
                }
                end => *ends.entry((end, outermost)).or_default() += samples,
            }
        }
        all.incomplete = by_module(profile, ends);
        all
    }

    /// Counts the frames of a stack; yields the outermost, and how they were found.
    fn count_frames(
        &mut self,
        profile: &Profile,
        stack: StackId,
        samples: u64,
    ) -> (Option<FrameId>, Found) {
        let mut found = Found::default();
        let mut outermost = None;
        for id in profile.stacks().frames(stack) {
            let Some(frame) = profile.frame(id) else {
                continue;
            };
            *self.frames.entry(frame.evidence).or_default() += samples;
            found.is_spliced |= frame.evidence == Evidence::Spliced;
            found.is_guessed |= frame.evidence.is_guess();
            outermost = Some(id);
        }
        (outermost, found)
    }

    /// Those whose stack does not reach its root.
    #[must_use]
    pub fn incomplete(&self) -> u64 {
        self.incomplete.iter().map(|why| why.samples).sum()
    }

    /// Those with a user's stack.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.complete + self.spliced + self.incomplete()
    }
}

/// The line that a recording or a report has of it: "99.97 % of 17,535 stacks reach a root; 5
/// incomplete: 3 no unwind table in libfoo.so+0x1234, 2 stack copy too short".
#[derive(Debug, Clone, Copy)]
pub struct Summary<'a> {
    profile: &'a Profile,
    of: &'a Completeness,
}

/// The line's beginning, without reasons and numbers: "99.97 % of 17,535 stacks reach a root".
#[derive(Debug, Clone, Copy)]
pub struct Headline<'a>(&'a Completeness);

impl fmt::Display for Headline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.0;
        let stacks = of.stacks();
        match stacks {
            0 => write!(f, "no stacks of programs")?,
            1 => write!(f, "{} of 1 stack reaches a root", share(of.complete, 1))?,
            _ => {
                let complete = share(of.complete, stacks);
                write!(f, "{complete} of {} stacks reach a root", Grouped(stacks))?;
            }
        }
        if of.spliced > 0 {
            let spliced = share(of.spliced, stacks);
            write!(
                f,
                ", {spliced} by frames spliced in beyond the copied stack"
            )?;
        }
        Ok(())
    }
}

impl Completeness {
    /// The beginning of that line.
    #[must_use]
    pub fn headline(&self) -> Headline<'_> {
        Headline(self)
    }

    /// The line that a recording or a report has of it.
    #[must_use]
    pub fn summary<'a>(&'a self, profile: &'a Profile) -> Summary<'a> {
        Summary { profile, of: self }
    }
}

/// How many reasons are named.
const SHOWN: usize = 4;

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.of;
        of.headline().fmt(f)?;
        self.incomplete(f)?;
        let others = [
            (of.guessed, "with guessed frames"),
            (of.kernel_threads, "of kernel threads"),
            (of.no_user_registers, "without a user stack"),
            (of.lost, "lost"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "; {} {what}", Grouped(count))?;
        }
        Ok(())
    }
}

impl Summary<'_> {
    /// Why stacks do not reach a root.
    fn incomplete(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.of;
        if of.incomplete() == 0 {
            return Ok(());
        }
        write!(f, "; {} incomplete:", Grouped(of.incomplete()))?;
        for (n, why) in of.incomplete.iter().take(SHOWN).enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma} {} {}", Grouped(why.samples), why.end.reason())?;
            self.place(f, why)?;
        }
        let others = of.incomplete.iter().skip(SHOWN).map(|why| why.samples);
        match others.sum() {
            0 => Ok(()),
            others => write!(f, ", {} for other reasons", Grouped(others)),
        }
    }

    /// Where it ended, if that tells something: a short copy ends anywhere.
    fn place(&self, f: &mut fmt::Formatter<'_>, why: &Incomplete) -> fmt::Result {
        match why.place {
            Some(_) if matches!(why.end, End::NotCopied | End::Limit | End::NotUnwound) => Ok(()),
            Some(Place::Module(id, address)) => {
                let path = self.profile.module(id).map(|module| module.path.as_path());
                let name = path.map(crate::names::short_name).unwrap_or_default();
                write!(f, " in {name}+{address}")
            }
            Some(place) => write!(f, " at {:#x}", place.address()),
            None => Ok(()),
        }
    }
}

/// A share in percent, never rounded up: only all of it is 100 %.
#[must_use]
pub fn share(part: u64, of: u64) -> String {
    let hundredths = u128::from(part) * 10_000 / u128::from(of.max(1));
    match hundredths {
        10_000 => "100 %".into(),
        _ => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    }
}

/// A number with commas between its thousands.
#[derive(Debug, Clone, Copy)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
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

#[derive(Debug, Clone, Copy, Default)]
struct Found {
    is_spliced: bool,
    is_guessed: bool,
}

/// Joins the ends of one module that have one reason.
fn by_module(profile: &Profile, ends: BTreeMap<(End, Option<FrameId>), u64>) -> Vec<Incomplete> {
    let mut joined: BTreeMap<(End, Option<u32>), (u64, Incomplete)> = BTreeMap::new();
    for ((end, frame), samples) in ends {
        let place = frame.and_then(|id| Some(profile.frame(id)?.place()));
        let module = match place {
            Some(Place::Module(module, _)) => Some(module.0),
            _ => None,
        };
        let new = Incomplete {
            end,
            place,
            samples: 0,
        };
        let (most, why) = joined.entry((end, module)).or_insert((0, new));
        why.samples += samples;
        if samples > *most {
            *most = samples;
            why.place = place;
        }
    }
    let mut all: Vec<Incomplete> = joined.into_values().map(|(_, why)| why).collect();
    all.sort_by_key(|why| (std::cmp::Reverse(why.samples), why.end, why.place));
    all
}
