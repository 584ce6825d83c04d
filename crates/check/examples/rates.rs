//! How many rows of files are proven, and how fast.
use std::time::Instant;
use unspool_check::{Declarations, Report, Subject};
use unspool_module::ElfFile;
fn main() {
    let verbose = std::env::var("V").is_ok();
    let threads = std::env::var("T")
        .map_or(1, |t| t.parse().unwrap())
        .try_into()
        .unwrap();
    for path in std::env::args().skip(1) {
        let file = ElfFile::open(&path).unwrap();
        let t = Instant::now();
        let declarations = Declarations::read(&file).unwrap();
        let t0 = Instant::now();
        let subject = Subject::new(&file, &declarations).unwrap();
        let t1 = Instant::now();
        let report = Report::of(&subject, threads, |_, _| {});
        let t2 = Instant::now();
        if verbose {
            for f in &report.findings {
                println!(
                    "{:#x} {} {} {:?} {} declared {} computed {} places {} fix {:?} {:x?}",
                    f.at.0,
                    f.code.id(),
                    f.code.name(),
                    f.severity,
                    f.subject,
                    f.declared,
                    f.computed,
                    f.places,
                    f.fix,
                    f.related
                );
            }
        }
        let totals = report.totals;
        let pc = |n: u64| 100.0 * n as f64 / totals.rows as f64;
        let rate = |d: std::time::Duration| totals.bytes as f64 / 1e6 / d.as_secs_f64();
        eprintln!(
            "{path}: {totals:?} cfa {:.3} % all {:.3} % findings {}; read {:?} survey {:?} judge {:?} {:.1} MB/s (all {:.1})",
            pc(totals.proven_cfa),
            pc(totals.proven),
            report.findings.len(),
            t0 - t,
            t1 - t0,
            t2 - t1,
            rate(t2 - t1),
            rate(t2 - t0)
        );
    }
}
