//! Modules with random rows, and stacks with random words that mostly make sense.
//!
//! By the x86-64 psABI, CFAs are multiples of 16. So return addresses are in words at 8 above a
//! multiple of 16, and the other words mostly hold frame pointers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use unspool_compiled_table::{CompiledTable, ExecutableCode, ModuleKey, encode};
use unspool_rows::{Abi, Arch, Endian, LoadBias, Memory, RuntimeAddr, Unreadable, Vaddr, text};
use unspool_unwind::{Module, ModuleSlot, Modules, RowRules};

pub(crate) const ABI: Abi = Abi {
    arch: Arch::X86_64,
    endian: Endian::Little,
};

/// The number of modules that can be loaded at once.
pub(crate) const MODULES: u64 = 4;

/// The versions of each of them; one is loaded.
pub(crate) const VERSIONS: u64 = 3;

const CODE: u64 = 0x5555_0000_0000;
const DISTANCE: u64 = 0x10_0000;
const FUNCTIONS: u64 = 24;
/// The function without a caller. The one after it, the last, has no row.
const OUTERMOST: u64 = FUNCTIONS - 2;
const FUNCTION: u64 = 16;
const FIRST: u64 = 0x1000;
/// The return address of a function's first call.
const FIRST_CALL: u64 = 5;
/// The function of module 1 that ends where a signal trampoline begins.
const BEFORE_TRAMPOLINE: u64 = 4;
const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// The bytes at the end of a stack where return addresses are those of outermost functions.
const STACK_ROOT: u64 = 512;

pub(crate) const STACK: u64 = 0x7ffc_0000_0000;

/// Rows of the usual form.
pub(crate) fn usual_rows() -> impl Strategy<Value = Vec<String>> {
    rows(usual())
}

/// Rows of all forms.
pub(crate) fn any_rows() -> impl Strategy<Value = Vec<String>> {
    rows(prop_oneof![16 => usual(), 1 => big(), 1 => realigned(), 2 => signal(), 2 => unusual()])
}

/// Rows, many of them of realigned frames.
pub(crate) fn realigned_rows() -> impl Strategy<Value = Vec<String>> {
    rows(prop_oneof![3 => usual(), 1 => realigned()])
}

/// The first address of a module. In the smallest memory for rules, the first and the last share
/// slots.
fn base(module: u64) -> u64 {
    CODE + module * DISTANCE + module % (MODULES - 1) * 0x1000
}

/// The rows of a version's functions, one after the other: the last is outermost.
fn rows(row: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<String>> {
    let count = usize::try_from(OUTERMOST).unwrap();
    vec(row, count..=count).prop_map(|mut rows| {
        rows.push("cfa=rsp+16  ra=undefined".to_owned());
        rows
    })
}

fn usual() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (1..6_u64).prop_map(|n| format!("cfa=rsp+{}  ra=[cfa-8]", 16 * n)),
        3 => (1..6_u64, 1..9_u64).prop_map(|(n, at)| {
            format!("cfa=rsp+{}  ra=[cfa-8]  rbp=[cfa-{}]", 16 * n.max(at), 16 * at)
        }),
        4 => Just("cfa=rbp+16  ra=[cfa-8]  rbp=[cfa-16]".to_owned()),
        1 => (1..40_u64).prop_map(|n| format!("cfa=rbp+{}  ra=[cfa-8]", 16 * n)),
    ]
}

/// Steps of more than 8 KiB.
fn big() -> impl Strategy<Value = String> {
    let saved = prop_oneof![
        Just(String::new()),
        (2..10_u64).prop_map(|at| format!("  rbp=[cfa-{}]", 8 * at)),
    ];
    let base = prop_oneof![Just("rsp"), Just("rbp")];
    (base, 500..6000_u64, saved)
        .prop_map(|(base, n, saved)| format!("cfa={base}+{}  ra=[cfa-8]{saved}", 16 * n))
}

/// The CFA and the caller's frame pointer are in memory at a frame pointer.
fn realigned() -> impl Strategy<Value = String> {
    let near = || prop_oneof![2 => -2..1_i64, 1 => 1..4_i64];
    (near(), near()).prop_map(|(cfa, saved)| {
        let (cfa, saved) = (16 * cfa, 16 * saved);
        format!("cfa={{breg6 {cfa}; deref}}  ra=[cfa-8]  rbp=[{{breg6 {saved}}}]")
    })
}

/// The kernel's record is at the stack pointer, or nearly.
fn signal() -> impl Strategy<Value = String> {
    let at = |place: i64| prop_oneof![30 => Just(place), 1 => Just(place + 16)];
    let kind = prop_oneof![30 => Just("signal"), 1 => Just("")];
    (at(160), at(160), at(120), at(168), kind).prop_map(|(cfa, rsp, rbp, rip, kind)| {
        format!(
            "cfa={{breg7 {cfa}; deref}}  ra=[{{breg7 {rip}}}]  rbp=[{{breg7 {rbp}}}]  \
             rsp=[{{breg7 {rsp}}}]  {kind}"
        )
    })
}

fn unusual() -> impl Strategy<Value = String> {
    let with = |rules: &'static [&'static str]| proptest::sample::select(rules);
    let frame_pointer = with(&[
        "rbp=undefined",
        "rbp=same",
        "rbp=rbx",
        "rbp=cfa-16",
        "rbp=[cfa-8]",
        "rbp=[cfa-24]",
        "rbp=[cfa-20]",
        "rbp=[cfa-128]",
        "rbp=[cfa-144]",
        "rbp=[cfa+16]",
        "rbp=[{breg7 16}]",
        "rbp={breg7 64}",
        "rbx=[cfa-16]",
        "rsp=cfa-16",
        "rsp=[cfa-16]",
        "args=16",
        "signal",
        "signed",
    ]);
    let cfa = with(&[
        "rsp+0",
        "rsp+8",
        "rsp-16",
        "rbp-16",
        "rbp+8",
        "rbx+16",
        "r10+16",
        "{breg7 32}",
        "{breg7 0; deref}",
        "{breg6 16; deref}",
        "{breg6 16}",
        "{breg3 16}",
        "undefined",
    ]);
    let return_address = with(&[
        "ra=undefined",
        "ra=undefined",
        "ra=[cfa-24]",
        "ra=[cfa+8]",
        "ra=rbx",
        "ra=[{breg7 8}]",
        "ra=same",
        "",
        "rdi=[cfa-8]  return=rdi",
        "rbp=[cfa-8]  return=rbp",
        "rbp=[cfa-16]  ra=[cfa-8]  signal",
    ]);
    prop_oneof![
        4 => (1..4_u64, frame_pointer).prop_map(|(n, rule)| {
            format!("cfa=rsp+{}  ra=[cfa-8]  {rule}", 16 * n)
        }),
        2 => cfa.prop_map(|cfa| format!("cfa={cfa}  ra=[cfa-8]")),
        2 => (1..4_u64, return_address).prop_map(|(n, rule)| format!("cfa=rsp+{}  {rule}", 16 * n)),
    ]
}

/// The table of a module with these rows: each holds up to the end of a function's first call, and
/// then a later function's holds.
pub(crate) fn compile(rows: &[String]) -> Vec<u8> {
    let mut lines = "arch x86-64 little\n".to_owned();
    let later = rows.iter().skip(5).chain(rows);
    for ((row, later), start) in rows.iter().zip(later).zip((FIRST..).step_by(16)) {
        lines += &format!(
            "fn {start:#x}..{:#x}\n  {start:#x}  {row}\n  {:#x}  {later}\n",
            start + FUNCTION,
            start + FIRST_CALL,
        );
    }
    let table = text::parse(&lines).unwrap();
    let made = encode(
        &table,
        ModuleKey {
            build_id: &[1; 20],
            content: &[0; 20],
        },
        &ExecutableCode::default(),
        &[],
    );
    made.unwrap().bytes
}

/// The modules of a random address space: one version of each, or none.
pub(crate) struct ModuleSet<'t> {
    pub(crate) tables: &'t [CompiledTable<'t>],
    /// The loaded version of each module.
    pub(crate) versions: [Option<u64>; 4],
    /// The number of the first module slot.
    pub(crate) first_place: u16,
    pub(crate) place_step: u16,
    /// Whether the first module is reported as staying.
    pub(crate) says_staying: bool,
    pub(crate) has_entry: bool,
    /// Whether rules of the last module may be kept, too.
    pub(crate) keeps_all: bool,
    /// How often the module at an address was requested.
    pub(crate) asked: Cell<u64>,
}

impl ModuleSet<'_> {
    fn place(&self, module: u64, version: u64) -> ModuleSlot {
        let number = u16::try_from(module + version * MODULES).unwrap();
        ModuleSlot(self.first_place + self.place_step * number)
    }

    fn found(&self, addr: RuntimeAddr) -> Option<Module<'_>> {
        let (module, version) = self.there(addr.0)?;
        let table = usize::try_from(module * VERSIONS + version).unwrap();
        Some(Module {
            slot: (module != 3 || self.keeps_all).then(|| self.place(module, version)),
            bias: LoadBias(base(module) - FIRST),
            entry: (self.has_entry && module == 2).then_some(Vaddr(FIRST + 7 * FUNCTION)),
            compiled: Some(&self.tables[table]),
            rules: RowRules::default(),
            code: None,
            cfi: None,
            sframe: None,
            entry_cache: None,
            synthesized: None,
            native: None,
        })
    }

    fn there(&self, addr: u64) -> Option<(u64, u64)> {
        let module = addr.checked_sub(CODE)? / DISTANCE;
        let is_inside = addr.wrapping_sub(base(module)) < FUNCTIONS * FUNCTION;
        let version = (*self.versions.get(usize::try_from(module).ok()?)?)?;
        is_inside.then_some((module, version))
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
        let mut modules = (0..MODULES).zip(self.versions);
        modules.any(|(module, version)| {
            version.is_some_and(|version| self.place(module, version) == slot)
        })
    }

    fn is_code(&self, addr: RuntimeAddr) -> bool {
        self.there(addr.0).is_some()
    }
}

/// The content of a word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RandomWord {
    Return,
    Outermost,
    Zero,
    /// A return address with a high bit changed: mostly not canonical.
    OutOfReach,
    NoModule,
    EndOfModule,
    EndOfFunction,
    Trampoline,
    Hole,
    /// Further out on the stack.
    Above,
    /// Further in.
    Below,
    Junk,
    Unreadable,
}

const ODD: [RandomWord; 13] = [
    RandomWord::Return,
    RandomWord::Outermost,
    RandomWord::Zero,
    RandomWord::OutOfReach,
    RandomWord::NoModule,
    RandomWord::EndOfModule,
    RandomWord::EndOfFunction,
    RandomWord::Trampoline,
    RandomWord::Hole,
    RandomWord::Above,
    RandomWord::Below,
    RandomWord::Junk,
    RandomWord::Unreadable,
];

pub(crate) fn value() -> impl Strategy<Value = RandomWord> {
    proptest::sample::select(&ODD[..])
}

/// Splitmix64.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl RandomWord {
    /// A word of this kind at an address.
    pub(crate) fn word(self, addr: u64, random: u64) -> Option<u64> {
        let module = base(random % MODULES);
        let function = module + (random >> 8) % OUTERMOST * FUNCTION;
        let distance = 16 * (1 + (random >> 16) % 20);
        Some(match self {
            RandomWord::Return => function + FIRST_CALL + (random >> 24) % 2 * 3,
            RandomWord::Outermost => module + OUTERMOST * FUNCTION + FIRST_CALL,
            RandomWord::Zero => 0,
            RandomWord::OutOfReach => (function + FIRST_CALL) | (1 << (47 + random % 17)),
            RandomWord::NoModule => module + DISTANCE / 2,
            RandomWord::EndOfModule => module + FUNCTIONS * FUNCTION,
            RandomWord::EndOfFunction => function + FUNCTION,
            RandomWord::Trampoline => base(1) + (BEFORE_TRAMPOLINE + 1) * FUNCTION,
            RandomWord::Hole => module + (FUNCTIONS - 1) * FUNCTION + FIRST_CALL,
            RandomWord::Above => (addr & !15).wrapping_add(distance),
            RandomWord::Below => (addr & !15).wrapping_sub(distance),
            RandomWord::Junk => random,
            RandomWord::Unreadable => return None,
        })
    }
}

/// The memory of a thread.
#[derive(Debug, Clone)]
pub(crate) struct RandomStack {
    /// Its end.
    end: u64,
    seed: u64,
    /// The input for the words below an address.
    pub(crate) inner: (u64, u64),
    /// How many of 1000 words are unusual.
    odd: u64,
    /// Words that were changed.
    changed: HashMap<u64, Option<u64>>,
    /// The start of near memory.
    near: u64,
    /// The words that were read.
    pub(crate) read: RefCell<Vec<u64>>,
}

impl RandomStack {
    pub(crate) fn new(size: u64, seed: u64, odd: u64, near: u64) -> Self {
        RandomStack {
            end: STACK + size,
            seed,
            inner: (0, 0),
            odd,
            changed: HashMap::new(),
            near,
            read: RefCell::default(),
        }
    }

    fn word(&self, addr: u64) -> Option<u64> {
        if !(STACK..self.end).contains(&addr) {
            return None;
        }
        if let Some(word) = self.changed.get(&addr) {
            return *word;
        }
        let (limit, inner) = self.inner;
        let random = mix(addr ^ mix(if addr < limit { inner } else { self.seed }));
        let usual = match addr % 16 {
            8 if self.end - addr <= STACK_ROOT => RandomWord::Outermost,
            8 => RandomWord::Return,
            _ => RandomWord::Above,
        };
        let odd = mix(random);
        let value = match odd % 1000 < self.odd {
            true => ODD[usize::try_from(odd / 1000 % 13).unwrap()],
            false => usual,
        };
        value.word(addr, random)
    }

    /// Changes a word that was read.
    pub(crate) fn change(&mut self, addr: u64, value: RandomWord, random: u64) {
        let before = self.word(addr);
        let now = match (value, before) {
            // Of a known address.
            (RandomWord::OutOfReach, Some(before)) => Some(before | (1 << (47 + random % 17))),
            _ => value.word(addr, random),
        };
        self.changed.insert(addr, now);
    }

    fn byte(&self, addr: u64) -> Option<u8> {
        let start = RandomWord::Trampoline.word(0, 0)?;
        if let Some(byte) = TRAMPOLINE.get(usize::try_from(addr.wrapping_sub(start)).ok()?) {
            return Some(*byte);
        }
        let word = self.word(addr & !7)?.to_le_bytes();
        Some(word[usize::try_from(addr % 8).ok()?])
    }
}

impl Memory for RandomStack {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        self.read.borrow_mut().push(addr.0 & !7);
        for (at, byte) in (addr.0..).zip(into) {
            *byte = self.byte(at).ok_or(Unreadable::unmapped(RuntimeAddr(at)))?;
        }
        Ok(())
    }

    fn near(&self, end: RuntimeAddr) -> Option<[u8; 8]> {
        if end.0 < self.near {
            return None;
        }
        let mut bytes = [0; 8];
        self.read(RuntimeAddr(end.0.wrapping_sub(8)), &mut bytes)
            .ok()?;
        Some(bytes)
    }
}
