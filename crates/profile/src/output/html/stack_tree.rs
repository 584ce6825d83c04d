//! The stacks of samples as a tree of functions.

use crate::intern::number;
use crate::model::FrameId;
use crate::names::{FrameCertainty, FrameLine};
use crate::output::View;
use crate::stacks::StackId;

/// A function of a frame in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StackStep {
    pub(super) function: u32,
    mark: FrameCertainty,
    is_inlined: bool,
    /// The line in the function, from 1 for its first one; 0 if unknown.
    pub(super) line: u32,
}

impl StackStep {
    pub(super) fn flags(&self) -> u64 {
        let mark = match self.mark {
            FrameCertainty::Certain => 0,
            FrameCertainty::Guessed => 1,
            FrameCertainty::Spliced => 2,
        };
        mark | u64::from(self.is_inlined) << 2
    }
}

/// The stacks of samples, with functions instead of frames.
pub(super) struct StackTree {
    /// All different steps, sorted.
    steps: Vec<StackStep>,
    /// For each node in preorder, the number of functions in its stack and the number of its step.
    preorder: Vec<(u32, u32)>,
    /// For each stack of the profile, the number of its innermost node.
    numbers: Vec<u32>,
}

/// The outermost function of a stack's innermost frame: the callee of the stack without the frame.
#[derive(Clone, Copy, Default)]
struct Callee {
    stack: StackId,
    /// Its number among the distinct steps, which are sorted.
    step: u32,
    /// How many functions are inlined into it.
    inlined: u32,
}

impl StackTree {
    /// The stacks of a view; `line_of` is the line of a function in a frame ([`StackStep::line`]).
    pub(super) fn new(view: &View<'_>, line_of: impl Fn(&FrameLine) -> u32) -> StackTree {
        let stacks = view.named.profile.stacks();
        let steps = FrameSteps::new(view, line_of);
        let callees = Callees::new(view, &steps);
        let mut preorder = Vec::with_capacity(callees.all.len());
        let mut numbers = vec![0; stacks.count() as usize];
        // What comes first in preorder is on top. Those of one depth in a row have one caller, and
        // equal ones become one node. Inlined functions follow one by one.
        let mut waiting: Vec<(u32, Callee)> = Vec::new();
        let mut equal: Vec<Callee> = Vec::new();
        waiting.extend(callees.of(StackId::EMPTY).iter().map(|callee| (1, *callee)));
        sort_descending(&mut waiting);
        while let Some((depth, last)) = waiting.last().copied() {
            let is_equal = |it: &mut (u32, Callee)| (it.0, it.1.step) == (depth, last.step);
            while let Some((_, it)) = waiting.pop_if(is_equal) {
                equal.push(it);
            }
            preorder.push((depth, last.step));
            let first = waiting.len();
            for it in equal.drain(..) {
                if let Some(inlined) = it.inlined.checked_sub(1) {
                    let frame = stacks.node(it.stack).map(|node| node.frame);
                    let step = frame.and_then(|frame| steps.of(frame).get(inlined as usize));
                    let inlined = step.map(|step| Callee {
                        step: *step,
                        inlined,
                        ..it
                    });
                    waiting.extend(inlined.map(|callee| (depth + 1, callee)));
                } else {
                    if let Some(place) = numbers.get_mut(it.stack.0 as usize) {
                        *place = number(preorder.len());
                    }
                    let callees = callees.of(it.stack).iter();
                    waiting.extend(callees.map(|callee| (depth + 1, *callee)));
                }
            }
            sort_descending(waiting.get_mut(first..).unwrap_or_default());
        }
        StackTree {
            steps: steps.distinct,
            preorder,
            numbers,
        }
    }

    /// All nodes, each after its caller, with the numbers of functions in their stacks. Equal
    /// functions with different marks or lines are neighbours.
    pub(super) fn preorder(&self) -> impl Iterator<Item = (u32, &StackStep)> {
        let nodes = self.preorder.iter();
        nodes.filter_map(|(depth, step)| Some((*depth, self.steps.get(*step as usize)?)))
    }

    /// The number of a stack's innermost node in preorder, from 1; 0 without a frame.
    pub(super) fn number(&self, stack: StackId) -> u32 {
        self.numbers.get(stack.0 as usize).copied().unwrap_or(0)
    }
}

fn sort_descending(waiting: &mut [(u32, Callee)]) {
    waiting.sort_unstable_by_key(|(_, callee)| std::cmp::Reverse(callee.step));
}

/// The stacks of samples and of their callers, by the caller's stack.
struct Callees {
    /// For each stack, where its callees begin; last, where the last ones end.
    starts: Vec<u32>,
    all: Vec<Callee>,
}

impl Callees {
    fn new(view: &View<'_>, steps: &FrameSteps) -> Callees {
        let stacks = view.named.profile.stacks();
        let count = stacks.count() as usize;
        let mut is_used = vec![false; count];
        for sample in &view.samples {
            let mut stack = sample.stack;
            while let Some(used) = is_used.get_mut(stack.0 as usize).filter(|used| !**used) {
                *used = true;
                let Some(node) = stacks.node(stack) else {
                    break;
                };
                stack = node.parent;
            }
        }
        let used = || {
            let all = (1..).map(StackId).zip(stacks.nodes());
            let used = all.zip(is_used.iter().skip(1)).filter(|(_, used)| **used);
            used.map(|(numbered, _)| numbered)
        };
        // First the numbers of callees, then where each one's end; as they are filled in, from the
        // last to the first, the ends become starts.
        let mut starts = vec![0_u32; count + 1];
        for (_, node) in used() {
            if let Some(callees) = starts.get_mut(node.parent.0 as usize) {
                *callees += 1;
            }
        }
        let mut sum = 0;
        for end in &mut starts {
            sum += *end;
            *end = sum;
        }
        let mut all = vec![Callee::default(); sum as usize];
        for (stack, node) in used() {
            let Some((step, inlined)) = steps.of(node.frame).split_last() else {
                continue;
            };
            if let Some(end) = starts.get_mut(node.parent.0 as usize) {
                *end -= 1;
                if let Some(place) = all.get_mut(*end as usize) {
                    *place = Callee {
                        stack,
                        step: *step,
                        inlined: number(inlined.len()),
                    };
                }
            }
        }
        Callees { starts, all }
    }

    fn of(&self, stack: StackId) -> &[Callee] {
        part(&self.all, &self.starts, stack.0)
    }
}

/// A part of a list of parts that begin at `starts`.
fn part<'a, T>(all: &'a [T], starts: &[u32], index: u32) -> &'a [T] {
    let bounds = starts.get(index as usize..).and_then(<[u32]>::first_chunk);
    let range = bounds.map_or(0..0, |&[start, end]| start as usize..end as usize);
    all.get(range).unwrap_or_default()
}

/// The steps of frames.
struct FrameSteps {
    /// All different ones, sorted.
    distinct: Vec<StackStep>,
    /// For each frame, where its steps begin; last, where the last ones end.
    starts: Vec<u32>,
    /// The numbers of the steps of each frame, the innermost first.
    numbers: Vec<u32>,
}

impl FrameSteps {
    fn new(view: &View<'_>, line_of: impl Fn(&FrameLine) -> u32) -> FrameSteps {
        let (mut all, mut starts) = (Vec::new(), vec![0]);
        for (id, frame) in (0..).map(FrameId).zip(view.named.profile.frames()) {
            let mark = FrameCertainty::from_evidence(frame.evidence);
            let steps = view.named.lines_of(id).iter().map(|line| StackStep {
                function: line.function.0,
                mark,
                is_inlined: line.is_inlined,
                line: line_of(line),
            });
            all.extend(steps);
            starts.push(number(all.len()));
        }
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let number_of = |step| number(distinct.binary_search(step).unwrap_or_default());
        let numbers = all.iter().map(number_of).collect();
        FrameSteps {
            distinct,
            starts,
            numbers,
        }
    }

    /// The numbers of a frame's steps, the innermost first.
    fn of(&self, frame: FrameId) -> &[u32] {
        part(&self.numbers, &self.starts, frame.0)
    }
}
