//! The identity of a file's contents: its build ID, or a hash if it has none.

use std::fmt;

/// A GNU build ID: 1 to 64 bytes that the linker derived from the contents of the file.
///
/// Printed as lower-case hexadecimal digits. Does not allocate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId {
    // The bytes after `length` are zero, so the derived comparisons hold.
    bytes: [u8; BuildId::MAX_BYTES],
    length: u8,
}

impl BuildId {
    /// The most bytes that a build ID may have. Linkers write 8, 16, 20 or 32.
    pub const MAX_BYTES: usize = 64;

    /// A build ID of these bytes; `None` if there are none or more than [`BuildId::MAX_BYTES`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<BuildId> {
        let length = u8::try_from(bytes.len()).ok()?;
        let mut id = BuildId {
            bytes: [0; BuildId::MAX_BYTES],
            length,
        };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (length > 0).then_some(id)
    }

    /// A build ID from an even number of hexadecimal digits, as printed by `readelf -n`.
    #[must_use]
    pub fn from_hex(digits: &str) -> Option<BuildId> {
        let mut bytes = Vec::new();
        for pair in digits.as_bytes().chunks(2) {
            let [high, low] = pair else { return None };
            let high = char::from(*high).to_digit(16)?;
            let low = char::from(*low).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        }
        BuildId::new(&bytes)
    }

    /// Whether the kernel reports this build ID for a file with the build ID `of`. The kernel cuts
    /// build IDs to 20 bytes.
    #[must_use]
    pub fn is_kernel_report_of(&self, of: &BuildId) -> bool {
        const REPORTED: usize = 20;
        let (reported, whole) = (self.as_bytes(), of.as_bytes());
        reported == whole || (reported.len() == REPORTED && whole.starts_with(reported))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, self.as_bytes())
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Identifies a module's file where no adversary is expected: in profiles, and when looking for its
/// names. The author of a file chooses its build ID, so two files with one build ID may differ.
/// Derived data that is cached is keyed by [`TableKey`].
///
/// Printed as the build ID's digits, or as `sha256-` and 40 digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentKey {
    /// The build ID that the file carries.
    BuildId(BuildId),
    /// The file has no build ID: the first 20 bytes of the SHA-256 of all its bytes.
    Hash([u8; 20]),
}

impl ContentKey {
    /// The build ID, if the file has one.
    #[must_use]
    pub fn build_id(self) -> Option<BuildId> {
        match self {
            ContentKey::BuildId(id) => Some(id),
            ContentKey::Hash(_) => None,
        }
    }

    /// Parses the printed form of a [`ContentKey`] of a file without build ID.
    #[must_use]
    pub fn hash_from_text(text: &str) -> Option<ContentKey> {
        let digits = text.strip_prefix("sha256-")?;
        let bytes = BuildId::from_hex(digits)?;
        let hash = bytes.as_bytes().try_into().ok()?;
        Some(ContentKey::Hash(hash))
    }
}

/// The source of a cached table: all bytes of a file.
///
/// Printed as the build ID's digits, `-`, and 40 digits of the hash. For a file without build ID:
/// as `sha256-` and 40 digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableKey {
    /// The build ID, by which people and the own process identify the module.
    pub build_id: Option<BuildId>,
    /// The first 20 bytes of the SHA-256 of all its bytes.
    pub content: [u8; 20],
}

impl TableKey {
    /// Parses the printed form.
    #[must_use]
    pub fn from_text(text: &str) -> Option<TableKey> {
        let (build_id, digits) = text.split_once('-')?;
        let build_id = match build_id {
            "sha256" => None,
            digits => Some(BuildId::from_hex(digits)?),
        };
        let content = BuildId::from_hex(digits)?.as_bytes().try_into().ok()?;
        Some(TableKey { build_id, content })
    }
}

impl fmt::Display for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.build_id {
            Some(id) => write!(f, "{id}-")?,
            None => f.write_str("sha256-")?,
        }
        hex(f, &self.content)
    }
}

impl fmt::Display for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContentKey::BuildId(id) => write!(f, "{id}"),
            ContentKey::Hash(bytes) => {
                f.write_str("sha256-")?;
                hex(f, bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_order_is_that_of_the_bytes() {
        let id = BuildId::from_hex("00ff10").unwrap();
        assert_eq!(id.to_string(), "00ff10");
        assert_eq!(id.as_bytes(), [0, 0xff, 0x10]);
        assert!(BuildId::from_hex("00ff").unwrap() < id);
        assert!(BuildId::from_hex("0100").unwrap() > id);
        assert_ne!(BuildId::new(&[1]), BuildId::new(&[1, 0]));
    }

    #[test]
    fn table_keys_are_read_as_they_are_printed() {
        let digits = "c5".repeat(20);
        let keys = [
            (BuildId::from_hex("00ff10"), format!("00ff10-{digits}")),
            (None, format!("sha256-{digits}")),
        ];
        for (build_id, text) in keys {
            let content = [0xc5; 20];
            let key = TableKey { build_id, content };
            assert_eq!(key.to_string(), text);
            assert_eq!(TableKey::from_text(&text), Some(key));
            assert_eq!(TableKey::from_text(&format!("{text}00")), None);
        }
        for bad in [
            "",
            "-",
            "00ff10",
            &digits,
            &format!("-{digits}"),
            "sha256-c5",
        ] {
            assert_eq!(TableKey::from_text(bad), None, "{bad}");
        }
    }

    #[test]
    fn build_ids_that_the_kernel_cut() {
        let id = |bytes: &[u8]| BuildId::new(bytes).unwrap();
        assert!(id(&[7; 20]).is_kernel_report_of(&id(&[7; 32])));
        assert!(!id(&[7; 20]).is_kernel_report_of(&id(&[8; 32])));
        assert!(!id(&[7; 8]).is_kernel_report_of(&id(&[7; 20])));
        assert!(!id(&[7; 32]).is_kernel_report_of(&id(&[7; 20])));
    }

    #[test]
    fn invalid_build_ids_are_rejected() {
        for bad in ["", "0", "0g", "é0"] {
            assert_eq!(BuildId::from_hex(bad), None, "{bad}");
        }
        assert_eq!(BuildId::new(&[7; 65]), None);
        assert!(BuildId::new(&[7; 64]).is_some());
    }
}
