//! Random C programs. Their functions receive integers, floating-point numbers, structures and
//! pointers to them, change them, pass them on, and let callees write to them.

use std::fmt::Write as _;

use unspool_bench::Random;

/// The declarations before the functions. `fuel` limits recursion.
const HEAD: &str = "
#define APART __attribute__((noinline))
struct floats { float a, b; };
struct mixed { double real; long whole; };
struct integers { long a; int b; };
struct large { double numbers[3]; };
volatile long sink;
long fuel;
APART void change_long(long *at) { *at += 3; }
APART void change_double(double *at) { *at *= 0.5; }
APART void change_mixed(struct mixed *at) { at->whole ^= 5; at->real += 1; }
";

/// The number of functions in a program.
const FUNCTIONS: usize = 24;

/// The types of parameters, each with a conversion of a value (`@`) to a number, and of a number to
/// a value.
const TYPES: [(&str, &str, &str); 13] = [
    ("signed char", "@", "(signed char)(@)"),
    ("unsigned short", "@", "(unsigned short)(@)"),
    ("int", "@", "(int)(@)"),
    ("unsigned", "@", "(unsigned)(@)"),
    ("long", "@", "(@)"),
    ("float", "(long)@", "(float)(@)"),
    ("double", "(long)@", "(double)(@)"),
    (
        "struct floats",
        "(long)(@.a + @.b)",
        "(struct floats){(@), 2}",
    ),
    (
        "struct mixed",
        "(@.whole + (long)@.real)",
        "(struct mixed){1.5, (@)}",
    ),
    (
        "struct integers",
        "(@.a + @.b)",
        "(struct integers){(@), 7}",
    ),
    (
        "struct large",
        "(long)@.numbers[1]",
        "(struct large){{1, (@), 3}}",
    ),
    ("long *", "*@", "&local_long"),
    ("double *", "(long)*@", "&local_double"),
];

/// A program, by its seed.
pub(crate) fn program(seed: u64) -> String {
    let mut generator = ProgramGenerator {
        random: Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        functions: Vec::new(),
    };
    // The first numbers of small seeds are similar.
    for _ in 0..16 {
        generator.random.below(2);
    }
    let functions: String = (0..FUNCTIONS).map(|_| generator.function()).collect();
    let last = generator.call(FUNCTIONS - 1, &[]);
    format!(
        "{HEAD}{functions}
int main(void) {{
    long local_long = 1; double local_double = 2;
    for (int round = 0; round < 300; round++) {{ fuel = 60; sink += {last}; }}
    return local_long + local_double > 1e18;
}}
"
    )
}

struct ProgramGenerator {
    random: Random,
    /// The parameters of functions, by type index.
    functions: Vec<Vec<usize>>,
}

impl ProgramGenerator {
    /// A function, which calls earlier ones.
    fn function(&mut self) -> String {
        let number = self.functions.len();
        let count = 1 + self.random.below(9);
        let types: Vec<_> = (0..count).map(|_| self.random.below(TYPES.len())).collect();
        let named = |(at, ty): (usize, &usize)| Some(format!("{} p{at}", TYPES.get(*ty)?.0));
        let parameters: Vec<_> = types.iter().enumerate().filter_map(named).collect();
        let word = ["APART ", "APART static ", "", "static "];
        let word = word.get(self.random.below(word.len())).unwrap_or(&"");
        let mut text = format!(
            "{word}long f{number}({}) {{\n    long sum = {number}, local_long = {number}; double local_double = 0.25;\n    \
             struct mixed local_mixed = {{2, 3}};\n    if (fuel-- <= 0) return p0_of_nothing;\n",
            parameters.join(", ")
        );
        let first = self.number(&types);
        text = text.replace("p0_of_nothing", &first);
        for _ in 0..3 + self.random.below(4) {
            let statement = self.statement(number, &types);
            let _ = writeln!(text, "    {statement}");
        }
        self.functions.push(types);
        text + "    return sum + local_long + (long)local_double + local_mixed.whole;\n}\n"
    }

    fn statement(&mut self, number: usize, types: &[usize]) -> String {
        let value = self.number(types);
        let at = self.random.below(types.len());
        let ty = types.get(at).and_then(|ty| TYPES.get(*ty));
        match self.random.below(if number == 0 { 5 } else { 9 }) {
            0 => format!("sink = {value};"),
            1 => "change_long(&local_long); change_double(&local_double);".to_owned(),
            2 => match ty {
                Some(("long", ..)) => format!("change_long(&p{at});"),
                Some(("double", ..)) => format!("change_double(&p{at});"),
                Some(("struct mixed", ..)) => format!("change_mixed(&p{at});"),
                _ => "change_mixed(&local_mixed);".to_owned(),
            },
            3 => match ty {
                Some((.., of_number)) => format!("p{at} = {};", of_number.replace('@', &value)),
                None => String::new(),
            },
            4 => format!("if ({value} & 1) sum += {value};"),
            5 => {
                let call = self.any_call(number, types);
                format!("for (int round = 0; round < 2; round++) sum += {call};")
            }
            _ => format!("sum += {};", self.any_call(number, types)),
        }
    }

    fn any_call(&mut self, number: usize, types: &[usize]) -> String {
        let callee = number - 1 - self.random.below(number.min(5));
        self.call(callee, types)
    }

    fn call(&mut self, callee: usize, types: &[usize]) -> String {
        let takes = self.functions.get(callee).cloned().unwrap_or_default();
        let arguments = takes.into_iter().map(|ty| {
            // The caller's own parameter is passed on, if it has the type.
            let own = types.iter().position(|own| *own == ty);
            match (own, self.random.below(3)) {
                (Some(at), 1..) => format!("p{at}"),
                _ => {
                    let value = self.number(types);
                    let of_number = TYPES.get(ty).map_or("@", |ty| ty.2);
                    of_number.replace('@', &value)
                }
            }
        });
        let arguments: Vec<_> = arguments.collect();
        format!("f{callee}({})", arguments.join(", "))
    }

    /// A number, usually from a parameter.
    fn number(&mut self, types: &[usize]) -> String {
        let at = self.random.below(types.len() + 1);
        let constant = self.random.below(1000);
        match types.get(at).and_then(|ty| TYPES.get(*ty)) {
            Some((_, number, _)) => {
                let number = number.replace('@', &format!("p{at}"));
                format!("({number} + {constant})")
            }
            None => constant.to_string(),
        }
    }
}
