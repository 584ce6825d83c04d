//! The outline: a table in the form that code needs.

use hashbrown::HashMap;
use unspool_rows::arch::DefaultRule;
use unspool_rows::encoding;
use unspool_rows::{Abi, Arch, Register, RegisterRule, Row, Table, Vaddr};

use crate::recipe::Recipe;
use crate::status::StepStatus;

/// A distinct row, by index in [`Outline::rows`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowNumber(pub u32);

/// A row or a hole that holds from an address up to the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutlineStart {
    /// The address, as linked.
    pub address: u64,
    /// The row; `None` for a hole.
    pub row: Option<RowNumber>,
}

/// Which row holds from which address on, and the distinct rows.
#[derive(Debug, Clone)]
pub struct Outline<'t> {
    table: &'t Table,
    /// The number of each used row of the table, by its [`unspool_rows::RowId`].
    numbers: Vec<Option<RowNumber>>,
    /// Encoded by [`unspool_rows::encoding`], the most frequent first.
    rows: Vec<Vec<u8>>,
    source_rows: usize,
    start_count: usize,
    /// Start of the last hole.
    end: u64,
}

/// Why a table cannot become code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutlineError {
    /// The architecture is not supported.
    #[error("native code is not supported for {arch}: compile it as a table", arch = .0.spec().name)]
    Arch(Arch),
    /// It covers nothing.
    #[error("the table has no rows: there is nothing to compile")]
    Empty,
    /// A row is invalid.
    #[error("row {0} of the table cannot be read")]
    Row(u32),
}

impl<'t> Outline<'t> {
    /// The registers of a frame have DWARF numbers below this.
    pub const REGISTERS: u16 = 17;

    /// The outline of a table.
    ///
    /// # Errors
    ///
    /// The table is not for x86-64, or is empty.
    pub fn from_table(table: &'t Table) -> Result<Outline<'t>, OutlineError> {
        let abi = table.abi();
        if abi != Abi::X86_64 {
            return Err(OutlineError::Arch(abi.arch));
        }
        let mut outline = Outline {
            table,
            numbers: vec![None; table.distinct_rows()],
            rows: Vec::new(),
            source_rows: 0,
            start_count: 0,
            end: 0,
        };
        let mut known = HashMap::new();
        for span in table.spans() {
            outline.source_rows += 1;
            let unreadable = OutlineError::Row(span.row.0);
            let slot = outline.numbers.get_mut(span.row.0 as usize);
            let slot = slot.ok_or(unreadable)?;
            if slot.is_some() {
                continue;
            }
            let row = table.row(span.row).ok_or(unreadable)?;
            let mut encoded = Vec::new();
            encoding::encode(&effect(&row, abi.arch), &mut encoded);
            let next = RowNumber(u32::try_from(outline.rows.len()).unwrap_or(u32::MAX));
            let number = *known.entry(encoded.clone()).or_insert(next);
            if number == next {
                outline.rows.push(encoded);
            }
            *slot = Some(number);
        }
        if outline.source_rows == 0 {
            return Err(OutlineError::Empty);
        }
        outline.sort();
        Ok(outline)
    }

    /// Sorts rows by the number of their starts, the most frequent first.
    fn sort(&mut self) {
        let mut counts = vec![0_usize; self.rows.len()];
        let (mut start_count, mut end) = (0, 0);
        for start in self.starts() {
            (start_count, end) = (start_count + 1, start.address);
            let row = start.row.and_then(|row| counts.get_mut(row.0 as usize));
            if let Some(count) = row {
                *count += 1;
            }
        }
        (self.start_count, self.end) = (start_count, end);
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by_key(|place| core::cmp::Reverse(counts.get(*place).copied()));
        let mut places = vec![0; order.len()];
        for (place, old) in (0..).zip(&order) {
            if let Some(slot) = places.get_mut(*old) {
                *slot = place;
            }
        }
        for row in self.numbers.iter_mut().flatten() {
            row.0 = places.get(row.0 as usize).copied().unwrap_or(0);
        }
        let mut rows = core::mem::take(&mut self.rows);
        let taken = order
            .iter()
            .filter_map(|old| Some(core::mem::take(rows.get_mut(*old)?)));
        self.rows = taken.collect();
    }

    /// The architecture and byte order.
    #[must_use]
    pub fn abi(&self) -> Abi {
        self.table.abi()
    }

    /// Starts of rows and holes, ascending; the last one is a hole.
    pub fn starts(&self) -> impl Iterator<Item = OutlineStart> {
        let mut spans = self.table.spans().peekable();
        let mut hole = None;
        let mut last = None;
        core::iter::from_fn(move || {
            loop {
                let next = match (hole.take(), spans.peek()) {
                    (Some(end), Some(span)) if end == span.start => continue,
                    (Some(end), _) => (end, None),
                    (None, _) => {
                        let span = spans.next()?;
                        hole = Some(span.end);
                        (
                            span.start,
                            self.numbers.get(span.row.0 as usize).copied().flatten(),
                        )
                    }
                };
                let (Vaddr(address), row) = next;
                if last.replace(row) != Some(row) {
                    return Some(OutlineStart { address, row });
                }
            }
        })
    }

    /// Number of starts, and the address of the last one.
    pub(crate) fn extent(&self) -> (usize, u64) {
        (self.start_count, self.end)
    }

    /// The distinct rows, the most frequent first.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        let empty = Row::new(self.abi().arch.spec().return_address);
        self.rows
            .iter()
            .map(move |row| encoding::decode(row).unwrap_or(empty))
    }

    /// Distinct rows that code leaves to an interpreter, for an expression that is not compiled
    /// ([`StepStatus::NotCompiled`](crate::StepStatus::NotCompiled)).
    pub fn uncompiled_rows(&self) -> impl Iterator<Item = RowNumber> {
        let rows = (0..).map(RowNumber).zip(self.rows());
        rows.filter_map(move |(number, row)| {
            let recipe = Recipe::from_row(&row, self.abi());
            matches!(recipe, Recipe::Fails(StepStatus::NotCompiled)).then_some(number)
        })
    }

    /// Number of rows in the source.
    #[must_use]
    pub fn source_rows(&self) -> usize {
        self.source_rows
    }
}

/// The row without parts that do not affect a step: the size of arguments, rules that hold by
/// default, and rules for registers that no frame has.
fn effect<'e>(row: &Row<'e>, arch: Arch) -> Row<'e> {
    let mut effect = *row;
    effect.args_size = 0;
    for (register, rule) in row.rules() {
        let default = match arch.unspecified(register) {
            DefaultRule::SameValue => Some(RegisterRule::SameValue),
            DefaultRule::Cfa => Some(RegisterRule::ValOffset(0)),
            DefaultRule::Unknown if row.signal_frame => Some(RegisterRule::SameValue),
            // "No return address" differs from "return address lost".
            DefaultRule::Unknown if register == row.return_address => None,
            DefaultRule::Unknown => Some(RegisterRule::Undefined),
        };
        let is_no_register = register >= Register(Outline::REGISTERS);
        if Some(rule) == default || is_no_register && register != row.return_address {
            // Removing a rule always fits.
            let _ = effect.set_rule(register, None);
        }
    }
    effect
}
