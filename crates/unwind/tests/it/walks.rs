//! A [`Walker`], with or without a memo of the last walk, finds the same as a [`Cursor`]: on random
//! stacks and tables, while both change between one walk and the next. And a cursor finds what the
//! rows alone say.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use unspool_compiled_table::CompiledTable;
use unspool_rows::{CodeAddr, Memory, Register, Registers, RuntimeAddr, Table, Unreadable};
use unspool_unwind::{
    Cursor, End, InnermostFrame, MappedRuleCache, Memo, RuleCacheSize, Step, Walker,
};
use unspool_walk_testing::reference::{ReferenceEnd, ReferenceWalk};
use unspool_walk_testing::stack::{
    self, ABI, CaseModules, MODULES, RandomStack, RandomWord, STACK, VERSIONS,
};

mod modules;

use modules::{ModuleSet, compile};

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// The limit of requested frames.
const MAX_FRAMES: usize = 1500;

/// An innermost frame.
#[derive(Debug, Clone)]
struct Inner {
    code: CodeAddr,
    stack_pointer: u64,
    frame_pointer: u64,
    others: Vec<(Register, u64)>,
    is_shown: bool,
}

impl Inner {
    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        for (register, value) in &self.others {
            registers.set(*register, *value);
        }
        registers.set(RSP, self.stack_pointer);
        registers.set(RBP, self.frame_pointer);
        registers.set(RIP, self.code.address().0);
        registers
    }
}

impl InnermostFrame for Inner {
    fn code(&self) -> CodeAddr {
        self.code
    }

    fn stack_pointer(&self) -> u64 {
        self.stack_pointer
    }

    fn frame_pointer(&self) -> u64 {
        self.frame_pointer
    }

    fn others(&self) -> impl Iterator<Item = (Register, u64)> {
        self.others.iter().copied()
    }

    fn is_shown(&self) -> bool {
        self.is_shown
    }
}

/// A walk's result.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WalkOutcome {
    addresses: Vec<u64>,
    guesses: usize,
    end: End,
}

/// Step by step, with all registers; also whether a signal frame leads further down the stack.
fn by_cursor(
    top: &Inner,
    modules: &ModuleSet<'_>,
    stack: &RandomStack,
    room: usize,
) -> (WalkOutcome, bool) {
    let mut cursor = Cursor::with_code(ABI, top.code, top.registers());
    let mut found = WalkOutcome {
        addresses: Vec::new(),
        guesses: 0,
        end: End::Limit,
    };
    let mut falls = false;
    let mut is_guess = false;
    let mut is_shown = top.is_shown;
    loop {
        if is_shown {
            if found.addresses.len() == room {
                return (found, falls);
            }
            found.addresses.push(cursor.code().address().0);
            found.guesses += usize::from(is_guess);
        }
        is_shown = true;
        let before = cursor.stack_pointer().map_or(0, |before| before.0);
        match cursor.step(modules, stack) {
            Step::Caller(step) => {
                is_guess = step.evidence.is_guess();
                let after = cursor.stack_pointer().map_or(0, |after| after.0);
                falls |= step.signal_frame && !(before < step.cfa.0 && step.cfa.0 <= after);
            }
            Step::End(end) => {
                found.end = end;
                return (found, falls);
            }
        }
    }
}

/// A change before the next walk.
#[derive(Debug, Clone)]
enum Mutation {
    Nothing,
    /// A word that was read.
    Word(prop::sample::Index, RandomWord, u64),
    /// Two of them at once.
    Words([(prop::sample::Index, RandomWord, u64); 2]),
    /// All words less than a distance above the stack pointer.
    Inner(u64, u64),
    FramePointer(u64),
    StackPointer(u64),
    Code(u64),
    /// An interrupted frame becomes a called one, or the reverse, at the same address.
    Arrival,
    /// A module is replaced or unloaded; not the first one.
    Module(usize, Option<u64>),
    Room(usize),
}

fn change() -> impl Strategy<Value = Mutation> {
    let word = || (any::<prop::sample::Index>(), stack::value(), any::<u64>());
    prop_oneof![
        1 => Just(Mutation::Nothing),
        3 => word().prop_map(|(at, value, random)| Mutation::Word(at, value, random)),
        1 => [word(), word()].prop_map(Mutation::Words),
        3 => (0..2000_u64, any::<u64>()).prop_map(|(size, seed)| Mutation::Inner(size, seed)),
        2 => (0..40_u64).prop_map(|n| Mutation::FramePointer(16 * n)),
        2 => (0..40_u64).prop_map(|n| Mutation::StackPointer(16 * n)),
        1 => any::<u64>().prop_map(Mutation::Code),
        1 => Just(Mutation::Arrival),
        3 => (1..MODULES, proptest::option::of(0..VERSIONS)).prop_map(|(module, version)| {
            Mutation::Module(usize::try_from(module).unwrap(), version)
        }),
        2 => room().prop_map(Mutation::Room),
    ]
}

fn room() -> impl Strategy<Value = usize> {
    prop_oneof![1 => 0..8_usize, 2 => 8..150_usize, 1 => 600..800_usize, 2 => Just(MAX_FRAMES)]
}

#[derive(Debug, Clone)]
struct Case {
    rows: Vec<Vec<String>>,
    place: (u16, u16),
    rules: RuleCacheSize,
    says_staying: bool,
    has_entry: bool,
    keeps_all: bool,
    knows_all_code: bool,
    size: u64,
    seed: u64,
    odd: u64,
    near: u64,
    is_shown: bool,
    is_interrupted: bool,
    room: usize,
    changes: Vec<Mutation>,
}

fn case() -> impl Strategy<Value = Case> {
    let versions = usize::try_from(MODULES * VERSIONS).unwrap();
    // Slots among the first 64, in different slots of a set, and in one.
    let place = prop::sample::select(&[(1, 1), (50, 3), (100, 1), (96, 16)][..]);
    let rules = [
        RuleCacheSize::MIN,
        RuleCacheSize::DEFAULT,
        RuleCacheSize::MAX,
    ];
    let place = (place, prop::sample::select(rules.to_vec()));
    let size = prop::sample::select(&[768_u64, 4096, 16_384, 65_536][..]);
    let odd = prop::sample::select(&[0_u64, 3, 30, 200][..]);
    let near = prop::sample::select(&[0, STACK + 2048, u64::MAX][..]);
    let numbers = (place, size, any::<u64>(), odd, near);
    let flags = any::<[bool; 6]>();
    let rows = prop_oneof![
        vec(stack::usual_rows(), versions..=versions),
        vec(stack::realigned_rows(), versions..=versions),
        vec(stack::any_rows(), versions..=versions),
    ];
    (rows, numbers, flags, room(), vec(change(), 0..8)).prop_map(
        |(rows, ((place, rules), size, seed, odd, near), flags, room, changes)| Case {
            rows,
            place,
            rules,
            says_staying: flags[0],
            has_entry: flags[1],
            size,
            seed,
            odd,
            near,
            is_shown: flags[2],
            is_interrupted: flags[3],
            keeps_all: flags[4],
            knows_all_code: flags[5],
            room,
            changes,
        },
    )
}

fn inner(case: &Case) -> Inner {
    let code = RuntimeAddr(RandomWord::Return.word(0, case.seed).unwrap());
    let above = |n| {
        RandomWord::Above
            .word(STACK, case.seed.rotate_left(n))
            .unwrap()
    };
    Inner {
        code: if case.is_interrupted {
            CodeAddr::Instruction(code)
        } else {
            CodeAddr::Return(code)
        },
        stack_pointer: STACK,
        frame_pointer: above(1),
        others: vec![(Register(3), above(2)), (Register(12), above(3))],
        is_shown: case.is_shown,
    }
}

/// Makes a change, after a walk.
fn apply(
    change: &Mutation,
    top: &mut Inner,
    set: &mut ModuleSet<'_>,
    stack: &mut RandomStack,
    room: &mut usize,
) {
    let read = stack.read.take();
    let mut set_word = |(at, value, random): &(prop::sample::Index, RandomWord, u64)| {
        if !read.is_empty() {
            stack.change(*at.get(&read), *value, *random);
        }
    };
    match change {
        Mutation::Nothing => {}
        Mutation::Word(at, value, random) => set_word(&(*at, *value, *random)),
        Mutation::Words(words) => words.iter().for_each(set_word),
        Mutation::Inner(size, seed) => stack.inner = (top.stack_pointer + size, *seed),
        Mutation::FramePointer(above) => top.frame_pointer = top.stack_pointer + above,
        Mutation::StackPointer(above) => top.stack_pointer = STACK + above,
        Mutation::Code(random) => {
            let code = RuntimeAddr(RandomWord::Return.word(0, *random).unwrap());
            top.code = match top.code {
                CodeAddr::Return(_) => CodeAddr::Return(code),
                CodeAddr::Instruction(_) => CodeAddr::Instruction(code),
            };
        }
        Mutation::Arrival => {
            top.code = match top.code {
                CodeAddr::Return(code) => CodeAddr::Instruction(code),
                CodeAddr::Instruction(code) => CodeAddr::Return(code),
            };
        }
        Mutation::Module(module, version) => set.loaded.versions[*module] = *version,
        Mutation::Room(new) => *room = *new,
    }
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let tables: Vec<Table> = case.rows.iter().map(|rows| stack::table(rows)).collect();
    let bytes: Vec<Vec<u8>> = tables.iter().map(compile).collect();
    let compiled = bytes
        .iter()
        .map(|bytes| CompiledTable::open(bytes).unwrap());
    let compiled: Vec<CompiledTable<'_>> = compiled.collect();
    let mut set = ModuleSet {
        loaded: CaseModules {
            versions: [Some(0); 4],
            has_entry: case.has_entry,
        },
        tables: &compiled,
        first_place: case.place.0,
        place_step: case.place.1,
        says_staying: case.says_staying,
        keeps_all: case.keeps_all,
        knows_all_code: case.knows_all_code,
        asked: Cell::default(),
    };
    let mut stack = RandomStack::new(case.size, case.seed, case.odd, case.near);
    let rules = MappedRuleCache::new(case.rules).unwrap();
    let walker = Walker::new(ABI, rules.rules());
    let mut memo = Box::new(Memo::new());
    let mut top = inner(case);
    let mut room = case.room;
    let changes = std::iter::once(&Mutation::Nothing).chain(&case.changes);
    for change in changes {
        apply(change, &mut top, &mut set, &mut stack, &mut room);
        let (expected, falls) = by_cursor(&top, &set, &stack, room);
        let read = stack.read.take();
        check_by_rows(&expected, &top, &set, &tables, &stack, room)?;
        stack.read.take();
        // A second walk begins with the memo of the first, if that walk has changed nothing.
        for way in ["afresh", "again", "and again"] {
            let mut addresses = vec![RuntimeAddr(1); room];
            set.asked.take();
            let walk = match way {
                "afresh" => walker.walk(&top, &set, &stack, &mut addresses),
                _ => walker.walk_again(&mut memo, &top, &set, &stack, &mut addresses),
            };
            if walk.stats.by_cursor == 0 {
                // Once for each module, and once for addresses in none.
                prop_assert!(set.asked.get() <= MODULES + 1, "{:?}", set.asked);
            }
            let addresses = &addresses[..walk.frames];
            let found = WalkOutcome {
                addresses: addresses.iter().map(|address| address.0).collect(),
                guesses: walk.guesses,
                end: walk.end,
            };
            if falls {
                // When a circle is noticed may differ.
                let ends = [found.end, expected.end];
                prop_assert!(found == expected || ends.contains(&End::Loop));
                let mut pairs = found.addresses.iter().zip(&expected.addresses);
                prop_assert!(pairs.all(|(found, expected)| found == expected));
                continue;
            }
            let mut expected = expected.clone();
            if way != "afresh" && found.addresses.len() == room && !expected.end.is_root() {
                // The walk before ended here for lack of room. Whether there is more is not checked
                // again.
                assert!(found.end == expected.end || found.end == End::Limit);
                expected.end = found.end;
            }
            prop_assert_eq!(&found, &expected, "{} after {:?}", way, change);
        }
        stack.read = read.into();
    }
    Ok(())
}

/// Whether a walk's frames are those that the rows alone find, as far as they lead.
fn check_by_rows(
    found: &WalkOutcome,
    top: &Inner,
    set: &ModuleSet<'_>,
    tables: &[Table],
    stack: &RandomStack,
    room: usize,
) -> Result<(), TestCaseError> {
    // When a circle is noticed is the walker's.
    if !top.is_shown || room == 0 || matches!(found.end, End::Loop | End::TooManyStacks) {
        return Ok(());
    }
    let registers = top.registers();
    let by_rows = ReferenceWalk::walk(top.code, registers, &set.loaded, tables, stack, room);
    prop_assert!(by_rows.allows(&found.addresses), "{found:x?}\n{by_rows:x?}");
    let is_root = by_rows.end == ReferenceEnd::Root;
    let has_ended = matches!(
        found.end,
        End::Outermost | End::EntryPoint | End::ZeroReturnAddress
    );
    prop_assert!(!is_root || has_ended, "{found:x?}");
    let is_lost = by_rows.end == ReferenceEnd::NoModule && set.knows_all_code;
    prop_assert!(
        !is_lost || matches!(found.end, End::NotCode(_)),
        "{found:x?}"
    );
    Ok(())
}

/// A signal record at the bottom of a stack with its own return address as the interrupted code.
struct Circle;

impl Memory for Circle {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let word = match addr.0.wrapping_sub(STACK) {
            120 => 0,
            160 => STACK,
            168 => RandomWord::Return.word(0, 0).unwrap(),
            _ => return Err(Unreadable::unmapped(addr)),
        };
        into.copy_from_slice(&word.to_le_bytes());
        Ok(())
    }
}

/// Modules that stay, with one table each.
fn staying<'t>(tables: &'t [CompiledTable<'t>; 12]) -> ModuleSet<'t> {
    ModuleSet {
        loaded: CaseModules {
            versions: [Some(0); 4],
            has_entry: false,
        },
        tables,
        first_place: 1,
        place_step: 1,
        says_staying: true,
        keeps_all: true,
        knows_all_code: false,
        asked: Cell::default(),
    }
}

#[test]
fn a_circle_of_signal_frames_is_seen() {
    let row =
        "cfa={breg7 160; deref}  ra=[{breg7 168}]  rbp=[{breg7 120}]  rsp=[{breg7 160}]  signal";
    let rows = [const { String::new() }; 22].map(|_| row.to_owned());
    let bytes = compile(&stack::table(&rows));
    let table = CompiledTable::open(&bytes).unwrap();
    let tables = [table; 12];
    let set = staying(&tables);
    let rules = MappedRuleCache::new(RuleCacheSize::DEFAULT).unwrap();
    let top = Inner {
        code: CodeAddr::Return(RuntimeAddr(RandomWord::Return.word(0, 0).unwrap())),
        stack_pointer: STACK,
        frame_pointer: 0,
        others: Vec::new(),
        is_shown: true,
    };
    let mut addresses = vec![RuntimeAddr(0); 100];
    let walk = Walker::new(ABI, rules.rules()).walk(&top, &set, &Circle, &mut addresses);
    assert_eq!(walk.end, End::Loop);
    assert!(walk.frames < 10, "{walk:?}");
}

/// In walks through realigned frames and frames with a frame pointer, each word that was read is
/// changed.
#[test]
fn no_word_of_a_remembered_walk_changes_unseen() {
    let rows = [
        "cfa={breg6 -16; deref}  ra=[cfa-8]  rbp=[{breg6 0}]",
        "cfa=rbp+16  ra=[cfa-8]  rbp=[cfa-16]",
        "cfa=rsp+32  ra=[cfa-8]",
        "cfa=rsp+48  ra=[cfa-8]  rbp=[cfa-16]",
    ];
    let mut rows: Vec<String> = rows
        .into_iter()
        .cycle()
        .take(22)
        .map(str::to_owned)
        .collect();
    rows.push("cfa=rsp+16  ra=undefined".to_owned());
    let bytes = compile(&stack::table(&rows));
    let table = CompiledTable::open(&bytes).unwrap();
    let tables = [table; 12];
    let set = staying(&tables);
    let rules = MappedRuleCache::new(RuleCacheSize::DEFAULT).unwrap();
    let walker = Walker::new(ABI, rules.rules());
    let mut addresses = vec![RuntimeAddr(0); MAX_FRAMES];
    let mut changes = 0;
    for seed in 0..60 {
        let top = Inner {
            code: CodeAddr::Return(RuntimeAddr(RandomWord::Return.word(0, seed).unwrap())),
            stack_pointer: STACK,
            frame_pointer: STACK + 64,
            others: Vec::new(),
            is_shown: true,
        };
        let stack = RandomStack::new(4096, seed, 0, 0);
        by_cursor(&top, &set, &stack, MAX_FRAMES);
        let read = stack.read.take();
        for (at, value) in read
            .iter()
            .flat_map(|at| [(*at, RandomWord::Above), (*at, RandomWord::Return)])
        {
            let mut memo = Box::new(Memo::new());
            for _ in 0..2 {
                walker.walk_again(&mut memo, &top, &set, &stack, &mut addresses);
            }
            let mut changed = stack.clone();
            changed.change(at, value, seed ^ 0x5a5a_5a5a);
            let (expected, _) = by_cursor(&top, &set, &changed, MAX_FRAMES);
            let walk = walker.walk_again(&mut memo, &top, &set, &changed, &mut addresses);
            let found = addresses[..walk.frames].iter().map(|address| address.0);
            assert!(found.eq(expected.addresses), "{seed} {at:#x}");
            assert_eq!(walk.end, expected.end);
            changes += 1;
        }
    }
    assert!(changes > 2000, "{changes}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn walks_are_what_a_cursor_finds(case in case()) {
        check(&case)?;
    }
}
