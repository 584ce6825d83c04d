//! The decoded bytes of a section: decompressed, and in relocatable files relocated.

use std::sync::atomic::Ordering;

use libdeflater::DecompressionError;
use object::elf;
use object::read::CompressedData;
use object::{CompressionFormat, Endianness, pod};

use crate::elf::{ElfFile, slice};
use crate::error::ModuleError;
use crate::header::Shdr;
use crate::relocate::{self, RelocationError};
use unspool_rows::arch::AddressSize;

/// The maximum size that a section may claim, in bytes.
const MAX_SECTION_BYTES: u64 = 4 << 30;
/// The maximum size of all compressed sections of a file that other users can write to, in bytes.
const MAX_UNTRUSTED_BYTES: u64 = 1 << 30;
/// The maximum compression ratio that a section may claim: deflate cannot exceed 1032:1, and debug
/// information under zstd stays far below.
const MAX_RATIO: u64 = 2000;

/// Section bytes that differ from the file's.
#[derive(Debug)]
pub(crate) struct SectionContents {
    data: Vec<u8>,
    problems: Vec<RelocationError>,
}

/// The parts of a compressed section.
struct CompressedSection<'a> {
    format: CompressionFormat,
    size: u64,
    data: &'a [u8],
}

impl ElfFile {
    /// The bytes of a section, and the relocations that could not be applied. The first call for a
    /// section that is compressed or has relocations allocates.
    pub(crate) fn section_contents(
        &self,
        index: usize,
    ) -> Result<(&[u8], &[RelocationError]), ModuleError> {
        let Some(header) = self.section_header(index) else {
            return Ok((&[], &[]));
        };
        let raw = self.raw_section(index, header)?;
        let compressed = self.is_compressed(header, raw);
        if !compressed && !relocate::concerns(self, index) {
            return Ok((raw, &[]));
        }
        let Some(cell) = self.contents.get(index) else {
            return Ok((raw, &[]));
        };
        let contents = cell.get_or_init(|| Box::new(self.compute(index, header, raw, compressed)));
        match contents.as_ref() {
            Ok(contents) => Ok((&contents.data, &contents.problems)),
            Err(error) => Err(error.clone()),
        }
    }

    fn raw_section(&self, index: usize, header: &Shdr) -> Result<&[u8], ModuleError> {
        if header.is(elf::SHT_NOBITS) {
            return Ok(&[]);
        }
        slice(self.bytes(), header.offset, header.size).ok_or_else(|| {
            let what = format!("section {}", self.section_name(index));
            self.truncated(what, header.offset, header.size)
        })
    }

    fn is_compressed(&self, header: &Shdr, raw: &[u8]) -> bool {
        header.has_flag(elf::SHF_COMPRESSED)
            || (raw.starts_with(b"ZLIB") && self.section_name_bytes(header).starts_with(b".zdebug"))
    }

    fn compute(
        &self,
        index: usize,
        header: &Shdr,
        raw: &[u8],
        compressed: bool,
    ) -> Result<SectionContents, ModuleError> {
        let mut data = if compressed {
            self.decompress(index, header, raw)?
        } else {
            raw.to_vec()
        };
        let problems = relocate::apply(self, index, &mut data)?;
        Ok(SectionContents { data, problems })
    }

    fn decompress(&self, index: usize, header: &Shdr, raw: &[u8]) -> Result<Vec<u8>, ModuleError> {
        let failed = |reason: &str| ModuleError::Compressed {
            file: self.path().to_path_buf(),
            section: self.section_name(index).into_owned(),
            offset: header.offset,
            reason: reason.to_owned(),
        };
        let parts = if header.has_flag(elf::SHF_COMPRESSED) {
            self.compression_header(raw)
        } else {
            gnu_compression_header(raw)
        };
        let parts = parts.ok_or_else(|| failed("the compression header is cut short"))?;
        let stored = parts.data.len() as u64;
        let mut limit = MAX_SECTION_BYTES.min(stored.saturating_mul(MAX_RATIO));
        if !self.is_trusted() {
            let left = |before| limit.min(MAX_UNTRUSTED_BYTES.saturating_sub(before));
            // A section that is refused takes nothing from the others.
            let add = |before| (parts.size <= left(before)).then(|| before + parts.size);
            let order = Ordering::Relaxed;
            if let Err(before) = self.decompressed.fetch_update(order, order, add) {
                limit = left(before);
            }
        }
        if parts.size > limit {
            return Err(ModuleError::TooLarge {
                file: self.path().to_path_buf(),
                section: self.section_name(index).into_owned(),
                offset: header.offset,
                stored,
                size: parts.size,
                limit,
            });
        }
        if parts.format == CompressionFormat::Zlib {
            return inflate(&parts).map_err(failed);
        }
        let compressed = CompressedData {
            format: parts.format,
            data: parts.data,
            uncompressed_size: parts.size,
        };
        let data = compressed
            .decompress()
            .map_err(|error| failed(&error.to_string()))?;
        Ok(data.into_owned())
    }

    /// The `Elf32_Chdr` or `Elf64_Chdr` at the start of a section with `SHF_COMPRESSED`.
    fn compression_header<'a>(&self, raw: &'a [u8]) -> Option<CompressedSection<'a>> {
        let endian = if self.is_little_endian() {
            Endianness::Little
        } else {
            Endianness::Big
        };
        let (kind, size, data) = match self.word() {
            AddressSize::W32 => {
                let (header, data) =
                    pod::from_bytes::<elf::CompressionHeader32<Endianness>>(raw).ok()?;
                (
                    header.ch_type.get(endian),
                    u64::from(header.ch_size.get(endian)),
                    data,
                )
            }
            AddressSize::W64 => {
                let (header, data) =
                    pod::from_bytes::<elf::CompressionHeader64<Endianness>>(raw).ok()?;
                (header.ch_type.get(endian), header.ch_size.get(endian), data)
            }
        };
        let format = match kind {
            elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
            elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
            _ => CompressionFormat::Unknown,
        };
        Some(CompressedSection { format, size, data })
    }
}

/// The header of a `.zdebug_` section: `ZLIB` and the size, big-endian, in 8 bytes.
fn inflate(parts: &CompressedSection<'_>) -> Result<Vec<u8>, &'static str> {
    let size = usize::try_from(parts.size).map_err(|_| "too large for this machine")?;
    let mut data = vec![0; size];
    // The decoder is in C and relies on bytes that do not change; those of a mapped file may.
    let packed = parts.data.to_vec();
    let written = libdeflater::Decompressor::new()
        .zlib_decompress(&packed, &mut data)
        .map_err(|error| match error {
            DecompressionError::BadData => "the zlib stream is corrupt",
            DecompressionError::InsufficientSpace => {
                "the zlib stream holds more than the compression header says"
            }
        })?;
    if written == size {
        Ok(data)
    } else {
        Err("the zlib stream holds less than the compression header says")
    }
}

fn gnu_compression_header(raw: &[u8]) -> Option<CompressedSection<'_>> {
    let (size, data) = raw.get(4..)?.split_first_chunk()?;
    Some(CompressedSection {
        format: CompressionFormat::Zlib,
        size: u64::from_be_bytes(*size),
        data,
    })
}
