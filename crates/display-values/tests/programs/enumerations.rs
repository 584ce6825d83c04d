//! A program that is killed with values of Rust's types on its stack.

#![allow(dead_code)]

use std::hint::black_box;
use std::num::NonZeroU32;

#[derive(Clone, Copy)]
struct Point {
    x: i32,
    y: i64,
}

struct Wrapper(u16, char);

struct Unit;

enum Colour {
    Red,
    Green = 5,
    Blue,
}

enum Kind<'a> {
    Cash,
    Card { number: u32, name: &'a str },
    Both(u8, Point),
}

enum Only {
    One(i32),
}

#[repr(i8)]
enum Signed {
    Less(u8) = -3,
    More { by: u64 } = 100,
}

union Either {
    number: u32,
    halves: [u16; 2],
}

#[inline(never)]
fn end(number: i32, kind: &Kind<'_>) -> i32 {
    if number > 0 && !matches!(kind, Kind::Card { number: 77, .. }) {
        std::process::abort()
    }
    number
}

#[inline(always)]
fn inlined(choice: Option<i64>, kind: Kind<'_>) -> i32 {
    let other = choice.map(|number| number + 1);
    let result = end(3, &kind);
    black_box((&other, &kind));
    result
}

#[inline(never)]
fn numbers(count: i32, numbers: &[i32], maybe: Option<Option<u8>>) -> i32 {
    let tuple = (1i8, 2.5f64, true);
    let array = [1u8, 2, 3];
    let many = [3u16; 40];
    let big = (1u128 << 100) + 7;
    let small = i128::MIN + 9;
    let letter = 'x';
    let real = 1.5f32;
    let empty: [i32; 0] = [];
    let nothing = ();
    let either = Either { number: 0x30002 };
    let function: fn(i32, &Kind<'_>) -> i32 = end;
    let slice = &mut [(5u32, -1i8), (6, 7)][..];
    black_box((&tuple, &array, &many, &big, &small, &letter, &real, &empty));
    black_box((&nothing, unsafe { either.halves }, &slice, &function));
    let result = inlined(Some(i64::from(count)), Kind::Both(9, Point { x: 4, y: -2 }));
    black_box((&tuple, &array, &many, &big, &small, &letter, &real, &empty));
    black_box((&nothing, unsafe { either.number }, &slice, maybe));
    result + numbers[0]
}

#[inline(never)]
fn enumerations(count: i32, text: &str, kind: Kind<'_>, result: Result<i32, String>) -> i32 {
    let some = Some(count);
    let none: Option<i32> = None;
    let boxed: Option<Box<i32>> = Some(Box::new(3));
    let unboxed: Option<Box<i32>> = None;
    let reference: Option<&str> = Some(text);
    let nowhere: Option<&str> = None;
    let point = Point { x: count, y: -4 };
    let wrapper = Wrapper(7, 'q');
    let unit = Unit;
    let (red, green, blue) = (Colour::Red, Colour::Green, Colour::Blue);
    let cash = Kind::Cash;
    let card = Kind::Card { number: 4, name: "visa" };
    let only = Only::One(count);
    let negative = Signed::Less(1);
    let more = Signed::More { by: 1 << 40 };
    let not_zero = NonZeroU32::new(5);
    let is_true = Some(true);
    let ordering = count.cmp(&100);
    let inner = Some(Some(3u8));
    let no_inner: Option<Option<u8>> = Some(None);
    black_box((&some, &none, &boxed, &unboxed, &reference, &nowhere, &point, &wrapper));
    black_box((&unit, &red, &green, &blue, &cash, &card, &only, &negative, &more, &not_zero));
    black_box((&is_true, &ordering, &inner, &no_inner));
    let result_of = numbers(count, &[5, 6, 7], no_inner);
    black_box((&some, &none, &boxed, &unboxed, &reference, &nowhere, &point, &wrapper));
    black_box((&unit, &red, &green, &blue, &cash, &card, &only, &negative, &more, &not_zero));
    black_box((&is_true, &ordering, &inner, &kind, &result));
    result_of
}

fn main() {
    let count = i32::try_from(std::env::args().count()).unwrap_or(1);
    let wrong = Err("wrong".to_owned());
    let given = Kind::Card { number: 3, name: "other" };
    std::process::exit(enumerations(count + 2, "hello", given, wrong));
}
