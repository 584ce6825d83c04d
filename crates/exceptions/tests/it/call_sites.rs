//! What is decided of call sites without the personality routines, against those routines.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use unspool_cfi::CfiSection;
use unspool_cfi::byte_reader::ByteReader;
use unspool_cfi::entry::{Cie, ParsedFde};
use unspool_cfi::lsda::Lsda;
use unspool_exceptions::abi::{
    Actions, CLEANUP_PHASE, CONTINUE_UNWIND, Exception, FORCE_UNWIND, INSTALL_CONTEXT, SEARCH_PHASE,
};
use unspool_exceptions::context::UnwindContext;
use unspool_exceptions::facts::{FrameAction, FrameFacts, PersonalityAddr, ProcedureInfo};
use unspool_exceptions::walk::LandingFrame;
use unspool_rows::{CodeAddr, Pointer, RuntimeAddr, Vaddr};
use unspool_testing::{Finish as _, Folder, packages, tool};
use unspool_unwind::local::caller_registers::CallerRegisters;
use unspool_unwind::local::{self, ABI, OwnUnwindTable};

use crate::sys;

/// What was decided, by call site.
#[derive(Default)]
struct SiteCounts {
    sites: u64,
    passed: u64,
    cleaned: u64,
    left: u64,
    /// Addresses that were asked about: the ends of call sites, and those beside them.
    addresses: u64,
    mismatches: Vec<String>,
}

impl fmt::Display for SiteCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |count: u64| 100.0 * count as f64 / self.sites.max(1) as f64;
        write!(
            f,
            "{} call sites: {:.1} % without a pad, {:.1} % clean up, {:.1} % left to the routine; \
             {} addresses, {} mismatches",
            self.sites,
            share(self.passed),
            share(self.cleaned),
            share(self.left),
            self.addresses,
            self.mismatches.len(),
        )
    }
}

/// Where exceptions only pass or clean up, the personality routine of the language says the same: at
/// the ends of every call site of the largest libraries and programs here, and beside them.
#[test]
fn personality_routines_agree_at_every_call_site() {
    let folder = Folder::new();
    let libraries = [
        packages::path("/usr/lib/x86_64-linux-gnu/libstdc++.so.6").unwrap(),
        loadable(&packages::path("/usr/bin/gdb").unwrap(), &folder),
        library_of_rustc("libLLVM.so."),
    ];
    for path in libraries {
        sys::load(&path);
        let counts = count(start(&path));
        println!("{}: {counts}", path.display());
        assert!(counts.mismatches.is_empty(), "{:#?}", counts.mismatches);
        assert!(counts.passed > 100 && counts.cleaned > 100, "{counts}");
    }
}

/// A copy of a program that the loader takes for a library.
fn loadable(program: &Path, folder: &Folder) -> PathBuf {
    const FLAGS: [u8; 8] = 0x6fff_fffb_u64.to_le_bytes();
    const PROGRAM: u8 = 8;
    let mut file = fs::read(program).unwrap();
    let flags = file.windows(8).position(|bytes| bytes == FLAGS).unwrap() + 8 + 3;
    assert!(file[flags] & PROGRAM != 0, "not position-independent");
    file[flags] &= !PROGRAM;
    folder.write("program.so", file)
}

fn library_of_rustc(prefix: &str) -> PathBuf {
    let root = tool("rustc").args(["--print", "sysroot"]).succeed();
    let files = fs::read_dir(Path::new(root.trim()).join("lib")).unwrap();
    let mut names = files.map(|file| file.unwrap().path());
    let has_prefix = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(prefix)
    };
    names.find(has_prefix).unwrap()
}

/// An address of a loaded library.
fn start(path: &Path) -> RuntimeAddr {
    let path = fs::canonicalize(path).unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps
        .lines()
        .find(|line| line.ends_with(path.to_str().unwrap()));
    let (start, _) = line.unwrap().split_once('-').unwrap();
    RuntimeAddr(u64::from_str_radix(start, 16).unwrap())
}

/// Compares all call sites of the library at an address.
fn count(library: RuntimeAddr) -> SiteCounts {
    let mut counts = SiteCounts::default();
    let section = |table: OwnUnwindTable<'_>| (*table.lookup.section(), table.bias);
    let (section, bias) = local::modules()
        .with_unwind_table(library, section)
        .unwrap();
    for (_, entry) in section.entries() {
        let Ok(entry) = entry else { continue };
        let Some(cie) = entry.cie else { continue };
        let Ok(cie) = Cie::parse_at(&section, cie) else {
            continue;
        };
        let Ok(fde) = ParsedFde::parse(&section, &cie, entry) else {
            continue;
        };
        let Some(Pointer::Direct(lsda)) = fde.lsda else {
            continue;
        };
        let lsda = bias.to_runtime(lsda);
        let section = CfiSection {
            data: local::modules().bytes_from(lsda).unwrap(),
            address: bias.to_vaddr(lsda),
            ..section
        };
        let mut reader = ByteReader::new(section.data, 0, section.data.len() as u64, ABI.endian);
        let mut lsda = Lsda::parse(&section, Some(fde.start), &mut reader).unwrap();
        while let Some(site) = lsda.next_call_site().unwrap() {
            let first = fde.start.offset(site.start);
            let action = compare(bias.to_runtime(first), &mut counts);
            counts.sites += 1;
            *match action {
                FrameAction::Continue => &mut counts.passed,
                FrameAction::CleanUp(_) => &mut counts.cleaned,
                FrameAction::Personality => &mut counts.left,
            } += 1;
            let end = first.offset(site.length);
            for beside in [first.0.wrapping_sub(1), end.0 - 1, end.0] {
                if (fde.start.0..fde.end.0).contains(&beside) {
                    compare(bias.to_runtime(Vaddr(beside)), &mut counts);
                }
            }
        }
    }
    counts
}

/// Compares what is decided at an address with the personality routine's decision in all phases.
fn compare(at: RuntimeAddr, counts: &mut SiteCounts) -> FrameAction {
    const NATIVE: [u64; 2] = [
        u64::from_be_bytes(*b"GNUCC++\0"),
        u64::from_be_bytes(*b"MOZ\0RUST"),
    ];
    let code = RuntimeAddr(at.0 + 1);
    let mut facts = FrameFacts::NONE;
    assert_eq!(facts.learn(CodeAddr::Return(code)), Ok(true));
    let action = facts.rule.action();
    counts.addresses += 1;
    let expected = match action {
        FrameAction::Personality => return action,
        _ if facts.procedure.personality == PersonalityAddr::default() => return action,
        FrameAction::Continue => None,
        FrameAction::CleanUp(pad) => Some(pad),
    };
    for class in NATIVE.into_iter().chain([0]) {
        for phase in [SEARCH_PHASE, CLEANUP_PHASE, CLEANUP_PHASE | FORCE_UNWIND] {
            let found = ask(code, &facts.procedure, class, phase);
            let expected = expected.filter(|_| phase != SEARCH_PHASE);
            if found != Ok(expected) {
                let text = format!("{at:x?} {class:x} {phase}: {found:x?}, not {expected:x?}");
                counts.mismatches.push(text);
            }
        }
    }
    action
}

/// Where the personality routine enters a frame, with the exception and a zero; `None` if it passes
/// the frame.
fn ask(
    code: RuntimeAddr,
    procedure: &ProcedureInfo,
    class: u64,
    phase: Actions,
) -> Result<Option<u64>, String> {
    let registers = CallerRegisters {
        code: code.0,
        ..CallerRegisters::default()
    };
    let mut context = UnwindContext::new(&LandingFrame::from(&registers), procedure);
    let mut exception = Exception {
        class,
        cleanup: None,
        stop: None,
        private_2: 0,
    };
    let address = (&raw const exception).expose_provenance() as u64;
    match sys::personality(procedure.personality, phase, &mut exception, &mut context) {
        CONTINUE_UNWIND => Ok(None),
        INSTALL_CONTEXT if context.registers[..2] == [address, 0] => Ok(Some(context.ip)),
        reason => Err(format!("reason {reason}, {:x?}", &context.registers[..2])),
    }
}
