//! The size of the memory for rules.

use core::str::FromStr;

/// The size of the memory for rules: 1 KiB for each page of code (4 KiB). The owner words take 1 %
/// more.
///
/// Text is a number of bytes, of KiB (`512K`), or of MiB (`4M`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleCacheSize {
    /// A power of two.
    pages: usize,
}

/// The number is not a valid size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the size of rules must be a power of two from 64 KiB to 64 MiB")]
pub struct RuleCacheSizeError;

impl RuleCacheSize {
    const PAGE_BYTES: usize = 1 << 10;

    /// 64 KiB.
    pub const MIN: RuleCacheSize = RuleCacheSize { pages: 1 << 6 };
    /// 1 MiB.
    pub const DEFAULT: RuleCacheSize = RuleCacheSize { pages: 1 << 10 };
    /// 64 MiB.
    pub const MAX: RuleCacheSize = RuleCacheSize { pages: 1 << 16 };

    /// A size in bytes.
    ///
    /// # Errors
    ///
    /// [`RuleCacheSizeError`] unless it is a power of two from 64 KiB to 64 MiB.
    pub const fn from_bytes(bytes: usize) -> Result<Self, RuleCacheSizeError> {
        let pages = bytes / Self::PAGE_BYTES;
        let is_between = Self::MIN.pages <= pages && pages <= Self::MAX.pages;
        if bytes.is_power_of_two() && is_between {
            Ok(RuleCacheSize { pages })
        } else {
            Err(RuleCacheSizeError)
        }
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.pages * Self::PAGE_BYTES
    }

    /// Room for this many pages of code: a power of two.
    pub(super) const fn with_pages(pages: usize) -> Self {
        RuleCacheSize { pages }
    }

    /// The number of pages of code that have room.
    pub(super) const fn pages(self) -> usize {
        self.pages
    }
}

impl Default for RuleCacheSize {
    fn default() -> Self {
        RuleCacheSize::DEFAULT
    }
}

impl FromStr for RuleCacheSize {
    type Err = RuleCacheSizeError;

    fn from_str(text: &str) -> Result<Self, RuleCacheSizeError> {
        let units = [("K", 1 << 10), ("M", 1 << 20)];
        let in_unit = |(suffix, unit)| Some((text.strip_suffix(suffix)?, unit));
        let (number, unit) = units.into_iter().find_map(in_unit).unwrap_or((text, 1));
        let number = number.parse::<usize>().map_err(|_| RuleCacheSizeError)?;
        RuleCacheSize::from_bytes(number.checked_mul(unit).ok_or(RuleCacheSizeError)?)
    }
}

#[cfg(test)]
mod tests {
    use super::{RuleCacheSize, RuleCacheSizeError};

    #[test]
    fn sizes_in_text_and_in_bytes() {
        for (text, bytes) in [
            ("65536", 65_536),
            ("64K", 65_536),
            ("1M", 1 << 20),
            ("1024K", 1 << 20),
            ("64M", 64 << 20),
        ] {
            let size = text.parse::<RuleCacheSize>();
            assert_eq!(size.map(RuleCacheSize::bytes), Ok(bytes), "{text}");
            assert_eq!(size, RuleCacheSize::from_bytes(bytes));
        }
        for text in [
            "",
            "M",
            "K",
            "0",
            "32K",
            "65537",
            "3M",
            "128M",
            "1G",
            "-1M",
            "1m",
            " 1M",
            "1MM",
            "18446744073709551616",
            "18014398509481985K",
        ] {
            assert_eq!(
                text.parse::<RuleCacheSize>(),
                Err(RuleCacheSizeError),
                "{text}"
            );
        }
    }
}
