"""gdb's values of the variables of a process that is about to die, in the format of `unspool stack --locals`.

Run by gdb, with variables in the environment. OUT is the output file, in JSON. CORE is the path of the core
file to write. Instead of CORE, STOP is a function: the process is inspected at its first call, and continues.
RUST is the source of a program in Rust.
"""

import decimal
import json
import os
import re
import struct

import gdb

# The source, if it is in Rust.
RUST = os.environ.get("RUST")

# The function at which the process is inspected.
STOP = os.environ.get("STOP")


def number(value, size):
    """The shortest digits of this number, with an exponent if it is very small or large."""
    value, form = float(value), {4: "f", 8: "d"}[size]
    if value != value:
        return "NaN"
    digits = next(text for text in (f"{value:.{count}e}" for count in range(18))
                  if struct.pack(form, float(text)) == struct.pack(form, value))
    if value == 0 or 1e-5 <= abs(value) < 1e16:
        return f"{decimal.Decimal(digits):f}"
    mantissa, exponent = digits.split("e")
    return f"{mantissa}e{int(exponent)}"


def if_any(known):
    """A value, or None if all of it is unknown."""
    is_nothing = known == "<lost>" or "<lost>" in known and not re.search(r"= [^{<]|[{ ][-0-9\"]", known)
    return None if is_nothing else known


def text(value):
    """A value in C syntax; optimized-out parts are lost."""
    kind = value.type.strip_typedefs()
    if kind.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        members = []
        for field in kind.fields():
            if hasattr(field, "bitpos"):
                name = f".{field.name} = " if field.name and not field.is_base_class else ""
                members.append(name + text(value[field]))
        return if_any("{" + ", ".join(members) + "}") or "<lost>"
    if kind.code == gdb.TYPE_CODE_ARRAY:
        low, high = kind.range()
        element = kind.target().strip_typedefs()
        if element.name == "char" and not value.is_optimized_out:
            # As gdb prints it, without the zeros at its end.
            shown = value.format_string(max_elements=high - low + 1, repeat_threshold=0)
            characters = re.findall(r"\\[0-7]{3}|\\.|.", shown[1:-1])
            while characters and characters[-1] == r"\000":
                characters.pop()
            return '"{}"'.format("".join(characters[:80])) + "..." * (len(characters) > 80)
        shown = [text(value[index]) for index in range(low, min(high + 1, low + 32))]
        return if_any("{" + ", ".join(shown + ["..."] * (high - low + 1 > 32)) + "}") or "<lost>"
    if value.is_optimized_out:
        return "<lost>"
    if kind.code in (gdb.TYPE_CODE_MEMBERPTR, gdb.TYPE_CODE_METHODPTR):
        # gdb converts neither to a number. The programs keep them in memory.
        parts = gdb.selected_inferior().read_memory(value.address, kind.sizeof).tobytes()
        if kind.code == gdb.TYPE_CODE_MEMBERPTR:
            return str(*struct.unpack("q", parts))
        return "{{.__pfn = {:#x}, .__delta = {}}}".format(*struct.unpack("Qq", parts))
    if kind.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
        return hex(int(value.referenced_value().address))
    if kind.code == gdb.TYPE_CODE_PTR:
        return hex(int(value) & (1 << 64) - 1)
    if kind.code == gdb.TYPE_CODE_BOOL:
        return "true" if value else "false"
    if kind.code == gdb.TYPE_CODE_ENUM:
        return re.sub(r"\w+::", "", value.format_string())
    if kind.code == gdb.TYPE_CODE_FLT and kind.sizeof <= 8:
        return number(value, kind.sizeof)
    if kind.code == gdb.TYPE_CODE_INT:
        plain = int(value)
        is_character = kind.sizeof == 1 and "char" in kind.name
        return f"{plain} '{chr(plain)}'" if is_character and 32 <= plain < 127 else str(plain)
    return None


def text_in_rust(value):
    """A value in Rust syntax."""
    shown = value.format_string(max_elements=32, repeat_threshold=0, symbols=False)
    shown = re.sub(r"([^ ])\.\.\.\]", r"\1, ...]", shown).replace("<optimized out>", "<lost>")
    shown = re.sub(r"(0x[0-9a-f]+) <[\w:+]*>", r"\1", shown)
    return None if shown == "<lost>" else shown


def told(read):
    """The result of a function, or None on an error."""
    try:
        value = read()
        value.fetch_lazy()
        # Its target is not in memory, and so has no address.
        if "synthetic" in value.format_string():
            return None
        return text_in_rust(value) if RUST else if_any(text(value))
    except (gdb.error, gdb.MemoryError):
        return None


def counted(value):
    """A value, unless gdb shows an array with one element. gdb does so if it cannot count the elements: the only such array in the programs is a `va_list`."""
    kind = value.type.strip_typedefs()
    while kind.code == gdb.TYPE_CODE_ARRAY:
        if kind.range() == (0, 0) and "va_list" not in str(kind.target()):
            raise gdb.error("not counted")
        kind = kind.target().strip_typedefs()
    return value


def variables(frame):
    """The variables of a frame's function, the innermost block first, and its parameters."""
    found = []
    # gdb counts the elements of arrays in the selected frame.
    frame.select()
    block = frame.block()
    while block is not None:
        for symbol in block:
            # gdb 13 does not find the variant of a negative discriminant.
            if (symbol.is_argument or symbol.is_variable) and symbol.name != "negative":
                entry = None
                if symbol.is_argument and frame.type() == gdb.NORMAL_FRAME:
                    entry = told(lambda: gdb.parse_and_eval(symbol.name + "@entry"))
                found.append({
                    "name": symbol.name,
                    "parameter": symbol.is_argument,
                    "value": told(lambda: counted(symbol.value(frame))),
                    "entry": entry,
                })
        if block.function is not None:
            break
        block = block.superblock
    return found


def stack():
    """The values of all frames."""
    frames = []
    frame = gdb.newest_frame()
    if STOP:
        frame = frame.older()
    while frame is not None and frame.is_valid():
        name = frame.name()
        symtab = frame.find_sal().symtab
        # Functions of Rust's own library have many names.
        is_own = symtab is not None and (not RUST or symtab.fullname() == RUST)
        is_real = frame.type() in (gdb.NORMAL_FRAME, gdb.INLINE_FRAME)
        if is_real and is_own and name is not None:
            frames.append({
                "pc": frame.pc(),
                "function": name,
                "variables": variables(frame),
            })
        frame = frame.older()
    return frames


def change_what_calls_change():
    """Changes all caller-saved registers; a second call restores them."""
    gdb.newest_frame().select()
    change_vector_registers()
    for register in ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11"):
        gdb.execute(f"set ${register} = ~${register}")


def change_vector_registers():
    """Inverts the low halves of xmm0 to xmm15, by instructions that the process executes.

    gdb 13 cannot write these registers on a processor with AMX: the kernel refuses its buffer, which is too small
    for that state. The instructions temporarily replace the program's entry code, which is not executed again.
    """
    start = int(gdb.parse_and_eval("(unsigned long)&_start"))
    mask, code = b"\xff" * 8 + b"\0" * 8, start + 16
    instructions = b""
    for number in range(16):
        # xorps mask(%rip), %xmmN
        opcode = b"\x44" * (number > 7) + bytes((0x0F, 0x57, 0x05 | (number & 7) << 3))
        behind = code + len(instructions) + len(opcode) + 4
        instructions += opcode + struct.pack("<i", start - behind)
    trap = b"\xcc"
    written = mask + instructions + trap
    process, pc = gdb.selected_inferior(), int(gdb.parse_and_eval("(unsigned long)$pc"))
    before = process.read_memory(start, len(written)).tobytes()
    process.write_memory(start, written)
    gdb.execute("set scheduler-locking on")
    gdb.execute(f"set $pc = {code:#x}")
    gdb.execute("signal 0")
    reached = int(gdb.parse_and_eval("(unsigned long)$pc"))
    assert reached == start + len(written), f"stopped at {reached:#x}, not at the trap"
    gdb.execute(f"set $pc = {pc:#x}")
    gdb.execute("set scheduler-locking replay")
    process.write_memory(start, before)


def common(one, other):
    """The common parts of two texts of a value; the other parts are lost."""
    if one is None or other is None:
        return None
    if RUST:
        return one if one == other else None
    parts = [re.split(r"([{},])", text) for text in (one, other)]
    if len(parts[0]) != len(parts[1]):
        return None
    same = "".join(left if left == right else re.sub(r"^( ?(?:\.\w+ = )?).*$", r"\1<lost>", left) for left, right in zip(*parts))
    # A structure without any common part is lost as a whole.
    inner = r"\{(?:(?:\.\w+ = )?<lost>(?:, )?)+\}"
    while re.search(inner, same):
        same = re.sub(inner, "<lost>", same)
    return if_any(same)


def main():
    gdb.execute("set debuginfod enabled off")
    gdb.execute("set backtrace past-main on")
    gdb.execute("set confirm off")
    gdb.execute("set style enabled off")
    if STOP:
        # The function may be in Rust.
        gdb.execute("set language c")
        gdb.execute("handle SIGSEGV nostop noprint pass")
        gdb.execute("set breakpoint pending on")
        gdb.execute("break " + STOP)
    gdb.execute("run")
    if not STOP:
        gdb.execute("generate-core-file " + os.environ["CORE"])
    frames = stack()
    # Without a rule, gdb uses the callee's registers for the caller, preserved or not. Values from these are uncertain.
    for frame in frames:
        for variable in frame["variables"]:
            variable["believed"] = variable["value"]
    change_what_calls_change()
    # The innermost frame's registers are its own. After the process has run, gdb shows more inlined functions there: frames match from the outermost on.
    first = 0 if STOP else 1
    for frame, again in zip(reversed(frames[first:]), reversed(stack())):
        assert (frame["pc"], frame["function"]) == (again["pc"], again["function"])
        for variable, other in zip(frame["variables"], again["variables"]):
            for what in ("value", "entry"):
                variable[what] = common(variable[what], other[what])
    with open(os.environ["OUT"], "w", encoding="utf-8") as out:
        json.dump(frames, out, indent=1)
    if STOP:
        change_what_calls_change()
        gdb.execute("delete")
        gdb.execute("continue")


main()
