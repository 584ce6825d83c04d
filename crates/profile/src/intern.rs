//! IDs for modules, frames and stacks, each written once.

use std::collections::HashMap;

use hashbrown::DefaultHashBuilder;
use unspool_rows::{CodeAddr, RuntimeAddr};

use crate::arguments::{Argument, ArgumentsId};
use crate::file::rows::{FrameArguments, StackRun};
use crate::file::table::TableWriter;
use crate::model::{CodeLocation, FrameEvidence, FrameId, ModuleId, ProfileFrame, ProfileModule};
use crate::stacks::{StackId, StackNode, Stacks};

pub(crate) type FastMap<K, V> = hashbrown::HashMap<K, V, DefaultHashBuilder>;

/// A frame from an unwinder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawFrame {
    /// Its address.
    pub code: CodeAddr,
    /// Its evidence.
    pub evidence: FrameEvidence,
    /// The arguments of its function, by the ID from
    /// [`ProfileWriter::arguments`](crate::ProfileWriter::arguments).
    pub arguments: Option<ArgumentsId>,
}

/// The modules of a profile under construction.
#[derive(Debug, Default)]
pub struct ModuleInterner {
    ids: HashMap<ProfileModule, ModuleId>,
    all: Vec<ProfileModule>,
    pub(crate) table: TableWriter<ProfileModule, 7>,
}

impl ModuleInterner {
    /// The ID of a module; equal modules have equal IDs.
    pub fn id(&mut self, module: &ProfileModule) -> ModuleId {
        if let Some(id) = self.ids.get(module) {
            return *id;
        }
        let id = self.add(module);
        self.ids.insert(module.clone(), id);
        id
    }

    /// A new ID for a module that may equal an earlier one: its contents are identified later
    /// ([`ProfileUpdate::ModuleHash`](crate::ProfileUpdate::ModuleHash)).
    pub fn add(&mut self, module: &ProfileModule) -> ModuleId {
        let id = ModuleId(number(self.all.len()));
        self.table.push(module);
        self.all.push(module.clone());
        id
    }

    /// The module with an ID.
    pub(crate) fn get(&self, id: ModuleId) -> Option<&ProfileModule> {
        self.all.get(id.0 as usize)
    }
}

/// The frames of a profile under construction.
#[derive(Debug, Default)]
pub(crate) struct FrameInterner {
    ids: FastMap<ProfileFrame, FrameId>,
    all: Vec<ProfileFrame>,
    pub(crate) table: TableWriter<ProfileFrame, 3>,
    /// The arguments of some of them.
    pub(crate) called_with: TableWriter<FrameArguments, 2>,
}

impl FrameInterner {
    /// All of them, by ID.
    pub(crate) fn all(&self) -> &[ProfileFrame] {
        &self.all
    }

    fn id(&mut self, frame: ProfileFrame) -> FrameId {
        let id = FrameId(number(self.all.len()));
        let (all, table, called_with) = (&mut self.all, &mut self.table, &mut self.called_with);
        *self.ids.entry(frame).or_insert_with(|| {
            all.push(frame);
            table.push(&frame);
            if let Some(arguments) = frame.arguments {
                called_with.push(&FrameArguments {
                    frame: id,
                    arguments,
                });
            }
            id
        })
    }
}

/// The arguments of functions in a profile under construction.
#[derive(Debug, Default)]
pub(crate) struct ArgumentInterner {
    ids: HashMap<Vec<Argument>, ArgumentsId>,
    pub(crate) table: TableWriter<Vec<Argument>, 5>,
}

impl ArgumentInterner {
    /// The ID of a list of arguments; equal lists have equal IDs.
    pub(crate) fn id(&mut self, arguments: &[Argument]) -> ArgumentsId {
        if let Some(id) = self.ids.get(arguments) {
            return *id;
        }
        let id = ArgumentsId::from_index(self.ids.len());
        let arguments = arguments.to_vec();
        self.table.push(&arguments);
        self.ids.insert(arguments, id);
        id
    }
}

/// The stacks of a profile under construction.
#[derive(Debug, Default)]
pub(crate) struct StackInterner {
    stacks: Stacks,
    /// The stacks by their nodes, except for those that directly follow their callers' stack.
    ids: FastMap<StackNode, StackId>,
    /// The latest stacks, which are not in the table yet.
    run: StackRun,
    table: TableWriter<StackRun, 3>,
}

/// The most frames of a run: with the longest encoding of its numbers, the block still has room.
const MAX_RUN_FRAMES: usize = 1 << 16;

impl StackInterner {
    pub(crate) fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    pub(crate) fn has(&self, stack: StackId) -> bool {
        stack.0 < self.stacks.count()
    }

    /// The stack with one more frame. When IDs run out, it is the stack without it.
    fn child(&mut self, parent: StackId, frame: FrameId) -> StackId {
        let node = StackNode { parent, frame };
        // The first child of a stack usually follows it directly, and the newest has no child.
        let next = StackId(parent.0.wrapping_add(1));
        match self.stacks.node(next) {
            Some(child) if child == node => next,
            Some(_) => self.other_child(node),
            None => self.add(node).unwrap_or(parent),
        }
    }

    /// The same for a child that does not directly follow its parent.
    fn other_child(&mut self, node: StackNode) -> StackId {
        if let Some(id) = self.ids.get(&node) {
            return *id;
        }
        let Some(id) = self.add(node) else {
            return node.parent;
        };
        self.ids.insert(node, id);
        id
    }

    fn add(&mut self, node: StackNode) -> Option<StackId> {
        let id = self.stacks.push(node)?;
        self.note(node, id);
        Some(id)
    }

    /// Adds a new stack to the pending rows.
    fn note(&mut self, node: StackNode, id: StackId) {
        let follows = node.parent.0 + 1 == id.0 && !self.run.frames.is_empty();
        if !follows || self.run.frames.len() == MAX_RUN_FRAMES {
            self.end_run();
            self.run.parent = node.parent;
        }
        self.run.frames.push(node.frame);
    }

    fn end_run(&mut self) {
        if !self.run.frames.is_empty() {
            self.table.push(&self.run);
            self.run.frames.clear();
        }
    }

    /// The pending rows.
    pub(crate) fn table(&mut self) -> &mut TableWriter<StackRun, 3> {
        self.end_run();
        &mut self.table
    }
}

/// The frames by their addresses in one process.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    frames: FastMap<RawFrame, FrameId>,
    /// How often they were discarded.
    generation: u32,
}

impl Addresses {
    /// Discards the frames of the addresses.
    pub(crate) fn forget(&mut self) {
        self.frames.clear();
        self.generation = self.generation.wrapping_add(1);
    }
}

/// The last stack of a thread, from the outermost frame on, each with the stack up to it.
#[derive(Debug, Default)]
pub(crate) struct LastStack {
    frames: Vec<(RawFrame, StackId)>,
    generation: u32,
}

/// Looks up the ID of a stack.
pub(crate) struct StackLookup<'a> {
    pub(crate) addresses: &'a mut Addresses,
    pub(crate) modules: &'a mut ModuleInterner,
    pub(crate) frames: &'a mut FrameInterner,
    pub(crate) interner: &'a mut StackInterner,
}

impl StackLookup<'_> {
    /// The ID of a stack whose frames are given from the innermost on. Only the part that differs
    /// from the thread's last stack is looked up.
    pub(crate) fn stack(
        &mut self,
        last: &mut LastStack,
        frames: &[RawFrame],
        mut resolve: impl FnMut(&mut ModuleInterner, RuntimeAddr) -> CodeLocation,
    ) -> StackId {
        if last.generation != self.addresses.generation {
            last.generation = self.addresses.generation;
            last.frames.clear();
        }
        let pairs = last.frames.iter().zip(frames.iter().rev());
        let shared = pairs.take_while(|((old, _), new)| old == *new).count();
        last.frames.truncate(shared);
        let mut stack = last
            .frames
            .last()
            .map_or(StackId::EMPTY, |(_, stack)| *stack);
        for raw in frames.iter().rev().skip(shared) {
            let frame = self.frame(*raw, &mut resolve);
            stack = self.interner.child(stack, frame);
            last.frames.push((*raw, stack));
        }
        stack
    }

    fn frame(
        &mut self,
        raw: RawFrame,
        resolve: &mut impl FnMut(&mut ModuleInterner, RuntimeAddr) -> CodeLocation,
    ) -> FrameId {
        if let Some(frame) = self.addresses.frames.get(&raw) {
            return *frame;
        }
        let lookup = resolve(self.modules, raw.code.lookup());
        let frame = self.frames.id(ProfileFrame::new(raw, lookup));
        self.addresses.frames.insert(raw, frame);
        frame
    }
}

/// The ID after this many others. Memory cannot hold more than it can count.
pub(crate) fn number(others: usize) -> u32 {
    u32::try_from(others).unwrap_or(u32::MAX)
}
