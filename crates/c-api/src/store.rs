//! Finding the tables of modules: like `unspool_table_store::Store`, without an allocator, for
//! modules with a build ID.
//!
//! The module's own table comes first (`unspool compile --into`), in the loader's mapping; then
//! that of a [folder](TableFolders). Argument tables are looked up in the folders, too.

use unspool_compiled_table::CompiledTable;
use unspool_unwind::RowRules;
use unspool_unwind::local::store::TableFolders;
use unspool_unwind::local::{self, ModuleBytes};

use crate::sys::files;

/// Finds the tables of all loaded objects that have none yet; returns their number. They stay
/// mapped.
///
/// Not async-signal-safe: takes the loader's lock, opens files and reads the environment.
pub(crate) fn find_tables() -> usize {
    let modules = local::modules();
    let mut count = 0;
    modules.for_each_embedded(|module, bytes| {
        let table = (!module.has_table).then(|| embedded(module.build_id, bytes));
        count += usize::from(table.flatten().is_some_and(attach));
    });
    find_argument_tables();
    let without = modules.discovered().filter(|module| !module.has_table);
    let found = without.filter_map(|module| find(module.build_id));
    count + found.filter(|table| attach(table)).count()
}

/// Finds the argument tables of all loaded objects. They stay mapped.
///
/// Not async-signal-safe, as [`find_tables`].
pub(crate) fn find_argument_tables() {
    let modules = local::modules();
    modules.discover_all();
    for module in modules
        .discovered()
        .filter(|module| module.arguments.is_none())
    {
        if let Some(table) = find_arguments(module.build_id) {
            modules.attach_arguments(module.build_id, table);
        }
    }
}

fn attach(table: &'static CompiledTable<'static>) -> bool {
    let room = files::zeros(CompiledTable::distinct_rows(table)).unwrap_or_default();
    local::modules().attach(table, RowRules::make(table, room))
}

/// The table embedded in a module.
fn embedded(build_id: &[u8], bytes: ModuleBytes<'_>) -> Option<&'static CompiledTable<'static>> {
    let (ModuleBytes::Permanent(found) | ModuleBytes::Borrowed(found)) = bytes;
    let table = CompiledTable::open(found).ok()?;
    if build_id.is_empty() || table.key().build_id != build_id {
        return None;
    }
    let bytes = match bytes {
        ModuleBytes::Permanent(bytes) => bytes,
        // The same module may be loaded again elsewhere.
        ModuleBytes::Borrowed(bytes) => files::leak_copy(bytes)?,
    };
    files::leak_table(CompiledTable::open(bytes).ok()?)
}

/// The table of the module with a build ID.
fn find(build_id: &[u8]) -> Option<&'static CompiledTable<'static>> {
    let is_right = |bytes: &[u8]| {
        CompiledTable::open(bytes).is_ok_and(|table| table.key().build_id == build_id)
    };
    let bytes = first(build_id, b".unspool", is_right)?;
    files::leak_table(CompiledTable::open(bytes).ok()?)
}

/// The argument table of the module with a build ID.
fn find_arguments(build_id: &[u8]) -> Option<&'static [u8]> {
    let is_right = |bytes: &[u8]| {
        unspool_arg_table::ArgTable::open(bytes).is_ok_and(|table| table.is_of_build(build_id))
    };
    first(build_id, b".args.unspool", is_right)
}

/// The first valid and trusted file of a module, by the suffix of its name.
fn first(
    build_id: &[u8],
    ending: &[u8],
    is_right: impl Fn(&[u8]) -> bool,
) -> Option<&'static [u8]> {
    TableFolders::from_environment().first(build_id, ending, |file| {
        let mapping = file.map()?;
        is_right(mapping.bytes()).then(|| mapping.keep())
    })
}
