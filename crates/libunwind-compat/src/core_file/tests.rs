use super::*;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::string::String;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, format, fs, process};

/// A file that is removed on drop.
struct TempFile(std::path::PathBuf);

impl TempFile {
    fn new(name: &str, bytes: &[u8]) -> TempFile {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("unspool-capi-{name}-{}-{count}", process::id());
        let path = env::temp_dir().join(name);
        fs::write(&path, bytes).unwrap();
        TempFile(path)
    }

    fn map(&self) -> RawMap {
        let path = CString::new(self.0.as_os_str().as_bytes()).unwrap();
        os::map_file(&path).unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn numbers(into: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        into.extend(number.to_le_bytes());
    }
}

const HEADERS: u64 = 64 + 3 * 56;

/// Two threads; a segment at 0x1000 with 16 of its 32 bytes in the core file; one at 0x5000 without
/// bytes; and a mapping of `name` at 0x2000, from its byte 8.
fn core(name: &str) -> Vec<u8> {
    let mut notes = Vec::new();
    for thread in [7_u32, 8] {
        let mut status = Vec::from([0; PR_REG]);
        status[PR_CURSIG] = 11;
        status[PR_PID..PR_PID + 4].copy_from_slice(&thread.to_le_bytes());
        numbers(
            &mut status,
            &(0..27)
                .map(|n| n * 10 + u64::from(thread))
                .collect::<Vec<_>>(),
        );
        note(&mut notes, NT_PRSTATUS, &status);
    }
    let mut files = Vec::new();
    numbers(&mut files, &[1, 4, 0x2000, 0x2010, 2]);
    files.extend(name.as_bytes());
    files.push(0);
    note(&mut notes, NT_FILE, &files);

    let mut bytes = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\x3e\0\x01\0\0\0");
    numbers(&mut bytes, &[0, 64, 0]);
    bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let size = notes.len() as u64;
    for (kind, segment) in [
        (PT_NOTE, [HEADERS, 0, 0, size, 0, 1]),
        (PT_LOAD, [HEADERS + size, 0x1000, 0, 16, 32, 1]),
        (PT_LOAD, [0, 0x5000, 0, 0, 32, 1]),
    ] {
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0; 4]);
        numbers(&mut bytes, &segment);
    }
    assert_eq!(bytes.len() as u64, HEADERS);
    bytes.extend(notes);
    numbers(&mut bytes, &[0x1111, 0x2222]);
    bytes
}

fn note(into: &mut Vec<u8>, kind: u32, description: &[u8]) {
    let size = u32::try_from(description.len()).unwrap();
    for number in [5, size, kind] {
        into.extend(number.to_le_bytes());
    }
    into.extend(b"CORE\0\0\0\0");
    into.extend(description);
    into.resize(into.len().next_multiple_of(4), 0);
}

fn opened(bytes: &[u8]) -> Result<CoreFile, Error> {
    CoreFile::new(TempFile::new("core", bytes).map())
}

#[test]
fn memory_is_where_the_file_says() {
    let mut content = Vec::new();
    numbers(&mut content, &[0xa, 0xb, 0xc]);
    let file = TempFile::new("file", &content);
    let mut core = opened(&core(file.0.to_str().unwrap())).unwrap();
    let word = |core: &CoreFile, addr| core.word(addr).ok();
    assert_eq!(word(&core, 0x1000), Some(0x1111));
    assert_eq!(word(&core, 0x1008), Some(0x2222));
    for missing in [0, 0xff8, 0x1010, 0x1018, 0x5000, u64::MAX - 7] {
        assert_eq!(word(&core, missing), None, "{missing:#x}");
    }
    // The note's mapping begins at the file's byte 8.
    assert_eq!(
        (word(&core, 0x2000), word(&core, 0x2008)),
        (Some(0xb), Some(0xc))
    );
    assert_eq!(word(&core, 0x2010), None);

    assert_eq!(core.segment_at(0x5000), Some(2));
    core.add_backing(2, file.map()).unwrap();
    assert_eq!(core.add_backing(2, file.map()), Err(Error::UNSPECIFIED));
    assert_eq!(core.add_backing(3, file.map()), Err(Error::UNSPECIFIED));
    assert_eq!(
        (word(&core, 0x5000), word(&core, 0x5018)),
        (Some(0xa), None)
    );
}

/// Opening a FIFO does not wait for a writer.
#[test]
fn a_fifo_as_mapped_file_is_ignored() {
    let pipe = TempFile::new("pipe", &[]);
    fs::remove_file(&pipe.0).unwrap();
    let mkfifo = process::Command::new("mkfifo").arg(&pipe.0).status();
    assert!(mkfifo.unwrap().success());
    let core = opened(&core(pipe.0.to_str().unwrap())).unwrap();
    assert_eq!(core.word(0x1000), Ok(0x1111));
    assert_eq!(core.word(0x2000), Err(Error::INVALID));
}

#[test]
fn threads_have_their_registers() {
    let mut core = opened(&core("/nonexistent")).unwrap();
    assert_eq!(core.threads(), 2);
    for (thread, id) in [(0, 7), (1, 8), (2, 8)] {
        core.select(thread);
        assert_eq!((core.thread_id(), core.signal()), (id, 11));
        assert_eq!(core.register(128), Ok(160 + u64::from(id.unsigned_abs())));
    }
}

/// Any wrong byte, and truncation at any offset.
#[test]
fn bad_bytes_do_no_harm() {
    let bytes = core("/nonexistent");
    let ask = |bytes: &[u8]| match opened(bytes) {
        Ok(mut core) => {
            for addr in [0x1000, 0x1010, 0x2000, 0x5000, u64::MAX] {
                let _ = (core.word(addr), core.find_proc_info(addr));
            }
            for thread in 0..core.threads().min(3) {
                core.select(thread);
                let _ = core.register(26 * 8);
            }
            1
        }
        Err(_) => 0,
    };
    let (mut opened, mut asked) = (0, 0);
    for at in 0..bytes.len() {
        for value in [0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            opened += ask(&changed);
            asked += 1;
        }
    }
    for end in (1..bytes.len()).step_by(7) {
        opened += ask(&bytes[..end]);
        asked += 1;
    }
    let summary: String = format!("{opened} of {asked}");
    assert!(opened > asked / 2 && opened < asked, "{summary}");
}
