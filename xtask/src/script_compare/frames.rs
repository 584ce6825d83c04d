//! Parses samples in the layout of `perf script`.

use crate::Error;

/// The location of a frame: an address in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileAddress {
    pub(super) address: u64,
    pub(super) file: String,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptLine {
    pub(super) address_in_file: FileAddress,
    /// The function, and the offset from its start.
    pub(super) symbol: String,
}

impl ScriptLine {
    fn parse(line: &str) -> Option<ScriptLine> {
        let (address, rest) = line.trim_start().split_once(' ')?;
        let rest = rest.strip_suffix(')')?;
        // Names of functions and of files may have parentheses; between them there is an offset if
        // there is a name.
        let offset = rest.rfind("+0x").unwrap_or(0);
        let end = offset + rest.get(offset..)?.find(" (")?;
        let (symbol, file) = (rest.get(..end)?, rest.get(end + 2..)?);
        Some(ScriptLine {
            address_in_file: FileAddress {
                address: u64::from_str_radix(address, 16).ok()?,
                file: file.to_owned(),
            },
            symbol: symbol.to_owned(),
        })
    }

    pub(super) fn is_kernel(&self) -> bool {
        self.address_in_file.address >> 63 != 0
    }
}

/// A sample.
#[derive(Debug)]
pub(super) struct ScriptSample {
    /// Its line.
    pub(super) head: String,
    /// Its frames, innermost first.
    pub(super) lines: Vec<ScriptLine>,
}

impl ScriptSample {
    /// The frames of the process.
    pub(super) fn user(&self) -> &[ScriptLine] {
        let start = self.lines.iter().take_while(|frame| frame.is_kernel());
        self.lines.get(start.count()..).unwrap_or_default()
    }
}

/// Parses samples with frames.
///
/// # Errors
///
/// A line is not a frame.
pub(super) fn parse(text: &str) -> Result<Vec<ScriptSample>, Error> {
    let mut samples: Vec<ScriptSample> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match (line.starts_with('\t'), samples.last_mut()) {
            (true, Some(sample)) => {
                let frame = ScriptLine::parse(line);
                sample
                    .lines
                    .push(frame.ok_or_else(|| format!("no frame: {line}"))?);
            }
            _ => samples.push(ScriptSample {
                head: line.to_owned(),
                lines: Vec::new(),
            }),
        }
    }
    Ok(samples)
}
