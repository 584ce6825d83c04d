//! Buffered text output, for signal handlers: without the C library.

/// A target for text.
pub(crate) trait Sink {
    /// Writes bytes, [`TextBuffer::BUFFER_BYTES`] at most. Failures are ignored.
    fn write(&self, bytes: &[u8]);
}

/// A text buffer.
pub(crate) struct TextBuffer<'s> {
    sink: &'s dyn Sink,
    buffer: [u8; TextBuffer::BUFFER_BYTES],
    used: usize,
}

impl<'s> TextBuffer<'s> {
    /// The maximum number of bytes passed on at once.
    pub(crate) const BUFFER_BYTES: usize = 512;

    /// An empty buffer.
    pub(crate) fn new(sink: &'s dyn Sink) -> Self {
        TextBuffer {
            sink,
            buffer: [0; TextBuffer::BUFFER_BYTES],
            used: 0,
        }
    }

    /// Passes the buffered bytes on.
    pub(crate) fn flush(&mut self) {
        let used = core::mem::take(&mut self.used);
        if let Some(bytes) = self.buffer.get(..used)
            && used > 0
        {
            self.sink.write(bytes);
        }
    }

    /// Adds raw bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.used == TextBuffer::BUFFER_BYTES {
                self.flush();
            }
            if let Some(slot) = self.buffer.get_mut(self.used) {
                *slot = *byte;
                self.used += 1;
            }
        }
    }

    /// Adds bytes of unknown origin, up to a zero byte: unprintable ones become `?`.
    pub(crate) fn quote(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().take_while(|byte| **byte != 0) {
            let is_plain = matches!(byte, b' '..=b'~' | 0x80..);
            self.put(&[if is_plain { *byte } else { b'?' }]);
        }
    }

    /// Adds a number.
    pub(crate) fn decimal(&mut self, number: u64) {
        self.padded(number, 0);
    }

    /// Adds a number, right-aligned to at least `places` places.
    pub(crate) fn padded(&mut self, number: u64, places: usize) {
        let (digits, from) = digits::<20>(number, 10);
        let length = digits.len() - from;
        for _ in length..places {
            self.put(b" ");
        }
        self.put(digits.get(from..).unwrap_or_default());
    }

    /// Adds a signed number.
    pub(crate) fn signed(&mut self, number: impl Into<i64>) {
        let number = number.into();
        if number < 0 {
            self.put(b"-");
        }
        self.decimal(number.unsigned_abs());
    }

    /// Adds a number in hexadecimal: `0x1f`.
    pub(crate) fn hex(&mut self, number: u64) {
        let (digits, from) = digits::<16>(number, 16);
        self.put(b"0x");
        self.put(digits.get(from..).unwrap_or_default());
    }

    /// Adds an address with all its digits: `0x000000000000001f`.
    pub(crate) fn address(&mut self, address: u64) {
        self.put(b"0x");
        self.put(&digits::<16>(address, 16).0);
    }

    /// Adds bytes in hexadecimal.
    pub(crate) fn bytes_in_hex(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.put(&digits::<2>(u64::from(*byte), 16).0);
        }
    }
}

/// The digits of a number with leading zeros, and the index of the first digit.
fn digits<const MAX_DIGITS: usize>(number: u64, base: u64) -> ([u8; MAX_DIGITS], usize) {
    let mut digits = [b'0'; MAX_DIGITS];
    let mut rest = number;
    let mut from = MAX_DIGITS;
    for (at, slot) in digits.iter_mut().enumerate().rev() {
        let digit = usize::try_from(rest % base).unwrap_or(0);
        *slot = b"0123456789abcdef".get(digit).copied().unwrap_or(b'?');
        rest /= base;
        from = at;
        if rest == 0 {
            break;
        }
    }
    (digits, from)
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    struct CollectedText(RefCell<Vec<u8>>);

    impl Sink for CollectedText {
        fn write(&self, bytes: &[u8]) {
            self.0.borrow_mut().extend_from_slice(bytes);
        }
    }

    pub(in crate::crash) fn text(make: impl Fn(&mut TextBuffer<'_>)) -> String {
        let kept = CollectedText(RefCell::default());
        let mut text = TextBuffer::new(&kept);
        make(&mut text);
        text.flush();
        String::from_utf8(kept.0.take()).unwrap()
    }

    #[test]
    fn numbers_are_as_format_has_them() {
        for number in [0, 1, 9, 10, 255, 4096, 123_456_789, u64::MAX] {
            let expected = std::format!("{number}|{number:5}|{number:#x}|{number:#018x}|");
            let found = text(|text| {
                text.decimal(number);
                text.put(b"|");
                text.padded(number, 5);
                text.put(b"|");
                text.hex(number);
                text.put(b"|");
                text.address(number);
                text.put(b"|");
            });
            assert_eq!(found, expected);
        }
        for number in [0, -6, 128, i64::MIN] {
            assert_eq!(text(|text| text.signed(number)), std::format!("{number}"));
        }
        assert_eq!(text(|text| text.bytes_in_hex(&[0, 0x1f, 0xff])), "001fff");
    }

    #[test]
    fn more_than_the_buffer_holds() {
        let long = [b'x'; 3 * TextBuffer::BUFFER_BYTES + 7];
        let found = text(|text| {
            text.put(b"a");
            text.put(&long);
            text.put(b"b");
        });
        assert_eq!(found.len(), long.len() + 2);
        assert!(found.starts_with("ax") && found.ends_with("xb"));
    }

    #[test]
    fn strange_bytes_are_quoted() {
        assert_eq!(text(|text| text.quote(b"a\nb\x1bc\0d")), "a?b?c");
    }
}
