//! Machine code of tables: proven by reading, run behind a fence, and refused if it is changed.

use std::ops::Range;

use sha2::{Digest as _, Sha256};
use unspool_elf::ElfFile;
use unspool_native_table::{ModuleKey, ObjectError, ObjectView, Outline, object};
use unspool_table_store::{NativeTableError, TableSource, native_key, own_key, read};
use unspool_testing::{Folder, packages};
use unspool_unwind::native::{
    NativeVerification, NativeVerifyError, RunError, RunReport, run_apart, verify_object,
};
use unspool_walk_testing::random::CaseRandom;

/// A file, and the object of its table.
struct NativeCase {
    file: ElfFile,
    object: Vec<u8>,
    code: Range<usize>,
    index: Range<usize>,
}

impl NativeCase {
    fn new(path: &str) -> NativeCase {
        let file = ElfFile::open(packages::path(path).unwrap()).unwrap();
        let source = read(&file, TableSource::Auto).unwrap();
        let outline = Outline::from_table(&source.table).unwrap();
        let object = object(&outline, native_key(&own_key(&file))).unwrap();
        let folder = Folder::new();
        folder.write("o.so", &object);
        let sections = folder.tool("readelf", "-SW o.so");
        let section = |name: &str| {
            let mut lines = sections.lines();
            let line = lines.find(|line| line.contains(&format!(" {name} ")));
            let words = line.unwrap().split(']').nth(1).unwrap();
            let words: Vec<&str> = words.split_whitespace().collect();
            let number = |word: &str| usize::from_str_radix(word, 16).unwrap();
            number(words[3])..number(words[3]) + number(words[4])
        };
        let (code, index) = (section(".text"), section(".rodata"));
        NativeCase {
            file,
            object,
            code,
            index,
        }
    }

    fn loader() -> NativeCase {
        NativeCase::new("/lib64/ld-linux-x86-64.so.2")
    }

    /// The object with a change, under a digest that is right again.
    fn changed(&self, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut object = self.object.clone();
        change(&mut object);
        // The digest is after the last note's header and owner.
        let owner = object.windows(4).position(|bytes| bytes == b"GNU\0");
        let at = owner.unwrap() + 4..owner.unwrap() + 36;
        object[at.clone()].fill(0);
        let digest = Sha256::digest(&*object);
        object[at].copy_from_slice(&digest);
        object
    }

    fn verified(&self, object: &[u8]) -> Result<NativeVerification, NativeVerifyError> {
        verify_object(&self.file, object)
    }

    /// The result of running an object's code, whatever reading it would find; `None` if it is
    /// stopped.
    fn run_alone(&self, object: &[u8]) -> Option<RunReport> {
        let source = read(&self.file, TableSource::Auto).unwrap();
        let outline = Outline::from_table(&source.table).unwrap();
        match run_apart(&ObjectView::parse(object).unwrap(), &outline) {
            Ok(checked) => Some(checked),
            Err(RunError::Stopped(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn objects_are_proven_or_refused() {
    let libc = NativeCase::new("/lib/x86_64-linux-gnu/libc.so.6");
    let found = libc.verified(&libc.object).unwrap();
    assert!(found.is_clean() && found.run.is_some_and(|run| run.steps > 0));
    let loader = NativeCase::loader();
    let error = loader.verified(&libc.object).unwrap_err();
    assert!(matches!(error, NativeVerifyError::OtherModule { .. }));
    let (code, index) = (libc.code.clone(), libc.index.clone());
    let mut object = libc.object.clone();
    object[code.start + 100] ^= 1;
    let error = libc.verified(&object).unwrap_err().to_string();
    assert!(error.contains("digest"), "{error}");
    // A row elsewhere: the index precedes the code.
    let object = libc.changed(|object| object.swap(index.end - 100, index.end - 101));
    assert!(!libc.verified(&object).is_ok_and(|found| found.is_clean()));
    // A function that returns 0 and changes nothing.
    let object = libc.changed(|object| {
        object[code.start..code.start + 3].copy_from_slice(&[0x31, 0xc0, 0xc3]);
    });
    let error = libc.verified(&object).unwrap_err();
    assert!(
        matches!(
            error,
            NativeVerifyError::Table(NativeTableError::Object(ObjectError::Changed(_)))
        ),
        "{error:?}"
    );
    // The last stub returns another register; it is not run.
    let object = libc.changed(|object| object[code.end - 1] = 0x90);
    let found = libc.verified(&object).unwrap();
    assert!(found.run.is_none() && found.differences() > 0);
    let (_, message) = found.mismatches().next().unwrap();
    assert!(message.starts_with("not proven: "), "{message}");
}

/// As in libitm's rows, where a register is 0.
#[test]
fn a_rule_may_lead_to_the_last_addresses() {
    let row = "cfa={lit1; neg; deref}  ra=[cfa-8]";
    let text = format!("arch x86-64 little\nfn 0x1000..0x1001\n  0x1000  {row}\n");
    let table = unspool_rows::text::parse(&text).unwrap();
    let outline = Outline::from_table(&table).unwrap();
    let key = ModuleKey {
        build_id: &[1],
        content: &[0; 20],
    };
    let bytes = object(&outline, key).unwrap();
    let checked = run_apart(&ObjectView::parse(&bytes).unwrap(), &outline).unwrap();
    assert!(checked.steps > 0 && checked.differences == 0);
}

#[test]
fn code_that_does_no_good_is_stopped() {
    let loader = NativeCase::loader();
    assert!(loader.run_alone(&loader.object).is_some());
    // One opens a file: mov $2, %eax; syscall; ret. The other reads unmapped memory.
    for bytes in [
        &[0xb8, 2, 0, 0, 0, 0x0f, 0x05, 0xc3][..],
        &[0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0, 0xc3],
    ] {
        let start = loader.code.start;
        let object =
            loader.changed(|object| object[start..start + bytes.len()].copy_from_slice(bytes));
        assert_eq!(loader.run_alone(&object), None);
    }
}

/// If reading accepts code with a flipped bit, running it gives the same results.
#[test]
fn proven_code_runs_correctly() {
    let loader = NativeCase::loader();
    let right = loader.run_alone(&loader.object);
    assert!(right.is_some());
    let (mut proven, mut wrong) = (0, 0);
    let mut random = CaseRandom::default();
    for _ in 0..150 {
        let size = loader.code.len() as u64;
        let at = loader.code.start + usize::try_from(random.number() % size).unwrap();
        let bit = random.number() % 8;
        let object = loader.changed(|object| object[at] ^= 1 << bit);
        let is_right = loader.run_alone(&object) == right;
        if loader.verified(&object).is_ok_and(|found| found.is_clean()) {
            assert!(is_right, "byte {at:#x} was changed, and is proven");
            proven += 1;
        } else {
            wrong += usize::from(!is_right);
        }
    }
    // Most are found by both; some change nothing, for example in unreachable code.
    assert!(wrong > 75 && proven < 30, "{wrong} wrong, {proven} proven");
}
