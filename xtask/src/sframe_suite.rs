//! Compares SFrame as written and dumped by binutils with unspool's: the inputs of its own tests,
//! and unspool's output.
//!
//! Neither its sources nor files made from them are kept in the repository.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};
use unspool_cfi::read_tables;
use unspool_cfi::sframe::{
    FreBase, FreContents, FreRules, FreValue, SframeAbi, SframeFunction, SframeImage,
    SframeVersion, functions, read,
};
use unspool_rows::Vaddr;

use crate::binutils::{Binutils, BinutilsTest, Release, TARGETS, V2_44, V2_47, files, stem};
use crate::{Error, debian, elf};

/// Programs with tables to convert to SFrame.
const PROGRAMS: [&str; 4] = [
    "/usr/bin/ls",
    "/usr/bin/gdb",
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/aarch64-linux-gnu/lib/libc.so.6",
];

/// The help of `cargo xtask sframe-suite`.
pub const HELP: &str = "\
usage: cargo xtask sframe-suite [--binutils 2.44 | --binutils 2.47]

Builds binutils 2.44 (SFrame version 2) and 2.47 (version 3), or the one that is named, from Debian's source below the target folder,
once. The inputs of its tests of SFrame, assembled and linked by it, and the sections of libsframe's tests are read by its readelf
and by us; so are sections that we write of some programs, in the versions that the readelf knows. What is read must be the same.
";

/// The releases, and the versions of the format that unspool writes and their readelf can dump.
const RELEASES: [(Release, &[SframeVersion]); 2] = [
    (V2_44, &[SframeVersion::V2]),
    (V2_47, &[SframeVersion::V2, SframeVersion::V3]),
];

/// The options.
#[derive(Debug, Default)]
pub struct SframeSuiteOptions {
    /// The only version of binutils to use.
    binutils: Option<OsString>,
}

impl SframeSuiteOptions {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// One is unknown.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<SframeSuiteOptions, Error> {
        let mut options = SframeSuiteOptions::default();
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--binutils") => options.binutils = args.next(),
                _ => return Err(format!("{} is unknown\n\n{HELP}", arg.display()).into()),
            }
            let is_there = |version| RELEASES.iter().any(|(it, _)| version == it.version);
            if !options.binutils.as_deref().is_some_and(is_there) {
                return Err(format!("--binutils takes 2.44 or 2.47\n\n{HELP}").into());
            }
        }
        Ok(options)
    }

    fn asks_for(&self, release: &Release) -> bool {
        let asked = self.binutils.as_deref();
        asked.is_none_or(|asked| asked == release.version)
    }
}

/// Builds missing tools, and compares; returns whether nothing differs.
///
/// # Errors
///
/// A file cannot be fetched or written, or a command is missing or fails.
pub fn run(options: &SframeSuiteOptions, out: &mut impl Write) -> Result<bool, Error> {
    let mut is_same = true;
    for (release, versions) in RELEASES {
        if options.asks_for(&release) {
            is_same &= run_by(&release, versions, out)?;
        }
    }
    Ok(is_same)
}

fn run_by(
    release: &Release,
    versions: &'static [SframeVersion],
    out: &mut impl Write,
) -> Result<bool, Error> {
    let tools = Binutils::fetch_and_build(release, &TARGETS, out)?;
    writeln!(out, "binutils {}", release.version)?;
    let mut suite = SframeSuite {
        work: tools.work("sframe-suite")?,
        tools,
        versions,
        compared: 0,
        differing: Vec::new(),
    };
    let parts: [(&str, SuitePart); 4] = [
        ("gas/cfi-sframe", SframeSuite::assembler),
        ("ld-sframe, ld-x86-64/sframe*", SframeSuite::linker),
        ("libsframe's sections", SframeSuite::library),
        ("what we write", SframeSuite::our_own),
    ];
    for (name, part) in parts {
        let before = (suite.compared, suite.differing.len());
        part(&mut suite)?;
        let compared = suite.compared - before.0;
        let differing = suite.differing.len() - before.1;
        writeln!(out, "  {name}: {compared} sections, {differing} differ")?;
    }
    for name in &suite.differing {
        writeln!(out, "    {name}")?;
    }
    Ok(suite.differing.is_empty() && suite.compared > 0)
}

/// A part of the comparison.
type SuitePart = fn(&mut SframeSuite) -> Result<(), Error>;

struct SframeSuite {
    work: PathBuf,
    tools: Binutils,
    versions: &'static [SframeVersion],
    compared: usize,
    /// The differences.
    differing: Vec<String>,
}

impl SframeSuite {
    fn tool(&self, target: &str, name: &str) -> Command {
        let mut command = self.tools.tool(target, name);
        command.current_dir(&self.work);
        command
    }

    /// The test inputs of GNU as, linked, so that addresses are final.
    fn assembler(&mut self) -> Result<(), Error> {
        let folder = self.tools.source.join("gas/testsuite/gas/cfi-sframe");
        for (target, name) in TARGETS {
            for path in files(&folder, "s")? {
                let stem = stem(&path);
                let is_of_other = TARGETS
                    .iter()
                    .any(|(_, other)| *other != name && stem.contains(other));
                if is_of_other {
                    continue;
                }
                let test = BinutilsTest::read(&path.with_extension("d"))?;
                let object = self.work.join("test.o");
                let linked = self.work.join("test.so");
                let assembled = self
                    .tool(target, "as")
                    .args(&test.assembler)
                    .arg("-o")
                    .args([&object, &path])
                    .output()?;
                // Some test errors.
                if assembled.status.success() {
                    let mut ld = self.tool(target, "ld");
                    ld.args(["-shared", "-o"])
                        .args([&linked, &object])
                        .output()?;
                    self.compare(&linked, &format!("{target} {stem}"), Starts::Known)?;
                }
            }
        }
        Ok(())
    }

    /// The test inputs of GNU ld.
    fn linker(&mut self) -> Result<(), Error> {
        let (target, _) = TARGETS[0];
        let folders = ["ld/testsuite/ld-sframe", "ld/testsuite/ld-x86-64"];
        for folder in folders.map(|folder| self.tools.source.join(folder)) {
            for path in files(&folder, "d")? {
                let stem = stem(&path);
                let is_of_sframe = folder.ends_with("ld-sframe") || stem.starts_with("sframe");
                let test = BinutilsTest::read(&path)?;
                if !is_of_sframe || test.sources.is_empty() {
                    continue;
                }
                let mut objects = Vec::new();
                for (number, source) in test.sources.iter().enumerate() {
                    let object = self.work.join(format!("part{number}.o"));
                    let mut assembler = self.tool(target, "as");
                    assembler.args(&test.assembler).arg("-o").arg(&object);
                    if assembler
                        .arg(folder.join(source))
                        .output()?
                        .status
                        .success()
                    {
                        objects.push(object);
                    }
                }
                let linked = self.work.join("linked");
                let mut ld = self.tool(target, "ld");
                ld.args(&test.linker).arg("-o").arg(&linked).args(&objects);
                ld.current_dir(&folder);
                if ld.output()?.status.success() {
                    self.compare(&linked, &stem, Starts::Known)?;
                }
            }
        }
        Ok(())
    }

    /// The test sections of libsframe.
    fn library(&mut self) -> Result<(), Error> {
        let folder = self
            .tools
            .source
            .join("libsframe/testsuite/libsframe.decode");
        for path in files(&folder, "")? {
            let name = stem(&path);
            if !name.starts_with("DATA") {
                continue;
            }
            let target = if name.contains("BE") {
                "elf64-bigaarch64"
            } else {
                "elf64-x86-64"
            };
            let wrapped = self.wrap(&path, target)?;
            // One is unsorted and does not say what its starts are relative to, like the output of
            // old assemblers.
            self.compare(&wrapped, &name, Starts::Unknown)?;
        }
        Ok(())
    }

    /// The tables of programs, as unspool writes them.
    fn our_own(&mut self) -> Result<(), Error> {
        for program in PROGRAMS {
            let bytes = fs::read(program)?;
            let units = elf::units(&bytes)?;
            let unit = units.first().ok_or("no ELF file")?;
            let machine = SframeAbi::from_abi(unit.abi).ok_or("a machine without SFrame")?;
            let frames: Vec<_> = unit
                .sections
                .iter()
                .map(|frame| unit.section(frame))
                .collect();
            let table = read_tables(unit.abi, &frames).table;
            for version in self.versions.iter().copied() {
                let converted = functions(&table, machine, version);
                let written = SframeImage::new(&converted.functions, machine, version)?;
                let section = self.work.join("section");
                fs::write(&section, written.bytes_at(Vaddr(0))?)?;
                let target = match machine {
                    SframeAbi::Amd64 => "elf64-x86-64",
                    _ => "elf64-littleaarch64",
                };
                let wrapped = self.wrap(&section, target)?;
                let name = format!("{program} version {}", version.number());
                self.compare(&wrapped, &name, Starts::Known)?;
            }
        }
        Ok(())
    }

    /// An ELF file with the bytes as its `.sframe`, at address 0.
    fn wrap(&self, section: &Path, target: &str) -> Result<PathBuf, Error> {
        let little = self.work.join("little");
        fs::write(&little, " ")?; // objcopy does not accept an empty input.
        let wrapped = self.work.join("wrapped");
        let mut objcopy = self.tool(TARGETS[0].0, "objcopy");
        objcopy
            .args(["-I", "binary", "-O", target, "--add-section"])
            .arg(format!(".sframe={}", section.display()))
            .args([&little, &wrapped]);
        debian::run(&mut objcopy)?;
        Ok(wrapped)
    }

    fn compare(&mut self, file: &Path, name: &str, starts: Starts) -> Result<(), Error> {
        let bytes = fs::read(file)?;
        let parsed = object::File::parse(&*bytes)?;
        let Some(section) = parsed.section_by_name(".sframe") else {
            return Ok(());
        };
        if section.relocations().next().is_some() {
            return Ok(()); // From `ld -r`: its addresses are not final.
        }
        let data = section.data()?;
        let Some(machine) = machine_of(data) else {
            return Ok(());
        };
        let reading = read(data, Vaddr(section.address()), machine);
        let ours: Vec<FunctionDump> = reading
            .functions
            .iter()
            .map(|function| dump(function, machine))
            .collect();
        let output = self
            .tool(TARGETS[0].0, "readelf")
            .arg("--sframe")
            .arg(file)
            .output()?;
        let mut theirs = parse(&String::from_utf8_lossy(&output.stdout));
        if starts == Starts::Unknown {
            for (theirs, ours) in theirs.iter_mut().zip(&ours) {
                theirs.move_to(ours.start);
            }
        }
        self.compared += 1;
        if ours != theirs || !reading.problems.is_empty() {
            let first = ours
                .iter()
                .zip(&theirs)
                .find(|(ours, theirs)| ours != theirs);
            self.differing.push(format!(
                "{name}: {} and {} functions, {:?}, first difference {first:?}",
                ours.len(),
                theirs.len(),
                reading.problems
            ));
        }
        Ok(())
    }
}

/// Whether it is known what starts are relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Starts {
    Known,
    Unknown,
}

/// A function, as readelf prints it.
#[derive(Debug, PartialEq, Eq)]
struct FunctionDump {
    start: u64,
    size: u32,
    is_signal_frame: bool,
    has_key_b: bool,
    is_block: bool,
    /// Addresses, in a block offsets, and the rules of CFA, frame pointer and return address;
    /// `None` in outermost frames.
    rows: Vec<(u64, Option<[String; 3]>)>,
}

impl FunctionDump {
    fn move_to(&mut self, start: u64) {
        let distance = start.wrapping_sub(self.start);
        self.start = start;
        if !self.is_block {
            for (address, _) in &mut self.rows {
                *address = address.wrapping_add(distance);
            }
        }
    }
}

/// The architecture of the bytes, from the fifth.
fn machine_of(data: &[u8]) -> Option<SframeAbi> {
    let number = *data.get(4)?;
    let all = [
        SframeAbi::Aarch64Big,
        SframeAbi::Aarch64Little,
        SframeAbi::Amd64,
        SframeAbi::S390x,
    ];
    all.into_iter().find(|machine| machine.number() == number)
}

fn dump(function: &SframeFunction, abi: SframeAbi) -> FunctionDump {
    let is_block = function.block.is_some();
    let base = if is_block { 0 } else { function.start.0 };
    let rows = function.rows.iter();
    let mut rows: Vec<_> = rows
        .map(|row| {
            let reported = match row.contents {
                FreContents::Outermost => None,
                FreContents::Rules(places) => Some(columns(&places, abi)),
            };
            (base + u64::from(row.offset), reported)
        })
        .collect();
    // An entry without rows has none there.
    if let [(_, None)] = rows.as_slice() {
        rows.clear();
    }
    FunctionDump {
        start: function.start.0,
        size: function.size,
        is_signal_frame: function.is_signal_frame,
        has_key_b: function.has_key_b,
        is_block,
        rows,
    }
}

/// CFA, frame pointer and return address.
fn columns(rules: &FreRules, abi: SframeAbi) -> [String; 3] {
    let text = |value: FreValue| {
        let base = match value.base {
            FreBase::Cfa => "c".to_owned(),
            FreBase::Register(register) if register == abi.stack_pointer() => "sp".to_owned(),
            FreBase::Register(register) if register == abi.frame_pointer() => "fp".to_owned(),
            FreBase::Register(register) => format!("r{}", register.0),
        };
        let sum = format!("{base}{:+}", value.offset);
        if value.is_loaded && value.base != FreBase::Cfa {
            format!("({sum})")
        } else {
            sum
        }
    };
    let usual = "u".to_owned();
    let is_fixed = |value: &FreValue| abi == SframeAbi::Amd64 && *value == FreValue::saved(-8);
    let ra = rules.return_address.filter(|place| !is_fixed(place));
    let mark = if rules.is_signed { "[s]" } else { "" };
    [
        text(rules.cfa),
        rules.frame_pointer.map_or(usual.clone(), text),
        ra.map_or(usual, text) + mark,
    ]
}

/// Parses the output of `readelf --sframe`.
fn parse(listing: &str) -> Vec<FunctionDump> {
    let mut functions: Vec<FunctionDump> = Vec::new();
    for line in listing.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
        match words.as_slice() {
            [
                "func",
                "idx",
                _,
                "pc",
                "=",
                pc,
                "size",
                "=",
                size,
                rest @ ..,
            ] => {
                let rest = rest.join(" ");
                functions.push(FunctionDump {
                    start: number(pc.trim_end_matches(',')).unwrap_or_default(),
                    size: size.parse().unwrap_or_default(),
                    is_signal_frame: rest.contains("\"S"),
                    has_key_b: rest.contains("B key"),
                    is_block: false,
                    rows: Vec::new(),
                });
            }
            ["STARTPC[m]", ..] => {
                if let Some(function) = functions.last_mut() {
                    function.is_block = true;
                }
            }
            // 2.44 does not support rows without data words, which a later erratum to version 2 has
            // added, and prints an error for them.
            [address, "RA", "undefined"] | [address, "fp+-1", "u", "u" | "f"] => {
                if let (Ok(address), Some(function)) = (number(address), functions.last_mut()) {
                    function.rows.push((address, None));
                }
            }
            [address, cfa, fp, ra] if address.len() == 16 => {
                if let (Ok(address), Some(function)) = (number(address), functions.last_mut()) {
                    // Fixed, padding and unchanged: the usual location.
                    let (ra, mark) = ra.strip_suffix("[s]").map_or((*ra, ""), |ra| (ra, "[s]"));
                    let ra = if ["f", "U"].contains(&ra) { "u" } else { ra };
                    let columns = [*cfa, *fp, &format!("{ra}{mark}")].map(str::to_owned);
                    function.rows.push((address, Some(columns)));
                }
            }
            _ => {}
        }
    }
    for function in &mut functions {
        // A row at the end is valid nowhere.
        let end = function.start + u64::from(function.size);
        let is_block = function.is_block;
        function
            .rows
            .pop_if(|(at, _)| !is_block && function.size > 0 && *at == end);
        if let [(_, None)] = function.rows.as_slice() {
            function.rows.clear();
        }
    }
    functions
}
