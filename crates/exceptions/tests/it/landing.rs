//! Where exceptions, panics and forced unwinds land.

use std::fs;
use std::path::{Path, PathBuf};

use unspool_testing::{Finish as _, Folder, command, hex, move_headers, packages, tool};

use crate::programs::{
    archive, compile_by, compile_c, compile_cxx, compile_cxx_by, compile_cxx_with, compile_rust,
    libraries, library, program, run,
};

/// Throwing, rethrowing, exception pointers, forced unwinds, exits and cancellation of threads, and
/// an uncaught exception.
#[test]
fn cxx_exceptions() {
    let program = compile_cxx("exceptions.cc", &["-rdynamic"]);
    let (with_libgcc, code) = run(&program, &[], None);
    assert_eq!(code, Some(3));
    let (first, with_libgcc) = with_libgcc.split_once('\n').unwrap();
    assert!(first.contains("libgcc_s.so.1"), "{first}");
    for line in [
        "caught deep, again",
        "caught second",
        "~cancelled",
        "passing through\nend of stack",
        "terminated",
    ] {
        assert!(with_libgcc.contains(line), "{line}");
    }
    for ours in libraries() {
        let (with_ours, code) = run(&program, &[], Some(ours));
        let (first, with_ours) = with_ours.split_once('\n').unwrap();
        assert_eq!(first, format!("unwinder {}", ours.display()));
        assert_eq!(with_ours, with_libgcc);
        assert_eq!(code, Some(3));
    }
}

#[test]
fn rust_panics() {
    let program = compile_rust("panic.rs");
    let with_libgcc = run(&program, &[], None);
    assert!(with_libgcc.0.ends_with("dropped 2\ntrue\ntrue\n"));
    for ours in libraries() {
        let (text, code) = run(&program, &[], Some(ours));
        assert!(text.contains("dropped 3\nSome(\"deep\")\nSome(\"deep\")\n"));
        assert_eq!((text, code), with_libgcc);
    }
}

/// A plugin linked with `-static-libgcc -static-libstdc++` has its own unwinder. Its landing pads
/// call our `_Unwind_Resume`, and its contexts reach our functions. If it hides its libstdc++, our
/// contexts reach its functions.
#[test]
fn a_static_libgcc_beside_ours() {
    const CASES: [&str; 8] = [
        "inside", "host", "out", "through", "in", "nested", "cancel", "exit",
    ];
    let host = compile_cxx("static_plugin_host.cc", &["-rdynamic"]);
    let plugin = |options: &[&str]| {
        let always = ["-shared", "-fPIC", "-static-libgcc", "-static-libstdc++"];
        compile_cxx("static_plugin.cc", &[&always, options].concat())
    };
    let shared = plugin(&[]);
    let hidden = plugin(&["-Wl,--exclude-libs,ALL"]);
    let run = |plugin: &Path, ways: &[&str], library| {
        let arguments = [&[plugin.to_str().unwrap()], ways].concat();
        run(&host, &arguments, library)
    };
    // Each case first in a process of its own, and all in one.
    for ways in CASES
        .each_ref()
        .map(std::slice::from_ref)
        .into_iter()
        .chain([&CASES[..]])
    {
        let with_libgcc = run(&shared, ways, None);
        assert_eq!(with_libgcc.1, Some(0), "{with_libgcc:?}");
        for ours in libraries() {
            assert_eq!(run(&shared, ways, Some(ours)), with_libgcc);
            // With libgcc's unwinder this ends in abort: the two do not know each other's
            // registers.
            assert_eq!(run(&hidden, ways, Some(ours)), with_libgcc);
        }
    }
}

/// There is no system call, not even in the first throw of a process or thread, or on a coroutine's
/// stack. 8 KiB of stack suffice for all of it. (With libgcc the first throw of a process is
/// killed.)
#[test]
fn a_throw_where_no_system_call_is_left() {
    let program = compile_cxx(
        "sealed_throw.cc",
        &[
            "-Wl,-z,now",
            "-fnon-call-exceptions",
            "-fasynchronous-unwind-tables",
        ],
    );
    for ours in libraries() {
        for place in [
            "main",
            "thread",
            "fibre",
            "fibre-in-module",
            "small-fibre",
            "handler",
        ] {
            for seal in ["strict", "filter"] {
                let mut command = command(&program);
                command.args([place, seal]).env("LD_PRELOAD", ours);
                // The loader's lazy binding takes more stack than our code.
                let text = xtask::programs::stdout(command.env("LD_BIND_NOW", "1")).unwrap();
                assert_eq!(text, "deep\n".repeat(3), "{place} {seal}");
            }
        }
    }
}

/// A landing pad finds the arguments of the call popped.
#[test]
fn arguments_are_popped() {
    let program = compile_cxx("arguments.cc", &["-rdynamic"]);
    let frames = tool("readelf")
        .arg("--debug-dump=frames")
        .arg(&program)
        .succeed();
    assert!(frames.contains("DW_CFA_GNU_args_size"), "nothing is pushed");
    let expected: String = (0..5)
        .map(|round| format!("caught {}, 0 bytes lower\n", 100 + round))
        .collect();
    let [first, second] = libraries().each_ref().map(|path| Some(path.as_path()));
    for library in [None, first, second] {
        assert_eq!(run(&program, &[], library), (expected.clone(), Some(0)));
    }
}

/// Frames of all kinds, by both compilers and with all their forms of frames.
#[test]
fn frames_of_all_kinds_are_passed() {
    let always = [
        "-fnon-call-exceptions",
        "-fasynchronous-unwind-tables",
        "-Wno-psabi",
    ];
    for (compiler, options) in [
        ("g++", "-O0"),
        ("g++", "-O1 -fcf-protection=full"),
        ("g++", "-O2 -fstack-clash-protection"),
        ("g++", "-O3 -fno-omit-frame-pointer"),
        ("g++", "-O2 -mstackrealign -maccumulate-outgoing-args"),
        ("g++", "-O2 -no-pie -fno-pic"),
        ("clang++", "-O0"),
        ("clang++", "-O2 -fcf-protection=full"),
        ("clang++", "-O3 -fno-omit-frame-pointer -mstackrealign"),
    ] {
        let options: Vec<_> = options.split(' ').chain(always).collect();
        let program = compile_cxx_by(compiler, "frames.cc", &options);
        // clang does not expect exceptions of instructions that are not calls.
        let arguments: &[&str] = if compiler == "g++" { &["signals"] } else { &[] };
        let with_libgcc = run(&program, arguments, None);
        let (text, code) = &with_libgcc;
        assert_eq!(*code, Some(0), "{compiler} {options:?}: {text}");
        for line in [
            "registers kept by 64 of 64",
            "~alloca\n~realigned\n~large\ncaught 7",
            "caught 7 in a coroutine",
            "caught 7 after 200 jumps",
            "threads caught 12800",
        ] {
            assert!(
                text.contains(line),
                "{compiler} {options:?}: {line}: {text}"
            );
        }
        for ours in libraries() {
            let with_ours = run(&program, arguments, Some(ours));
            assert_eq!(with_ours, with_libgcc, "{compiler} {options:?}");
        }
    }
}

/// A plugin takes the place of another that was unloaded: its frames are its own. Without a build ID
/// nothing is kept of it, and facts of the other do not count.
#[test]
fn a_plugin_in_another_s_place_has_its_own_landing_pads() {
    let host = compile_cxx("reload.cc", &[]);
    for (name, ids, is_moved) in [
        ("sha1", ["sha1", "sha1"], false),
        ("second", ["sha1", "none"], false),
        ("moved", ["sha1", "sha1"], true),
        ("none", ["none", "none"], true),
    ] {
        let plugins = [("1", ids[0]), ("2", ids[1])].map(|(version, id)| {
            let options = [
                format!("-DVERSION={version}"),
                format!("-Wl,--build-id={id}"),
            ];
            let plugin = plugin(&[&options[0], &options[1]]);
            if is_moved {
                move_headers(&plugin, plugin.with_extension(name))
            } else {
                plugin
            }
        });
        let paths = plugins.each_ref().map(|path| path.to_str().unwrap());
        let expected = "right 604, nearly always at one address\n".to_owned();
        for library in [None, Some(library())] {
            let found = run(&host, &paths, library);
            assert_eq!(found, (expected.clone(), Some(0)), "{name}");
        }
    }
}

/// More versions of a plugin at one place, and more modules, than are remembered.
#[test]
fn plugins_without_number() {
    let host = compile_cxx("versions.cc", &[]);
    let id = [0x5a; 16];
    let option = format!("-Wl,--build-id=0x{}", "5a".repeat(id.len()));
    let plugin = plugin(&["-DVERSION=1", &option]);
    let file = fs::read(&plugin).unwrap();
    let at = file
        .windows(id.len())
        .position(|bytes| bytes == id)
        .unwrap();
    let folder = Folder::new();
    let versions: Vec<_> = (0..1_100_u128)
        .map(|version| {
            let mut file = file.clone();
            file[at..][..id.len()].copy_from_slice(&version.to_le_bytes());
            folder.write(&version.to_string(), file)
        })
        .collect();
    let paths: Vec<_> = versions.iter().map(|path| path.to_str().unwrap()).collect();
    for (how, paths) in [("close", &paths[..60]), ("keep", &paths[..])] {
        let arguments = [&[how], paths].concat();
        let expected = (format!("right {}\n", 2 * paths.len()), Some(0));
        assert_eq!(run(&host, &arguments, None), expected);
        for library in libraries() {
            assert_eq!(run(&host, &arguments, Some(library)), expected, "{how}");
        }
    }
}

/// Build IDs that are not kept, and search tables that list nothing, as GNU ld leaves them if it
/// cannot read an entry.
#[test]
fn plugins_with_unusual_headers() {
    let host = compile_cxx("versions.cc", &[]);
    let long_id = format!("-Wl,--build-id=0x{}", "5a".repeat(33));
    let long = plugin(&["-DVERSION=1", &long_id]);
    let usual = plugin(&["-DVERSION=1"]);
    let mut file = fs::read(&usual).unwrap();
    // The usual head: version 1, pointers and entries of four bytes.
    let head = [1, 0x1b, 3, 0x3b];
    let at = file.windows(4).position(|bytes| bytes == head).unwrap();
    file[at + 2..at + 4].fill(0xff);
    let folder = Folder::new();
    let unlisted = folder.write("unlisted.so", file);
    let paths = [long, usual, unlisted];
    let paths = paths.each_ref().map(|path| path.to_str().unwrap());
    let arguments = [&["close"], &paths[..]].concat();
    for library in [None, Some(library())] {
        let found = run(&host, &arguments, library);
        assert_eq!(found, ("right 6\n".to_owned(), Some(0)));
    }
}

/// A plugin returns to its place, but its language's runtime does not.
#[test]
fn a_personality_routine_moves() {
    let host = compile_c("runtime_host.c", &["-Wl,--no-as-needed", "-lgcc_s"]);
    let runtime = compile_c("runtime.c", &["-shared", "-fPIC", "-DRUNTIME"]);
    let path = runtime.to_str().unwrap();
    let plugin = compile_c(
        "runtime.c",
        &["-shared", "-fPIC", "-Wl,--no-as-needed", path],
    );
    let arguments = [plugin.to_str().unwrap(), path];
    for library in [None, Some(library())] {
        let (text, code) = run(&host, &arguments, library);
        assert_eq!(text, "calls 1\ncalls 1\nplugin stays, runtime moves\n");
        assert_eq!(code, Some(0));
    }
}

fn plugin(options: &[&str]) -> PathBuf {
    compile_cxx("plugin.cc", &[&["-shared", "-fPIC"], options].concat())
}

/// gdb's `next` over a call that throws stops at the handler.
#[test]
fn debuggers_step_over_a_throw() {
    let program = compile_cxx_by("g++", "step.cc", &["-g", "-O0"]);
    for library in libraries() {
        let mut gdb = tool("gdb");
        let preload = format!("set environment LD_PRELOAD {}", library.display());
        for command in [
            "set startup-with-shell off",
            "set debuginfod enabled off",
            &preload,
            "break 7",
            "run",
            "next",
            "frame",
        ] {
            gdb.args(["-ex", command]);
        }
        let text = gdb.args(["-nx", "-batch"]).arg(&program).succeed();
        assert!(text.contains("step.cc:9"), "{}: {text}", library.display());
    }
}

/// The library is marked as one that keeps the shadow stack (CET) right, and drops its words at
/// landing pads. (No machine of ours has shadow stacks: what these instructions do is not run.)
#[test]
fn shadow_stacks_are_kept_right() {
    let path = library().to_str().unwrap();
    let notes = tool("readelf").args(["-nW", path]).succeed();
    assert!(notes.contains("x86 feature: SHSTK"), "{notes}");
    let code = tool("objdump")
        .args(["-d", "--no-show-raw-insn", path])
        .succeed();
    // Each entry reads the pointer; so does the landing, which drops up to 255 words at once.
    let count = |instruction: &str| code.matches(instruction).count();
    assert!(count("rdsspq") >= 5, "{}", count("rdsspq"));
    assert_eq!(count("incsspq"), 2);
}

/// Programs without a loader: all of libgcc's unwinder is replaced. Debian's have no search table, so
/// their entries are those that the compiler's start-up code registers; with the option they have one.
#[test]
fn static_programs() {
    let archive = [archive().to_str().unwrap().to_owned()];
    for (source, arguments, expected) in [
        ("frames.cc", &["signals"][..], "registers kept by 64 of 64"),
        ("throws.cc", &["destructors", "10", "10"], "caught 10"),
    ] {
        for table in ["-Wl,--eh-frame-hdr", "-Wl,--no-eh-frame-hdr"] {
            let options = ["-static", table, "-O2", "-fnon-call-exceptions"];
            let options = [
                &options,
                &["-fasynchronous-unwind-tables", "-Wno-psabi"][..],
            ]
            .concat();
            let with_libgcc = compile_cxx_by("g++", source, &options);
            let own = compile_cxx_with("g++", source, &options, &archive);
            let symbols = tool("nm").arg(&own).succeed();
            assert!(!symbols.contains("uw_frame_state_for"), "libgcc's is there");
            let found = run(&own, arguments, None);
            assert!(found.0.contains(expected), "{table}: {found:?}");
            assert_eq!(found, run(&with_libgcc, arguments, None), "{table}");
        }
    }
}

/// A Rust program that depends on this crate panics by it.
#[test]
fn a_program_with_the_feature_panics_by_it() {
    let mut cargo = command(std::env::var_os("CARGO").unwrap());
    let words = "run --quiet --package unspool-exceptions --features panics --example own_panics";
    cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(words.split(' '));
    if let Some(target) = std::env::var_os("CARGO_TARGET_DIR") {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    let text = cargo.succeed();
    let dropped = "dropped\n".repeat(3);
    let expected = format!("own unwinder: true\n{dropped}caught: true\nmain in backtrace: true\n");
    assert_eq!(text, expected);
}

/// Where exceptions are thrown, how often and how deep; each throw's time belongs to its site.
#[test]
fn throws_are_counted_by_site() {
    let program = compile_cxx("throws.cc", &["-O2", "-g"]);
    let folder = Folder::new();
    let list = folder.join("throws");
    let mut command = command(&program);
    command
        .args(["destructors", "10", "7"])
        .env("LD_PRELOAD", library());
    command.env("UNSPOOL_EH_STATS", &list).succeed();
    let text = fs::read_to_string(&list).unwrap();
    let mut lines = text.lines();
    assert!(
        lines.next().unwrap().ends_with(", 0 throws not counted"),
        "{text}"
    );
    let site = lines.nth(1).unwrap();
    // `__cxa_throw`, eleven frames, `main`.
    assert!(site.starts_with("throws 7, nanoseconds "), "{text}");
    assert!(
        site.ends_with(", frames 13 on average, at most 13, type i"),
        "{text}"
    );
    let frames: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    assert_eq!(frames.len(), 13, "{text}");
    assert!(frames[0].contains("libstdc++.so.6 0x"), "{text}");
    let address = hex(frames[1].trim().strip_prefix("program ").unwrap());
    let mut addr2line = tool("addr2line");
    let function = addr2line
        .args(["-f", "-C", "-e"])
        .arg(&program)
        .arg(format!("{:#x}", address - 1))
        .succeed();
    assert!(function.starts_with("destructors(int)"), "{function}");
}

/// Languages whose personality routines we do not know, and call in every frame: D by two compilers
/// and Ada, which also raises an exception in a signal handler.
#[test]
fn other_languages() {
    let mut compiler = tool("gdc");
    compiler.args(["-O1", "-shared-libphobos"]);
    let gdc = compile_by(compiler, "deep.d", &[]);
    let folder = Folder::new();
    let ldc = folder.join("deep");
    let mut compiler = tool("ldc2");
    compiler.args(["-O1", "--link-defaultlib-shared"]);
    compiler.arg(format!("--od={}", folder.join("").display()));
    compiler.arg(format!("--of={}", ldc.display()));
    compiler.arg(program("deep.d")).succeed();
    let mut gnatmake = tool("gnatmake");
    gnatmake.args(["-q", "-O1", "-D"]).arg(folder.join(""));
    let options = ["-bargs", "-shared", "-largs", "-shared-libgcc"];
    let ada = compile_by(gnatmake, "deep.adb", &options.map(str::to_owned));
    for (program, line) in [
        (gdc, "caught deep, then second"),
        (ldc, "caught deep, then second"),
        (ada, "deep 33\nsignal"),
    ] {
        let with_libgcc = run(&program, &[], None);
        assert!(with_libgcc.0.contains(line), "{with_libgcc:?}");
        for library in libraries() {
            assert_eq!(run(&program, &[], Some(library)), with_libgcc);
        }
    }
}

/// The runtimes of sanitizers intercept `_Unwind_RaiseException`, and must be loaded first.
#[test]
fn sanitized_programs() {
    let cfi = "-fsanitize=cfi -flto -fvisibility=hidden -fuse-ld=lld";
    for (compiler, options, runtime) in [
        ("g++", "-fsanitize=address", Some("libasan.so.8")),
        ("g++", "-fsanitize=thread", Some("libtsan.so.2")),
        ("clang++", "-fsanitize=address", None),
        ("clang++", "-fsanitize=thread", None),
        ("clang++", cfi, None),
    ] {
        let always = [
            "-O1",
            "-Wno-psabi",
            "-fasynchronous-unwind-tables",
            "-rdynamic",
        ];
        let options: Vec<_> = options.split(' ').chain(always).collect();
        let run = |program: &Path, library: Option<&Path>| {
            let mut command = command(program);
            if let Some(library) = library {
                let libraries = runtime.into_iter().chain(library.to_str());
                command.env("LD_PRELOAD", libraries.collect::<Vec<_>>().join(" "));
            }
            let output = command.output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            // The first line of `exceptions.cc` names the unwinder.
            let lines = text.lines().filter(|line| !line.starts_with("unwinder "));
            (
                lines.map(str::to_owned).collect::<Vec<_>>(),
                output.status.code(),
            )
        };
        // cfi refuses the calls of assembly that are in the former.
        let sources: &[_] = if options.contains(&"-fsanitize=cfi") {
            &["exceptions.cc"]
        } else {
            &["frames.cc", "exceptions.cc"]
        };
        for source in sources {
            let program = compile_cxx_by(compiler, source, &options);
            let with_libgcc = run(&program, None);
            assert!(
                with_libgcc.0.len() > 5,
                "{compiler} {options:?}: {with_libgcc:?}"
            );
            for library in libraries() {
                assert_eq!(
                    run(&program, Some(library)),
                    with_libgcc,
                    "{compiler} {options:?}"
                );
            }
        }
    }
}

/// With the kernel's stack of a signal handler, and its first throw or a later one: the same program
/// as for libunwind's functions.
#[test]
fn unwinds_take_no_more_of_a_stack_than_is_documented() {
    let headers = packages::libunwind_headers().unwrap();
    let mut gxx = tool("g++");
    gxx.arg("-I")
        .arg(headers)
        .args(["-O1", "-pthread", "-Wl,-z,now,--no-as-needed"]);
    let source = "../../../libunwind-compat/tests/programs/stack.cc";
    let program = compile_by(gxx, source, &["-l:libunwind.so.8".to_owned()]);
    let measure = |arguments: &[&str]| {
        let mut command = command(&program);
        command.args(arguments).env("LD_PRELOAD", library());
        let text = xtask::programs::stdout(command.env("LD_BIND_NOW", "1"))?;
        // Without arguments, the names of functions.
        let ours = |line: &&str| !line.starts_with("unw_");
        Ok(text
            .lines()
            .filter(ours)
            .map(|line| format!("{line}\n"))
            .collect())
    };
    if let Err(error) = xtask::programs::check_stack_table("exceptions.md", measure) {
        panic!("{error}");
    }
}
