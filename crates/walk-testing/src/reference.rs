//! A walk by rows alone: what the interpreter and the tables say, and nothing else.

use unspool_rows::interpret::{self, FrameContext};
use unspool_rows::{CodeAddr, Registers, Row, RuntimeAddr, Table, Vaddr};

use crate::stack::{ABI, CaseModule, CaseModules, RandomStack};

/// How a walk by rows ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceEnd {
    /// At a root: every walker finds exactly these frames.
    Root,
    /// There is no room for more frames: every walker finds these.
    Limit,
    /// The return address is in no module. A walker may know of other code there.
    NoModule,
    /// The rows do not lead further. A walker may guess, or know more.
    Unknown,
}

/// A walk by rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferenceWalk {
    /// The code addresses, from the innermost frame on.
    pub addresses: Vec<u64>,
    /// The end.
    pub end: ReferenceEnd,
}

impl ReferenceWalk {
    /// Walks from a frame with these registers, as long as there is room.
    ///
    /// `tables` has those of all versions of all modules.
    #[must_use]
    pub fn walk(
        mut code: CodeAddr,
        mut registers: Registers,
        modules: &CaseModules,
        tables: &[Table],
        stack: &RandomStack,
        room: usize,
    ) -> ReferenceWalk {
        let mut addresses = vec![code.address().0];
        let end = loop {
            let next = step(code, &registers, modules, tables, stack);
            let (caller, caller_registers) = match next {
                Ok(caller) => caller,
                Err(end) => break end,
            };
            if addresses.len() >= room {
                break ReferenceEnd::Limit;
            }
            addresses.push(caller.address().0);
            (code, registers) = (caller, caller_registers);
        };
        ReferenceWalk { addresses, end }
    }

    /// Whether a walker may have found these frames, the innermost of which it may not show.
    #[must_use]
    pub fn allows(&self, addresses: &[u64]) -> bool {
        match self.end {
            ReferenceEnd::Root => self.addresses == addresses,
            _ => addresses.starts_with(&self.addresses),
        }
    }
}

/// The caller of a frame, and its registers.
fn step(
    code: CodeAddr,
    registers: &Registers,
    modules: &CaseModules,
    tables: &[Table],
    stack: &RandomStack,
) -> Result<(CodeAddr, Registers), ReferenceEnd> {
    let module = modules.find(code.lookup()).ok_or(ReferenceEnd::Unknown)?;
    let row = row(code, &module, &tables[module.table()], stack).ok_or(ReferenceEnd::Unknown)?;
    let context = FrameContext {
        abi: ABI,
        registers,
        memory: stack,
        bias: module.bias,
        pac_mask: 0,
    };
    let caller = interpret::step(&row, &context).map_err(|_| ReferenceEnd::Unknown)?;
    let address = match caller.return_address {
        None => return Err(ReferenceEnd::Root),
        // Code at 0 can be interrupted, by the fault of a call there.
        Some(RuntimeAddr(0)) if !row.signal_frame => return Err(ReferenceEnd::Root),
        Some(address) => address,
    };
    let code = if row.signal_frame {
        CodeAddr::Instruction(address)
    } else {
        CodeAddr::Return(address)
    };
    if !row.signal_frame
        && [code.lookup(), address]
            .iter()
            .all(|at| modules.find(*at).is_none())
    {
        return Err(ReferenceEnd::NoModule);
    }
    Ok((code, caller.registers))
}

/// The row of a frame, if it is only a matter of the table.
fn row<'t>(
    code: CodeAddr,
    module: &CaseModule,
    table: &'t Table,
    stack: &RandomStack,
) -> Option<Row<'t>> {
    let pc = module.bias.to_vaddr(code.lookup());
    let entry = table
        .fdes()
        .iter()
        .find(|fde| fde.start <= pc && pc < fde.end)?;
    // Entry code is a root by its address.
    if module.entry == Some(entry.start) {
        return None;
    }
    // Where a function ends, the bytes behind it tell a call that does not return from a signal
    // handler's trampoline.
    let is_behind = |address| module.bias.to_vaddr(address) == Vaddr(entry.end.0);
    if let CodeAddr::Return(address) = code
        && is_behind(address)
        && stack.byte(address.0).is_some()
    {
        return None;
    }
    let rows = table.rows(entry).take_while(|row| row.start <= pc);
    table.row(rows.last()?.row)
}
