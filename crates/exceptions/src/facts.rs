//! What is known of a frame by its code address, read from unwind tables.
//!
//! Async-signal-safe: rows are evaluated in static memory, tables are read where the loader mapped
//! them.

use unspool_cfi::{CfiSection, FastRow, FastRowStates, Lookup, ParsedEntry};
use unspool_rows::memory::read_uint;
use unspool_rows::packed_row::{RowHead, SavedRegisters};
use unspool_rows::{
    CodeAddr, LoadBias, PackedRow, Pointer, RaState, Register, RegisterRule, RegisterScope, Row,
    RuntimeAddr, Vaddr,
};
use unspool_unwind::ModuleSlot;
use unspool_unwind::local::pool::{with_evaluator, with_row};
use unspool_unwind::local::{self, ABI, BufferPool, OwnMemory, OwnUnwindTable, PooledBuffer};

use crate::cache::FrameRule;
use crate::call_site;
use crate::generated_code;

/// An entry of an unwind table cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadEntry;

/// Where a personality routine is: its run-time address, or that of a pointer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PersonalityAddr(u64);

impl PersonalityAddr {
    const INDIRECT: u64 = 1 << 63;

    /// A routine's address; 0 for none.
    #[must_use]
    pub const fn direct(address: u64) -> PersonalityAddr {
        PersonalityAddr(address)
    }

    /// The reverse of [`PersonalityAddr::word`].
    #[inline]
    #[must_use]
    pub(crate) const fn from_word(word: u64) -> PersonalityAddr {
        PersonalityAddr(word)
    }

    /// As a word: with the highest bit set, the address of a pointer.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The address of the pointer to the routine, if it is found by one. The pointer's module stays
    /// loaded as long as the code, but the routine is often in another one.
    #[inline]
    #[must_use]
    pub const fn pointer(self) -> Option<u64> {
        if self.0 & PersonalityAddr::INDIRECT == 0 {
            None
        } else {
            Some(self.0 & !PersonalityAddr::INDIRECT)
        }
    }
}

/// What a personality routine is called with, beside the frame. Run-time addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcedureInfo {
    /// The personality routine.
    pub personality: PersonalityAddr,
    /// The language-specific data area, or 0.
    pub lsda: u64,
    /// The function's first address.
    pub start: u64,
}

impl ProcedureInfo {
    /// No personality routine.
    pub(crate) const NONE: ProcedureInfo = ProcedureInfo {
        personality: PersonalityAddr::direct(0),
        lsda: 0,
        start: 0,
    };

    /// What an entry says of its function.
    ///
    /// # Errors
    ///
    /// A pointer to a pointer cannot be read.
    pub(crate) fn new(
        bias: LoadBias,
        start: Vaddr,
        personality: Option<Pointer>,
        lsda: Option<Pointer>,
    ) -> Result<ProcedureInfo, BadEntry> {
        let address = resolved(bias, personality)?;
        let personality = match personality {
            Some(Pointer::Indirect(pointer)) if address != 0 => {
                PersonalityAddr(bias.to_runtime(pointer).0 | PersonalityAddr::INDIRECT)
            }
            _ => PersonalityAddr(address),
        };
        Ok(ProcedureInfo {
            personality,
            lsda: resolved(bias, lsda)?,
            start: bias.to_runtime(start).0,
        })
    }
}

/// An entry without its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryFacts {
    /// The personality routine and its data.
    pub procedure: ProcedureInfo,
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
    /// What a walk needs.
    pub rule: FrameRule,
    /// The personality routine and its data.
    pub procedure: ProcedureInfo,
    /// The size of the arguments that the frame has pushed, in bytes: a landing pad finds them
    /// popped.
    pub arguments: u64,
}

/// How long facts are true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
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
    /// Nothing is known.
    pub const NONE: FrameFacts = FrameFacts {
        rule: FrameRule::NONE,
        procedure: ProcedureInfo::NONE,
        arguments: 0,
    };

    /// Becomes the facts of frames at a code address, if a table covers that; returns whether one
    /// does.
    ///
    /// # Errors
    ///
    /// The entry is bad.
    // In place: each copy that is returned would need its own stack.
    pub fn learn(&mut self, code: CodeAddr) -> Result<bool, BadEntry> {
        Ok(self.learn_by_fast_row(code)? || self.learn_by_row(code)?)
    }

    /// The facts from an ordinary entry of a module, in a third of the time.
    // Not inlined: the two ways do not need each other's stack.
    #[inline(never)]
    fn learn_by_fast_row(&mut self, code: CodeAddr) -> Result<bool, BadEntry> {
        STORAGE.with_any(|storage| {
            let Some(found) = PackedEntry::find(code.lookup(), storage) else {
                return Ok(false);
            };
            let (cie, fde) = (&storage.entry.cie, &storage.entry.fde);
            let bias = found.bias;
            let procedure = ProcedureInfo::new(bias, fde.start, cie.personality, fde.lsda)?;
            let entry = EntryFacts { procedure, bias };
            let validity = found.validity;
            self.set(code, Some(found.row), &entry, validity, found.arguments);
            Ok(true)
        })
    }

    #[inline(never)]
    fn learn_by_row(&mut self, code: CodeAddr) -> Result<bool, BadEntry> {
        with_row(|row| {
            let Some(origin) = row_at(code, row)? else {
                return Ok(self.learn_trampoline(code.address()));
            };
            let head = RowHead {
                cfa: row.cfa,
                return_address: row.return_address,
                signal_frame: row.signal_frame,
                ra_state: row.ra_state,
            };
            let packed = packed(head, row.rules());
            let RowOrigin { entry, validity } = origin;
            self.set(code, packed, &entry, validity, row.args_size);
            Ok(true)
        })
    }

    fn set(
        &mut self,
        code: CodeAddr,
        row: Option<PackedRow>,
        entry: &EntryFacts,
        validity: Validity,
        arguments: u64,
    ) {
        let action = call_site::action(code, entry);
        *self = FrameFacts {
            rule: FrameRule::new(row, action, validity, arguments != 0),
            procedure: entry.procedure,
            arguments,
        };
    }

    /// The facts of a signal handler's trampoline, which may have no entry: its bytes decide, as for
    /// libgcc.
    fn learn_trampoline(&mut self, address: RuntimeAddr) -> bool {
        let modules = local::modules();
        let bytes = modules.bytes_from(address).unwrap_or_default();
        if !ABI.arch.begins_trampoline(bytes) {
            return false;
        }
        let validity = modules.with_unwind_table(address, |table| Validity::of(&table));
        let (row, validity) = (Some(PackedRow::SIGNAL), validity.unwrap_or(Validity::Frame));
        *self = FrameFacts {
            rule: FrameRule::new(row, FrameAction::Continue, validity, false),
            ..FrameFacts::NONE
        };
        true
    }
}

/// The registers that a landing pad finds.
const LANDING_REGISTERS: [Register; 7] = {
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

/// Packs a row, for landing. As for libgcc, a register that is marked as undefined keeps its value.
pub(crate) fn packed<'e>(
    head: RowHead<'e>,
    rules: impl Iterator<Item = (Register, RegisterRule<'e>)>,
) -> Option<PackedRow> {
    let column = head.return_address;
    let rules =
        rules.filter(|(register, rule)| *register == column || *rule != RegisterRule::Undefined);
    PackedRow::from_rules(head, rules, ABI.arch, RegisterScope::Preserved)
}

/// What is read of an entry. It is not on the stack, which may be a coroutine's.
struct EntryStorage {
    entry: ParsedEntry<'static>,
    states: FastRowStates<'static, 7>,
}

static STORAGE: BufferPool<EntryStorage> = BufferPool::new();

impl PooledBuffer for EntryStorage {
    const EMPTY: EntryStorage = EntryStorage {
        entry: ParsedEntry::EMPTY,
        states: FastRowStates::new(),
    };
}

/// The row at an address, of an ordinary entry of a module.
struct PackedEntry {
    row: PackedRow,
    arguments: u64,
    bias: LoadBias,
    validity: Validity,
}

impl PackedEntry {
    fn find(pc: RuntimeAddr, storage: &mut EntryStorage) -> Option<PackedEntry> {
        let by_table = |table: OwnUnwindTable<'_>| {
            let vaddr = table.bias.to_vaddr(pc);
            table.lookup.read_entry(vaddr, &mut storage.entry)?;
            let (row, arguments) = storage.packed_row(table.lookup.section(), vaddr)?;
            Some(PackedEntry {
                row,
                arguments,
                bias: table.bias,
                validity: Validity::of(&table),
            })
        };
        local::modules().with_unwind_table(pc, by_table)?
    }
}

impl EntryStorage {
    /// The entry's row at an address, and the size of the arguments that are pushed there.
    // Not inlined: reading the headers does not need its stack.
    #[inline(never)]
    fn packed_row(&mut self, section: &CfiSection<'static>, pc: Vaddr) -> Option<(PackedRow, u64)> {
        let ParsedEntry { cie, fde } = &self.entry;
        let states = &mut self.states;
        let found = FastRow::lookup(section, cie, fde, pc, LANDING_REGISTERS, states);
        // By reference: moves would copy.
        let row = found.as_ref()?;
        let column = ABI.arch.spec().pc;
        let head = RowHead {
            cfa: row.cfa,
            return_address: column,
            signal_frame: false,
            ra_state: RaState::Plain,
        };
        let rules = LANDING_REGISTERS.iter().zip(&row.watched);
        let rules = rules.chain([(&column, &row.return_address)]);
        let rules = rules.filter_map(|(register, rule)| Some((*register, (*rule)?)));
        Some((packed(head, rules)?, row.args_size))
    }
}

impl Validity {
    /// How long facts of a module are true.
    fn of(table: &OwnUnwindTable<'_>) -> Validity {
        match table.slot {
            _ if table.is_permanent => Validity::Process,
            Some(slot) => Validity::Module(slot),
            None => Validity::Frame,
        }
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
    let pc = code.lookup();
    let by_table = |table: OwnUnwindTable<'_>| module_row(&table, pc, row);
    if let Some(origin) = local::modules()
        .with_unwind_table(pc, by_table)
        .unwrap_or(Ok(None))?
    {
        return Ok(Some(origin));
    }
    let generation = generated_code::generation(pc);
    let entry = generated_code::row_and_entry(pc, row)?;
    Ok(entry.map(|entry| RowOrigin {
        entry,
        validity: generation.map_or(Validity::Frame, Validity::Generation),
    }))
}

fn module_row(
    table: &OwnUnwindTable<'_>,
    pc: RuntimeAddr,
    row: &mut Row<'static>,
) -> Result<Option<RowOrigin>, BadEntry> {
    let (bias, vaddr) = (table.bias, table.bias.to_vaddr(pc));
    let found = with_evaluator(|evaluator| table.lookup.row_with(evaluator, vaddr, row));
    let Some(found) = found.map_err(|_| BadEntry)? else {
        return Ok(None);
    };
    // Without a personality routine, nobody asks for the language's data.
    let (personality, lsda) = match found.personality {
        Some(_) => pointers(table.lookup, vaddr)?,
        None => (None, None),
    };
    let procedure = ProcedureInfo::new(bias, found.start, personality, lsda)?;
    Ok(Some(RowOrigin {
        entry: EntryFacts { procedure, bias },
        validity: Validity::of(table),
    }))
}

// Not inlined: headers take much of the stack.
#[inline(never)]
fn pointers(
    lookup: &Lookup<'_>,
    pc: Vaddr,
) -> Result<(Option<Pointer>, Option<Pointer>), BadEntry> {
    let entry = lookup.entry(pc).map_err(|_| BadEntry)?;
    let (cie, fde) = entry.ok_or(BadEntry)?;
    Ok((cie.personality, fde.lsda))
}

/// The start of the function at an address, or zero.
pub(crate) fn function_start(pc: RuntimeAddr) -> u64 {
    let by_table = |table: OwnUnwindTable<'_>| {
        let entry = table.lookup.entry(table.bias.to_vaddr(pc));
        let (_, fde) = entry.ok().flatten()?;
        Some(table.bias.to_runtime(fde.start).0)
    };
    let in_module = local::modules().with_unwind_table(pc, by_table).flatten();
    in_module.unwrap_or_else(|| {
        let entry = with_row(|row| generated_code::row_and_entry(pc, row));
        entry
            .ok()
            .flatten()
            .map_or(0, |entry| entry.procedure.start)
    })
}

/// A pointer of an entry as a run-time address; zero for none.
fn resolved(bias: LoadBias, pointer: Option<Pointer>) -> Result<u64, BadEntry> {
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
