//! Invalid files with valid checksums.

use unspool_profile::Profile;

/// A file with these blocks, none of them compressed.
fn file(blocks: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut file = b"unsprof\0\x01\0\0\0\0\0\0\0".to_vec();
    for (kind, content) in blocks {
        file.extend(block(*kind, 0, content, content.len()));
    }
    file
}

fn block(kind: u16, compression: u8, stored: &[u8], raw: usize) -> Vec<u8> {
    let [k0, k1] = kind.to_le_bytes();
    let mut block = vec![k0, k1, compression, 0];
    block.extend(u32::try_from(stored.len()).unwrap().to_le_bytes());
    block.extend(u32::try_from(raw).unwrap().to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&block);
    crc.update(stored);
    block.extend(crc.finalize().to_le_bytes());
    block.extend(stored);
    block
}

/// The content of a block with a number of rows.
fn rows(rows: u8, columns: &[&[u8]]) -> Vec<u8> {
    let mut content = vec![rows, columns.len() as u8];
    content.extend(columns.iter().map(|column| column.len() as u8));
    content.extend(columns.concat());
    content
}

const PROCESSES: u16 = 3;
const THREADS: u16 = 4;
const FRAMES: u16 = 6;
const STACKS: u16 = 8;
const SAMPLES: u16 = 9;
const END: u16 = 11;

fn process() -> (u16, Vec<u8>) {
    (PROCESSES, rows(1, &[&[1], &[0], &[0], &[0]]))
}

fn frame() -> (u16, Vec<u8>) {
    (FRAMES, rows(1, &[&[0], &[5], &[0]]))
}

#[track_caller]
fn refused(blocks: &[(u16, Vec<u8>)], reason: &str) {
    let error = Profile::read(&file(blocks)[..]).unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn numbers_lead_to_what_came_before() {
    let thread = (THREADS, rows(1, &[&[0], &[1], &[0], &[0]]));
    let stack = |parent: u8| (STACKS, rows(1, &[&[parent], &[1], &[0]]));
    let sample = |stack: u8| {
        (
            SAMPLES,
            rows(1, &[&[0], &[0], &[0], &[stack], &[1], &[0], &[0]]),
        )
    };
    let good = [
        process(),
        thread.clone(),
        frame(),
        stack(0),
        stack(1),
        sample(2),
    ];
    let profile = Profile::read(&file(&good)[..]).unwrap();
    let sampled = profile.samples()[0].stack;
    assert_eq!(profile.stacks().frames(sampled).count(), 2);

    refused(
        std::slice::from_ref(&thread),
        "row 0 of THREADS in the block at offset 0x10 of the profile is bad: its process is not known",
    );
    refused(&[stack(0)], "a frame of it is not known");
    refused(&[frame(), stack(1)], "it comes before its callers");
    refused(
        &[frame(), stack(0), stack(2)],
        "it comes before its callers",
    );
    refused(&[frame(), stack(0x7f)], "a row cannot be read"); // −1
    refused(&[sample(0)], "its thread is not known");
    refused(&[process(), thread, sample(1)], "its stack is not known");
    refused(
        &[(FRAMES, rows(1, &[&[1], &[5], &[0]]))],
        "its module is not known",
    );
    refused(
        &[(FRAMES, rows(1, &[&[2], &[5], &[0]]))],
        "its process is not known",
    );
    refused(
        &[(END, rows(1, &[&[0], &[1]]))],
        "not as many samples as it says",
    );
}

/// The tables of an archive.
#[test]
fn archived_numbers_lead_to_what_came_before() {
    let module = (
        2,
        rows(1, &[&[0], &[1, b'a'], &[0], &[0], &[0], &[0], &[0]]),
    );
    let string = (14, rows(1, &[&[1, b's']]));
    let location = |function: u8, file: u8| (15, rows(1, &[&[1], &[function], &[file], &[0]]));
    let name = |location: u8| (16, rows(1, &[&[0], &[location], &[0], &[0]]));
    let code = (17, rows(1, &[&[0], &[4], &[8]]));
    let instruction = |code: u8, address: u8| {
        let columns: [&[u8]; 6] = [&[code], &[address], &[1], &[1, b'x'], &[0], &[0]];
        (18, rows(1, &columns))
    };
    let source = |file: u8| (19, rows(1, &[&[file], &[1], &[0], &[1, b'x']]));
    let good = [
        module.clone(),
        frame(),
        string.clone(),
        location(0, 1),
        name(1),
        code.clone(),
        instruction(0, 4),
        instruction(0, 11),
        source(0),
    ];
    assert!(Profile::read(&file(&good)[..]).unwrap().archive().is_some());

    refused(&[location(0, 0)], "its strings are not known");
    refused(
        &[string.clone(), location(0, 2)],
        "its strings are not known",
    );
    refused(&[name(0)], "its frame is not known");
    refused(&[frame(), name(1)], "its location is not known");
    refused(std::slice::from_ref(&code), "its module is not known");
    refused(&[instruction(0, 4)], "its function is not known");
    let with_code = [module, code];
    for wrong in [3, 12] {
        let blocks = [&with_code[..], &[instruction(0, wrong)]].concat();
        refused(&blocks, "it is not in its function");
    }
    let twice = [&with_code[..], &[instruction(0, 5), instruction(0, 5)]].concat();
    refused(&twice, "it is not in its function");
    refused(&[source(0)], "its file is not known");
}

#[test]
fn lengths_that_lie() {
    refused(&[(FRAMES, vec![1])], "how many columns");
    refused(&[(FRAMES, rows(1, &[&[0], &[5]]))], "columns are missing");
    refused(
        &[(FRAMES, vec![1, 3, 1, 1, 100, 0, 5, 0])],
        "a column runs past its end",
    );
    refused(
        &[(FRAMES, rows(2, &[&[0, 0], &[5, 5], &[0]]))],
        "more rows than bytes",
    );
    refused(
        &[(FRAMES, rows(1, &[&[0], &[5], &[0x80]]))],
        "a row cannot be read",
    );
    refused(
        &[(FRAMES, rows(1, &[&[0], &[5], &[0x70]]))],
        "a row cannot be read",
    );
    // A run of 2^63 frames.
    let endless = rows(
        1,
        &[
            &[0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[0],
        ],
    );
    refused(&[frame(), (STACKS, endless)], "a row cannot be read");
    // Columns that this version does not have are skipped.
    let later = rows(1, &[&[0], &[5], &[0], &[1, 2, 3]]);
    assert!(Profile::read(&file(&[(FRAMES, later)])[..]).is_ok());
}

#[test]
fn compressed_blocks_that_lie() {
    let zeros = vec![0; 100_000];
    let stored = zstd::bulk::compress(&zeros, 3).unwrap();
    let read = |block: Vec<u8>| {
        let file = [file(&[]), block].concat();
        Profile::read(&file[..]).unwrap_err().to_string()
    };
    let bomb = read(block(FRAMES, 1, &stored, zeros.len()));
    assert!(bomb.contains("too large for what is stored"), "{bomb}");
    let small = zstd::bulk::compress(b"0123456789", 3).unwrap();
    let longer = read(block(FRAMES, 1, &small, 11));
    assert!(longer.contains("shorter than it says"), "{longer}");
    let shorter = read(block(FRAMES, 1, &small, 9));
    assert!(shorter.contains("cannot be decompressed"), "{shorter}");
    let unknown = read(block(FRAMES, 2, &small, 10));
    assert!(unknown.contains("compression is not known"), "{unknown}");
    let two = read(block(FRAMES, 0, &small, 10));
    assert!(two.contains("two lengths"), "{two}");
}

/// The result of a power failure: the file has its length, and its last blocks are zeros.
#[test]
fn zeros_end_a_file() {
    let mut bytes = file(&[process()]);
    let length = bytes.len() as u64;
    bytes.extend([0; 5000]);
    let profile = Profile::read(&bytes[..]).unwrap();
    assert_eq!(profile.processes().len(), 1);
    let end = unspool_profile::FileEnding::Cut {
        offset: length,
        reason: "its header is impossible",
    };
    assert_eq!(*profile.ending(), end);
}
