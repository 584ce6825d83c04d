//! The symbols of the running kernel and of its modules: `/proc/kallsyms`.

use std::fs;
use std::io;
use std::path::Path;

use unspool_host::Remedy;
use unspool_rows::RuntimeAddr;

use crate::cache::{self, NameCache};

mod cached;

/// The kernel's list of symbols.
const KALLSYMS: &str = "/proc/kallsyms";
/// The last symbol of the kernel or of a module ends at a page boundary at the latest, between one
/// and two pages after its start.
const PAGE_BYTES: u64 = 4096;
/// The size of the longest list, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 30;

/// The functions of a kernel and of its modules, by address.
///
/// 100,000 of them take about 4 MB.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// By address.
    entries: Vec<KallsymsEntry>,
    /// The names, concatenated, in the order of the list.
    names: String,
    modules: Vec<String>,
    bad_lines: usize,
}

/// A function.
#[derive(Debug, Clone, Copy)]
struct KallsymsEntry {
    address: u64,
    /// The offset of its name in `names`.
    name: u32,
    length: u16,
    /// The index of its module plus one; 0 for the kernel itself.
    module: u16,
}

/// A function of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// The kernel's name for it, which perf prints.
    pub name: &'a str,
    /// Its first address.
    pub address: RuntimeAddr,
    /// Its size in bytes, up to the next symbol.
    pub size: u64,
    /// Its kernel module, without brackets.
    pub module: Option<&'a str>,
}

/// Why the kernel's symbols are not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelSymbolsError {
    /// The list cannot be read.
    #[error("{KALLSYMS} cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The list has no addresses: the kernel hides them from this user.
    #[error(
        "the kernel hides its addresses (kernel.kptr_restrict={restrict}, kernel.perf_event_paranoid={paranoid}); to show them: {}",
        remedy(restrict)
    )]
    Restricted {
        /// The value of `kernel.kptr_restrict`, or `?`.
        restrict: String,
        /// The value of `kernel.perf_event_paranoid`, or `?`.
        paranoid: String,
    },
    /// The list has no functions.
    #[error("{KALLSYMS} has no functions; the kernel may be built without CONFIG_KALLSYMS")]
    Empty,
}

fn remedy(restrict: &str) -> Remedy {
    Remedy::KernelAddresses {
        restrict: restrict.parse().ok(),
    }
}

/// All addresses are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AddressesHidden;

impl KernelSymbolsError {
    /// The remedy, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            KernelSymbolsError::Restricted { restrict, .. } => Some(remedy(restrict)),
            KernelSymbolsError::Unreadable(_) | KernelSymbolsError::Empty => None,
        }
    }

    fn restricted() -> KernelSymbolsError {
        let setting = |name: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name));
            text.map_or_else(|_| "?".into(), |text| text.trim().to_owned())
        };
        KernelSymbolsError::Restricted {
            restrict: setting("kptr_restrict"),
            paranoid: setting("perf_event_paranoid"),
        }
    }
}

/// The address of a variable of the running kernel or of one of its modules; `None` if it has none
/// of this name. With `list`, as that saved list says.
///
/// # Errors
///
/// [`KernelSymbolsError`] has the reason and the remedy.
pub fn kernel_variable(
    name: &str,
    list: Option<&Path>,
) -> Result<Option<RuntimeAddr>, KernelSymbolsError> {
    let text = fs::read(list.unwrap_or(Path::new(KALLSYMS)))?;
    let lines = text.split(|byte| *byte == b'\n');
    let mut variables = lines
        .filter_map(KallsymsLine::parse)
        .filter(|line| !line.is_function && line.name == name);
    match variables.next() {
        Some(line) if line.address == 0 => Err(KernelSymbolsError::restricted()),
        found => Ok(found.map(|line| RuntimeAddr(line.address))),
    }
}

impl KernelSymbols {
    /// Reads the list of the running kernel.
    ///
    /// # Errors
    ///
    /// [`KernelSymbolsError`] has the reason and the remedy.
    pub fn from_running_kernel() -> Result<KernelSymbols, KernelSymbolsError> {
        match KernelSymbols::parse(&fs::read(KALLSYMS)?) {
            Err(AddressesHidden) => Err(KernelSymbolsError::restricted()),
            Ok(symbols) if symbols.is_empty() => Err(KernelSymbolsError::Empty),
            Ok(symbols) => Ok(symbols),
        }
    }

    /// The same, preferably from `cache`, written since the kernel booted: the kernel takes long to
    /// produce its list. If the cached list does not cover all of these addresses, the list is read
    /// and cached again.
    ///
    /// # Errors
    ///
    /// [`KernelSymbolsError`].
    pub fn covering(
        addresses: impl IntoIterator<Item = RuntimeAddr>,
        cache: Option<&NameCache>,
    ) -> Result<KernelSymbols, KernelSymbolsError> {
        let state = cache.and_then(|cache| Some((cache, cached::state()?)));
        if let Some((cache, state)) = &state
            && let Some(kept) = cache.read(cache::KERNEL)
            && let Some(symbols) = cached::decode(&kept, state)
            && addresses
                .into_iter()
                .all(|address| symbols.get(address).is_some())
        {
            return Ok(symbols);
        }
        let symbols = KernelSymbols::from_running_kernel()?;
        if let Some((cache, state)) = &state
            && let Some(bytes) = cached::encode(&symbols, state)
        {
            // Without this, the next run takes as long.
            let _ = cache.write(cache::KERNEL, &bytes);
        }
        Ok(symbols)
    }

    /// Reads a saved list; `None` if it has no addresses. Invalid lines are counted and skipped.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<KernelSymbols> {
        KernelSymbols::parse(text).ok()
    }

    fn parse(text: &[u8]) -> Result<KernelSymbols, AddressesHidden> {
        let mut symbols = KernelSymbols::default();
        let mut zeros = 0;
        let text = text.get(..MAX_TEXT_BYTES).unwrap_or(text);
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            match KallsymsLine::parse(line) {
                Some(line) if line.address == 0 => zeros += 1,
                Some(line) if line.is_function => {
                    symbols.bad_lines += usize::from(!symbols.add(&line));
                }
                Some(_) => {}
                None => symbols.bad_lines += 1,
            }
        }
        if symbols.entries.is_empty() && zeros > 0 {
            return Err(AddressesHidden);
        }
        symbols.entries.sort_by_key(|entry| entry.address);
        Ok(symbols)
    }

    /// Adds a function if there is room for it.
    fn add(&mut self, line: &KallsymsLine<'_>) -> bool {
        let module = match line.module {
            None => Ok(0),
            Some(name) => {
                // Symbols of one module are adjacent.
                if self.modules.last().is_none_or(|last| last != name) {
                    self.modules.push(name.to_owned());
                }
                u16::try_from(self.modules.len())
            }
        };
        let length = u16::try_from(line.name.len());
        let (Ok(module), Ok(length), Ok(name)) = (module, length, u32::try_from(self.names.len()))
        else {
            return false;
        };
        self.names.push_str(line.name);
        self.entries.push(KallsymsEntry {
            address: line.address,
            name,
            length,
            module,
        });
        true
    }

    /// The function at an address of the kernel: the last that starts at or before it. It extends
    /// up to the next one or, before another module, to the end of a page. Of several at one
    /// address, the last in the kernel's list.
    #[must_use]
    pub fn get(&self, address: RuntimeAddr) -> Option<KernelSymbol<'_>> {
        let after = self
            .entries
            .partition_point(|entry| entry.address <= address.0);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        let symbol = self.symbol(entry, self.entries.get(after))?;
        (address.0 - entry.address < symbol.size).then_some(symbol)
    }

    fn symbol(
        &self,
        entry: &KallsymsEntry,
        next: Option<&KallsymsEntry>,
    ) -> Option<KernelSymbol<'_>> {
        let page = entry.address.saturating_add(PAGE_BYTES);
        let page = page
            .checked_next_multiple_of(PAGE_BYTES)
            .unwrap_or(u64::MAX);
        let end = match next {
            Some(next) if self.is_one_module(entry, next) => next.address,
            Some(next) => next.address.min(page),
            None => page,
        };
        let start = usize::try_from(entry.name).ok()?;
        Some(KernelSymbol {
            name: self
                .names
                .get(start..start.checked_add(usize::from(entry.length))?)?,
            address: RuntimeAddr(entry.address),
            size: end - entry.address,
            module: self.module(entry),
        })
    }

    fn module(&self, entry: &KallsymsEntry) -> Option<&str> {
        let at = usize::from(entry.module).checked_sub(1)?;
        self.modules.get(at).map(String::as_str)
    }

    fn is_one_module(&self, a: &KallsymsEntry, b: &KallsymsEntry) -> bool {
        a.module == b.module || self.module(a) == self.module(b)
    }

    /// The number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of lines that could not be read.
    #[must_use]
    pub fn bad_lines(&self) -> usize {
        self.bad_lines
    }
}

/// A line of the list: `ffffffff81000000 T name`, and for a module's symbol `\t[module]`.
struct KallsymsLine<'a> {
    address: u64,
    is_function: bool,
    name: &'a str,
    module: Option<&'a str>,
}

impl<'a> KallsymsLine<'a> {
    fn parse(line: &'a [u8]) -> Option<KallsymsLine<'a>> {
        let line = std::str::from_utf8(line).ok()?;
        let (address, rest) = line.split_once(' ')?;
        let (kind, rest) = rest.split_once(' ')?;
        let (name, module) = match rest.split_once('\t') {
            Some((name, module)) => {
                let module = module.trim_end().strip_prefix('[')?.strip_suffix(']')?;
                (name, Some(module))
            }
            None => (rest, None),
        };
        Some(KallsymsLine {
            address: u64::from_str_radix(address, 16).ok()?,
            is_function: matches!(kind, "t" | "T" | "w" | "W"),
            name: Some(name.trim_end()).filter(|name| !name.is_empty())?,
            module,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff81000000 T startup
ffffffff81000040 t helper
ffffffff81000080 D some_data
ffffffff81000100 W weak
ffffffffc0000010 t first\t[mod_a]
ffffffffc0000050 t last\t[mod_a]
ffffffffc0004000 t other\t[mod_b]
";

    /// `name+offset/size [module]`
    fn shown(symbols: &KernelSymbols, address: u64) -> String {
        symbols
            .get(RuntimeAddr(address))
            .map_or("-".into(), |found| {
                let offset = address - found.address.0;
                let module = found
                    .module
                    .map_or(String::new(), |name| format!(" [{name}]"));
                format!("{}+{offset:#x}/{:#x}{module}", found.name, found.size)
            })
    }

    #[test]
    fn functions_reach_to_the_next_one_or_the_end_of_a_page() {
        let symbols = KernelSymbols::from_text(LIST.as_bytes()).unwrap();
        for (address, expected) in [
            (0xffff_ffff_80ff_ffff, "-"),
            (0xffff_ffff_8100_0000, "startup+0x0/0x40"),
            (0xffff_ffff_8100_00ff, "helper+0xbf/0xc0"),
            (0xffff_ffff_8100_0101, "weak+0x1/0x1f00"),
            (0xffff_ffff_8100_2000, "-"),
            (0xffff_ffff_c000_0010, "first+0x0/0x40 [mod_a]"),
            (0xffff_ffff_c000_1fff, "last+0x1faf/0x1fb0 [mod_a]"),
            (0xffff_ffff_c000_2000, "-"),
            (0xffff_ffff_c000_4001, "other+0x1/0x1000 [mod_b]"),
            (u64::MAX, "-"),
        ] {
            assert_eq!(shown(&symbols, address), expected, "at {address:#x}");
        }
        assert_eq!((symbols.len(), symbols.bad_lines()), (7, 0));
    }

    #[test]
    fn a_list_without_addresses() {
        let hidden = "0000000000000000 T _text\n0000000000000000 t helper\n";
        assert!(KernelSymbols::from_text(hidden.as_bytes()).is_none());
        assert!(KernelSymbols::from_text(b"").unwrap().is_empty());
        for (restrict, word) in [
            ("0", "paranoid"),
            ("1", "kptr_restrict=0"),
            ("2", "kptr_restrict=1"),
        ] {
            let hidden = KernelSymbolsError::Restricted {
                restrict: restrict.into(),
                paranoid: "2".into(),
            };
            let text = hidden.to_string();
            let (_, remedy) = text.split_once("show them").unwrap();
            assert!(remedy.contains(word), "{text}");
        }
    }

    #[test]
    fn the_last_page_of_the_address_space() {
        let symbols = KernelSymbols::from_text(b"fffffffffffffff0 T last\n").unwrap();
        assert_eq!(shown(&symbols, u64::MAX - 1), "last+0xe/0xf");
    }

    #[test]
    fn lines_that_are_none() {
        let text = b"x T a\nffff T\n\xff\xfe\nffff t \n10 t a [m]\n20 t a\t[m\nffffffffffffffffff t a\n1 t ok\n";
        let symbols = KernelSymbols::from_text(text).unwrap();
        assert_eq!(symbols.bad_lines(), 6);
        assert_eq!(shown(&symbols, 1), "ok+0x0/0xf");
        assert_eq!(shown(&symbols, 0x10), "a [m]+0x0/0x1ff0");
    }
}
