//! Any bytes as a profile: nothing panics, and what is read holds together. And profiles that are made of
//! blocks with right checksums, so that their content is reached.
//!
//! The first byte chooses between the two.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_profile::aggregate::{self, CallTree, Direction};
use unspool_profile::output::{View, firefox, folded, html, perf_script, pprof, speedscope};
use unspool_profile::{
    CodeLimits, CodeLocation, Completeness, NamedProfile, NoNameResolver, Profile, ProfileNames, SampledCode, StackId,
    archive,
};
use unspool_elf::SearchRoots;
use unspool_symbols::{ModuleFinder, NameDetail, SourceFinder, Symbolizer};

fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    let file = match choice % 2 {
        0 => rest.to_vec(),
        _ => blocks(rest),
    };
    if let Ok(profile) = Profile::read(&file[..]) {
        check(&profile);
        use_all(&profile);
    }
});

/// A file of blocks: kind, length, content.
fn blocks(mut rest: &[u8]) -> Vec<u8> {
    let mut file = b"unsprof\0\x01\0\0\0\0\0\0\0".to_vec();
    while let [kind, length, tail @ ..] = rest {
        let (content, tail) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = tail;
        let length = (content.len() as u32).to_le_bytes();
        let head = [&[kind % 20, 0, 0, 0][..], &length, &length].concat();
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head);
        crc.update(content);
        file.extend_from_slice(&head);
        file.extend_from_slice(&crc.finalize().to_le_bytes());
        file.extend_from_slice(content);
    }
    file
}

/// All numbers lead to something, and stacks come to an end.
fn check(profile: &Profile) {
    let nodes = profile.stacks().nodes();
    for (id, node) in (1..).zip(nodes) {
        assert!(node.parent < StackId(id), "a stack before its callers");
        assert!(profile.frame(node.frame).is_some());
    }
    for frame in profile.frames() {
        match frame.lookup {
            CodeLocation::Module(module, _) => assert!(profile.module(module).is_some()),
            CodeLocation::Process(process, _) => assert!(profile.process(process).is_some()),
            CodeLocation::Kernel(_) => {}
        }
    }
    for sample in profile.samples() {
        assert!(profile.thread(sample.thread).is_some());
        assert!(sample.stack.0 < profile.stacks().count());
    }
}

/// Sums and forms agree on the weight.
fn use_all(profile: &Profile) {
    let named = NamedProfile::new(profile, &NoNameResolver);
    let samples: Vec<_> = profile.samples().iter().take(200).collect();
    let total = aggregate::total(&samples);
    for direction in [Direction::Callees, Direction::Callers] {
        let tree = CallTree::new(&named, &samples, direction);
        assert_eq!(tree.root().total, total);
    }
    for weight in aggregate::functions(&named, &samples) {
        assert!(
            weight.own <= weight.total && weight.guessed <= weight.total && weight.total <= total
        );
    }
    let completeness = Completeness::new(profile, &samples);
    let all = completeness.stacks() + completeness.kernel_threads + completeness.no_user_registers;
    assert_eq!(all, samples.len() as u64);
    let _ = completeness.summary().to_string();
    let view = View {
        named: &named,
        samples,
    };
    let mut out = std::io::sink();
    for write in [
        firefox::write,
        folded::write,
        html::write,
        perf_script::write,
        pprof::write,
        speedscope::write,
    ] {
        write(&mut out, &view).expect("nothing to fail");
    }
    html::write_comparison(&mut out, &view, &view, &SampledCode::default()).expect("nothing to fail");
    archived(profile, &view);
}

/// What is kept with an archive holds together. An archive of an archive is the same one.
fn archived(profile: &Profile, view: &View<'_>) {
    if profile.archive().is_none() {
        return;
    }
    let finder = ModuleFinder::new(SearchRoots::default());
    let symbolizer = Symbolizer::new(finder, NameDetail::Functions);
    let names = ProfileNames::look_up(profile, &symbolizer);
    let sources = SourceFinder::default();
    let code = SampledCode::look_up(view, &names, &symbolizer, &sources, &CodeLimits::ARCHIVE, &|_| {});
    let mut once = Vec::new();
    archive::write(&mut once, view, &names, &code).expect("nothing to fail");
    let read = Profile::read(&once[..]).expect("an archive is a profile");
    assert_eq!(read.samples(), profile.samples());
    assert_eq!(read.stacks(), profile.stacks());
}
