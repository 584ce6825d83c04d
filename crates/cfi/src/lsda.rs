//! LSDAs (language-specific data areas): the call sites of a function and their landing pads
//! (Itanium C++ ABI, "Exception Handling Tables"; the same for C, C++, Rust and others).
//!
//! ```text
//! encoding   of the landing pads' base: omitted if that is the function's start
//! base       if it is not omitted
//! encoding   of types: omitted if there are none
//! uleb128    the distance of the types' end from here, if there are some
//! encoding   of call sites
//! uleb128    their size in bytes
//! call sites start, length, landing pad; uleb128: the first action, plus 1
//! actions, types
//! ```

use unspool_rows::Vaddr;

use crate::CfiSection;
use crate::byte_reader::ByteReader;
use crate::error::CfiError;
use crate::pointer::{PointerBases, PointerEncoding};

/// A function's LSDA, up to the end of its call sites, which are read one by one.
#[derive(Debug, Clone)]
pub struct Lsda<'s, 'a> {
    /// The address that landing pads are relative to, if that is not the function's start.
    pub pad_base: Option<Vaddr>,
    /// The end of the types as an offset in the section, if there are some.
    pub types_end: Option<u64>,
    bases: PointerBases<'s, 'a>,
    encoding: PointerEncoding,
    rest: ByteReader<'a>,
}

/// A record of a call-site table. The first three are relative: the call site to the function's
/// start, the landing pad to its base. In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallSite {
    /// The first byte of the call site.
    pub start: u64,
    /// Its length.
    pub length: u64,
    /// The landing pad, or 0.
    pub pad: u64,
    /// The offset of the first action in the action table, plus 1; 0 if there is only a cleanup.
    pub action: u64,
}

/// What a call site says of an exception that passes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteAction {
    /// Nothing is to be done there.
    Continue,
    /// The frame cleans up at this landing pad, and continues the unwind.
    CleanUp(Vaddr),
    /// It depends on the exception, or the address is in no call site.
    Personality,
}

impl<'s, 'a> Lsda<'s, 'a> {
    /// Reads the header of the LSDA at the reader's position in a section, which then is behind the
    /// call sites. `function` is the function's start, if known.
    ///
    /// # Errors
    ///
    /// It is truncated, or has an unknown encoding.
    pub fn parse(
        section: &'s CfiSection<'a>,
        function: Option<Vaddr>,
        reader: &mut ByteReader<'a>,
    ) -> Result<Self, CfiError> {
        let bases = PointerBases {
            section,
            address_size: section.abi.arch.spec().address_size,
            function,
        };
        let encoding = PointerEncoding(reader.u8()?);
        let pad_base = if encoding.is_omitted() {
            None
        } else {
            Some(bases.address(reader, encoding)?)
        };
        let types_end = if PointerEncoding(reader.u8()?).is_omitted() {
            None
        } else {
            let length = reader.uleb()?;
            Some(reader.offset().saturating_add(length))
        };
        let encoding = PointerEncoding(reader.u8()?);
        let length = reader.uleb()?;
        Ok(Lsda {
            pad_base,
            types_end,
            bases,
            encoding,
            rest: reader.split(length)?,
        })
    }

    /// The next call site; `None` after the last.
    ///
    /// # Errors
    ///
    /// It is truncated, or has an unknown encoding.
    pub fn next_call_site(&mut self) -> Result<Option<CallSite>, CfiError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (bases, encoding, rest) = (&self.bases, self.encoding, &mut self.rest);
        Ok(Some(CallSite {
            start: bases.address(rest, encoding)?.0,
            length: bases.address(rest, encoding)?.0,
            pad: bases.address(rest, encoding)?.0,
            action: rest.uleb()?,
        }))
    }

    /// What an exception finds at an address of the function at `function`, by the rules that the
    /// personality routines of C, C++ and Rust share. Call sites ascend; those before the reader's
    /// position do not count.
    ///
    /// # Errors
    ///
    /// As [`Lsda::next_call_site`].
    pub fn action_at(&mut self, function: Vaddr, pc: Vaddr) -> Result<SiteAction, CfiError> {
        let at = pc.0.wrapping_sub(function.0);
        while let Some(site) = self.next_call_site()? {
            if site.start > at {
                break;
            }
            if at - site.start < site.length {
                return Ok(match site {
                    CallSite { pad: 0, .. } => SiteAction::Continue,
                    CallSite { action: 0, pad, .. } => {
                        SiteAction::CleanUp(self.pad_base.unwrap_or(function).offset(pad))
                    }
                    CallSite { .. } => SiteAction::Personality,
                });
            }
        }
        Ok(SiteAction::Personality)
    }
}

#[cfg(test)]
mod tests {
    use unspool_rows::{Abi, Endian};

    use super::*;
    use crate::SectionKind;

    /// Call sites in uleb128: 4 bytes without a pad, 4 with a cleanup at 0x40, a gap of 2, 2 with a
    /// handler at 0x50.
    const SITES: [u8; 12] = [0, 4, 0, 0, 4, 4, 0x40, 0, 10, 2, 0x50, 3];

    fn action(header: &[u8], at: u64) -> Result<SiteAction, CfiError> {
        let data = [header, &[12], &SITES].concat();
        let section = CfiSection {
            kind: SectionKind::EhFrame,
            data: &data,
            address: Vaddr(0x9000),
            text_base: None,
            data_base: None,
            abi: Abi::X86_64,
        };
        let function = Vaddr(0x1000);
        let mut reader = ByteReader::new(&data, 0, data.len() as u64, Endian::Little);
        let mut lsda = Lsda::parse(&section, Some(function), &mut reader)?;
        assert!(reader.is_empty());
        lsda.action_at(function, function.offset(at))
    }

    #[test]
    fn each_byte_of_a_function_has_its_call_site_s_action() {
        // Pads from the function's start, and from 0x2000.
        for (header, base) in [
            (&[0xff, 0xff, 1][..], 0x1000),
            (&[0x03, 0, 0x20, 0, 0, 0xff, 1], 0x2000),
        ] {
            let expected = |at: u64| match at {
                0..4 => SiteAction::Continue,
                4..8 => SiteAction::CleanUp(Vaddr(base + 0x40)),
                _ => SiteAction::Personality,
            };
            for at in 0..20 {
                assert_eq!(action(header, at), Ok(expected(at)), "{at}");
            }
        }
        // Types end 5 bytes behind: that does not matter.
        assert_eq!(action(&[0xff, 0x9b, 5, 1], 1), Ok(SiteAction::Continue));
        assert!(action(&[0xff, 0xff, 0x0d], 1).is_err());
    }
}
