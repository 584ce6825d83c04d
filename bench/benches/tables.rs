#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a measurement prints, and stops at a bug"
)]
//! Compiled tables: bytes, the cost of building and proving them, and look-ups against framehop.
//!
//! `cargo bench -p unspool-bench --bench tables [-- FILE…]`

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use unspool_bench::{Random, files, median, prefetch, time};
use unspool_compact::call::{CallTest, WINDOW, window};
use unspool_compact::{Claim, Code, Compiled, Encoded, Key, Part, encode};
use unspool_ir::table::Span;
use unspool_ir::{Arch, Table, Vaddr};
use unspool_module::ElfFile;
use unspool_unwind::tables::{self, From};

const ROUNDS: usize = 9;
const LOOKUPS: usize = 200_000;

fn main() -> anyhow::Result<()> {
    for path in files() {
        measure(&path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn measure(path: &Path) -> anyhow::Result<()> {
    println!("{}", path.display());
    let file = ElfFile::open(path)?;
    let made = tables::compile(&file, From::Auto)?;
    let source: u64 = made.reading.origins.iter().map(|origin| origin.size).sum();
    sizes(&made.encoded, source + made.reading.hdr_size);
    build(&file)?;
    let compiled = Compiled::open(&made.encoded.bytes)?;
    let opened = (0..ROUNDS).map(|_| time(|| black_box(Compiled::open(&made.encoded.bytes))).0);
    println!(
        "  opening                 {:>9.2} µs",
        micros(median(opened.collect()))
    );
    lookups(&file, &made.reading.table, &compiled)
}

fn sizes(encoded: &Encoded, source: u64) {
    let share = |bytes: usize| ratio(bytes as f64, source as f64);
    println!(
        "  bytes / source          {:.3} whole, {:.3} rows, {:.3} entries, {:.3} call sites",
        share(encoded.bytes.len()),
        share(encoded.part(Part::Rows)),
        share(encoded.part(Part::Entries)),
        share(encoded.part(Part::Calls)),
    );
}

/// The cost of reading rows, laying them out, and proving the result.
fn build(file: &ElfFile) -> anyhow::Result<()> {
    let (mut reads, mut layouts, mut compiles, mut proofs) = (vec![], vec![], vec![], vec![]);
    let mut rows = 0;
    for _ in 0..ROUNDS {
        let (read, reading) = time(|| tables::read(file, From::Auto));
        let reading = reading?;
        rows = reading.table.row_count();
        let no_code = Code::default();
        let (layout, encoded) =
            time(|| encode(&reading.table, Key::Content(&[0; 20]), &no_code, &[]));
        encoded?;
        let (compile, made) = time(|| tables::compile(file, From::Auto));
        let made = made?;
        let (proof, comparison) =
            time(|| tables::verify(file, &reading.table, &made.encoded.bytes));
        anyhow::ensure!(comparison?.is_equal(), "the table differs from its source");
        reads.push(read);
        layouts.push(layout);
        compiles.push(compile);
        proofs.push(proof);
    }
    let rate = |duration: Duration| ratio(rows as f64, duration.as_secs_f64()) / 1e6;
    let (read, layout) = (median(reads), median(layouts));
    let (compile, proof) = (median(compiles), median(proofs));
    println!(
        "  read + lay out, 1 core  {:>9.2} million rows/s",
        rate(read + layout)
    );
    println!(
        "    read                  {:>9.2} million rows/s",
        rate(read)
    );
    println!(
        "    lay out               {:>9.2} million rows/s",
        rate(layout)
    );
    println!(
        "  compile                 {:>9.2} ms",
        micros(compile) / 1e3
    );
    println!(
        "  verify                  {:>9.2} ms, {:.2} million rows/s",
        micros(proof) / 1e3,
        rate(proof)
    );
    println!(
        "  compile and verify      {:>9.2} ms",
        micros(compile + proof) / 1e3
    );
    Ok(())
}

/// Look-ups, each of which waits for the one before.
fn lookups(file: &ElfFile, table: &Table, compiled: &Compiled<'_>) -> anyhow::Result<()> {
    let spans: Vec<Span> = table.spans().collect();
    let code = tables::code(file);
    let (start, text) = *code
        .ranges
        .iter()
        .max_by_key(|(_, bytes)| bytes.len())
        .context("no code")?;
    let sites = return_addresses(file.abi().arch, start, text, &spans);
    let pcs = random_pcs(&spans);
    let peer = Peer::new(file)?;
    let call_sites = compiled.call_sites();

    let mut figures: [Vec<Duration>; 6] = Default::default();
    let row_at = |pc: Vaddr| {
        compiled
            .lookup(pc)
            .ok()
            .flatten()
            .map_or(0, |hit| u64::from(hit.row.0))
    };
    for round in 0..ROUNDS {
        let sites = shuffled(&sites, round);
        let pcs = shuffled(&pcs, round);
        let hot = shuffled(&pcs[..pcs.len().min(64)], round);
        let took = [
            dependent(&sites, |site, zero| {
                let address = site.offset(zero);
                let before = window(text, usize::try_from(address.0 - start.0).unwrap_or(0));
                match call_sites.row(address, before) {
                    Ok(Some(row)) => u64::from(row.0),
                    _ => row_at(Vaddr(address.0 - 1)),
                }
            }),
            {
                let mut later = Later::new(call_sites.test(), start, text);
                let took = dependent(&sites, |site, zero| {
                    let address = site.offset(zero);
                    match call_sites.claim(address) {
                        Ok(Some(claim)) => {
                            later.check(claim, address);
                            u64::from(claim.row().0)
                        }
                        _ => row_at(Vaddr(address.0 - 1)),
                    }
                });
                anyhow::ensure!(later.all_hold, "a claim of a call site does not hold");
                took
            },
            dependent(&sites, |site, zero| peer.step_return(site.offset(zero))),
            dependent(&pcs, |pc, zero| row_at(pc.offset(zero))),
            dependent(&pcs, |pc, zero| peer.step(pc.offset(zero))),
            dependent(&hot, |pc, zero| row_at(pc.offset(zero))),
        ];
        figures
            .iter_mut()
            .zip(took)
            .for_each(|(all, one)| all.push(one));
    }
    let nanos = |duration: Duration| duration.as_secs_f64() * 1e9 / LOOKUPS as f64;
    let [site, later, peer_site, pc, peer_pc, hot] = figures.map(|all| nanos(median(all)));
    println!("  dependent look-ups, ns");
    println!(
        "    random call site      {site:>9.1}   framehop's step {peer_site:.0}: 1/{:.0}",
        peer_site / site
    );
    println!(
        "      code read later     {later:>9.1}                         1/{:.0}",
        peer_site / later
    );
    println!(
        "    random pc             {pc:>9.1}   framehop's step {peer_pc:.0}: 1/{:.0}",
        peer_pc / pc
    );
    println!("    64 hot pcs            {hot:>9.1}");
    Ok(())
}

/// Claims of call sites, whose code is asked for at once and looked at eight claims later, as
/// a walk can do that goes back where one does not hold.
struct Later<'c> {
    test: CallTest,
    start: Vaddr,
    text: &'c [u8],
    waiting: [Option<(Claim, usize)>; 8],
    next: usize,
    all_hold: bool,
}

impl<'c> Later<'c> {
    fn new(test: CallTest, start: Vaddr, text: &'c [u8]) -> Self {
        Later {
            test,
            start,
            text,
            waiting: [None; 8],
            next: 0,
            all_hold: true,
        }
    }

    fn check(&mut self, claim: Claim, address: Vaddr) {
        let end = usize::try_from(address.0 - self.start.0).unwrap_or(0);
        prefetch(self.text, end.saturating_sub(WINDOW));
        let before = self.waiting[self.next].replace((claim, end));
        self.next = (self.next + 1) % self.waiting.len();
        if let Some((claim, end)) = before {
            self.all_hold &= claim.holds(&self.test, window(self.text, end));
        }
    }
}

/// So many questions in a random order, laid out to be read one after another.
fn shuffled<Q: Copy>(questions: &[Q], seed: usize) -> Vec<Q> {
    let mut random = Random::new(seed as u64 + 1);
    (0..LOOKUPS)
        .map(|_| questions[random.below(questions.len())])
        .collect()
}

/// Runs a chain of look-ups: the address of each is computed from the answer before, by adding
/// a zero that the processor cannot know to be one.
fn dependent<Q: Copy>(questions: &[Q], mut ask: impl FnMut(Q, u64) -> u64) -> Duration {
    let mask = black_box(0_u64);
    let (took, _) = time(|| {
        let mut last = 0;
        for question in questions {
            last = ask(*question, last & mask);
        }
        black_box(last)
    });
    took
}

/// Return addresses in a range of code, of calls that the table covers.
fn return_addresses(arch: Arch, start: Vaddr, text: &[u8], spans: &[Span]) -> Vec<Vaddr> {
    let range = Code {
        ranges: vec![(start, text)],
    };
    let is_covered = |address: &Vaddr| {
        let call = Vaddr(address.0 - 1);
        let after = spans.partition_point(|span| span.start <= call);
        after > 0 && call < spans[after - 1].end
    };
    let mut addresses = range.call_addresses(arch);
    addresses.retain(is_covered);
    addresses
}

/// Addresses spread evenly over the code that the table covers.
fn random_pcs(spans: &[Span]) -> Vec<Vaddr> {
    let mut random = Random::new(7);
    let mut ends = Vec::with_capacity(spans.len());
    let mut covered = 0;
    for span in spans {
        covered += usize::try_from(span.end.0 - span.start.0).unwrap_or(0);
        ends.push(covered);
    }
    (0..LOOKUPS)
        .map(|_| {
            let at = random.below(covered);
            let span = ends.partition_point(|end| *end <= at);
            Vaddr(spans[span].end.0 - (ends[span] - at) as u64)
        })
        .collect()
}

/// framehop, with this one module.
struct Peer {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: std::cell::RefCell<CacheX86_64>,
}

impl Peer {
    fn new(file: &ElfFile) -> anyhow::Result<Self> {
        let eh_frame = file
            .eh_frames()?
            .into_iter()
            .next()
            .context("no .eh_frame")?;
        let hdr = file.eh_frame_hdr()?.context("no .eh_frame_hdr")?;
        let text = file.section_named(".text")?.context("no .text")?;
        let range = |section: &unspool_module::Section<'_>| {
            let start = section.address.0;
            Some(start..start + section.data.len() as u64)
        };
        let all = file.address_range().context("no segments")?;
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(&text),
            text: Some(text.data.to_vec()),
            eh_frame_svma: range(&eh_frame),
            eh_frame: Some(eh_frame.data.to_vec()),
            eh_frame_hdr_svma: range(&hdr),
            eh_frame_hdr: Some(hdr.data.to_vec()),
            ..Default::default()
        };
        let mut unwinder = UnwinderX86_64::new();
        unwinder.add_module(Module::new(
            "module".into(),
            all.start.0..all.end.0,
            0,
            sections,
        ));
        Ok(Peer {
            unwinder,
            cache: std::cell::RefCell::new(CacheX86_64::new()),
        })
    }

    fn step_return(&self, address: Vaddr) -> u64 {
        FrameAddress::from_return_address(address.0).map_or(0, |address| self.unwind(address))
    }

    fn step(&self, pc: Vaddr) -> u64 {
        self.unwind(FrameAddress::from_instruction_pointer(pc.0))
    }

    fn unwind(&self, address: FrameAddress) -> u64 {
        let mut registers = UnwindRegsX86_64::new(address.address(), 0x7fff_0000, 0x7fff_1000);
        let mut read = |addr: u64| Ok(addr ^ 0x1000);
        let caller = self.unwinder.unwind_frame(
            address,
            &mut registers,
            &mut self.cache.borrow_mut(),
            &mut read,
        );
        caller.ok().flatten().unwrap_or(0)
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn ratio(a: f64, b: f64) -> f64 {
    a / b.max(f64::MIN_POSITIVE)
}
