//! Call-site tables of language-specific data areas: where exceptions out of calls land (Itanium C++ ABI,
//! "Exception Handling Tables"; the same for C, C++, Rust and others).

use unspool_synth::Landing;

/// Reads the bytes of an area one value after another.
struct Bytes<'a> {
    data: &'a [u8],
    /// The address of the first byte.
    address: u64,
}

const OMITTED: u8 = 0xff;

impl Bytes<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.data.split_first()?;
        self.data = rest;
        self.address += 1;
        Some(*first)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.data.split_first_chunk()?;
        self.data = rest;
        self.address += N as u64;
        Some(*first)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn sleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let above = 64_u32.saturating_sub(shift + 7);
                return Some(
                    (value << above)
                        .cast_signed()
                        .wrapping_shr(above)
                        .cast_unsigned(),
                );
            }
        }
        None
    }

    /// A value in one of the pointer encodings (LSB, "DWARF Exception Header Encoding").
    fn encoded(&mut self, encoding: u8) -> Option<u64> {
        let start = self.address;
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => u64::from_le_bytes(self.take()?),
            0x01 => self.uleb()?,
            0x02 => u64::from(u16::from_le_bytes(self.take()?)),
            0x03 => u64::from(u32::from_le_bytes(self.take()?)),
            0x09 => self.sleb()?,
            0x0a => i64::from(i16::from_le_bytes(self.take()?)).cast_unsigned(),
            0x0b => i64::from(i32::from_le_bytes(self.take()?)).cast_unsigned(),
            _ => return None,
        };
        match encoding & 0x70 {
            0x00 => Some(value),
            0x10 => Some(start.wrapping_add(value)),
            _ => None,
        }
    }
}

/// Reads where exceptions land that leave calls of the function at `start`; ends at the first damage.
pub(crate) fn landings(data: &[u8], address: u64, start: u64, into: &mut Vec<Landing>) {
    let mut bytes = Bytes { data, address };
    let _ = read(&mut bytes, start, into);
}

fn read(bytes: &mut Bytes<'_>, start: u64, into: &mut Vec<Landing>) -> Option<()> {
    let base = match bytes.u8()? {
        OMITTED => start,
        encoding => bytes.encoded(encoding)?,
    };
    if bytes.u8()? != OMITTED {
        bytes.uleb()?;
    }
    let encoding = bytes.u8()?;
    let length = usize::try_from(bytes.uleb()?).ok()?;
    let (table, address) = (bytes.data.get(..length)?, bytes.address);
    let mut table = Bytes {
        data: table,
        address,
    };
    while !table.data.is_empty() {
        let from = start.wrapping_add(table.encoded(encoding)?);
        let length = table.encoded(encoding)?;
        let pad = table.encoded(encoding)?;
        table.uleb()?;
        if pad != 0 {
            into.push(Landing {
                start: from,
                end: from.saturating_add(length),
                pad: base.wrapping_add(pad),
            });
        }
    }
    Some(())
}
