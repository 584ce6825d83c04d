//! Files that hold ELF files: archives of object files, and compressed files, as kernel modules
//! are.

use std::io::Read;
use std::path::Path;

use unspool_files::FileOrigin;

use crate::archive::Archive;
use crate::elf::ElfFile;
use crate::error::ModuleError;
use crate::image::ImageBytes;

/// The maximum decompressed size of a file, in bytes.
const MAX_DECOMPRESSED_BYTES: u64 = 1 << 30;

/// The content of a path.
#[derive(Debug)]
pub enum Container {
    /// An ELF file, which may have been compressed.
    File(Box<ElfFile>),
    /// The readable ELF files of an archive, in its order. Their paths are `lib.a(member.o)`.
    Archive(Vec<Result<ElfFile, ModuleError>>),
}

/// The compression of a file.
#[derive(Debug, Clone, Copy)]
enum Compression {
    Gzip,
    Xz,
    Zstd,
}

impl Compression {
    /// Detects the compression by a file's first bytes.
    fn detect(bytes: &[u8]) -> Option<Compression> {
        match bytes {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            _ => None,
        }
    }
}

impl Container {
    /// Opens a file. Compressed files (gzip, xz, zstd) and archives (`ar`) are unpacked in memory.
    /// Any other file is read as an ELF file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not an ELF file, or is broken; or it is a thin archive, which
    /// holds only names.
    pub fn open(path: impl AsRef<Path>) -> Result<Container, ModuleError> {
        let path = path.as_ref();
        let (image, origin) = ImageBytes::open(path)?;
        Container::from_image(path, image, Some(origin))
    }

    /// The same for bytes that are in memory already, for example from a pipe. `name` stands for
    /// the path in errors.
    ///
    /// # Errors
    ///
    /// As for [`Container::open`].
    pub fn from_bytes(name: impl AsRef<Path>, bytes: Vec<u8>) -> Result<Container, ModuleError> {
        Container::from_image(name.as_ref(), ImageBytes::from(bytes), None)
    }

    fn from_image(
        path: &Path,
        image: ImageBytes,
        origin: Option<FileOrigin>,
    ) -> Result<Container, ModuleError> {
        let bytes = image.bytes();
        let failed = |reason: String| ModuleError::Unpack {
            file: path.to_path_buf(),
            reason,
        };
        if let Some(compression) = Compression::detect(bytes) {
            // Decoders in C rely on bytes that do not change; those of a mapped file may.
            let packed = bytes.to_vec();
            let bytes = decompressed(compression, &packed).map_err(failed)?;
            let file = ElfFile::from_image(path.to_path_buf(), ImageBytes::from(bytes))?;
            return Ok(Container::File(Box::new(file)));
        }
        if Archive::is_one(path, bytes)? {
            let members = Archive::from_image(path, image).members()?.into_iter();
            Ok(Container::Archive(
                members.map(|member| member.file).collect(),
            ))
        } else {
            let file = match origin {
                Some(origin) => ElfFile::from_opened(path, (image, origin)),
                None => ElfFile::from_image(path.to_path_buf(), image),
            };
            Ok(Container::File(Box::new(file?)))
        }
    }
}

fn decompressed(compression: Compression, bytes: &[u8]) -> Result<Vec<u8>, String> {
    match compression {
        Compression::Gzip => gunzipped(bytes),
        Compression::Xz => {
            let stream = liblzma::stream::Stream::new_stream_decoder(
                MAX_DECOMPRESSED_BYTES,
                liblzma::stream::CONCATENATED,
            );
            let stream = stream.map_err(|error| error.to_string())?;
            read(liblzma::bufread::XzDecoder::new_stream(bytes, stream))
        }
        Compression::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(bytes);
            read(decoder.map_err(|error| error.to_string())?)
        }
    }
}

/// All that a decoder yields, within the limit.
fn read(decoder: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut decoder = decoder.take(MAX_DECOMPRESSED_BYTES + 1);
    decoder
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_DECOMPRESSED_BYTES {
        Err(too_large())
    } else {
        Ok(bytes)
    }
}

fn too_large() -> String {
    format!("it holds more than {MAX_DECOMPRESSED_BYTES} bytes")
}

/// RFC 1952: the last four bytes are the size, modulo 2^32.
fn gunzipped(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let size = bytes.last_chunk().map(|size| u32::from_le_bytes(*size));
    let size = size
        .filter(|size| u64::from(*size) <= MAX_DECOMPRESSED_BYTES)
        .ok_or_else(too_large)?;
    let mut data = vec![0; usize::try_from(size).map_err(|_| too_large())?];
    let written = libdeflater::Decompressor::new().gzip_decompress(bytes, &mut data);
    let written = written.map_err(|error| error.to_string())?;
    data.truncate(written);
    Ok(data)
}
