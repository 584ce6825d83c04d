//! Runtimes that generate code, by their files.

use std::path::Path;

/// A runtime that generates code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Runtime {
    /// OpenJDK's HotSpot.
    Java,
    /// Node.js.
    Node,
    /// CPython.
    Python,
    /// LuaJIT.
    LuaJit,
    /// Erlang's BEAM.
    Erlang,
    /// .NET's CoreCLR.
    DotNet,
    /// CRuby.
    Ruby,
    /// PHP.
    Php,
}

impl Runtime {
    /// The runtime that a file belongs to.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Runtime> {
        let name = path.file_name()?.to_str()?;
        // Versions follow: `libpython3.12.so.1.0`.
        let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
        match name {
            "libjvm.so" => Some(Runtime::Java),
            "node" | "nodejs" => Some(Runtime::Node),
            "beam.smp" => Some(Runtime::Erlang),
            "libcoreclr.so" => Some(Runtime::DotNet),
            _ if begins(&["libnode.so"]) => Some(Runtime::Node),
            _ if begins(&["libpython3", "python3"]) => Some(Runtime::Python),
            _ if begins(&["libluajit", "luajit"]) => Some(Runtime::LuaJit),
            _ if name == "ruby" || begins(&["libruby"]) => Some(Runtime::Ruby),
            _ if name == "php" || begins(&["libphp", "php7", "php8", "php-fpm"]) => {
                Some(Runtime::Php)
            }
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Runtime::Java => "Java",
            Runtime::Node => "Node.js",
            Runtime::Python => "Python",
            Runtime::LuaJit => "LuaJIT",
            Runtime::Erlang => "Erlang",
            Runtime::DotNet => ".NET",
            Runtime::Ruby => "Ruby",
            Runtime::Php => "PHP",
        }
    }

    /// The option with which its code keeps frame pointers, or tables; `None` if it always does, or
    /// never.
    pub(crate) fn stacks_option(self) -> Option<&'static str> {
        match self {
            Runtime::Java => Some("-XX:+PreserveFramePointer"),
            Runtime::Python => Some("-X perf_jit (3.13)"),
            Runtime::LuaJit => Some("-joff"),
            Runtime::Erlang => Some("+JPperf true"),
            Runtime::Ruby => Some("--yjit-perf (3.3)"),
            Runtime::Node | Runtime::DotNet | Runtime::Php => None,
        }
    }

    /// The option with which its interpreter has a frame with a name for each function that it
    /// interprets.
    pub(crate) fn functions_option(self) -> Option<&'static str> {
        match self {
            Runtime::Python => Some("`python3 -X perf` (Python 3.12 or later)"),
            _ => None,
        }
    }

    /// The option or command with which its code has names.
    pub(crate) fn names_option(self) -> &'static str {
        match self {
            Runtime::Java => "jcmd PID Compiler.perfmap",
            Runtime::Node => "--perf-basic-prof",
            Runtime::Python => "-X perf (3.12)",
            Runtime::LuaJit => "-joff",
            Runtime::Erlang => "+JPperf true",
            Runtime::DotNet => "DOTNET_PerfMapEnabled=1",
            Runtime::Ruby => "--yjit-perf (3.3)",
            Runtime::Php => "-d opcache.jit_debug=0x10",
        }
    }
}
