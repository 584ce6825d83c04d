//! The entries' fields other than rows.

use alloc::vec::Vec;

use unspool_rows::{Fde, Pointer, Table, Vaddr};

use super::pieces::{Piece, Pieces};
use super::{EncodeError, put_u16, put_u32};
use crate::layout::{ESCAPE_CLASS, HAS_LSDA, LSDA_BLOCK, NO_PERSONALITY};

/// The sections that describe entries, and the class of each piece.
#[derive(Default)]
pub(super) struct EntrySections {
    pub(super) classes: Vec<u8>,
    /// `CLAS`.
    pub(super) class_table: Vec<u8>,
    /// `PERS`.
    pub(super) personalities: Vec<u8>,
    /// `LSDX`.
    pub(super) lsda_index: Vec<u8>,
    /// `LSDA`.
    pub(super) lsdas: Vec<u8>,
    /// `ODDS`.
    pub(super) odds: Vec<u8>,
}

/// A class: the personality's index, and whether there is an LSDA.
type EntryClass = (u16, bool);

struct EntryEncoder {
    known_classes: Vec<EntryClass>,
    known_personalities: Vec<Pointer>,
    lsda_base: Vaddr,
    lsda_count: usize,
    sections: EntrySections,
}

/// Describes the entry of every piece.
pub(super) fn describe(
    table: &Table,
    pieces: &Pieces,
    base: Vaddr,
) -> Result<EntrySections, EncodeError> {
    let lsda_base = table.fdes().iter().filter_map(|fde| fde.lsda).min();
    let mut describer = EntryEncoder {
        known_classes: Vec::new(),
        known_personalities: Vec::new(),
        lsda_base: lsda_base.unwrap_or(Vaddr(0)),
        lsda_count: 0,
        sections: EntrySections::default(),
    };
    if let Some(lsda_base) = lsda_base {
        describer
            .sections
            .lsdas
            .extend_from_slice(&lsda_base.0.to_le_bytes());
    }
    let mut number = 0;
    for run in pieces.list.chunk_by(|piece, next| piece.fde == next.fde) {
        if let Some(fde) = run.first().and_then(|piece| table.fde(piece.fde)) {
            describer.entry(fde, run, number, base)?;
        }
        number += run.len();
    }
    Ok(describer.finish())
}

impl EntryEncoder {
    /// The consecutive pieces of one entry; the first has this number.
    fn entry(
        &mut self,
        fde: &Fde,
        run: &[Piece],
        number: usize,
        base: Vaddr,
    ) -> Result<(), EncodeError> {
        let personality = self.personality(fde.personality)?;
        let is_whole = match run {
            [piece] => {
                base.offset(piece.start.into()) == fde.start
                    && base.offset(piece.end.into()) == fde.end
            }
            _ => false,
        };
        let lsda_offset = fde
            .lsda
            .map(|lsda| u32::try_from(lsda.0 - self.lsda_base.0));
        let class = match (is_whole, lsda_offset) {
            (true, None) => self.class((personality, false)),
            (true, Some(Ok(_))) => self.class((personality, true)),
            _ => None,
        };
        for at in number..number + run.len() {
            if at.is_multiple_of(LSDA_BLOCK) {
                put_u32(&mut self.sections.lsda_index, self.lsda_count);
            }
            self.sections.classes.push(class.unwrap_or(ESCAPE_CLASS));
        }
        match (class, lsda_offset) {
            (Some(_), Some(Ok(offset))) => {
                self.sections.lsdas.extend_from_slice(&offset.to_le_bytes());
                self.lsda_count += 1;
            }
            (Some(_), _) => {}
            (None, _) => self.odd(fde, personality, (number, run.len()), base)?,
        }
        Ok(())
    }

    fn personality(&mut self, personality: Option<Pointer>) -> Result<u16, EncodeError> {
        let Some(personality) = personality else {
            return Ok(NO_PERSONALITY);
        };
        let known = self
            .known_personalities
            .iter()
            .position(|known| *known == personality);
        let index = known.unwrap_or_else(|| {
            self.known_personalities.push(personality);
            self.known_personalities.len() - 1
        });
        match u16::try_from(index) {
            Ok(index) if index != NO_PERSONALITY => Ok(index),
            _ => Err(EncodeError::TooLarge),
        }
    }

    /// The number of a class; `None` if there are too many.
    fn class(&mut self, class: EntryClass) -> Option<u8> {
        let known = self.known_classes.iter().position(|known| *known == class);
        let index = known.unwrap_or_else(|| {
            self.known_classes.push(class);
            self.known_classes.len() - 1
        });
        u8::try_from(index)
            .ok()
            .filter(|class| *class != ESCAPE_CLASS)
    }

    fn odd(
        &mut self,
        fde: &Fde,
        personality: u16,
        (first, count): (usize, usize),
        base: Vaddr,
    ) -> Result<(), EncodeError> {
        let relative = |addr: Vaddr| {
            u32::try_from(addr.0.wrapping_sub(base.0)).map_err(|_| EncodeError::TooLarge)
        };
        let (start, end) = (relative(fde.start)?, relative(fde.end)?);
        let odds = &mut self.sections.odds;
        put_u32(odds, first);
        put_u32(odds, count);
        odds.extend_from_slice(&start.to_le_bytes());
        odds.extend_from_slice(&end.to_le_bytes());
        odds.extend_from_slice(&fde.lsda.unwrap_or(Vaddr(0)).0.to_le_bytes());
        put_u16(odds, u64::from(personality));
        put_u16(
            odds,
            if fde.lsda.is_some() {
                u64::from(HAS_LSDA)
            } else {
                0
            },
        );
        Ok(())
    }

    fn finish(mut self) -> EntrySections {
        for (personality, has_lsda) in self.known_classes.iter().take(usize::from(ESCAPE_CLASS)) {
            put_u16(&mut self.sections.class_table, u64::from(*personality));
            put_u16(
                &mut self.sections.class_table,
                if *has_lsda { u64::from(HAS_LSDA) } else { 0 },
            );
        }
        for personality in &self.known_personalities {
            let (kind, address) = match personality {
                Pointer::Direct(address) => (0, address),
                Pointer::Indirect(address) => (1, address),
            };
            self.sections.personalities.push(kind);
            self.sections
                .personalities
                .extend_from_slice(&address.0.to_le_bytes());
        }
        self.sections
    }
}
