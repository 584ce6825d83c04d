use super::*;
use std::process::{Child, Command};
use std::time::Duration;

use crate::live::tracees::Tracees;

/// This process as if it were another one: the kernel allows reading it.
fn own_memory(stack_pointers: Vec<u64>, tracer: &Arc<Tracer>) -> ProcessMemory {
    let pid = std::process::id().cast_signed();
    let mappings = Mappings::parse(&procfs::read(pid, "maps").unwrap());
    ProcessMemory::new(pid, Arc::new(mappings), stack_pointers, tracer, None)
}

fn address_of<T>(value: &[T]) -> RuntimeAddr {
    RuntimeAddr(u64::try_from(value.as_ptr().addr()).unwrap())
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size)
        .map(|i| u8::try_from(i * 7 % 251).unwrap())
        .collect()
}

#[test]
fn reads_of_every_size_and_alignment_are_exact() {
    let bytes = pattern(200_000);
    let tracer = Arc::new(Tracer::start().unwrap());
    let memory = own_memory(Vec::new(), &tracer);
    let start = address_of(&bytes);
    for (from, size) in [
        (0, 1),
        (5, 8),
        (4000, 200),
        (12_345, 40_000),
        (1, 65_536),
        (0, 200_000),
    ] {
        let mut into = vec![0; size];
        memory
            .read(
                RuntimeAddr(start.0 + u64::try_from(from).unwrap()),
                &mut into,
            )
            .unwrap();
        assert!(into == bytes[from..from + size], "{from}+{size}");
    }
}

#[test]
fn each_way_of_reading_is_tried() {
    let bytes = pattern(9000);
    let tracer = Arc::new(Tracer::start().unwrap());
    let memory = own_memory(Vec::new(), &tracer);
    memory.state.borrow_mut().direct = ReadMethod::Closed;
    let mut into = vec![0; 9000];
    memory.read(address_of(&bytes), &mut into).unwrap();
    assert!(into == bytes);
    let _file = memory.state.replace(ReadState {
        copies: CopiedRanges::default(),
        pages: PageCache::new(8),
        buffer: Vec::new(),
        direct: ReadMethod::Closed,
        file: ReadMethod::Closed,
    });
    let error = memory.read(address_of(&bytes), &mut into[..8]).unwrap_err();
    assert_eq!(error.reason, UnreadableReason::Refused);
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn peeking_reads_what_the_system_call_reads() {
    let child = KilledOnDrop(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = child.0.id().cast_signed();
    let tracer = Arc::new(Tracer::start().unwrap());
    tracer
        .run(move |state| {
            let mut tracees = Tracees::new(pid, Duration::from_secs(5));
            tracees.stop().unwrap();
            *state = Some(tracees);
        })
        .unwrap();
    let mappings = Arc::new(Mappings::parse(&procfs::read(pid, "maps").unwrap()));
    let start = mappings
        .iter()
        .find(|mapping| mapping.permissions.read)
        .unwrap()
        .start;
    let memory = ProcessMemory::new(pid, mappings, Vec::new(), &tracer, Some(pid));
    let mut direct = [0; 100];
    memory.read(start, &mut direct).unwrap();
    let _direct = memory.state.replace(ReadState {
        copies: CopiedRanges::default(),
        pages: PageCache::new(8),
        buffer: Vec::new(),
        direct: ReadMethod::Closed,
        file: ReadMethod::Closed,
    });
    let mut peeked = [0; 100];
    memory.read(start, &mut peeked).unwrap();
    assert_eq!(direct, peeked);
}

#[test]
fn errors_name_the_first_unreadable_byte() {
    static BYTES: [u8; 4] = *b"text";
    let tracer = Arc::new(Tracer::start().unwrap());
    let memory = own_memory(Vec::new(), &tracer);
    let mapping = memory.mappings.find(address_of(&BYTES)).unwrap().clone();
    let after = memory.mappings.iter().find(|next| {
        next.start >= mapping.end
            && memory.mappings.find(next.end).is_none()
            && next.permissions.read
    });
    let end = after.unwrap().end;
    for size in [16, 100_000] {
        let mut into = vec![0; size];
        let error = memory.read(RuntimeAddr(end.0 - 8), &mut into).unwrap_err();
        assert_eq!(error, Unreadable::unmapped(end), "{size}");
        assert!(into.iter().all(|byte| *byte == 0));
    }
    let wraps = memory
        .read(RuntimeAddr(u64::MAX - 3), &mut [0; 8])
        .unwrap_err();
    assert_eq!(wraps.reason, UnreadableReason::Wraps);
    memory.read(RuntimeAddr(3), &mut []).unwrap();
}

#[test]
fn once_let_go_only_kept_or_constant_memory_is_read() {
    let kept = pattern(100_000);
    let tracer = Arc::new(Tracer::start().unwrap());
    let start = address_of(&kept);
    let memory = own_memory(vec![start.0], &tracer);
    let fetched = memory.prefetch(20_000, &[]);
    assert!((20_000..=28_672).contains(&fetched), "{fetched}");
    drop(tracer);
    let mut into = vec![0; 20_000];
    memory.read(start, &mut into).unwrap();
    assert!(into == kept[..20_000]);
    let later = RuntimeAddr(start.0 + 60_000);
    let error = memory.read(later, &mut into[..8]).unwrap_err();
    assert_eq!(error.reason, UnreadableReason::NotRecorded);
    static CONSTANT: [u8; 4] = *b"text";
    memory.read(address_of(&CONSTANT), &mut into[..4]).unwrap();
    assert_eq!(&into[..4], b"text");
}
