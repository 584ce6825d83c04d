//! Programs that have a file mapped whose functions are called.

use std::ffi::OsString;
use std::path::PathBuf;

use unspool_elf::{ElfFile, ElfKind};

use crate::SingleStepError;

/// A program that has a file mapped.
#[derive(Debug, Clone)]
pub struct HostProgram {
    /// The program. Its own code is not run.
    pub program: OsString,
    /// Added to its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The file, by the kernel's path of it.
    pub file: PathBuf,
}

impl HostProgram {
    /// A program that has a file mapped: itself, or a shell that preloads it. `None` for an object
    /// file, which must be linked first.
    ///
    /// # Errors
    ///
    /// The file cannot be read or preloaded, or is of another kind.
    pub fn with_file(file: &ElfFile) -> Result<Option<HostProgram>, SingleStepError> {
        let path = || file.path().canonicalize();
        let has_interpreter = file.program_interpreter().is_some();
        Ok(Some(match file.kind() {
            ElfKind::Relocatable => return Ok(None),
            ElfKind::Executable => HostProgram::itself(path()?),
            ElfKind::Dynamic if has_interpreter => HostProgram::itself(path()?),
            ElfKind::Dynamic => HostProgram::preloaded(path()?)?,
            _ => {
                let file = file.path().to_owned();
                return Err(SingleStepError::NotCallable { file });
            }
        }))
    }

    /// A file that is a program itself, by the kernel's path of it.
    #[must_use]
    pub fn itself(file: PathBuf) -> HostProgram {
        HostProgram {
            program: file.clone().into(),
            environment: Vec::new(),
            file,
        }
    }

    /// A shell that preloads a shared object, given by the kernel's path of it.
    ///
    /// # Errors
    ///
    /// The dynamic linker cannot load a file with that name.
    pub fn preloaded(file: PathBuf) -> Result<HostProgram, SingleStepError> {
        // The dynamic linker splits the list at these characters.
        let is_plain = |byte: &u8| !matches!(byte, b' ' | b':');
        if !file.as_os_str().as_encoded_bytes().iter().all(is_plain) {
            return Err(SingleStepError::UnloadableName { file });
        }
        let load = [
            ("LD_PRELOAD".into(), file.clone().into()),
            ("LD_BIND_NOW".into(), "1".into()),
        ];
        Ok(HostProgram {
            program: "/bin/sh".into(),
            environment: load.into(),
            file,
        })
    }
}
