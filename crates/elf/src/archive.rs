//! Archives of `ar`: reading their ELF members, and replacing them (System V ABI, "Archive File").
//!
//! ```text
//! !<arch>\n
//! header           60 bytes of text: name, date, owner, group, mode, size in bytes, "`\n"
//! content          as many bytes, and one more if that is odd
//! …
//! ```
//!
//! The first member, `/`, is the symbol index. It has the number of symbols, the offset of each
//! symbol's member header, and the names. Numbers are big-endian, of 4 bytes, or of 8 in `/SYM64/`.
//! A replacement must define the same symbols as the old member: then only offsets change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use object::read::archive::{ArchiveFile, ArchiveKind};

use crate::elf::ElfFile;
use crate::error::ModuleError;
use crate::image::ImageBytes;

/// An archive with its members in it. (A thin archive has only their names.)
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    image: ImageBytes,
}

/// An ELF file of an archive.
#[derive(Debug)]
pub struct ElfMember {
    /// Where its bytes begin in the archive.
    pub start: u64,
    /// The file, with the path `lib.a(member.o)`, or why it cannot be read.
    pub file: Result<ElfFile, ModuleError>,
}

const MAGIC: usize = 8;
const HEADER: usize = 60;
/// The offset of the size field in a header. It has 10 digits.
const SIZE: usize = 48;
/// The offset of the header's last two bytes.
const END: usize = 58;

const OTHER_FORM: &str = "not an archive in GNU's format: make it anew by `llvm-ar --format=gnu`";

impl Archive {
    /// Opens a file; `None` if it is not an archive.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is a thin archive.
    pub fn open(path: impl AsRef<Path>) -> Result<Option<Archive>, ModuleError> {
        let path = path.as_ref();
        let (image, _) = ImageBytes::open(path)?;
        if Archive::is_one(path, image.bytes())? {
            Ok(Some(Archive::from_image(path, image)))
        } else {
            Ok(None)
        }
    }

    pub(crate) fn from_image(path: &Path, image: ImageBytes) -> Archive {
        let path = path.to_path_buf();
        Archive { path, image }
    }

    /// Whether the bytes are an archive that holds its members.
    pub(crate) fn is_one(path: &Path, bytes: &[u8]) -> Result<bool, ModuleError> {
        if bytes.starts_with(&object::archive::THIN_MAGIC) {
            Err(ModuleError::Unpack {
                file: path.to_path_buf(),
                reason: "it is a thin archive, which has no files in it: name those".to_owned(),
            })
        } else {
            Ok(bytes.starts_with(&object::archive::MAGIC))
        }
    }

    /// The ELF files, in the archive's order.
    ///
    /// # Errors
    ///
    /// The archive is broken.
    pub fn members(&self) -> Result<Vec<ElfMember>, ModuleError> {
        let members = self.elf_members();
        members.map_err(|error| ModuleError::Unpack {
            file: self.path.clone(),
            reason: error.to_string(),
        })
    }

    fn elf_members(&self) -> Result<Vec<ElfMember>, object::Error> {
        let bytes = self.image.bytes();
        let archive = ArchiveFile::parse(bytes)?;
        let mut files = Vec::new();
        for member in archive.members() {
            let member = member?;
            let data = member.data(bytes)?;
            if data.starts_with(b"\x7fELF") {
                let mut name = self.path.as_os_str().to_owned();
                name.push(format!("({})", String::from_utf8_lossy(member.name())));
                files.push(ElfMember {
                    start: member.file_range().0,
                    file: ElfFile::from_bytes(PathBuf::from(name), data),
                });
            }
        }
        Ok(files)
    }

    /// The archive with new bytes for some members, keyed by the offset of the old ones
    /// ([`ElfMember::start`]). Names, dates and all other members stay. The symbol index is kept,
    /// with the members' new offsets: replacements must define the same symbols.
    ///
    /// # Errors
    ///
    /// The archive is broken, has a symbol index that points at no member, or is not in GNU's form.
    /// Or the result is too large for its index.
    pub fn with(&self, members: &BTreeMap<u64, Vec<u8>>) -> Result<Vec<u8>, ModuleError> {
        let bytes = self.image.bytes();
        let kind = ArchiveFile::parse(bytes).map(|archive| archive.kind());
        if !matches!(
            kind,
            Ok(ArchiveKind::Unknown | ArchiveKind::Gnu | ArchiveKind::Gnu64)
        ) {
            return Err(self.broken(MAGIC, OTHER_FORM));
        }
        let mut written = bytes.get(..MAGIC).unwrap_or_default().to_vec();
        let mut moved = BTreeMap::new();
        let mut index = None;
        let mut at = MAGIC;
        while at < bytes.len() {
            let member = ArchiveMember::parse_at(bytes, at).ok_or_else(|| {
                self.broken(
                    at,
                    "truncated, or not a header: make the archive anew by `ar`",
                )
            })?;
            moved.insert(at as u64, written.len() as u64);
            if let Some(word) = member.index_word() {
                index = Some((at, written.len() + HEADER, word));
            }
            let other = members.get(&((at + HEADER) as u64));
            let content = other.map_or(member.content, Vec::as_slice);
            let has_room = member.write(content, &mut written);
            has_room.ok_or_else(|| self.broken(at, "its size has more than 10 digits"))?;
            at = member.end;
        }
        // BSD's ar puts a long name between header and bytes.
        let is_behind_header = |start: &&u64| {
            let header = start.checked_sub(HEADER as u64);
            header.is_some_and(|header| moved.contains_key(&header))
        };
        if !members.keys().all(|start| is_behind_header(&start)) {
            return Err(self.broken(MAGIC, OTHER_FORM));
        }
        if let Some((from, to, word)) = index {
            move_index(&mut written, to, word, &moved).map_err(|why| self.broken(from, why))?;
        }
        Ok(written)
    }

    fn broken(&self, offset: usize, reason: &'static str) -> ModuleError {
        ModuleError::Member {
            file: self.path.clone(),
            offset: offset as u64,
            reason,
        }
    }
}

/// A member and its header.
struct ArchiveMember<'a> {
    header: &'a [u8],
    content: &'a [u8],
    /// Where the next member begins.
    end: usize,
}

impl<'a> ArchiveMember<'a> {
    fn parse_at(bytes: &'a [u8], at: usize) -> Option<ArchiveMember<'a>> {
        let header = bytes.get(at..)?.get(..HEADER)?;
        let size = str::from_utf8(header.get(SIZE..END)?).ok()?;
        let size: usize = size.trim_end().parse().ok()?;
        let content = bytes.get(at + HEADER..)?.get(..size)?;
        header.ends_with(b"`\n").then_some(ArchiveMember {
            header,
            content,
            end: (at + HEADER + size).next_multiple_of(2),
        })
    }

    /// The size of an offset in the symbol index, in bytes, if this member is one.
    fn index_word(&self) -> Option<usize> {
        match self.header.get(..16)?.trim_ascii_end() {
            b"/" => Some(4),
            b"/SYM64/" => Some(8),
            _ => None,
        }
    }

    /// Writes the member with this content; `None` if that is too large.
    fn write(&self, content: &[u8], into: &mut Vec<u8>) -> Option<()> {
        let size = format!("{:<10}", content.len());
        into.extend(self.header.get(..SIZE)?);
        into.extend(Some(size).filter(|size| size.len() == END - SIZE)?.bytes());
        into.extend(self.header.get(END..)?);
        into.extend(content);
        if !content.len().is_multiple_of(2) {
            into.push(b'\n');
        }
        Some(())
    }
}

/// Updates the member offsets in the symbol index. Its content begins at the given offset.
fn move_index(
    written: &mut [u8],
    at: usize,
    word: usize,
    moved: &BTreeMap<u64, u64>,
) -> Result<(), &'static str> {
    const CUT_SHORT: &str = "the symbol index is cut short: `ranlib` writes it anew";
    let content = written.get_mut(at..).ok_or(CUT_SHORT)?;
    let (count, places) = content.split_at_mut_checked(word).ok_or(CUT_SHORT)?;
    let count = usize::try_from(number(count)).map_err(|_| CUT_SHORT)?;
    let bytes = count.checked_mul(word).ok_or(CUT_SHORT)?;
    let places = places.get_mut(..bytes).ok_or(CUT_SHORT)?;
    for place in places.chunks_exact_mut(word) {
        let to = moved
            .get(&number(place))
            .ok_or("the symbol index leads to where no member begins: `ranlib` writes it anew")?;
        let to = to.to_be_bytes();
        let (high, low) = to.split_at(to.len() - word);
        if high.iter().any(|byte| *byte != 0) {
            return Err("the symbol index has no room for members behind 4 GiB");
        }
        place.copy_from_slice(low);
    }
    Ok(())
}

/// A big-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
