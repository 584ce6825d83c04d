//! The C source of the walked functions.

use std::fmt::Write as _;

use unspool_bench::Random;

/// Functions of ordinary shapes, over all shared objects.
pub(crate) const FUNCTIONS: usize = 4096;

/// Additional functions with frames realigned by a dynamic realign argument pointer: their CFA is
/// an expression, which few caches support.
pub(crate) const REALIGNED: usize = 128;

/// Call instructions of each function.
pub(crate) const SITES: usize = 8;

/// The shared objects that the functions are distributed over, so that most calls cross from one to
/// another.
pub(crate) const OBJECTS: usize = 4;

/// The start of each object's source. Must agree with `sys::descent`.
const PRELUDE: &str = "\
struct descent;
typedef long (*function)(struct descent *, long);
struct step { function callee; long site; void *from; };
struct descent { struct step *next; void (*work)(void *, void *); void *data; };
#define ENTER(s) struct step *s = d->next; d->next = s + 1; s->from = __builtin_return_address(0)
#define LIVE(r) asm volatile(\"\" : \"+r\"(r))
#define USED(r) asm volatile(\"\" : : \"r\"(r) : \"memory\")
";

/// The innermost function. It has a frame pointer in every build, where frame-pointer walks start.
const BOTTOM: &str = "
long bottom(struct descent *d, long a) {
    ENTER(s);
    d->work(d->data, __builtin_frame_address(0));
    asm volatile(\"# after\");
    return a;
}
";

/// The source of one shared object, which exports `functions`, a table of every [`OBJECTS`]th
/// function, and `bottom`.
pub(crate) fn object(object: usize) -> String {
    let mut source = String::from(PRELUDE);
    source.push_str(BOTTOM);
    let numbers = || (0..FUNCTIONS + REALIGNED).filter(|number| number % OBJECTS == object);
    for number in numbers() {
        // Writing to a string does not fail.
        let _ = FrameShape::new(number).write(number, &mut source);
    }
    source.push_str("const function functions[] = {");
    for number in numbers() {
        let _ = write!(source, "f{number},");
    }
    source.push_str("};\n");
    source
}

/// The properties of a function's frame.
struct FrameShape {
    locals: Locals,
    /// Values that live across calls: each needs a callee-saved register, while there are any.
    live: usize,
    /// Arguments pushed for some calls, which move the stack pointer.
    pushed: usize,
}

enum Locals {
    None,
    /// Of this many bytes.
    Fixed(usize),
    /// An array of variable length: the CFA is based on `rbp`.
    Variable(usize),
    /// With a larger alignment than the stack's.
    Aligned(usize),
}

impl FrameShape {
    fn new(number: usize) -> Self {
        let mut random = Random::new(0x9e37_79b9 + 7919 * number as u64);
        for _ in 0..8 {
            random.below(1); // Similar seeds start alike.
        }
        let bytes = match random.below(16) {
            0..4 => 0,
            4..10 => 8 + random.below(120),
            10..14 => 128 + random.below(384),
            _ => 512 + random.below(1488),
        };
        let locals = match random.below(8) {
            _ if number >= FUNCTIONS => Locals::Aligned(64 + bytes),
            0 => Locals::Variable(16 + bytes),
            _ if bytes == 0 => Locals::None,
            _ => Locals::Fixed(bytes),
        };
        FrameShape {
            locals,
            live: random.below(7),
            pushed: random.below(16).saturating_sub(11),
        }
    }

    fn write(&self, number: usize, out: &mut String) -> std::fmt::Result {
        writeln!(out, "static long f{number}(struct descent *d, long a) {{")?;
        writeln!(out, "    ENTER(s);\n    function callee = s->callee;")?;
        let declared = match self.locals {
            Locals::None => None,
            Locals::Fixed(bytes) => Some(format!("volatile char l[{bytes}]")),
            Locals::Variable(bytes) => Some(format!("volatile char l[{bytes} + (a & 63)]")),
            Locals::Aligned(bytes) => Some(format!("_Alignas(64) volatile char l[{bytes}]")),
        };
        if let Some(declared) = declared {
            writeln!(out, "    {declared}; l[a & 7] = 1; USED(l);")?;
        }
        for value in 0..self.live {
            writeln!(
                out,
                "    long r{value} = a + {number} * {}; LIVE(r{value});",
                value + 3
            )?;
        }
        writeln!(out, "    long x;\n    switch (s->site) {{")?;
        for site in 0..SITES {
            self.write_site(number, site, out)?;
        }
        writeln!(out, "    default: __builtin_unreachable();\n    }}")?;
        for value in 0..self.live {
            writeln!(out, "    USED(r{value});")?;
        }
        writeln!(out, "    return x;\n}}")
    }

    /// One call. The comment in the assembly keeps the compiler from merging it with another.
    fn write_site(&self, number: usize, site: usize, out: &mut String) -> std::fmt::Result {
        let add = (number + site) % 100;
        write!(out, "    case {site}: x = ")?;
        match self.pushed {
            pushed @ 1.. if site % 3 == 1 => {
                let (types, values) = (", long".repeat(pushed), ", 5".repeat(pushed));
                let registers = "struct descent *, long, long, long, long, long";
                write!(
                    out,
                    "((long (*)({registers}{types}))callee)(d, a + {add}, 1, 2, 3, 4{values})"
                )?;
            }
            _ => write!(out, "callee(d, a + {add})")?,
        }
        writeln!(
            out,
            "; asm volatile(\"# {number}.{site}\" : \"+r\"(x)); break;"
        )
    }
}
