//! The stacks reported by clients, in a form that can be compared between two runs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::{Error, packages};

/// Stacks and their numbers.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct StackCounts(BTreeMap<FrameLines, u64>);

/// Frames, innermost first: a file and an offset in it.
type FrameLines = Vec<String>;

impl StackCounts {
    /// Their total number.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The frames of all of them.
    #[must_use]
    pub fn frames(&self) -> u64 {
        let frames = |(stack, count): (&FrameLines, &u64)| stack.len() as u64 * count;
        self.0.iter().map(frames).sum()
    }

    /// The stacks that another set lacks, or has less often.
    #[must_use]
    pub fn without(&self, others: &StackCounts) -> StackCounts {
        let left = self.0.iter().filter_map(|(stack, count)| {
            let more = count.saturating_sub(others.0.get(stack).copied().unwrap_or(0));
            (more > 0).then(|| (stack.clone(), more))
        });
        StackCounts(left.collect())
    }

    /// Writes a line for each stack.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, whose: &str, out: &mut impl Write) -> io::Result<()> {
        let mut stacks = self.0.iter();
        stacks.try_for_each(|(stack, count)| writeln!(out, "{whose} {count}: {}", stack.join(" ")))
    }

    fn add(&mut self, frames: FrameLines, count: u64) {
        *self.0.entry(frames).or_default() += count;
    }

    /// `strace -k`'s output: frames are lines below the system calls.
    pub(super) fn from_strace(text: &str) -> Result<StackCounts, Error> {
        let has_debug_names = packages::libunwind_minor_version()? >= 8;
        let mut all = StackCounts::default();
        let mut stack = FrameLines::new();
        for line in text.lines().chain([""]) {
            match line.strip_prefix(" > ") {
                Some(frame) if has_debug_names => stack.push(without_name(frame)),
                Some(frame) => stack.push(frame.to_owned()),
                None if stack.is_empty() => {}
                None => all.add(std::mem::take(&mut stack), 1),
            }
        }
        Ok(all)
    }

    /// heaptrack's raw file. A line `t` for each frame has its address and the index of its
    /// caller's line. A line `+` for each allocation has its frame's index second.
    pub(super) fn from_heaptrack(maps: &str, text: &str) -> Result<StackCounts, Error> {
        let maps = Maps::parse(maps);
        let mut frames: Vec<(String, usize)> = Vec::new();
        let mut all = StackCounts::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |nth: usize| hexadecimal(words.get(nth).copied().unwrap_or_default());
            match words.first() {
                Some(&"t") => frames.push((maps.name(number(1)?), usize::try_from(number(2)?)?)),
                Some(&"+") => {
                    let mut stack = FrameLines::new();
                    let mut next = usize::try_from(number(2)?)?;
                    // Indices start at 1.
                    while let Some((name, caller)) = next.checked_sub(1).and_then(|n| frames.get(n))
                    {
                        stack.push(name.clone());
                        next = *caller;
                    }
                    all.add(stack, 1);
                }
                _ => {}
            }
        }
        Ok(all)
    }

    /// A profile of gperftools' CPU profiler ("CPU Profile Format" in its documentation): words,
    /// after a header, with count, length and addresses of each stack.
    pub(super) fn from_cpu_profile(maps: &str, bytes: &[u8]) -> Result<StackCounts, Error> {
        let maps = Maps::parse(maps);
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = || words.next().ok_or("the profile ends early");
        next()?;
        for _ in 0..next()? {
            next()?;
        }
        let mut all = StackCounts::default();
        loop {
            let (count, length) = (next()?, next()?);
            let mut addresses = Vec::new();
            for _ in 0..length {
                addresses.push(next()?);
            }
            if count == 0 {
                return Ok(all);
            }
            all.add(addresses.iter().map(|at| maps.name(*at)).collect(), count);
        }
    }

    /// A heap profile of gperftools: lines `IN_USE: BYTES [COUNT: BYTES] @ ADDRESS...`.
    pub(super) fn from_heap_profile(maps: &str, text: &str) -> Result<StackCounts, Error> {
        let maps = Maps::parse(maps);
        let mut all = StackCounts::default();
        for line in text.lines().skip(1) {
            let Some((counts, addresses)) = line.split_once("] @ ") else {
                continue;
            };
            let (_, total) = counts.split_once('[').ok_or("a heap profile's line")?;
            let (count, _) = total.split_once(':').ok_or("a heap profile's line")?;
            let mut stack = FrameLines::new();
            for address in addresses.split_whitespace() {
                stack.push(maps.name(hexadecimal(address)?));
            }
            all.add(stack, count.trim().parse()?);
        }
        Ok(all)
    }

    /// glog's lines `@ ADDRESS FUNCTION`.
    pub(super) fn from_glog(maps: &str, text: &str) -> Result<StackCounts, Error> {
        let maps = Maps::parse(maps);
        let mut stack = FrameLines::new();
        for line in text.lines() {
            let Some(("", frame)) = line.trim_start().split_once("@ ") else {
                continue;
            };
            let (address, function) = frame.trim().split_once(' ').ok_or("glog's line")?;
            let name = maps.name(hexadecimal(address)?);
            stack.push(format!("{name} {}", function.trim()));
        }
        Ok(StackCounts([(stack, 1)].into()))
    }
}

/// A frame of `strace -k`, `FILE(FUNCTION+OFFSET) [ADDRESS]`, without the function: libunwind 1.8 has
/// names of debug files, too.
fn without_name(frame: &str) -> String {
    let (file, rest) = frame.split_once('(').unwrap_or((frame, ""));
    let address = rest.rsplit_once(") ").map_or("", |(_, address)| address);
    format!("{file} {address}")
}

fn hexadecimal(text: &str) -> Result<u64, Error> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|error| format!("{text}: {error}").into())
}

/// The mappings of a process: `/proc/PID/maps`.
struct Maps<'m>(Vec<MapsEntry<'m>>);

struct MapsEntry<'m> {
    start: u64,
    end: u64,
    offset: u64,
    file: &'m str,
}

impl<'m> Maps<'m> {
    fn parse(text: &'m str) -> Self {
        Maps(text.lines().filter_map(MapsEntry::parse).collect())
    }

    /// The file and the offset in it.
    fn name(&self, address: u64) -> String {
        let is_here = |map: &&MapsEntry<'_>| (map.start..map.end).contains(&address);
        match self.0.iter().find(is_here) {
            Some(map) => format!("{}+{:#x}", map.file, address - map.start + map.offset),
            None => "nowhere".to_owned(),
        }
    }
}

impl<'m> MapsEntry<'m> {
    fn parse(line: &'m str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        let path = words.nth(2)?;
        Some(MapsEntry {
            start: hexadecimal(start).ok()?,
            end: hexadecimal(end).ok()?,
            offset: hexadecimal(offset).ok()?,
            file: path.rsplit('/').next()?,
        })
    }
}
