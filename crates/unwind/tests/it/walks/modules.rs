//! The modules of a case, as walkers see them.

use std::cell::Cell;

use unspool_compiled_table::{CompiledTable, ExecutableCode, ModuleKey, encode};
use unspool_rows::{RuntimeAddr, Table};
use unspool_unwind::{Module, ModuleSlot, Modules, RowRules};
use unspool_walk_testing::stack::{CaseModule, CaseModules, MODULES};

/// The compiled form of a table.
pub(crate) fn compile(table: &Table) -> Vec<u8> {
    let key = ModuleKey {
        build_id: &[1; 20],
        content: &[0; 20],
    };
    let made = encode(table, key, &ExecutableCode::default(), &[]);
    made.unwrap().bytes
}

/// The modules of a random address space.
pub(crate) struct ModuleSet<'t> {
    pub(crate) loaded: CaseModules,
    pub(crate) tables: &'t [CompiledTable<'t>],
    /// The number of the first module slot.
    pub(crate) first_place: u16,
    pub(crate) place_step: u16,
    /// Whether the first module is reported as staying.
    pub(crate) says_staying: bool,
    /// Whether rules of the last module may be kept, too.
    pub(crate) keeps_all: bool,
    /// Whether no code is outside of the modules.
    pub(crate) knows_all_code: bool,
    /// How often the module at an address was requested.
    pub(crate) asked: Cell<u64>,
}

impl ModuleSet<'_> {
    fn place(&self, module: u64, version: u64) -> ModuleSlot {
        let number = u16::try_from(module + version * MODULES).unwrap();
        ModuleSlot(self.first_place + self.place_step * number)
    }

    fn found(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        let found = self.loaded.find(addr)?;
        let CaseModule {
            module, version, ..
        } = found;
        Some(Module {
            slot: (module != 3 || self.keeps_all).then(|| self.place(module, version)),
            bias: found.bias,
            entry: found.entry,
            compiled: Some(&self.tables[found.table()]),
            rules: RowRules::default(),
            code: None,
            cfi: None,
            sframe: None,
            entry_cache: None,
            synthesized: None,
            native: None,
        })
    }
}

impl Modules for ModuleSet<'_> {
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        self.asked.set(self.asked.get() + 1);
        self.found(addr)
    }

    fn module_at(&self, slot: ModuleSlot, addr: RuntimeAddr) -> Option<Module<'_>> {
        if slot == ModuleSlot(0) {
            return None;
        }
        assert!(self.is_mapped(slot), "{slot:?} was not seen in this walk");
        self.found(addr).filter(|module| module.slot == Some(slot))
    }

    fn staying(&self) -> u64 {
        let place = self.place(0, 0).0;
        u64::from(self.says_staying && place < 64) << (place % 64)
    }

    fn is_mapped(&self, slot: ModuleSlot) -> bool {
        let mut modules = (0..MODULES).zip(self.loaded.versions);
        modules.any(|(module, version)| {
            version.is_some_and(|version| self.place(module, version) == slot)
        })
    }

    fn is_code(&self, addr: RuntimeAddr) -> bool {
        self.loaded.find(addr).is_some()
    }

    fn is_not_code(&self, addr: RuntimeAddr) -> bool {
        self.knows_all_code && !self.is_code(addr)
    }
}
