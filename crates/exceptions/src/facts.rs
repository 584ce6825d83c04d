//! What is known of a frame by its code address, read from unwind tables.
//!
//! Async-signal-safe: rows are evaluated in static memory, tables are read where the loader mapped
//! them.

use unspool_cfi::Lookup;
use unspool_rows::memory::read_uint;
use unspool_rows::packed_row::{RowHead, SavedRegister, SavedRegisters};
use unspool_rows::{
    CodeAddr, LoadBias, PackedRow, Pointer, RaState, Register, RegisterScope, Row, RuntimeAddr,
    Vaddr,
};
use unspool_unwind::local::pool::{with_evaluator, with_row};
use unspool_unwind::local::{self, ABI, OwnMemory};
use unspool_unwind::{Module, ModuleSlot, Modules};

use crate::call_site;
use crate::generated_code;

/// An entry of an unwind table cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadEntry;

/// What a personality routine is called with, beside the frame. Run-time addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameHandler {
    /// The personality routine, or 0.
    pub personality: u64,
    /// The language-specific data area, or 0.
    pub lsda: u64,
    /// The function's first address.
    pub start: u64,
}

/// An entry without its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryFacts {
    /// Whom to ask about exceptions.
    pub handler: FrameHandler,
    /// Run-time minus link-time address.
    pub bias: LoadBias,
}

/// What passing exceptions do in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameAction {
    /// Nothing.
    Continue,
    /// They enter it at this landing pad, with the exception and a zero, and then go on.
    CleanUp(u64),
    /// Its personality routine decides.
    Personality,
}

/// All that is known of frames at a code address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameFacts {
    /// The row; `None` if it does not fit into a word.
    pub row: Option<PackedRow>,
    /// How long they are true.
    pub validity: Validity,
    /// What exceptions do there.
    pub action: FrameAction,
    /// Whom to ask.
    pub handler: FrameHandler,
    /// The size of the arguments that the frame has pushed, in bytes: a landing pad finds them
    /// popped.
    pub arguments: u64,
}

/// How long facts are true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// As long as the process runs.
    Process,
    /// As long as the module is loaded.
    Module(ModuleSlot),
    /// As long as no generated code is removed: in this generation of it, below 2^15.
    Generation(u16),
    /// In this frame. They are not kept.
    Frame,
}

impl FrameFacts {
    const TRAMPOLINE: FrameFacts = FrameFacts {
        row: Some(PackedRow::SIGNAL),
        validity: Validity::Frame,
        action: FrameAction::Continue,
        handler: FrameHandler {
            personality: 0,
            lsda: 0,
            start: 0,
        },
        arguments: 0,
    };

    /// The facts of frames at a code address; `None` if no table covers it.
    ///
    /// # Errors
    ///
    /// The entry is bad.
    // Not inlined: what is cached does not need its stack.
    #[cold]
    #[inline(never)]
    pub fn learn(code: CodeAddr) -> Result<Option<FrameFacts>, BadEntry> {
        match FrameFacts::by_fast_row(code)? {
            Some(facts) => Ok(Some(facts)),
            None => FrameFacts::by_row(code),
        }
    }

    /// The facts from an ordinary entry of a module, in a third of the time.
    // Not inlined: the two ways do not need each other's stack.
    #[inline(never)]
    fn by_fast_row(code: CodeAddr) -> Result<Option<FrameFacts>, BadEntry> {
        let Some(module) = local::modules().module(code.lookup()) else {
            return Ok(None);
        };
        let (bias, pc) = (module.bias, module.bias.to_vaddr(code.lookup()));
        let Some(found) = module.cfi.and_then(|lookup| PackedEntry::find(lookup, pc)) else {
            return Ok(None);
        };
        let entry = EntryFacts {
            handler: FrameHandler {
                start: bias.to_runtime(found.start).0,
                personality: resolved(bias, found.personality)?,
                lsda: resolved(bias, found.lsda)?,
            },
            bias,
        };
        Ok(Some(FrameFacts {
            row: Some(found.row),
            validity: validity(module.slot),
            action: call_site::action(code, &entry),
            handler: entry.handler,
            arguments: found.arguments,
        }))
    }

    #[inline(never)]
    fn by_row(code: CodeAddr) -> Result<Option<FrameFacts>, BadEntry> {
        with_row(|row| {
            let Some(origin) = row_at(code, row)? else {
                return Ok(is_trampoline(code.address()).then_some(FrameFacts::TRAMPOLINE));
            };
            Ok(Some(FrameFacts {
                row: PackedRow::from_row(row, ABI.arch, RegisterScope::All)
                    .filter(|packed| recovers_all(packed.saved())),
                validity: origin.validity,
                action: call_site::action(code, &origin.entry),
                handler: origin.entry.handler,
                arguments: row.args_size,
            }))
        })
    }
}

/// The registers that a row must have the rules of: those that a landing pad finds.
const NEEDED: [Register; 7] = {
    let [a, b, c, d, e, f] = SavedRegisters::REGISTERS;
    [
        Register(a),
        Register(b),
        Register(c),
        Register(d),
        Register(e),
        Register(f),
        Register(7),
    ]
};

/// An ordinary entry, with the row at an address.
struct PackedEntry {
    row: PackedRow,
    arguments: u64,
    start: Vaddr,
    personality: Option<Pointer>,
    lsda: Option<Pointer>,
}

impl PackedEntry {
    #[inline(never)]
    fn find(lookup: &Lookup<'_>, pc: Vaddr) -> Option<PackedEntry> {
        let row = lookup.fast_row(pc, NEEDED)?;
        let column = ABI.arch.spec().pc;
        let head = RowHead {
            cfa: row.cfa,
            return_address: column,
            signal_frame: false,
            ra_state: RaState::Plain,
        };
        let rules = NEEDED.into_iter().zip(row.watched);
        let rules = rules.chain([(column, row.return_address)]);
        let rules = rules.filter_map(|(register, rule)| Some((register, rule?)));
        let packed = PackedRow::from_rules(head, rules, ABI.arch, RegisterScope::All)?;
        recovers_all(packed.saved()).then_some(PackedEntry {
            row: packed,
            arguments: row.args_size,
            start: row.start,
            personality: row.personality,
            lsda: row.lsda,
        })
    }
}

/// Whether no register is lost that a landing pad finds.
pub(crate) fn recovers_all(saved: SavedRegisters) -> bool {
    let mut registers = SavedRegisters::REGISTERS.into_iter();
    registers.all(|number| saved.get(number) != Some(SavedRegister::Undefined))
}

/// How long facts of a module are true.
fn validity(slot: Option<ModuleSlot>) -> Validity {
    match slot {
        Some(slot) if slot.0 < 64 && local::modules().staying() >> slot.0 & 1 != 0 => {
            Validity::Process
        }
        Some(slot) => Validity::Module(slot),
        None => Validity::Frame,
    }
}

/// Where a row is from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowOrigin {
    pub(crate) entry: EntryFacts,
    validity: Validity,
}

/// Makes `row` the one at a code address: its module's, or else a registered one. `None` if there
/// is none; then, and after an error, the content of `row` has no meaning.
///
/// # Errors
///
/// The entry is bad.
pub(crate) fn row_at(
    code: CodeAddr,
    row: &mut Row<'static>,
) -> Result<Option<RowOrigin>, BadEntry> {
    let module = local::modules().module(code.lookup());
    if let Some((module, lookup)) = module
        .as_ref()
        .and_then(|module| Some((module, module.cfi?)))
        && let Some(origin) = module_row(module, lookup, code.lookup(), row)?
    {
        return Ok(Some(origin));
    }
    let generation = generated_code::generation();
    if let Some(entry) = generated_code::entry(code.lookup(), row)? {
        return Ok(Some(RowOrigin {
            entry,
            validity: generation.map_or(Validity::Frame, Validity::Generation),
        }));
    }
    Ok(None)
}

fn module_row(
    module: &Module<'static>,
    lookup: &Lookup<'static>,
    pc: RuntimeAddr,
    row: &mut Row<'static>,
) -> Result<Option<RowOrigin>, BadEntry> {
    let bias = module.bias;
    let vaddr = bias.to_vaddr(pc);
    let found = with_evaluator(|evaluator| lookup.row_with(evaluator, vaddr, row));
    let Some(found) = found.map_err(|_| BadEntry)? else {
        return Ok(None);
    };
    let mut handler = FrameHandler {
        start: bias.to_runtime(found.start).0,
        ..FrameHandler::default()
    };
    if found.personality.is_some() {
        let entry = lookup.entry(vaddr).map_err(|_| BadEntry)?;
        let (cie, fde) = entry.ok_or(BadEntry)?;
        handler.personality = resolved(bias, cie.personality)?;
        handler.lsda = resolved(bias, fde.lsda)?;
    }
    Ok(Some(RowOrigin {
        entry: EntryFacts { handler, bias },
        validity: validity(module.slot),
    }))
}

/// A pointer of an entry as a run-time address; zero for none.
pub(crate) fn resolved(bias: LoadBias, pointer: Option<Pointer>) -> Result<u64, BadEntry> {
    match pointer {
        None => Ok(0),
        Some(Pointer::Direct(addr)) => Ok(bias.to_runtime(addr).0),
        Some(Pointer::Indirect(slot)) => {
            let memory = OwnMemory::with_modules();
            let read = read_uint(&memory, bias.to_runtime(slot), 8, ABI.endian);
            read.map_err(|_| BadEntry)
        }
    }
}

/// Whether a frame at an address is that of a signal handler's trampoline, which may have no entry:
/// its bytes decide, as for libgcc.
fn is_trampoline(address: RuntimeAddr) -> bool {
    let bytes = local::modules().bytes_from(address);
    bytes.is_some_and(|bytes| ABI.arch.begins_trampoline(bytes))
}
