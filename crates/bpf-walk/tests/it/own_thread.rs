//! Walks of this process' own thread, at performance events.

use std::fs;
use std::hint::black_box;

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags, elf};
use unspool_bpf_walk::{
    HandOver, KernelOffsets, KernelSample, ModuleMapping, TableImage, WalkHead, WalkMaps,
    WalkRecord, WalkTrigger, write_mappings,
};
use unspool_compiled_table::ExecutableCode;
use unspool_perf_events::{
    Counter, EventAttr, EventTarget, PerfEvent, Ring, SampleRate, user_mask,
};
use unspool_rows::{Arch, CodeAddr, LoadBias, RuntimeAddr};

use crate::lookup::compile;

const CPUS: usize = 256;

/// Recurses, and then runs until `until`.
#[inline(never)]
fn recurse(depth: usize, until: &mut dyn FnMut() -> bool) -> usize {
    if depth > 1 {
        return black_box(recurse(black_box(depth - 1), until)) + 1;
    }
    while !until() {
        for number in 0..10_000 {
            black_box(number);
        }
    }
    1
}

/// The table of a file, and for each of its mappings the difference to its addresses as linked.
fn file_table(path: &str) -> (Vec<u8>, impl Fn(u64, u64) -> Option<LoadBias>) {
    let data = fs::read(path).unwrap();
    let units = xtask::elf::units(&data).unwrap();
    let unit = &units[0];
    let sections = unit.sections.iter();
    let section = sections.last().unwrap();
    let table = unspool_cfi::read_table(&unit.section(section)).table;
    let file = object::File::parse(&*data).unwrap();
    let segments = file.segments().filter(|segment| match segment.flags() {
        SegmentFlags::Elf { p_flags, .. } => p_flags & elf::PF_X == elf::PF_X,
        _ => false,
    });
    let segments: Vec<_> = segments
        .map(|segment| (segment.file_range(), segment.address()))
        .collect();
    let bias = move |start: u64, offset: u64| {
        // Mappings begin at pages, segments anywhere in one.
        let has = |((at, size), _): &&((u64, u64), u64)| at & !4095 <= offset && offset < at + size;
        let ((at, _), address) = segments.iter().find(has)?;
        let linked = address.wrapping_add(offset).wrapping_sub(*at);
        Some(LoadBias(start.wrapping_sub(linked)))
    };
    (compile(&table, &ExecutableCode::default()), bias)
}

/// Publishes the mappings of this process. Returns the load bias of its executable.
fn publish(maps: &WalkMaps) -> LoadBias {
    let executable = fs::read_link("/proc/self/exe").unwrap();
    let text = fs::read_to_string("/proc/self/maps").unwrap();
    let mut free = WalkMaps::FREE.start;
    let mut mappings = Vec::new();
    let mut own = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, "r-xp", offset, _, _, path] = words[..] else {
            continue;
        };
        if !path.starts_with('/') {
            continue;
        }
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let (table, bias) = file_table(path);
        let Some(bias) = bias(hex(start), hex(offset)) else {
            continue;
        };
        let image = TableImage::new(&table).unwrap();
        let record = image.write(maps.arena(), free).unwrap();
        free = record.end();
        mappings.push(ModuleMapping {
            start: RuntimeAddr(hex(start)),
            end: RuntimeAddr(hex(end)),
            bias,
            record: record.address(),
        });
        if executable.to_str() == Some(path) {
            own = Some(bias);
        }
    }
    let list = write_mappings(maps.arena(), free, &mappings).unwrap();
    maps.set_process(std::process::id(), list.address(), 3)
        .unwrap();
    own.unwrap()
}

/// The addresses of `recurse`, as linked.
fn recurse_range() -> std::ops::Range<u64> {
    let data = fs::read("/proc/self/exe").unwrap();
    let file = object::File::parse(&*data).unwrap();
    let mut symbols = file.symbols();
    let symbol = symbols.find(|it| {
        it.name()
            .is_ok_and(|name| name.contains("own_thread") && name.contains("7recurse"))
    });
    let symbol = symbol.expect("a symbol");
    symbol.address()..symbol.address() + symbol.size()
}

/// Samples of this thread: by perf, and complete walks.
struct Sampled {
    /// The number of samples in perf's rings.
    copied: usize,
    /// The addresses of each walk.
    walks: Vec<Vec<CodeAddr>>,
    /// The number of walks that also have frames of the kernel.
    with_kernel: usize,
}

/// Recurses, and takes samples meanwhile.
fn sample(maps: &mut WalkMaps, depth: usize) -> Sampled {
    let attr = EventAttr {
        event: "cpu-clock".parse::<PerfEvent>().unwrap(),
        rate: SampleRate::Period(500_000),
        user_registers: user_mask(Arch::X86_64).unwrap(),
        stack_bytes: 2048,
        with_kernel: true,
        with_frame_pointers: false,
        inherits: false,
        from_exec: false,
        with_tasks: false,
        with_switches: false,
        wake_after: 1,
    };
    let head = WalkHead::PerfEvent(KernelOffsets::read().unwrap(), KernelSample::Omitted);
    let program = maps.load(head, WalkTrigger::Sample);
    let program = program.unwrap_or_else(|error| panic!("{error}"));
    let info = program.info().unwrap();
    assert!(info.verified_insns < 200_000, "{info:?}");
    // More processors than there are cannot be opened.
    let counters: Vec<Counter> = (0..1024)
        .map_while(|cpu| Counter::open(&attr, EventTarget::Thread(0), cpu).ok())
        .collect();
    let mut rings: Vec<Ring> = counters
        .iter()
        .map(|counter| Ring::new(counter, 1 << 20).unwrap())
        .collect();
    let links: Vec<_> = counters
        .iter()
        .map(|counter| program.attach(counter, 0).unwrap())
        .collect();
    counters
        .iter()
        .for_each(|counter| counter.enable().unwrap());
    let before = maps.counts(CPUS).all();
    let mut until = || {
        // System calls of some length.
        black_box(fs::read("/proc/self/maps").unwrap());
        maps.counts(CPUS).all() - before >= 200
    };
    assert_eq!(recurse(depth, &mut until), depth);
    counters
        .iter()
        .for_each(|counter| counter.disable().unwrap());
    drop(links);
    let mut sampled = Sampled {
        copied: rings.iter_mut().map(count).sum(),
        walks: Vec::new(),
        with_kernel: 0,
    };
    while let Some(bytes) = maps.records().next_record() {
        let record = WalkRecord::parse(bytes).unwrap();
        assert_eq!(record.pid, std::process::id());
        assert_eq!((record.generation, record.period), (3, 500_000));
        sampled.with_kernel += usize::from(record.kernel_frames().next().is_some());
        sampled.walks.push(record.user_frames().collect());
    }
    sampled
}

/// The number of records in a ring.
fn count(ring: &mut Ring) -> usize {
    ring.refresh();
    let mut records = 0;
    while let Some((header, _)) = ring.first() {
        ring.skip(header);
        records += 1;
    }
    records
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn a_recursion_is_walked_to_its_root() {
    let range = recurse_range();
    for depth in [1, 60, 800] {
        let mut maps = WalkMaps::new(CPUS).unwrap_or_else(|error| panic!("{error}"));
        let bias = publish(&maps);
        let sampled = sample(&mut maps, depth);
        let counts = maps.counts(CPUS);
        assert_eq!(counts.samples, counts.all());
        assert_eq!(counts.periods, counts.all() * 500_000);
        // The first and the last sample can be outside of the recursion.
        let (complete, all) = (sampled.walks.len(), counts.all());
        assert_eq!(complete as u64, counts.complete);
        assert_eq!(
            sampled.copied as u64,
            all - counts.complete,
            "as handed over"
        );
        // A slow machine walks 800 frames in about the time that a walk may take.
        let in_time = all - counts.count(HandOver::Deadline);
        assert!(complete > 20, "{counts:?}");
        assert!(complete as u64 * 100 >= in_time * 98, "{counts:?}");
        let is_own = |code: &&CodeAddr| range.contains(&bias.to_vaddr(code.lookup()).0);
        let depths = sampled
            .walks
            .iter()
            .map(|it| it.iter().filter(is_own).count());
        let right = depths.filter(|own| *own == depth).count();
        assert!(right + 4 >= complete, "{right} of {complete}");
        assert!(sampled.with_kernel > 0);
    }
}

/// There, this process has another ID than in the initial namespace.
#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn processes_are_known_by_their_ids_in_this_pid_namespace() {
    unspool_testing::alone_by(&["unshare", "--pid", "--fork"], || {
        assert_eq!(std::process::id(), 1);
        a_recursion_is_walked_to_its_root();
    });
}

#[test]
#[ignore = "needs CAP_BPF and Linux 6.9: cargo xtask root"]
fn samples_of_a_removed_process_are_perfs() {
    let mut maps = WalkMaps::new(CPUS).unwrap_or_else(|error| panic!("{error}"));
    publish(&maps);
    maps.remove_process(std::process::id()).unwrap();
    let sampled = sample(&mut maps, 10);
    assert_eq!(sampled.walks.len(), 0);
    let counts = maps.counts(CPUS);
    assert_eq!(counts.count(HandOver::UnknownProcess), counts.all());
    assert_eq!(sampled.copied as u64, counts.all());
}
