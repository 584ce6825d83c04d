//! The shared objects of `crates/libunwind-compat`, with libunwind's names, of `crates/exceptions`, with
//! libgcc's, and of `crates/c-api`, `crates/c-api-variables` and `crates/c-api-types`, with unspool's own.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// A shared object: its soname, and its dependencies.
struct SharedObject {
    soname: &'static str,
    needs: &'static [&'static str],
    /// Additional linker options.
    options: &'static [&'static str],
}

/// A crate that is built as shared objects. Its `exports/SONAME` lists the symbols of each.
struct LibrarySource {
    /// Its folder in `crates`.
    folder: &'static str,
    /// The library that cargo builds.
    library: &'static str,
    /// The linker options for all of its objects.
    options: &'static [&'static str],
    /// In link order.
    objects: &'static [SharedObject],
}

/// Without the compiler's own files and libraries: code without the standard library needs none.
const NO_STANDARD_LIBRARY: &[&str] = &["-nostdlib"];

const LIBUNWIND: LibrarySource = LibrarySource {
    folder: "libunwind-compat",
    library: "libunspool_libunwind_compat.a",
    options: NO_STANDARD_LIBRARY,
    objects: LIBUNWIND_OBJECTS,
};

/// The process's exit calls it. It is linked without the compiler's own files, which would call it
/// on unloading: so it cannot be unloaded.
const UNSPOOL: LibrarySource = LibrarySource {
    folder: "c-api",
    library: "libunspool_c_api.a",
    options: NO_STANDARD_LIBRARY,
    objects: &[SharedObject {
        soname: "libunspool.so.0",
        needs: &[],
        options: &["-Wl,-z,nodelete"],
    }],
};

/// An exception may be on its way through: it cannot be unloaded.
const EXCEPTIONS: LibrarySource = LibrarySource {
    folder: "exceptions",
    library: "libunspool_exceptions.a",
    options: NO_STANDARD_LIBRARY,
    objects: &[SharedObject {
        soname: "libunspool-eh.so",
        needs: &[],
        options: &[
            "-Wl,-z,nodelete",
            // The loader calls them; nobody refers to them.
            "-Wl,--undefined=unspool_eh_initializer,--undefined=unspool_eh_finalizer",
            // rustc does not mark what it compiles, which uses no return address otherwise.
            "-Wl,-z,shstk",
        ],
    }],
};

/// `unspool_crash_load` runs on loading.
const CRASH: LibrarySource = LibrarySource {
    objects: &[SharedObject {
        soname: "libunspool-crash.so",
        needs: &[],
        options: &["-Wl,-z,nodelete", "-Wl,-init,unspool_crash_load"],
    }],
    ..UNSPOOL
};

/// Rust's standard library makes each thread call it on exit: so it cannot be unloaded.
const VARIABLES: LibrarySource = LibrarySource {
    folder: "c-api-variables",
    library: "libunspool_c_api_variables.a",
    options: &[],
    objects: &[SharedObject {
        soname: "libunspool-variables.so.0",
        needs: &["libunspool.so.0"],
        options: &["-Wl,-z,nodelete"],
    }],
};

const TYPES: LibrarySource = LibrarySource {
    folder: "c-api-types",
    library: "libunspool_c_api_types.a",
    options: &[],
    objects: &[SharedObject {
        soname: "libunspool-types.so.0",
        needs: &[],
        options: &["-Wl,-z,nodelete"],
    }],
};

/// Walkers of the own stack initialize on loading. The one for backtraces reports their cost on
/// unloading.
const LIBUNWIND_OBJECTS: &[SharedObject] = &[
    SharedObject {
        soname: "libunwind.so.8",
        needs: &[],
        options: &["-Wl,-init,unspool_loaded", "-Wl,-fini,unspool_unloaded"],
    },
    SharedObject {
        soname: "libunwind-x86_64.so.8",
        needs: &["libunwind.so.8"],
        options: &["-Wl,-init,unspool_loaded"],
    },
    SharedObject {
        soname: "libunwind-ptrace.so.0",
        needs: &[],
        options: &[],
    },
    SharedObject {
        soname: "libunwind-coredump.so.0",
        needs: &[],
        options: &[],
    },
    SharedObject {
        soname: "libunwind-setjmp.so.0",
        needs: &[],
        options: &[],
    },
];

/// The options of `cargo xtask shared-objects`.
#[derive(Debug)]
pub struct SharedObjectOptions {
    out: Option<PathBuf>,
}

impl SharedObjectOptions {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// An argument is unknown, or has no value.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Self, Error> {
        let mut out = None;
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--out") => out = Some(args.next().ok_or("--out: no directory")?.into()),
                _ => return Err(format!("unknown argument {}", arg.display()).into()),
            }
        }
        Ok(SharedObjectOptions { out })
    }
}

/// Builds the shared objects and prints their paths.
///
/// # Errors
///
/// The crate does not build, or does not link.
pub fn run(options: &SharedObjectOptions, out: &mut impl Write) -> Result<(), Error> {
    let folder = match &options.out {
        Some(folder) => folder.clone(),
        None => Build::default()
            .static_library(&LIBUNWIND)?
            .with_file_name("libunwind"),
    };
    build(&folder)?;
    build_unspool(&folder)?;
    build_exceptions(&folder)?;
    Build::default().variables(&folder)?;
    Build::default().types(&folder)?;
    writeln!(out, "{}", folder.display())?;
    Ok(())
}

/// As [`Build::libunwind`], for this machine.
///
/// # Errors
///
/// As [`run`].
pub fn build(folder: &Path) -> Result<(), Error> {
    Build::default().libunwind(folder)
}

/// As [`Build::own`], for this machine.
///
/// # Errors
///
/// As [`run`].
pub fn build_unspool(folder: &Path) -> Result<(), Error> {
    Build::default().own(folder)
}

/// As [`Build::exceptions`], for this machine.
///
/// # Errors
///
/// As [`run`].
pub fn build_exceptions(folder: &Path) -> Result<(), Error> {
    Build::default().exceptions(folder)
}

/// The crates that they are made of.
#[must_use]
pub fn crates() -> [String; 4] {
    [LIBUNWIND, UNSPOOL, EXCEPTIONS, VARIABLES].map(|source| format!("unspool-{}", source.folder))
}

/// Which of cargo's profiles they are built by.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// What is shipped: `shared-object`.
    #[default]
    Shipped,
    /// What tests are built by, which leaves little to compile: `dev`. It unwinds, so only [`Build::variables`] and
    /// [`Build::types`] can have it.
    Tests,
}

/// How cargo makes a static library of a crate.
const SHIPPED: &[&str] = &[
    "rustc",
    "--lib",
    "--profile=shared-object",
    "--features=shared-object",
    "--crate-type=staticlib",
];

/// How it makes those with the standard library of what `cargo test --workspace` has compiled.
const FOR_TESTS: &[&str] = &[
    "build",
    "--workspace",
    "--example=variables_for_tests",
    "--example=types_for_tests",
    "--features=unspool-c-api-variables/shared-object,unspool-c-api-types/shared-object",
];

/// How they are built, where that is not as for this machine.
#[derive(Debug, Default)]
pub struct Build {
    /// How well they are optimized.
    pub profile: Profile,
    /// What gcc is told when it links.
    pub options: Vec<String>,
    /// Additional environment variables of cargo.
    pub environment: Vec<(&'static str, OsString)>,
}

impl Build {
    /// Builds the shared objects with libunwind's names into `folder`.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub fn libunwind(&self, folder: &Path) -> Result<(), Error> {
        self.link_all(&LIBUNWIND, folder)
    }

    /// Builds the shared objects with unspool's own names into `folder`, and adds the headers and
    /// the `pkg-config` file.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub fn own(&self, folder: &Path) -> Result<(), Error> {
        self.link_all(&UNSPOOL, folder)?;
        self.link_all(&CRASH, folder)?;
        archive(
            &self.static_library(&UNSPOOL)?,
            "unspool",
            &exports("libunspool.so.0")?,
            folder,
        )?;
        name_for_linking("unspool", folder)?;
        let own = crate_folder(&UNSPOOL);
        copy_header(&own.join("include/unspool.h"), folder)?;
        copy_header(&own.join("include/unspool_keep.h"), folder)?;
        copy_header(
            &own.with_file_name("native-table").join("unspool_native.h"),
            folder,
        )?;
        write_pkg_config(
            "unspool",
            "the stack of the own thread, from its unwind tables",
            // gcc does not create a search table for statically linked programs.
            "Libs.private: -pthread -Wl,--eh-frame-hdr",
            folder,
        )
    }

    /// Builds the shared object with libgcc's names of exceptions into `folder`, and the archive.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub fn exceptions(&self, folder: &Path) -> Result<(), Error> {
        self.link_all(&EXCEPTIONS, folder)?;
        let mut names = exports("libunspool-eh.so")?;
        names.extend(["unspool_eh_initializer", "unspool_eh_finalizer"].map(str::to_owned));
        archive(
            &self.static_library(&EXCEPTIONS)?,
            "unspool-eh",
            &names,
            folder,
        )
    }

    /// Builds the shared object with the standard library into a folder in which [`Build::own`] has
    /// built the others.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub fn variables(&self, folder: &Path) -> Result<(), Error> {
        self.link_all(&VARIABLES, folder)?;
        name_for_linking("unspool-variables", folder)?;
        let own = crate_folder(&VARIABLES);
        copy_header(&own.join("include/unspool_variables.h"), folder)?;
        write_pkg_config(
            "unspool-variables",
            "the variables on the stack of the own thread, from its debug information",
            "Requires: unspool",
            folder,
        )
    }

    /// Builds the shared object for types into a folder, and adds the header and the `pkg-config`
    /// file.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub fn types(&self, folder: &Path) -> Result<(), Error> {
        self.link_all(&TYPES, folder)?;
        name_for_linking("unspool-types", folder)?;
        let own = crate_folder(&TYPES);
        copy_header(&own.join("include/unspool_types.h"), folder)?;
        write_pkg_config(
            "unspool-types",
            "C types in CTF, BTF and DWARF",
            "Requires:",
            folder,
        )
    }

    fn link_all(&self, source: &LibrarySource, folder: &Path) -> Result<(), Error> {
        let library = self.static_library(source)?;
        make_folder(folder)?;
        for object in source.objects {
            self.link(source, object, &library, folder)?;
        }
        Ok(())
    }

    /// Builds the crate as a static library by cargo. rustc cannot link it as a shared object,
    /// since it adds its own version script.
    fn static_library(&self, source: &LibrarySource) -> Result<PathBuf, Error> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        let (arguments, name) = match self.profile {
            Profile::Shipped => (SHIPPED, source.library),
            Profile::Tests if source.folder == TYPES.folder => (FOR_TESTS, "libtypes_for_tests.a"),
            Profile::Tests => (FOR_TESTS, "libvariables_for_tests.a"),
        };
        command
            .current_dir(crate_folder(source))
            .args(arguments)
            .args(["--quiet", "--message-format", "json-render-diagnostics"])
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stderr(std::process::Stdio::inherit());
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("{command:?} failed ({})", output.status).into());
        }
        let messages = String::from_utf8(output.stdout)?;
        let path = messages.split('"').rfind(|word| word.ends_with(name));
        Ok(path.ok_or("cargo names no static library")?.into())
    }

    fn link(
        &self,
        source: &LibrarySource,
        object: &SharedObject,
        library: &Path,
        folder: &Path,
    ) -> Result<(), Error> {
        let names = exports(object.soname)?;
        let script = library.with_file_name(format!("{}.map", object.soname));
        fs::write(&script, version_script(&names))?;
        let has_aliases = source.folder == LIBUNWIND.folder;
        let aliases = names.iter().filter(|_| has_aliases);
        let aliases = aliases.filter_map(|name| defined_as(name));
        let mut command = Command::new("cc");
        command
            .args(["-shared", "-Wl,--gc-sections", "-Wl,-z,defs"])
            .args(source.options)
            .args(&self.options)
            // gdb would read it each time that a test runs it.
            .args((self.profile == Profile::Tests).then_some("-Wl,--strip-debug"))
            .args(["-Wl,-z,relro", "-Wl,-z,now", "-Wl,--as-needed"])
            .args(object.options)
            .arg(format!("-Wl,-soname,{}", object.soname))
            .arg(format!("-Wl,--version-script,{}", script.display()))
            .args(aliases)
            .args(names.iter().map(|name| format!("-Wl,--undefined={name}")))
            .arg("-o")
            .arg(folder.join(object.soname))
            .arg(library);
        // Before glibc 2.34, some functions of libc were in these.
        command.args(["-lpthread", "-ldl", "-Wl,--no-as-needed"]);
        command.args(object.needs.iter().map(|soname| folder.join(soname)));
        command.arg("-lc");
        run_command(command)
    }
}

/// The folder that cargo builds in.
///
/// # Errors
///
/// The current folder is unknown.
pub fn target_folder() -> Result<PathBuf, Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.ok_or("no workspace")?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}

/// Creates the link name of a library, for its first version.
fn name_for_linking(library: &str, folder: &Path) -> Result<(), Error> {
    let name = folder.join(format!("lib{library}.so"));
    let _ = fs::remove_file(&name); // It may exist already.
    symlink(format!("lib{library}.so.0"), &name)?;
    Ok(())
}

fn copy_header(header: &Path, folder: &Path) -> Result<(), Error> {
    let folder = folder.join("include");
    make_folder(&folder)?;
    let name = header.file_name().ok_or("a header without a name")?;
    fs::copy(header, folder.join(name))?;
    Ok(())
}

/// Creates an archive of one object that exports only these symbols. cargo's library also has Rust's
/// own symbols, which another Rust library may have, too.
fn archive(library: &Path, name: &str, exported: &[String], folder: &Path) -> Result<(), Error> {
    let object = library.with_file_name(format!("{name}.o"));
    let list = library.with_file_name(format!("{name}.names"));
    fs::write(&list, exported.join("\n"))?;
    let mut link = Command::new("cc");
    link.args(["-r", "-nostdlib", "-Wl,--gc-sections"])
        .args(
            exported
                .iter()
                .map(|name| format!("-Wl,--undefined={name}")),
        )
        .arg("-o")
        .arg(&object)
        .arg(library);
    run_command(link)?;
    let mut hide = Command::new("objcopy");
    hide.arg(format!("--keep-global-symbols={}", list.display()))
        .arg("--strip-unneeded")
        .arg(&object);
    run_command(hide)?;
    let archive = folder.join(format!("lib{name}.a"));
    let _ = fs::remove_file(&archive); // Otherwise it would keep its old contents.
    let mut pack = Command::new("ar");
    pack.arg("rcsD").arg(archive).arg(object);
    run_command(pack)
}

fn run_command(mut command: Command) -> Result<(), Error> {
    crate::programs::stdout(&mut command)?;
    Ok(())
}

/// Writes the `pkg-config` file of a library, with an additional field. It is valid wherever the
/// folder is.
fn write_pkg_config(
    library: &str,
    description: &str,
    field: &str,
    folder: &Path,
) -> Result<(), Error> {
    let text = format!(
        "prefix=${{pcfiledir}}/..\n\
         libdir=${{prefix}}\n\
         includedir=${{prefix}}/include\n\n\
         Name: {library}\n\
         Description: {description}\n\
         Version: {}\n\
         Libs: -L${{libdir}} -l{library}\n\
         {field}\n\
         Cflags: -I${{includedir}}\n",
        env!("CARGO_PKG_VERSION")
    );
    let folder = folder.join("pkgconfig");
    make_folder(&folder)?;
    fs::write(folder.join(format!("{library}.pc")), text)?;
    Ok(())
}

fn make_folder(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    Ok(())
}

fn crate_folder(source: &LibrarySource) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    crates.join(source.folder)
}

/// The symbols that a shared object exports, one a line, sorted as bytes.
///
/// # Errors
///
/// There is no such list.
pub fn exports(soname: &str) -> Result<Vec<String>, Error> {
    let has = |source: &&LibrarySource| source.objects.iter().any(|object| object.soname == soname);
    let source = [LIBUNWIND, UNSPOOL, CRASH, EXCEPTIONS, VARIABLES, TYPES];
    let source = source.iter().find(has).ok_or("no such shared object")?;
    let path = crate_folder(source).join("exports").join(soname);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// libunwind has many functions under two names; the crate has one of them.
fn defined_as(name: &str) -> Option<String> {
    let same = match name {
        // Programs copy the variable, so it must have a size.
        "_ULx86_64_local_addr_space" => return None,
        "backtrace" => "unw_backtrace".to_owned(),
        // They do nothing.
        "_UCD_access_fpreg" | "_UCD_get_dyn_info_list_addr" | "_UCD_put_unwind_info" => {
            name.replace("_UCD_", "_UPT_")
        }
        _ => name
            .strip_prefix("_ULx86_64_")
            .map(|function| format!("_Ux86_64_{function}"))
            .or(name.strip_prefix("__libunwind").map(str::to_owned))?,
    };
    Some(format!("-Wl,--defsym={name}={same}"))
}

/// Exports exactly these names, without a version, as libunwind does.
fn version_script(names: &[String]) -> String {
    format!(
        "{{\nglobal:\n  {};\nlocal:\n  *;\n}};\n",
        names.join(";\n  ")
    )
}
