//! The table as C, for people and compilers.
//!
//! This is the form of the 2018 work on compiled tables: a tree of comparisons that ends in jumps
//! to the rows, each distinct row written once. It needs a C compiler, minutes for big files, and
//! several times the size of the machine code from [`crate::object`]. The behavior is the same.

use core::fmt::{self, Write};

use unspool_rows::expression::{Operation, operation};

use crate::outline::{Outline, OutlineStart, RowNumber};
use crate::recipe::{self, BranchFreeExpression, CallerRecipe, Recipe, ReturnAddress, ValueSource};
use crate::status::StepStatus;

/// Writes C11 source. `about` names the table's source, in the first line.
///
/// # Errors
///
/// Those of `out`.
pub fn source(outline: &Outline<'_>, about: &str, out: &mut impl Write) -> fmt::Result {
    let mut code = String::new();
    function(&mut code, outline)?;
    writeln!(out, "/* {}", about.replace("*/", "* /"))?;
    writeln!(
        out,
        " *\n * {} rows, {} of them different. */\n\n{}",
        outline.source_rows(),
        outline.rows().len(),
        crate::HEADER
    )?;
    if code.contains("KNOWN(") {
        writeln!(out, "#define KNOWN(r) (frame->known >> (r) & 1)\n")?;
    }
    // Called functions are defined before their callers.
    for (at, (call, helper)) in HELPERS.iter().enumerate() {
        let mut behind = HELPERS.iter().skip(at + 1);
        let helps = behind.any(|(other, text)| text.contains(call) && code.contains(other));
        if code.contains(call) || helps {
            writeln!(out, "{}\n", helper.trim())?;
        }
    }
    out.write_str(&code)
}

fn function(out: &mut String, outline: &Outline<'_>) -> fmt::Result {
    writeln!(
        out,
        "int unspool_step(struct unspool_frame *frame, uint64_t address, uint64_t bias,\n                 \
         const struct unspool_memory *memory)\n{{"
    )?;
    writeln!(out, "    struct unspool_frame caller = *frame;")?;
    writeln!(
        out,
        "    uint64_t cfa = 0, value = 0;\n    int status = 0;\n"
    )?;
    writeln!(
        out,
        "    (void)bias, (void)memory, (void)cfa, (void)value, (void)status;"
    )?;
    let starts: Vec<OutlineStart> = outline.starts().collect();
    let first = starts.first().map_or(0, |start| start.address);
    let no_row = StepStatus::NoRow.name();
    writeln!(
        out,
        "    if (address < {first:#x})\n        return {no_row};"
    )?;
    tree(out, &starts, 1)?;
    for (row, number) in outline.rows().zip(0..) {
        writeln!(out, "\n    /* {} */", row.display(outline.abi()))?;
        writeln!(out, "row_{number}:")?;
        match Recipe::from_row(&row, outline.abi()) {
            Recipe::Fails(status) => writeln!(out, "    return {};", status.name())?,
            Recipe::Steps(steps) => body(out, &steps, outline)?,
        }
    }
    writeln!(out, "}}")
}

/// Functions that the code may call, each with the begin of a call.
const HELPERS: [(&str, &str); 5] = [
    (
        "load(",
        // An address may be one of the last: pointers do not wrap as integers do, of which GCC 14 warns.
        "
static inline int load(const struct unspool_memory *memory, uint64_t address, uint64_t size, uint64_t *value)
{
    if (address >= memory->stack && address < memory->stack_end && memory->stack_end - address >= size) {
        *value = 0;
        for (uint64_t n = 0; n < size; n++)
            *value |= (uint64_t)*(const unsigned char *)(uintptr_t)(address + n) << 8 * n;
        return 0;
    }
    return memory->read ? memory->read(memory->argument, address, size, value) : 1;
}",
    ),
    (
        "set(",
        "
static inline void set(struct unspool_frame *caller, unsigned n, uint64_t value)
{
    caller->registers[n] = value;
    caller->known |= UINT64_C(1) << n;
}",
    ),
    (
        "restore(",
        "
static inline void restore(const struct unspool_memory *memory, struct unspool_frame *caller, unsigned n,
                           uint64_t address)
{
    uint64_t value;
    if (load(memory, address, 8, &value) == 0)
        set(caller, n, value);
}",
    ),
    (
        "divide(",
        "
static inline uint64_t divide(uint64_t a, uint64_t b)
{
    return b == UINT64_MAX ? 0 - a : (uint64_t)((int64_t)a / (int64_t)b);
}",
    ),
    (
        "shift_arithmetic(",
        "
static inline uint64_t shift_arithmetic(uint64_t value, uint64_t bits)
{
    uint64_t sign = 0 - (value >> 63);
    return bits > 63 ? sign : ((value ^ sign) >> bits) ^ sign;
}",
    ),
];

struct Indent(usize);

impl fmt::Display for Indent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.0).try_for_each(|_| f.write_str("    "))
    }
}

/// A tree of comparisons over some starts; the address is not below the first.
fn tree(out: &mut impl Write, starts: &[OutlineStart], depth: usize) -> fmt::Result {
    let indent = Indent(depth);
    let Some((first, _)) = starts.split_first() else {
        return writeln!(out, "{indent}return {};", StepStatus::NoRow.name());
    };
    if starts.len() == 1 {
        return match first.row {
            Some(RowNumber(row)) => writeln!(out, "{indent}goto row_{row};"),
            None => writeln!(out, "{indent}return {};", StepStatus::NoRow.name()),
        };
    }
    let (below, above) = starts.split_at(starts.len() / 2);
    let middle = above.first().map_or(0, |start| start.address);
    writeln!(out, "{indent}if (address < {middle:#x}) {{")?;
    tree(out, below, depth + 1)?;
    writeln!(out, "{indent}}} else {{")?;
    tree(out, above, depth + 1)?;
    writeln!(out, "{indent}}}")
}

fn body(out: &mut impl Write, recipe: &CallerRecipe, outline: &Outline<'_>) -> fmt::Result {
    value(out, "cfa", &recipe.cfa)?;
    writeln!(out, "    if (status)\n        return status;")?;
    let return_address = match &recipe.return_address {
        ReturnAddress::Source(source) => source,
        ReturnAddress::Undefined => {
            writeln!(out, "    frame->cfa = cfa;")?;
            return writeln!(out, "    return {};", StepStatus::Outermost.name());
        }
        ReturnAddress::Missing(status) => return writeln!(out, "    return {};", status.name()),
    };
    value(out, "value", return_address)?;
    writeln!(out, "    if (status)\n        return status;")?;
    writeln!(out, "    caller.known &= {:#x};", recipe.kept)?;
    let pc = outline.abi().arch.spec().pc.0;
    writeln!(out, "    caller.cfa = cfa;\n    set(&caller, {pc}, value);")?;
    for (register, source) in &recipe.set {
        match source {
            ValueSource::Cfa(offset) => writeln!(
                out,
                "    set(&caller, {register}, {});",
                OffsetName("cfa", *offset)
            )?,
            ValueSource::AtCfa(offset) => writeln!(
                out,
                "    restore(memory, &caller, {register}, {});",
                OffsetName("cfa", *offset)
            )?,
            source => {
                value(out, "value", source)?;
                writeln!(
                    out,
                    "    if (!status)\n        set(&caller, {register}, value);"
                )?;
            }
        }
    }
    let status = if recipe.is_interrupted {
        StepStatus::Interrupted
    } else {
        StepStatus::Caller
    };
    writeln!(out, "    *frame = caller;\n    return {};", status.name())
}

/// Sets a variable and `status`.
fn value(out: &mut impl Write, variable: &str, source: &ValueSource) -> fmt::Result {
    let unreadable = StepStatus::Unreadable.name();
    match source {
        ValueSource::Cfa(offset) => {
            writeln!(
                out,
                "    {variable} = {};\n    status = 0;",
                OffsetName("cfa", *offset)
            )
        }
        ValueSource::AtCfa(offset) => writeln!(
            out,
            "    status = load(memory, {}, 8, &{variable}) ? {unreadable} : 0;",
            OffsetName("cfa", *offset)
        ),
        ValueSource::Register(register, offset) => {
            let register_text = format!("frame->registers[{register}]");
            writeln!(
                out,
                "    {variable} = {};",
                OffsetName(&register_text, *offset)
            )?;
            let unknown = StepStatus::UnknownRegister.name();
            writeln!(out, "    status = KNOWN({register}) ? 0 : {unknown};")
        }
        ValueSource::Value(straight) => {
            expression(out, variable, straight, variable != "cfa", false)
        }
        ValueSource::Memory(straight) => {
            expression(out, variable, straight, variable != "cfa", true)
        }
    }
}

/// A name plus an offset.
struct OffsetName<'a>(&'a str, i64);

impl fmt::Display for OffsetName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            0 => f.write_str(self.0),
            number if number < 0 => write!(f, "{} - UINT64_C({})", self.0, number.unsigned_abs()),
            number => write!(f, "{} + UINT64_C({number})", self.0),
        }
    }
}

/// Sets a variable to the result of an expression, or to the memory at it, and `status`.
fn expression(
    out: &mut impl Write,
    variable: &str,
    expression: &BranchFreeExpression,
    has_cfa: bool,
    is_address: bool,
) -> fmt::Result {
    let mut lines = String::new();
    let mut stack = StackVariables {
        out: &mut lines,
        depth: 0,
        most: 0,
    };
    if has_cfa {
        stack.push("cfa")?;
    }
    for operation in &expression.0 {
        stack.operation(operation)?;
    }
    if is_address {
        stack.load(8)?;
    }
    let (top, most) = (stack.depth.saturating_sub(1), stack.most);
    writeln!(out, "    do {{\n        uint64_t s[{most}];")?;
    out.write_str(&lines)?;
    writeln!(
        out,
        "        {variable} = s[{top}];\n        status = 0;\n    }} while (0);"
    )
}

/// Writes operations on variables that represent a stack.
struct StackVariables<'o, W> {
    out: &'o mut W,
    depth: usize,
    most: usize,
}

impl<W: Write> StackVariables<'_, W> {
    fn push(&mut self, value: &str) -> fmt::Result {
        writeln!(self.out, "        s[{}] = {value};", self.depth)?;
        self.depth += 1;
        self.most = self.most.max(self.depth);
        Ok(())
    }

    /// The variable this many values below the top.
    fn at(&self, below: usize) -> String {
        format!("s[{}]", self.depth.saturating_sub(below + 1))
    }

    fn fail_if(&mut self, condition: &str, status: StepStatus) -> fmt::Result {
        let name = status.name();
        writeln!(
            self.out,
            "        if ({condition}) {{\n            status = {name};\n            break;\n        }}"
        )
    }

    fn load(&mut self, size: u64) -> fmt::Result {
        let top = self.at(0);
        let condition = format!("load(memory, {top}, {size}, &{top})");
        self.fail_if(&condition, StepStatus::Unreadable)
    }

    fn operation(&mut self, operation: &Operation) -> fmt::Result {
        use operation::*;
        if let Some(number) = recipe::constant(operation) {
            return self.push(&format!("UINT64_C({number:#x})"));
        }
        if let Some((register, offset)) = recipe::register(operation) {
            self.fail_if(&format!("!KNOWN({register})"), StepStatus::UnknownRegister)?;
            let register = format!("frame->registers[{register}]");
            return self.push(&OffsetName(&register, offset).to_string());
        }
        let (top, second, third) = (self.at(0), self.at(1), self.at(2));
        match operation.opcode {
            DW_OP_ADDR => self.push(&format!("bias + UINT64_C({:#x})", operation.unsigned())),
            DW_OP_DUP => self.push(&top),
            DW_OP_OVER => self.push(&second),
            DW_OP_PICK => {
                let below = usize::try_from(operation.unsigned()).unwrap_or(0);
                let picked = self.at(below);
                self.push(&picked)
            }
            DW_OP_DROP => {
                self.depth = self.depth.saturating_sub(1);
                Ok(())
            }
            DW_OP_SWAP => writeln!(
                self.out,
                "        value = {top}; {top} = {second}; {second} = value;"
            ),
            DW_OP_ROT => writeln!(
                self.out,
                "        value = {top}; {top} = {second}; {second} = {third}; {third} = value;"
            ),
            DW_OP_DEREF => self.load(8),
            DW_OP_DEREF_SIZE => self.load(operation.unsigned()),
            DW_OP_NOP => Ok(()),
            DW_OP_ABS => self.assign(&top, &format!("{top} >> 63 ? 0 - {top} : {top}")),
            DW_OP_NEG => self.assign(&top, &format!("0 - {top}")),
            DW_OP_NOT => self.assign(&top, &format!("~{top}")),
            DW_OP_PLUS_UCONST => self.assign(
                &top,
                &format!("{top} + UINT64_C({:#x})", operation.unsigned()),
            ),
            opcode => {
                if matches!(opcode, DW_OP_DIV | DW_OP_MOD) {
                    self.fail_if(&format!("{top} == 0"), StepStatus::NoValue)?;
                }
                self.depth = self.depth.saturating_sub(1);
                let infix = |symbol: &str| format!("{second} {symbol} {top}");
                let signed = |symbol: &str| format!("(int64_t){second} {symbol} (int64_t){top}");
                let shift = |symbol: &str| format!("{top} < 64 ? {second} {symbol} {top} : 0");
                let result = match opcode {
                    DW_OP_AND => infix("&"),
                    DW_OP_OR => infix("|"),
                    DW_OP_XOR => infix("^"),
                    DW_OP_PLUS => infix("+"),
                    DW_OP_MINUS => infix("-"),
                    DW_OP_MUL => infix("*"),
                    DW_OP_MOD => infix("%"),
                    DW_OP_DIV => format!("divide({second}, {top})"),
                    DW_OP_SHL => shift("<<"),
                    DW_OP_SHR => shift(">>"),
                    DW_OP_SHRA => format!("shift_arithmetic({second}, {top})"),
                    DW_OP_EQ => infix("=="),
                    DW_OP_NE => infix("!="),
                    DW_OP_GE => signed(">="),
                    DW_OP_GT => signed(">"),
                    DW_OP_LE => signed("<="),
                    DW_OP_LT => signed("<"),
                    // A recipe has no other operations.
                    _ => return Err(fmt::Error),
                };
                self.assign(&second, &result)
            }
        }
    }

    fn assign(&mut self, variable: &str, value: &str) -> fmt::Result {
        writeln!(self.out, "        {variable} = {value};")
    }
}
