//! Numbers as digits: for millions of them, `write!` would take most of the time.

/// Appends a number in decimal, with spaces before it up to a width.
pub(super) fn decimal(out: &mut Vec<u8>, number: u64, width: usize) {
    padded(out, number, 10, b' ', width);
}

/// The same of the number of a process or thread, which is negative where the kernel knows none.
pub(super) fn task(out: &mut Vec<u8>, number: u32, width: usize) {
    let start = out.len();
    match number.cast_signed() {
        negative @ ..0 => {
            let digits = u64::from(negative.unsigned_abs());
            let mut text = Vec::new();
            decimal(&mut text, digits, 0);
            out.resize(start + width.saturating_sub(text.len() + 1), b' ');
            out.push(b'-');
            out.extend(text);
        }
        _ => decimal(out, number.into(), width),
    }
}

/// The same with zeros before it.
pub(super) fn zeros(out: &mut Vec<u8>, number: u64, width: usize) {
    padded(out, number, 10, b'0', width);
}

/// Appends a number in hexadecimal, with spaces before it up to a width.
pub(super) fn hexadecimal(out: &mut Vec<u8>, number: u64, width: usize) {
    padded(out, number, 16, b' ', width);
}

fn padded(out: &mut Vec<u8>, mut number: u64, base: u64, padding: u8, width: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let start = out.len();
    loop {
        let digit = usize::try_from(number % base).ok();
        out.extend(digit.and_then(|digit| DIGITS.get(digit)));
        number /= base;
        if number == 0 {
            break;
        }
    }
    while out.len() - start < width {
        out.push(padding);
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tasks() {
        for number in [0, 1, 4_194_304, u32::MAX] {
            for width in [0, 5] {
                let mut out = Vec::new();
                task(&mut out, number, width);
                let expected = format!("{:width$}", number.cast_signed());
                assert_eq!(String::from_utf8(out).unwrap_or_default(), expected);
            }
        }
    }

    #[test]
    fn as_the_standard_library_writes_them() {
        for number in [0, 7, 10, 99, 250_000, 0xffff_ffff_8100_0130, u64::MAX] {
            for width in [0, 1, 5, 16, 25] {
                let written = |write: fn(&mut Vec<u8>, u64, usize)| {
                    let mut out = b"x".to_vec();
                    write(&mut out, number, width);
                    String::from_utf8(out).unwrap_or_default()
                };
                assert_eq!(written(decimal), format!("x{number:width$}"));
                assert_eq!(written(zeros), format!("x{number:0width$}"));
                assert_eq!(written(hexadecimal), format!("x{number:width$x}"));
            }
        }
    }
}
