//! The framing of blocks.

use std::io::{self, Read};

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

use crate::error::FileError;

/// The length of a block's header in bytes.
pub(crate) const BLOCK_HEADER: usize = 16;
/// The most bytes that a block's content may have.
pub(crate) const MAX_CONTENT_BYTES: usize = 1 << 20;
/// The largest ratio of a block's content to its stored bytes. So a file needs no more memory than
/// its size suggests.
pub(crate) const MAX_RATIO: usize = 64;

const STORED: u8 = 0;
const ZSTD: u8 = 1;

/// Makes blocks of contents.
pub(crate) struct BlockWriter {
    compressor: Compressor<'static>,
    compressed: Vec<u8>,
    /// The finished blocks.
    pub(crate) blocks: Vec<u8>,
}

impl std::fmt::Debug for BlockWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockWriter").finish_non_exhaustive()
    }
}

impl BlockWriter {
    pub(crate) fn new() -> io::Result<BlockWriter> {
        Ok(BlockWriter {
            compressor: Compressor::new(1)?,
            compressed: Vec::new(),
            blocks: Vec::new(),
        })
    }

    /// Appends a block.
    pub(crate) fn write_block(&mut self, kind: u16, content: &[u8]) -> io::Result<()> {
        let room = zstd_safe::compress_bound(content.len());
        self.compressed.clear();
        self.compressed.reserve(room);
        self.compressor
            .compress_to_buffer(content, &mut self.compressed)?;
        let is_smaller = self.compressed.len() < content.len();
        let is_plausible = content.len() / MAX_RATIO <= self.compressed.len();
        let (compression, stored) = if is_smaller && is_plausible {
            (ZSTD, self.compressed.as_slice())
        } else {
            (STORED, content)
        };
        let length =
            |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::FileTooLarge);
        let mut head = [0; BLOCK_HEADER - 4];
        let fields = (kind.to_le_bytes().into_iter())
            .chain([compression, 0])
            .chain(length(stored)?.to_le_bytes())
            .chain(length(content)?.to_le_bytes());
        for (into, byte) in head.iter_mut().zip(fields) {
            *into = byte;
        }
        self.blocks.extend_from_slice(&head);
        let checksum = checksum(&head, stored);
        self.blocks.extend_from_slice(&checksum.to_le_bytes());
        self.blocks.extend_from_slice(stored);
        Ok(())
    }
}

/// The CRC-32 of a block: of its header before the checksum and of its stored bytes.
fn checksum(head: &[u8], stored: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(head);
    crc.update(stored);
    crc.finalize()
}

/// A block that was read.
pub(crate) struct Block {
    /// Where it starts in the file.
    pub(crate) offset: u64,
    pub(crate) kind: u16,
    pub(crate) content: Vec<u8>,
}

/// The next item in a file.
pub(crate) enum NextBlock {
    Block(Block),
    End,
    /// The rest, from this offset on, is not a complete block, and why.
    Cut(u64, &'static str),
}

/// Reads blocks.
pub(crate) struct BlockReader<R> {
    from: R,
    offset: u64,
    stored: Vec<u8>,
    decompressor: Decompressor<'static>,
}

impl<R: Read> BlockReader<R> {
    /// The blocks after the first `offset` bytes of the file.
    pub(crate) fn new(from: R, offset: u64) -> io::Result<BlockReader<R>> {
        Ok(BlockReader {
            from,
            offset,
            stored: Vec::new(),
            decompressor: Decompressor::new()?,
        })
    }

    /// The underlying reader.
    pub(crate) fn source(&mut self) -> &mut R {
        &mut self.from
    }

    /// The next block.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or the block is complete and invalid.
    pub(crate) fn next(&mut self) -> Result<NextBlock, FileError> {
        let offset = self.offset;
        let mut bytes = [0; BLOCK_HEADER];
        match read_up_to(&mut self.from, &mut bytes)? {
            0 => return Ok(NextBlock::End),
            BLOCK_HEADER => {}
            _ => return Ok(NextBlock::Cut(offset, "the file ends within its header")),
        }
        let (head, tail) = bytes.split_at(BLOCK_HEADER - 4);
        let head_fields = BlockHeader::new(head).zip(little_u32(tail));
        let Some((header, expected)) = head_fields else {
            return Ok(NextBlock::Cut(offset, "its header is impossible"));
        };
        self.stored.resize(header.stored, 0);
        if read_up_to(&mut self.from, &mut self.stored)? < header.stored {
            return Ok(NextBlock::Cut(offset, "the file ends within it"));
        }
        if checksum(head, &self.stored) != expected {
            return Ok(NextBlock::Cut(offset, "its checksum is wrong"));
        }
        self.offset += (BLOCK_HEADER + header.stored) as u64;
        let content = self.content(header);
        let content = content.map_err(|what| FileError::Block { offset, what })?;
        Ok(NextBlock::Block(Block {
            offset,
            kind: header.kind,
            content,
        }))
    }

    fn content(&mut self, header: BlockHeader) -> Result<Vec<u8>, &'static str> {
        match header.compression {
            STORED if header.raw == header.stored => Ok(self.stored.clone()),
            STORED => Err("it is not compressed and has two lengths"),
            ZSTD if header.raw / MAX_RATIO > header.stored => {
                Err("its content is too large for what is stored of it")
            }
            ZSTD => {
                let content = self.decompressor.decompress(&self.stored, header.raw);
                let content = content.map_err(|_| "it cannot be decompressed")?;
                if content.len() == header.raw {
                    Ok(content)
                } else {
                    Err("its content is shorter than it says")
                }
            }
            _ => Err("its compression is not known"),
        }
    }
}

/// The header of a block, before the checksum.
#[derive(Clone, Copy)]
struct BlockHeader {
    kind: u16,
    compression: u8,
    stored: usize,
    raw: usize,
}

impl BlockHeader {
    /// `None` if it is invalid.
    fn new(bytes: &[u8]) -> Option<BlockHeader> {
        let [k0, k1, compression, 0, lengths @ ..] = bytes else {
            return None;
        };
        let (stored, raw) = lengths.split_at_checked(4)?;
        let length = |bytes| {
            let length = little_u32(bytes)? as usize;
            (1..=MAX_CONTENT_BYTES).contains(&length).then_some(length)
        };
        Some(BlockHeader {
            kind: u16::from_le_bytes([*k0, *k1]),
            compression: *compression,
            stored: length(stored)?,
            raw: length(raw)?,
        })
    }
}

fn little_u32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Fills the buffer from the reader; returns the number of bytes read.
pub(crate) fn read_up_to(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
