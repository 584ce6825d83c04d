//! A profile is read as it was written, up to the end of its file.

use std::collections::VecDeque;

use proptest::prelude::*;
use unspool_elf::ContentKey;
use unspool_profile::{
    Completeness, FileEnding, FileError, ModuleKind, Profile, ProfileModule, ProfileReader,
    ProfileUpdate, ProfileWriter, Time,
};

use crate::model::{Recorder, Step, StepSample, meta, plain, steps};

fn record(steps: &[Step]) -> Recorder {
    let mut recorder = Recorder::new();
    steps.iter().for_each(|step| recorder.step(step));
    recorder
}

/// A thread at a constant depth whose inner frames change all the time, and are at 2,000 addresses.
fn churn(samples: usize, depth: usize, inner: usize) -> Vec<Step> {
    let mut random = 1_u64;
    let mut address = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (1 << 56) + (random >> 33) % 2000 * 7
    };
    let mut steps = vec![Step::Process("app".into()), Step::Thread(0)];
    steps.extend((0..samples).map(|n| {
        let new = if n == 0 { depth } else { inner };
        let (later, weight) = ((address() % 90_000 + 950_000) as i64, 1_001_001);
        Step::Sample(StepSample {
            thread: 0,
            kept: depth - inner,
            inner: (0..new).map(|_| (address(), true, 1)).collect(),
            weight,
            off: false,
            end: 0,
            later,
        })
    }));
    steps
}

fn is_proper(profile: &Profile) -> bool {
    matches!(profile.ending(), FileEnding::Proper { .. })
}

proptest! {
    #[test]
    fn written_profiles_read_back(steps in steps()) {
        let (bytes, written) = record(&steps).finish();
        let profile = Profile::read(&bytes[..]).unwrap();
        prop_assert!(is_proper(&profile));
        prop_assert_eq!(profile.meta(), &meta());
        prop_assert_eq!(plain(&profile), written.samples);
        prop_assert_eq!(profile.processes(), written.processes);
        prop_assert_eq!(profile.threads(), written.threads);
        prop_assert_eq!(profile.lost(), written.lost);
        let symbols = profile.symbols().iter();
        let symbols = symbols.map(|s| (format!("{:?}", s.start), s.size, s.name.clone()));
        prop_assert_eq!(symbols.collect::<Vec<_>>(), written.symbols);
        let samples: Vec<_> = profile.samples().iter().collect();
        prop_assert_eq!(Completeness::new(&profile, &samples), written.completeness);
    }

    /// Read in any steps between blocks, it is the same profile.
    #[test]
    fn a_profile_is_read_while_it_is_written(
        steps in steps(),
        parts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let recorder = record(&steps);
        let mut ends: Vec<usize> = recorder.flushed.keys().copied().collect();
        let (bytes, written) = recorder.finish();
        ends.push(bytes.len());
        let mut ends: Vec<usize> = parts.iter().map(|part| *part.get(&ends)).collect();
        ends.push(bytes.len());
        ends.sort_unstable();
        let mut at = ends[0];
        let mut reader = ProfileReader::new(VecDeque::from(bytes[..at].to_vec())).unwrap();
        let mut samples = Vec::new();
        for end in ends {
            reader.source().extend(&bytes[at..end]);
            at = end;
            reader.read_more().unwrap();
            samples.extend(reader.take_samples());
            prop_assert!(reader.profile().samples().is_empty());
        }
        prop_assert!(is_proper(reader.profile()));
        let whole = Profile::read(&bytes[..]).unwrap();
        prop_assert_eq!(samples.as_slice(), whole.samples());
        prop_assert_eq!(samples.len(), written.samples.len());
        prop_assert_eq!(reader.profile().frames(), whole.frames());
        prop_assert_eq!(reader.profile().stacks(), whole.stacks());
        prop_assert_eq!(reader.profile().threads(), whole.threads());
    }

    /// The file has each stack and frame once.
    #[test]
    fn nothing_is_written_twice(steps in steps()) {
        let (bytes, _) = record(&steps).finish();
        let profile = Profile::read(&bytes[..]).unwrap();
        let nodes: std::collections::HashSet<_> = profile.stacks().nodes().collect();
        prop_assert_eq!(nodes.len(), profile.stacks().nodes().len());
        let frames: std::collections::HashSet<_> = profile.frames().iter().collect();
        prop_assert_eq!(frames.len(), profile.frames().len());
    }

    /// A file truncated anywhere has all that had been flushed by then, and reports the truncation.
    #[test]
    fn a_cut_file_is_read_to_its_last_flush(steps in steps(), cut in any::<prop::sample::Index>()) {
        let recorder = record(&steps);
        let flushed = recorder.flushed.clone();
        let (bytes, written) = recorder.finish();
        let cut = 16 + cut.index(bytes.len() - 16);
        let profile = Profile::read(&bytes[..cut]).unwrap();
        let samples = plain(&profile);
        prop_assert!(written.samples.starts_with(&samples));
        let promised = flushed.range(..=cut).next_back().map_or(0, |(_, samples)| *samples);
        prop_assert!(samples.len() >= promised);
        prop_assert!(!is_proper(&profile));
    }

    /// A changed byte is detected, and the part before it is read.
    #[test]
    fn a_damaged_file_is_read_up_to_there(
        steps in steps(), at in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let recorder = record(&steps);
        let flushed = recorder.flushed.clone();
        let (mut bytes, written) = recorder.finish();
        let at = 16 + at.index(bytes.len() - 16);
        bytes[at] ^= 1 << bit;
        let profile = Profile::read(&bytes[..]).unwrap();
        let samples = plain(&profile);
        prop_assert!(written.samples.starts_with(&samples));
        let promised = flushed.range(..=at).next_back().map_or(0, |(_, samples)| *samples);
        prop_assert!(samples.len() >= promised);
        let is_cut = matches!(profile.ending(), FileEnding::Cut { offset, .. } if *offset <= at as u64);
        prop_assert!(is_cut, "{:?}", profile.ending());
    }
}

#[test]
fn a_sample_of_70_frames_takes_less_than_32_bytes() {
    let samples = 20_000;
    let mut recorder = Recorder::new();
    for (n, step) in churn(samples, 70, 8).iter().enumerate() {
        recorder.step(step);
        if n % 1000 == 999 {
            recorder.step(&Step::Flush);
        }
    }
    let (bytes, written) = recorder.finish();
    assert!(bytes.len() < 32 * samples, "{} bytes", bytes.len());
    let profile = Profile::read(&bytes[..]).unwrap();
    assert!(plain(&profile) == written.samples);
}

/// One stack with more frames than fit into a block: they are split among blocks.
#[test]
fn a_stack_of_200_000_frames() {
    let steps = churn(2, 200_000, 8);
    let (bytes, written) = record(&steps).finish();
    let profile = Profile::read(&bytes[..]).unwrap();
    assert!(plain(&profile) == written.samples);
}

#[test]
fn strings_of_any_length() {
    let long = "x".repeat(300_000);
    let steps = [Step::Process(long.clone()), Step::Process("next".into())];
    let (bytes, _) = record(&steps).finish();
    let profile = Profile::read(&bytes[..]).unwrap();
    assert_eq!(profile.processes()[0].name, long[..65536]);
    assert_eq!(profile.processes()[1].name, "next");
}

#[test]
fn a_block_of_a_later_version_is_passed_over() {
    let (bytes, written) = record(&churn(10, 5, 2)).finish();
    // An empty block of kind 4,000: header, checksum of the header, one byte.
    let mut head = vec![0xa0, 0x0f, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(&[7]);
    head.extend(crc.finalize().to_le_bytes());
    head.push(7);
    let longer = [&bytes[..16], &head, &bytes[16..]].concat();
    let profile = Profile::read(&longer[..]).unwrap();
    assert!(is_proper(&profile));
    assert_eq!(plain(&profile), written.samples);
}

#[test]
fn other_files_are_rejected() {
    let refused = |bytes: &[u8]| Profile::read(bytes).unwrap_err();
    let error = refused(b"PERFILE2 and more");
    assert_eq!(
        error.to_string(),
        "not a profile: it starts with \"PERFILE2\""
    );
    assert!(matches!(refused(b""), FileError::NotAProfile { .. }));
    assert!(matches!(
        refused(b"unsprof\0"),
        FileError::NotAProfile { .. }
    ));
    let next = b"unsprof\0\x02\0\0\0\0\0\0\0";
    assert!(matches!(refused(next), FileError::Version { found: 2 }));
}

/// Files that look alike until their contents are identified stay distinct.
#[test]
fn similar_files_stay_distinct_until_identified() {
    let module = ProfileModule {
        kind: ModuleKind::File,
        path: "/app".into(),
        content: None,
        is_deleted: false,
        code: None,
    };
    let mut bytes = Vec::new();
    let mut writer = ProfileWriter::new(&mut bytes, &meta()).unwrap();
    let first = writer.modules().add(&module);
    writer.flush().unwrap();
    let second = writer.modules().add(&module);
    writer.update(&ProfileUpdate::ModuleHash(first, [0xa7; 20]));
    writer.update(&ProfileUpdate::ModuleHash(second, [0x01; 20]));
    writer.finish(Time(1)).unwrap();
    let profile = Profile::read(&bytes[..]).unwrap();
    assert!(is_proper(&profile));
    let contents = profile.modules().iter().map(|module| module.content);
    let hashes = [[0xa7; 20], [0x01; 20]].map(|hash| Some(ContentKey::Hash(hash)));
    assert_eq!(contents.collect::<Vec<_>>(), hashes);

    // An update of an unknown module is refused.
    let mut bytes = Vec::new();
    let mut writer = ProfileWriter::new(&mut bytes, &meta()).unwrap();
    writer.update(&ProfileUpdate::ModuleHash(first, [0; 20]));
    writer.finish(Time(1)).unwrap();
    let refused = Profile::read(&bytes[..]).unwrap_err();
    assert!(
        refused.to_string().contains("its module is not known"),
        "{refused}"
    );
}

/// A writer on a full disk writes nothing after half a block.
#[test]
fn nothing_follows_a_failed_write() {
    struct Full(Vec<u8>, usize);
    impl std::io::Write for &mut Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let room = self.1.saturating_sub(self.0.len()).min(bytes.len());
            self.0.extend_from_slice(&bytes[..room]);
            match room {
                0 => Err(std::io::ErrorKind::StorageFull.into()),
                room => Ok(room),
            }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut disk = Full(Vec::new(), usize::MAX);
    let mut writer = unspool_profile::ProfileWriter::new(&mut disk, &meta()).unwrap();
    let process = unspool_profile::ProfileProcess {
        pid: 1,
        parent_pid: 0,
        start: unspool_profile::Time(0),
        end: None,
        name: "x".into(),
    };
    writer.process(&process);
    writer.flush().unwrap();
    drop(writer);
    let length = disk.0.len();

    let mut disk = Full(Vec::new(), length + 5);
    let mut writer = unspool_profile::ProfileWriter::new(&mut disk, &meta()).unwrap();
    writer.process(&process);
    writer.flush().unwrap();
    writer.process(&process);
    assert!(writer.flush().is_err());
    writer.process(&process);
    assert!(writer.flush().is_err());
    assert!(writer.finish(unspool_profile::Time(1)).is_err());
    assert_eq!(disk.0.len(), length + 5);
    let profile = Profile::read(&disk.0[..]).unwrap();
    assert_eq!(profile.processes().len(), 1);
    let end = FileEnding::Cut {
        offset: length as u64,
        reason: "the file ends within its header",
    };
    assert_eq!(*profile.ending(), end);
}
