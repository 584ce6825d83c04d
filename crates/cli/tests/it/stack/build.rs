//! Builds the test programs.

use std::path::PathBuf;

use unspool_testing::{Finish as _, Folder, tool};

use crate::harness;

/// A built program in a separate directory.
pub(crate) struct BuiltProgram {
    pub(crate) directory: Folder,
    pub(crate) path: PathBuf,
}

impl BuiltProgram {
    /// Compiles `source` of the folder `programs`; the compiler follows from its extension.
    pub(crate) fn build(source: &str, options: &[&str]) -> BuiltProgram {
        let directory = Folder::new();
        let path = compile(&directory, source, options);
        BuiltProgram { directory, path }
    }

    /// Compiles with another compiler of the C language.
    pub(crate) fn build_with(compiler: Compiler, source: &str, options: &[&str]) -> BuiltProgram {
        let directory = Folder::new();
        let path = compiler.run(&directory, source, options);
        BuiltProgram { directory, path }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// Compiles another source into a directory; returns the result.
pub(crate) fn compile(directory: &Folder, source: &str, options: &[&str]) -> PathBuf {
    let compiler = match source.rsplit_once('.').unwrap().1 {
        "cc" => CXX,
        "rs" => RUST,
        _ => CC,
    };
    compiler.run(directory, source, options)
}

/// A compiler and its options.
#[derive(Clone, Copy)]
pub(crate) struct Compiler {
    name: &'static str,
    options: &'static [&'static str],
}

const CC: Compiler = Compiler {
    name: "gcc",
    options: &["-g", "-pthread"],
};

const CXX: Compiler = Compiler {
    name: "g++",
    options: &["-g", "-pthread", "-std=c++17"],
};

const RUST: Compiler = Compiler {
    name: "rustc",
    options: &["-g", "--edition=2024"],
};

pub(crate) const MUSL: Compiler = Compiler {
    name: "musl-gcc",
    options: &["-g", "-static"],
};

pub(crate) const MUSL_SHARED: Compiler = Compiler {
    name: "musl-gcc",
    options: &["-g"],
};

impl Compiler {
    fn run(self, directory: &Folder, source: &str, options: &[&str]) -> PathBuf {
        let to = directory.join(source.split('.').next().unwrap());
        let mut compiler = tool(self.name);
        compiler.args(self.options).arg("-o").arg(&to);
        compiler
            .arg(harness::source(source))
            .args(options)
            .succeed();
        to
    }
}
