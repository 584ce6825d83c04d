//! The example of `docs/formats.md` is the writer's output, and is read as documented.

use unspool_elf::{BuildId, ContentKey};
use unspool_profile::{
    CodeLocation, CpuState, FrameEvidence, Meta, ModuleKind, Profile, ProfileModule,
    ProfileProcess, ProfileSample, ProfileThread, ProfileWriter, RawFrame, SampledEvent, StackEnd,
    Time,
};
use unspool_rows::{CodeAddr, RuntimeAddr, Vaddr};

fn written() -> Vec<u8> {
    let event = SampledEvent {
        name: "cycles".into(),
        ..SampledEvent::default()
    };
    let meta = Meta {
        event,
        ..Meta::default()
    };
    let mut writer = ProfileWriter::new(Vec::new(), &meta).unwrap();
    let process = writer.process(&ProfileProcess {
        pid: 300,
        parent_pid: 1,
        start: Time(1000),
        end: None,
        name: "app".into(),
    });
    let thread = writer.thread(&ProfileThread {
        process,
        tid: 301,
        start: Time(1000),
        end: None,
        name: "w".into(),
    });
    let app = ProfileModule {
        kind: ModuleKind::File,
        path: "/app".into(),
        content: BuildId::new(&[0xab, 0xcd]).map(ContentKey::BuildId),
        is_deleted: false,
        code: None,
    };
    let frames = [
        (
            CodeAddr::Instruction(RuntimeAddr(0x1140)),
            FrameEvidence::Registers,
        ),
        (CodeAddr::Return(RuntimeAddr(0x1105)), FrameEvidence::Cfi),
    ];
    let frames = frames.map(|(code, evidence)| RawFrame {
        code,
        evidence,
        arguments: None,
    });
    for time in [2000, 3000] {
        let stack = writer.stack(thread, &frames, |modules, address| {
            CodeLocation::Module(modules.id(&app), Vaddr(address.0))
        });
        let sample = ProfileSample {
            time: Time(time),
            thread,
            cpu: 2,
            stack,
            weight: 5,
            state: CpuState::OnCpu,
            end: StackEnd::EntryPoint,
        };
        writer.sample(&sample).unwrap();
    }
    writer.finish(Time(4000)).unwrap()
}

/// The bytes of the example: in its code block, the digits before two spaces.
fn documented() -> Vec<u8> {
    let text = include_str!("../../../../docs/formats.md");
    let (_, example) = text.split_once("### An example\n").unwrap();
    let block = example.split("```").nth(1).unwrap();
    let lines = block.lines().skip(1);
    let digits = lines.map(|line| line.split("  ").next().unwrap());
    let bytes = digits.flat_map(str::split_whitespace);
    bytes
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

#[test]
fn the_example_of_the_specification() {
    let profile = Profile::read(&written()[..]).unwrap();
    assert_eq!(profile.samples().len(), 2);
    assert_eq!(profile.stacks().count(), 3);
    let dump = |bytes: &[u8]| {
        let lines = bytes.chunks(16).map(|line| format!("{line:02x?}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(dump(&documented()), dump(&written()));
}
