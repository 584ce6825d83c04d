//! Runs binutils' own CTF tests, those of its linker and of libctf, on unspool.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use object::{Object, ObjectSection};
use unspool_c_types::{CtfSection, ElfContext, ElfStrings};

use crate::binutils::{Binutils, BinutilsTest, TARGETS, V2_47, files, stem};
use crate::ctf_compare::{compare_unit, release_binary, with_declared_arrays};
use crate::expected::difference;
use crate::{Error, debian};

/// The help of `cargo xtask ctf-suite`.
pub const HELP: &str = "\
usage: cargo xtask ctf-suite [--unspool PATH]

Builds binutils 2.47 from Debian's source below the target folder, once, and has unspool do what the tests in its folders
ld/testsuite/ld-ctf and libctf/testsuite ask of GNU's tools:
  dumps     what GNU ld links of a test's input, dumped by `unspool ctf dump --as objdump`, has the lines that the test expects
  links     each unit of the input has the types that it had in what `unspool ctf link` makes of it
  errors    what is broken is refused by `unspool ctf link`, with an error
  queries   the test's own program, with libctf 2.47, prints what the test expects when it reads what `unspool ctf link` makes
Tests that cannot be held are listed with the reason. --unspool names the binary; without it one is built, optimised.
";

/// Tests with different expected results, where unspool intentionally links otherwise than ld.
const EXPECTED_DIFFERENCES: [(&str, &str); 5] = [
    (
        "libctf-lookup/ambiguous-struct",
        "of structures that units disagree on ld shares a forward, and we the one that most units have",
    ),
    (
        "libctf-lookup/enumerator-iteration",
        "of two enumerations that as many units have, ld shares the second, and we the first",
    ),
    ("libctf-regression/nonstatic-var-section-ld", VARIABLES),
    (
        "libctf-regression/nonstatic-var-section-ld-executable",
        VARIABLES,
    ),
    ("libctf-regression/nonstatic-var-section-ld-r", VARIABLES),
];
const VARIABLES: &str =
    "with --ctf-variables ld calls data without a dynamic symbol a variable, and we a data symbol";

/// Compares them; returns whether nothing failed.
///
/// # Errors
///
/// binutils cannot be fetched or built, or a command is missing.
pub fn run(mut args: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<bool, Error> {
    let unspool = match (args.next(), args.next()) {
        (None, _) => release_binary()?,
        (Some(option), Some(path)) if option == "--unspool" => std::path::absolute(path)?,
        _ => return Err(HELP.into()),
    };
    let tools = Binutils::fetch_and_build(&V2_47, &TARGETS[..1], out)?;
    let mut suite = CtfSuite {
        work: tools.work("ctf-suite")?,
        tools,
        unspool,
        tallies: Vec::new(),
        failed: Vec::new(),
        left: Vec::new(),
    };
    fs::create_dir(suite.work.join("tmpdir"))?; // Programs of libctf's tests write there.
    suite.linker()?;
    suite.library()?;
    for (kind, count) in &suite.tallies {
        writeln!(out, "{kind}: {count} held")?;
    }
    for (title, tests) in [("failed", &suite.failed), ("not held", &suite.left)] {
        writeln!(out, "{title}: {}", tests.len())?;
        for test in tests {
            writeln!(out, "  {test}")?;
        }
    }
    Ok(suite.failed.is_empty() && !suite.tallies.is_empty())
}

struct CtfSuite {
    work: PathBuf,
    tools: Binutils,
    unspool: PathBuf,
    /// The number of passed tests of each kind.
    tallies: Vec<(&'static str, usize)>,
    failed: Vec<String>,
    /// Tests that do not apply to unspool, with the reason.
    left: Vec<String>,
}

impl CtfSuite {
    /// The tests of ld.
    fn linker(&mut self) -> Result<(), Error> {
        let folder = self.tools.source.join("ld/testsuite/ld-ctf");
        for path in files(&folder, "d")? {
            let test = BinutilsTest::read(&path)?;
            let name = format!("ld-ctf/{}", stem(&path));
            let objects = self.objects(&folder, &test.sources, &test.compiler)?;
            if test.has_warning {
                let output = self.link(&objects, &["-o", "out.ctf"])?;
                let is_refused = !output.status.success() && !output.stderr.is_empty();
                self.judge(
                    "errors",
                    &name,
                    (!is_refused).then(|| "no error".to_owned()),
                );
                continue;
            }
            let mut ld = self.tool("ld");
            ld.args(&test.linker).args(["-o", "theirs"]).args(&objects);
            debian::run(&mut ld)?;
            self.dump(&name, &test.lines)?;
            fs::copy(self.work.join("theirs"), self.work.join("ours"))?;
            let linked = self.link(&objects, &["--into", "ours", "--symbols", "dynsym"])?;
            let difference = if linked.status.success() {
                self.meaning(&objects)?
            } else {
                Some(String::from_utf8_lossy(&linked.stderr).into_owned())
            };
            self.judge("links", &name, difference);
        }
        Ok(())
    }

    /// Compares unspool's dump of ld's output with the expected lines. If objdump does not print
    /// them either, the difference is not in the dump.
    fn dump(&mut self, name: &str, as_expected: &str) -> Result<(), Error> {
        let theirs = text(&self.tool("objdump").args(["--ctf", "theirs"]).output()?);
        let mut command = self.command(&self.unspool);
        let ours = text(
            &command
                .args(["ctf", "dump", "--as", "objdump", "theirs"])
                .output()?,
        );
        // objdump prints this line since 2.42; unspool prints the lines of 2.40.
        let lines = as_expected.replace("      \\(Section is indexed\\.\\)\n", "");
        // objdump's description of the file.
        let head: Vec<&str> = theirs.lines().take(4).collect();
        let ours = format!("{}\n{ours}", head.join("\n"));
        match (difference(&ours, &lines)?, difference(&theirs, as_expected)?) {
            (Some(why), Some(_)) => self.left.push(format!(
                "{name}, its dump: this compiler's types are not those of the test, by GNU objdump's dump either: {why}"
            )),
            (difference, _) => self.judge("dumps", name, difference),
        }
        Ok(())
    }

    /// The first unit whose types in `ours` differ from those in its object file.
    fn meaning(&self, objects: &[String]) -> Result<Option<String>, Error> {
        let linked = FileTypes::read(&self.work.join("ours"))?;
        let linked = linked.section()?;
        let views = linked.units()?;
        for object in objects {
            let unit = FileTypes::read(&self.work.join(object))?;
            for unit in unit.section()?.units()? {
                let graph = with_declared_arrays(&self.work.join(object), &unit.reading.graph)?;
                let own = |name: &Option<_>| *name == graph.unit || name.is_none();
                let views = views.iter().map(|view| &view.reading.graph);
                let views = views.filter(|view| own(&view.unit) || view.parent().is_none());
                let changed = views.map(|view| compare_unit(&graph, view).1).min();
                if changed != Some(0) {
                    return Ok(Some(format!("{object}: {changed:?} types are others")));
                }
            }
        }
        Ok(None)
    }

    /// The tests of libctf.
    fn library(&mut self) -> Result<(), Error> {
        for part in ["libctf-lookup", "libctf-regression", "libctf-writable"] {
            let folder = self.tools.source.join("libctf/testsuite").join(part);
            for path in files(&folder, "lk")? {
                let name = format!("{part}/{}", stem(&path));
                let query = Query::read(&path)?;
                if query.sources.is_empty() {
                    let reason = "it reads no file: it makes dictionaries with libctf's own calls";
                    self.left.push(format!("{name}: {reason}"));
                    continue;
                }
                self.query(&name, &folder, &query)?;
            }
        }
        Ok(())
    }

    /// Runs a test's program on GNU ld's output, and then on unspool's.
    fn query(&mut self, name: &str, folder: &Path, query: &Query) -> Result<(), Error> {
        self.program(&folder.join(&query.program))?;
        let objects = self.objects(folder, &query.sources, &[])?;
        let mut file = "part0.o";
        if query.is_linked {
            file = "out.so";
            let mut gcc = self.gcc();
            debian::run(gcc.args(&query.flags).args(["-o", file]).args(&objects))?;
        }
        let theirs = self.answer(query, file, &objects)?;
        let mut options = vec!["-o", "out.ctf", "--symbols", "names"];
        if query
            .flags
            .iter()
            .any(|flag| flag.contains("share-duplicated"))
        {
            options.extend(["--share", "duplicated"]);
        }
        let linked = self.link(&objects, &options)?;
        if !linked.status.success() {
            let errors = String::from_utf8_lossy(&linked.stderr).into_owned();
            self.judge("queries", name, Some(errors));
            return Ok(());
        }
        let mut objcopy = self.tool("objcopy");
        debian::run(objcopy.args(["--update-section", ".ctf=out.ctf", file]))?;
        let ours = self.answer(query, file, &objects)?;
        let otherwise = EXPECTED_DIFFERENCES
            .iter()
            .find(|(other, _)| *other == name);
        match (ours, theirs, otherwise) {
            (Some(_), None, Some((_, reason))) => self.left.push(format!("{name}: {reason}")),
            (Some(why), Some(_), _) => self.left.push(format!(
                "{name}: of this compiler's types libctf says the same if GNU ld has linked them: {why}"
            )),
            (difference, _, None) => self.judge("queries", name, difference),
            (None, _, Some(_)) => {
                let stale = "we do as ld does: take it out of the list of those where we do not";
                self.judge("queries", name, Some(stale.to_owned()));
            }
        }
        Ok(())
    }

    /// Unexpected output of a test's program, if any.
    fn answer(
        &self,
        query: &Query,
        file: &str,
        objects: &[String],
    ) -> Result<Option<String>, Error> {
        let mut program = self.command(&self.work.join("program"));
        program.arg(file);
        if query.takes_objects {
            program.args(objects);
        }
        let output = program.output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        difference(&(text(&output) + &errors), &query.lines)
    }

    /// Compiles a test's program with libctf 2.47.
    fn program(&self, source: &Path) -> Result<(), Error> {
        let build = self.tools.build_folder(TARGETS[0].0);
        let library = |name: &str| self.tools.installed().join("lib").join(name);
        let mut gcc = self.command(Path::new("gcc"));
        for include in [build.join("libctf"), self.tools.source.join("libctf")] {
            gcc.arg("-I").arg(include);
        }
        gcc.args(["-g", "-o", "program", "-I"])
            .arg(self.tools.source.join("include"))
            .arg(source)
            .args(["libctf.a", "libbfd.a", "libsframe.a"].map(library))
            .arg(build.join("libiberty/libiberty.a"))
            .arg(build.join("zlib/libz.a"))
            .args(["-lm", "-ldl"]);
        debian::run(&mut gcc)
    }

    /// Compiles and assembles a test's sources, with 2.47's assembler.
    fn objects(
        &self,
        folder: &Path,
        sources: &[String],
        options: &[String],
    ) -> Result<Vec<String>, Error> {
        let mut objects = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let object = format!("part{number}.o");
            let mut gcc = self.gcc();
            gcc.args(["-gctf", "-fPIC", "-c", "-o", &object])
                .args(options);
            debian::run(gcc.arg(folder.join(source)))?;
            objects.push(object);
        }
        Ok(objects)
    }

    fn link(&self, objects: &[String], options: &[&str]) -> Result<Output, Error> {
        let mut command = self.command(&self.unspool);
        Ok(command
            .args(["ctf", "link"])
            .args(objects)
            .args(options)
            .output()?)
    }

    fn gcc(&self) -> Command {
        let mut gcc = self.command(Path::new("gcc"));
        gcc.arg(format!("-B{}/bin", self.tools.installed().display()));
        gcc
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = self.tools.tool(TARGETS[0].0, name);
        command.current_dir(&self.work);
        command
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.work).env("LC_ALL", "C");
        command
    }

    fn judge(&mut self, kind: &'static str, name: &str, difference: Option<String>) {
        if let Some(difference) = difference {
            self.failed.push(format!("{name}, {kind}: {difference}"));
            return;
        }
        match self.tallies.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, count)) => *count += 1,
            None => self.tallies.push((kind, 1)),
        }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The types in a file of this machine.
struct FileTypes {
    ctf: Vec<u8>,
    dynstr: Vec<u8>,
    dynsym: Vec<u8>,
}

impl FileTypes {
    fn read(path: &Path) -> Result<FileTypes, Error> {
        let bytes = fs::read(path)?;
        let file = object::File::parse(&*bytes)?;
        let part = |name| -> Result<Vec<u8>, Error> {
            let section = file.section_by_name(name);
            Ok(section
                .map_or(Ok(&[][..]), |section| section.data())?
                .to_vec())
        };
        Ok(FileTypes {
            ctf: part(".ctf")?,
            dynstr: part(".dynstr")?,
            dynsym: part(".dynsym")?,
        })
    }

    fn section(&self) -> Result<CtfSection<'_>, Error> {
        let elf = ElfContext {
            strings: ElfStrings {
                dynstr: &self.dynstr,
                ..ElfStrings::default()
            },
            dynsym: &self.dynsym,
            ..ElfContext::BARE_64
        };
        Ok(CtfSection::open(&self.ctf, elf)?)
    }
}

/// A test of libctf.
struct Query {
    /// The querying program.
    program: String,
    sources: Vec<String>,
    is_linked: bool,
    /// Whether the program gets the objects as arguments, too.
    takes_objects: bool,
    /// The link options.
    flags: Vec<String>,
    /// The expected lines.
    lines: String,
}

impl Query {
    fn read(path: &Path) -> Result<Query, Error> {
        let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
        let mut query = Query {
            program: format!("{}.c", stem(path)),
            sources: Vec::new(),
            is_linked: false,
            takes_objects: false,
            flags: vec!["-shared".to_owned()],
            lines: String::new(),
        };
        for line in text.lines() {
            let option = line
                .strip_prefix("# ")
                .and_then(|line| line.split_once(": "));
            match option {
                Some(("source", source)) => query.sources.push(source.to_owned()),
                Some(("lookup", program)) => program.clone_into(&mut query.program),
                Some(("link", what)) => {
                    query.is_linked = true;
                    query.takes_objects = what == "objects";
                }
                Some(("link_flags", flags)) => {
                    query
                        .flags
                        .extend(flags.split_whitespace().map(str::to_owned));
                }
                Some(("nonshared", _)) => query.flags.retain(|flag| flag != "-shared"),
                Some(_) => {}
                None => {
                    query.lines.push_str(line);
                    query.lines.push('\n');
                }
            }
        }
        query.is_linked |= query.sources.len() > 1;
        Ok(query)
    }
}
