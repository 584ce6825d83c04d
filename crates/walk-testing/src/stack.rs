//! Modules with random rows, and stacks with random words that mostly make sense.
//!
//! By the x86-64 psABI, CFAs are multiples of 16. So return addresses are in words at 8 above a
//! multiple of 16, and the other words mostly hold frame pointers.

use std::cell::RefCell;
use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use unspool_rows::{Abi, LoadBias, Memory, RuntimeAddr, Table, Unreadable, Vaddr, text};

use crate::random::mix;

/// That of all modules.
pub const ABI: Abi = Abi::X86_64;

/// The number of modules that can be loaded at once.
pub const MODULES: u64 = 4;

/// The versions of each of them; one is loaded.
pub const VERSIONS: u64 = 3;

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
/// Its code, which no row covers: `mov $15, %rax; syscall`, in two encodings.
const TRAMPOLINES: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05],
    &[0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05],
];

/// The bytes at the end of a stack where return addresses are those of outermost functions.
const STACK_ROOT: u64 = 512;

/// The lowest address of a stack.
pub const STACK: u64 = 0x7ffc_0000_0000;

/// Rows of the usual form.
pub fn usual_rows() -> impl Strategy<Value = Vec<String>> {
    rows(usual())
}

/// Rows of all forms.
pub fn any_rows() -> impl Strategy<Value = Vec<String>> {
    rows(prop_oneof![16 => usual(), 1 => big(), 1 => realigned(), 2 => signal(), 2 => unusual()])
}

/// Rows, many of them of realigned frames.
pub fn realigned_rows() -> impl Strategy<Value = Vec<String>> {
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
    let near = |above| prop_oneof![8 => -2..1_i64, above => 1..4_i64];
    (near(4), near(1)).prop_map(|(cfa, saved)| {
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
        "rbp=[cfa-248]",
        "rbx=[cfa-16]",
        "rbx=undefined",
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
        "rsp+524280",
        "rsp+524288",
        "{breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}",
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
#[must_use]
pub fn table(rows: &[String]) -> Table {
    let mut lines = "arch x86-64 little\n".to_owned();
    let later = rows.iter().skip(5).chain(rows);
    for ((row, later), start) in rows.iter().zip(later).zip((FIRST..).step_by(16)) {
        lines += &format!(
            "fn {start:#x}..{:#x}\n  {start:#x}  {row}\n  {:#x}  {later}\n",
            start + FUNCTION,
            start + FIRST_CALL,
        );
    }
    text::parse(&lines).unwrap()
}

/// The modules of a random address space: one version of each, or none.
#[derive(Debug, Clone, Copy)]
pub struct CaseModules {
    /// The loaded version of each module.
    pub versions: [Option<u64>; 4],
    /// Whether a function of the third module is entry code.
    pub has_entry: bool,
}

/// A loaded module.
#[derive(Debug, Clone, Copy)]
pub struct CaseModule {
    /// Its number, below [`MODULES`].
    pub module: u64,
    /// Its version, below [`VERSIONS`].
    pub version: u64,
    /// Run-time minus link-time address.
    pub bias: LoadBias,
    /// Its entry code.
    pub entry: Option<Vaddr>,
}

impl CaseModule {
    /// The index of its table among those of all versions of all modules.
    #[must_use]
    pub fn table(&self) -> usize {
        usize::try_from(self.module * VERSIONS + self.version).unwrap()
    }
}

impl CaseModules {
    /// The module at an address.
    #[must_use]
    pub fn find(&self, addr: RuntimeAddr) -> Option<CaseModule> {
        let module = addr.0.checked_sub(CODE)? / DISTANCE;
        let is_inside = addr.0.wrapping_sub(base(module)) < FUNCTIONS * FUNCTION;
        let version = (*self.versions.get(usize::try_from(module).ok()?)?)?;
        is_inside.then(|| CaseModule {
            module,
            version,
            bias: LoadBias(base(module) - FIRST),
            entry: (self.has_entry && module == 2).then_some(Vaddr(FIRST + 7 * FUNCTION)),
        })
    }
}

/// The content of a word.
#[derive(Debug, Clone, Copy)]
pub enum RandomWord {
    /// A return address.
    Return,
    /// That of an outermost function.
    Outermost,
    /// Zero.
    Zero,
    /// A return address with a high bit changed: mostly not canonical.
    OutOfReach,
    /// An address between modules.
    NoModule,
    /// One past a module's last function.
    EndOfModule,
    /// One past a function, after a call that does not return.
    EndOfFunction,
    /// A signal handler's return address.
    Trampoline,
    /// An address of a module that no row covers.
    Hole,
    /// Further out on the stack.
    Above,
    /// Further in.
    Below,
    /// Any bits.
    Junk,
    /// There is no such word.
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

/// Any content.
pub fn value() -> impl Strategy<Value = RandomWord> {
    proptest::sample::select(&ODD[..])
}

impl RandomWord {
    /// A word of this kind at an address; `None` if it is unreadable.
    #[must_use]
    pub fn word(self, addr: u64, random: u64) -> Option<u64> {
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
pub struct RandomStack {
    /// Its end.
    end: u64,
    seed: u64,
    /// The input for the words below an address.
    pub inner: (u64, u64),
    /// How many of 1000 words are unusual.
    odd: u64,
    /// Words that were changed.
    changed: HashMap<u64, Option<u64>>,
    /// The start of near memory.
    near: u64,
    /// The words that were read.
    pub read: RefCell<Vec<u64>>,
}

impl RandomStack {
    /// A stack of `size` bytes. `odd` of 1000 words are unusual; words from `near` on are near.
    #[must_use]
    pub fn new(size: u64, seed: u64, odd: u64, near: u64) -> Self {
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
        let value = if odd % 1000 < self.odd {
            ODD[usize::try_from(odd / 1000 % 13).unwrap()]
        } else {
            usual
        };
        value.word(addr, random)
    }

    /// Changes a word that was read.
    pub fn change(&mut self, addr: u64, value: RandomWord, random: u64) {
        let before = self.word(addr);
        let now = match (value, before) {
            // Of a known address.
            (RandomWord::OutOfReach, Some(before)) => Some(before | (1 << (47 + random % 17))),
            _ => value.word(addr, random),
        };
        self.changed.insert(addr, now);
    }

    /// The byte at an address: of the stack, or of the trampoline.
    #[must_use]
    pub fn byte(&self, addr: u64) -> Option<u8> {
        let start = RandomWord::Trampoline.word(0, 0)?;
        let trampoline = TRAMPOLINES[usize::from(!self.seed.is_multiple_of(2))];
        let at = usize::try_from(addr.wrapping_sub(start)).ok()?;
        if let Some(byte) = trampoline.get(at) {
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
