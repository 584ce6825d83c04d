//! Numbers for modules, frames and stacks, each told once.

use std::collections::HashMap;

use hashbrown::DefaultHashBuilder;
use unspool_rows::{CodeAddr, RuntimeAddr};

use crate::arguments::{Argument, ArgumentsId};
use crate::file::rows::{FrameArguments, StackRun};
use crate::file::table::TableWriter;
use crate::model::{CodeLocation, FrameEvidence, FrameId, ModuleId, ProfileFrame, ProfileModule};
use crate::stacks::{StackId, StackNode, Stacks};

type FastMap<K, V> = hashbrown::HashMap<K, V, DefaultHashBuilder>;

/// A frame as an unwinder finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawFrame {
    /// Where it stands.
    pub code: CodeAddr,
    /// How it was found.
    pub evidence: FrameEvidence,
    /// What its function was called with, as [`Writer::arguments`](crate::Writer::arguments) numbers it.
    pub arguments: Option<ArgumentsId>,
}

/// The modules of a profile that is being written.
#[derive(Debug, Default)]
pub struct ModuleInterner {
    ids: HashMap<ProfileModule, ModuleId>,
    all: Vec<ProfileModule>,
    pub(crate) table: TableWriter<ProfileModule, 7>,
}

impl ModuleInterner {
    /// The number of a module, which is the same for an equal one.
    pub fn id(&mut self, module: &ProfileModule) -> ModuleId {
        if let Some(id) = self.ids.get(module) {
            return *id;
        }
        let id = self.add(module);
        self.ids.insert(module.clone(), id);
        id
    }

    /// The number of another module, which may only look like one before: its contents are told later
    /// ([`ProfileUpdate::ModuleHash`](crate::Change::ModuleHash)).
    pub fn add(&mut self, module: &ProfileModule) -> ModuleId {
        let id = ModuleId(number(self.all.len()));
        self.table.push(module);
        self.all.push(module.clone());
        id
    }

    /// The module with a number.
    pub(crate) fn get(&self, id: ModuleId) -> Option<&ProfileModule> {
        self.all.get(id.0 as usize)
    }
}

/// The frames of a profile that is being written.
#[derive(Debug, Default)]
pub(crate) struct FrameInterner {
    ids: FastMap<ProfileFrame, FrameId>,
    all: Vec<ProfileFrame>,
    pub(crate) table: TableWriter<ProfileFrame, 3>,
    /// What some of them were called with.
    pub(crate) called_with: TableWriter<FrameArguments, 2>,
}

impl FrameInterner {
    /// All of them, by their numbers.
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

/// What functions were called with, of a profile that is being written.
#[derive(Debug, Default)]
pub(crate) struct ArgumentInterner {
    ids: HashMap<Vec<Argument>, ArgumentsId>,
    pub(crate) table: TableWriter<Vec<Argument>, 5>,
}

impl ArgumentInterner {
    /// The number of a list of arguments, which is the same for an equal one.
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

/// The stacks of a profile that is being written.
#[derive(Debug, Default)]
pub(crate) struct StackInterner {
    stacks: Stacks,
    /// The stacks by what they consist of, but for those that follow their callers' stack.
    ids: FastMap<StackNode, StackId>,
    /// The latest stacks, which are not in the table yet.
    run: StackRun,
    table: TableWriter<StackRun, 3>,
}

/// The most frames of a chain: with its numbers at their longest, the block still has room.
const MAX_RUN_FRAMES: usize = 1 << 16;

impl StackInterner {
    pub(crate) fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    pub(crate) fn has(&self, stack: StackId) -> bool {
        stack.0 < self.stacks.count()
    }

    /// The stack with one frame more. When no number is left, it is the one without.
    fn child(&mut self, parent: StackId, frame: FrameId) -> StackId {
        let node = StackNode { parent, frame };
        // The first child of a stack is mostly the stack after it, and the newest has none.
        let next = StackId(parent.0.wrapping_add(1));
        match self.stacks.node(next) {
            Some(child) if child == node => next,
            Some(_) => self.other_child(node),
            None => self.add(node).unwrap_or(parent),
        }
    }

    /// The same for a child that does not follow its parent.
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

    /// Adds a new stack to what is to be written.
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

    /// The rows that are to be written.
    pub(crate) fn table(&mut self) -> &mut TableWriter<StackRun, 3> {
        self.end_run();
        &mut self.table
    }
}

/// The frames that addresses of one process stand for.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    frames: FastMap<RawFrame, FrameId>,
    /// How often they were forgotten.
    generation: u32,
}

impl Addresses {
    /// Forgets what the addresses stand for.
    pub(crate) fn forget(&mut self) {
        self.frames.clear();
        self.generation = self.generation.wrapping_add(1);
    }
}

/// The last stack of a thread, from the outermost frame on, each with the stack that it ends.
#[derive(Debug, Default)]
pub(crate) struct LastStack {
    frames: Vec<(RawFrame, StackId)>,
    generation: u32,
}

/// What finds the number of a stack.
pub(crate) struct StackLookup<'a> {
    pub(crate) addresses: &'a mut Addresses,
    pub(crate) modules: &'a mut ModuleInterner,
    pub(crate) frames: &'a mut FrameInterner,
    pub(crate) tree: &'a mut StackInterner,
}

impl StackLookup<'_> {
    /// The number of a stack whose frames are given from the innermost on. Only what differs from
    /// the thread's last stack is looked up.
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
            stack = self.tree.child(stack, frame);
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

/// The number of what comes after so many others. There is no memory for more than it can count.
pub(crate) fn number(others: usize) -> u32 {
    u32::try_from(others).unwrap_or(u32::MAX)
}
