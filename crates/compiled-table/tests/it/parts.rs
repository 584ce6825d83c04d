//! A file split into sections and reassembled, valid or not.

use crate::generate::Choices;

/// Header and sections of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileParts {
    /// The header's bytes up to the length of the table.
    pub(crate) head: [u8; 24],
    /// The header's last two bytes.
    pub(crate) widths: [u8; 2],
    pub(crate) sections: Vec<FileSection>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSection {
    pub(crate) tag: [u8; 4],
    pub(crate) flags: u32,
    pub(crate) content: Vec<u8>,
}

fn word(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap())
}

/// An offset or length in a file.
fn place(file: &[u8], at: usize) -> usize {
    usize::try_from(word(file, at)).unwrap()
}

fn put(file: &mut Vec<u8>, number: usize) {
    file.extend_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
}

impl FileParts {
    /// Splits a whole file.
    pub(crate) fn from_file(file: &[u8]) -> Self {
        let section = |n: usize| {
            let at = 64 + 16 * n;
            let (offset, length) = (place(file, at + 8), place(file, at + 12));
            FileSection {
                tag: file[at..at + 4].try_into().unwrap(),
                flags: word(file, at + 4),
                content: file[offset..offset + length].to_vec(),
            }
        };
        FileParts {
            head: file[..24].try_into().unwrap(),
            widths: file[30..32].try_into().unwrap(),
            sections: (0..usize::from(file[28])).map(section).collect(),
        }
    }

    /// The content of a section; adds the section if it is missing.
    pub(crate) fn section(&mut self, tag: &[u8; 4]) -> &mut Vec<u8> {
        let found = self.sections.iter().position(|section| section.tag == *tag);
        let at = found.unwrap_or_else(|| {
            self.sections.push(FileSection {
                tag: *tag,
                flags: 1,
                content: Vec::new(),
            });
            self.sections.len() - 1
        });
        &mut self.sections[at].content
    }

    /// Sets one element of an array of numbers.
    pub(crate) fn set(&mut self, tag: &[u8; 4], size: usize, index: usize, value: u64) {
        let field = &mut self.section(tag)[index * size..(index + 1) * size];
        field.copy_from_slice(&value.to_le_bytes()[..size]);
    }

    /// An array of numbers of `size` bytes.
    pub(crate) fn numbers(&mut self, tag: &[u8; 4], size: usize) -> Vec<u64> {
        let number = |element: &[u8]| {
            let mut wide = [0; 8];
            wide[..size].copy_from_slice(element);
            u64::from_le_bytes(wide)
        };
        self.section(tag).chunks(size).map(number).collect()
    }

    /// Writes an array of numbers of `size` bytes.
    pub(crate) fn set_numbers(
        &mut self,
        tag: &[u8; 4],
        size: usize,
        numbers: impl IntoIterator<Item = u64>,
    ) {
        let numbers = numbers.into_iter();
        let bytes = numbers.flat_map(|number| number.to_le_bytes().into_iter().take(size));
        *self.section(tag) = bytes.collect();
    }

    /// The file of these parts.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut file = self.head.to_vec();
        let body: usize = self
            .sections
            .iter()
            .map(|section| section.content.len())
            .sum();
        let mut at = 64 + 16 * self.sections.len();
        put(&mut file, at + body);
        let count = u16::try_from(self.sections.len()).unwrap();
        file.extend_from_slice(&count.to_le_bytes());
        file.extend_from_slice(&self.widths);
        file.resize(64, 0); // no digest
        for section in &self.sections {
            file.extend_from_slice(&section.tag);
            let length = section.content.len();
            file.extend_from_slice(&section.flags.to_le_bytes());
            put(&mut file, at);
            put(&mut file, length);
            at += length;
        }
        for section in &self.sections {
            file.extend_from_slice(&section.content);
        }
        file
    }
}

/// Changes a file by the choices.
pub(crate) fn change(file: &mut Vec<u8>, choices: &mut Choices<'_>) {
    if choices.below(3) == 0 {
        let mut parts = FileParts::from_file(file);
        change_section(&mut parts, choices);
        *file = parts.build();
    }
    for _ in 0..choices.below(4) {
        let at = choices.index(file.len());
        file[at] = match choices.below(4) {
            0 => file[at] ^ 1 << choices.below(8),
            1 => file[at].wrapping_add(1),
            2 => file[at].wrapping_sub(1),
            _ => choices.byte(),
        };
    }
}

fn change_section(parts: &mut FileParts, choices: &mut Choices<'_>) {
    let count = parts.sections.len();
    if count == 0 {
        return;
    }
    let n = choices.index(count);
    let other = choices.index(count);
    let length = parts.sections[n].content.len();
    let at = choices.index(length.max(1));
    let some = choices.index(40);
    match choices.below(6) {
        0 => parts.sections.swap(n, other),
        1 => {
            parts.sections.remove(n);
        }
        2 => {
            let copy = parts.sections[other].content.clone();
            parts.sections[n].content = copy;
        }
        3 => parts.sections[n].content.truncate(at),
        4 => {
            let content = &mut parts.sections[n].content;
            let some = some.min(content.len() - at.min(content.len()));
            content.drain(at..at + some);
        }
        _ => {
            let content = &mut parts.sections[n].content;
            let new = (0..some).map(|_| choices.byte()).collect::<Vec<_>>();
            content.splice(at..at, new);
        }
    }
}
