//! The names of many addresses of one module as flat arrays.

use std::collections::HashMap;
use std::ops::Range;

use unspool_elf::{InlineFrame, SignatureDetail, Symbol};
use unspool_rows::Vaddr;

use crate::names::{AddressName, CodeSymbol, InlineFrameRef};

/// Addresses and their names. Each text and each function is stored once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NameTable {
    /// Sorted by address, each once.
    pub(crate) entries: Vec<AddressEntry>,
    pub(crate) functions: Vec<FunctionEntry>,
    pub(crate) frames: Vec<FrameEntry>,
    pub(crate) texts: TextPool,
}

/// The data of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressEntry {
    pub(crate) address: u64,
    /// The index of its function plus one; 0 for none.
    pub(crate) function: u32,
    /// The index of its first frame.
    pub(crate) first: u32,
    /// Its number of frames.
    pub(crate) count: u32,
}

/// A symbol; without a name, a function from the unwind table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FunctionEntry {
    pub(crate) name: TextId,
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// The hash of the mangled name.
    pub(crate) symbol_hash: u32,
}

/// A [`InlineFrameRef`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameEntry {
    pub(crate) function: TextId,
    pub(crate) file: TextId,
    /// 0 if unknown.
    pub(crate) line: u32,
    /// The column plus one; 0 if unknown.
    pub(crate) column: u32,
}

/// The index of a text plus one; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct TextId(pub(crate) u32);

/// Concatenated texts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TextPool {
    pub(crate) bytes: String,
    /// The end of each.
    pub(crate) ends: Vec<u32>,
}

impl TextPool {
    pub(crate) fn get(&self, text: TextId) -> Option<&str> {
        let index = index(text.0)?;
        let start = match index.checked_sub(1) {
            Some(before) => place(*self.ends.get(before)?),
            None => 0,
        };
        self.bytes.get(start..place(*self.ends.get(index)?))
    }

    /// Adds a text; 0 if there is no room.
    fn push(&mut self, text: &str) -> TextId {
        let end = u32::try_from(self.bytes.len() + text.len());
        let number = u32::try_from(self.ends.len() + 1);
        let (Ok(end), Ok(number)) = (end, number) else {
            return TextId(0);
        };
        self.bytes.push_str(text);
        self.ends.push(end);
        TextId(number)
    }
}

/// The index that a number minus one denotes.
fn index(number: u32) -> Option<usize> {
    number.checked_sub(1).map(place)
}

/// A `u32` fits on every target of Linux.
fn place(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

impl NameTable {
    /// All these tables in one.
    pub(crate) fn merged(mut tables: Vec<NameTable>) -> NameTable {
        tables.retain(|table| !table.entries.is_empty());
        if tables.len() < 2 {
            return tables.pop().unwrap_or_default();
        }
        let mut whole = NameTableBuilder::default();
        tables.iter().for_each(|table| whole.append(table));
        whole.finish()
    }

    pub(crate) fn get(&self, address: Vaddr) -> Option<AddressName<'_>> {
        let at = self
            .entries
            .binary_search_by_key(&address.0, |entry| entry.address);
        let entry = self.entries.get(at.ok()?)?;
        let function = index(entry.function).and_then(|at| self.functions.get(at));
        Some(AddressName {
            symbol: function.and_then(|function| self.function(function)),
            begin: function.map(|function| Vaddr(function.address)),
            records: self.frames.get(entry.frames()).unwrap_or_default(),
            table: self,
        })
    }

    pub(crate) fn frame(&self, record: &FrameEntry) -> InlineFrameRef<'_> {
        InlineFrameRef {
            function: self.texts.get(record.function),
            file: self.texts.get(record.file),
            line: (record.line > 0).then_some(record.line),
            column: record.column.checked_sub(1),
        }
    }

    fn function(&self, record: &FunctionEntry) -> Option<CodeSymbol<'_>> {
        Some(CodeSymbol {
            name: self.texts.get(record.name)?,
            address: Vaddr(record.address),
            size: record.size,
            symbol_hash: record.symbol_hash,
        })
    }
}

impl AddressEntry {
    fn frames(&self) -> Range<usize> {
        let first = place(self.first);
        first..first.saturating_add(place(self.count))
    }
}

/// The name of the code at an address.
pub(crate) enum CodeName<'a> {
    Symbol(Symbol<'a>),
    /// A function without a symbol, from the unwind table.
    Unnamed(Range<Vaddr>),
    Unknown,
}

/// Builds a table.
#[derive(Default)]
pub(crate) struct NameTableBuilder {
    signature: SignatureDetail,
    table: NameTable,
    known: HashMap<String, TextId>,
    /// By address and size.
    functions: HashMap<(u64, u64), u32>,
}

impl NameTableBuilder {
    /// Names functions with this detail of their signatures.
    pub(crate) fn new(signature: SignatureDetail) -> Self {
        NameTableBuilder {
            signature,
            ..NameTableBuilder::default()
        }
    }

    /// Adds an address. If it is added twice, one of the two is used.
    pub(crate) fn add(&mut self, address: Vaddr, code: &CodeName<'_>, frames: &[InlineFrame]) {
        let function = match code {
            CodeName::Symbol(symbol) => self.symbol(symbol),
            CodeName::Unnamed(range) => self.function(FunctionEntry {
                name: TextId(0),
                address: range.start.0,
                size: range.end.0.saturating_sub(range.start.0),
                symbol_hash: 0,
            }),
            CodeName::Unknown => 0,
        };
        let first = self.table.frames.len();
        for frame in frames {
            let record = FrameEntry {
                function: self.text(frame.function.as_deref()),
                file: self.text(frame.file.as_deref()),
                line: frame.line.unwrap_or(0),
                column: frame.column.map_or(0, |column| column.saturating_add(1)),
            };
            self.table.frames.push(record);
        }
        self.entry(address.0, function, first);
    }

    /// Adds all of another table.
    pub(crate) fn append(&mut self, other: &NameTable) {
        let numbers = 1..=u32::try_from(other.texts.ends.len()).unwrap_or(u32::MAX);
        let texts: Vec<TextId> = std::iter::once(TextId(0))
            .chain(numbers.map(|number| self.text(other.texts.get(TextId(number)))))
            .collect();
        let text = |text: TextId| texts.get(place(text.0)).copied().unwrap_or_default();
        let functions: Vec<u32> = other
            .functions
            .iter()
            .map(|function| {
                self.function(FunctionEntry {
                    name: text(function.name),
                    ..*function
                })
            })
            .collect();
        for entry in &other.entries {
            let function = index(entry.function).and_then(|at| functions.get(at).copied());
            let first = self.table.frames.len();
            let frames = other.frames.get(entry.frames()).unwrap_or_default();
            self.table
                .frames
                .extend(frames.iter().map(|frame| FrameEntry {
                    function: text(frame.function),
                    file: text(frame.file),
                    ..*frame
                }));
            self.entry(entry.address, function.unwrap_or(0), first);
        }
    }

    pub(crate) fn finish(mut self) -> NameTable {
        self.table.entries.sort_by_key(|entry| entry.address);
        self.table.entries.dedup_by_key(|entry| entry.address);
        self.table
    }

    /// Adds an entry with the frames from `first` on; without frames, if there are too many.
    fn entry(&mut self, address: u64, function: u32, first: usize) {
        let count = self.table.frames.len() - first;
        let place = (u32::try_from(first), u32::try_from(count));
        let (first, count) = match place {
            (Ok(first), Ok(count)) => (first, count),
            _ => (0, 0),
        };
        self.table.entries.push(AddressEntry {
            address,
            function,
            first,
            count,
        });
    }

    fn symbol(&mut self, symbol: &Symbol<'_>) -> u32 {
        let key = (symbol.address.0, symbol.size);
        if let Some(number) = self.functions.get(&key) {
            return *number;
        }
        let name = self.text(Some(&self.signature.demangle(&symbol.name)));
        self.function(FunctionEntry {
            name,
            address: symbol.address.0,
            size: symbol.size,
            symbol_hash: crc32fast::hash(symbol.name.as_bytes()),
        })
    }

    /// The index of a function plus one; 0 if there are too many.
    fn function(&mut self, record: FunctionEntry) -> u32 {
        let Ok(number) = u32::try_from(self.table.functions.len() + 1) else {
            return 0;
        };
        let functions = &mut self.table.functions;
        let known = self.functions.entry((record.address, record.size));
        *known.or_insert_with(|| {
            functions.push(record);
            number
        })
    }

    fn text(&mut self, text: Option<&str>) -> TextId {
        let Some(text) = text else {
            return TextId(0);
        };
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let number = self.table.texts.push(text);
        self.known.insert(text.to_owned(), number);
        number
    }
}
