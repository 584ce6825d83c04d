"""Steps a program of the corpus from its main function to its end, and prints the differences
between gdb's unwinder, and so the unwind table, and the truth.

The truth is a shadow stack. For each frame it has observed the registers at the entry of the function, the address
of its return address, and the stack pointer that its caller expects.

Lines on stdout:
  insn ADDRESS                    an instruction that was executed
  code ADDRESS LENGTH MNEMONIC    an instruction of a function, executed or not
  diff ADDRESS TEXT               a difference, and the address whose row it is
  lost ADDRESS                    an instruction at which a backtrace does not show the main function
  exit STATUS                     how the program ended
"""

import os

import gdb

SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")
MOST_STEPS = 20000
MOST_FRAMES = 64
# A change of the stack pointer that counts as a switch of stacks, and the largest distance of a frame on a stack.
FAR = 1 << 16
STACK = 1 << 20


class Frame:
    """A frame of the truth: the state that its caller finds when it returns."""

    def __init__(self, key, pc, sp, saved, caller):
        self.key = key  # the address of the return address
        self.pc = pc  # None: no caller
        self.sp = sp
        self.saved = saved
        self.caller = caller
        self.live = True


def register(name):
    return int(gdb.newest_frame().read_register(name)) & 0xFFFFFFFFFFFFFFFF


def word(address):
    value = gdb.parse_and_eval("*(unsigned long *)%d" % address)
    return int(value)


class Shadow:
    """The truth, kept up to date after every step."""

    def __init__(self, functions, outermost, linked):
        self.functions = functions
        self.outermost = outermost
        self.linked = linked
        self.frames = []
        self.current = None
        self.called(register("rsp"))

    def push(self, frame):
        self.frames.append(frame)
        self.current = frame

    def called(self, sp):
        saved = {name: register(name) for name in SAVED}
        self.push(Frame(sp, word(sp), sp + 8, saved, self.current))

    def interrupted(self, before, pc):
        """A signal was delivered at `pc`: one frame for the interrupted code, one for the handler."""
        sp = register("rsp")
        saved = {name: before[name] for name in SAVED}
        self.push(Frame(sp + 8, pc, before["rsp"], saved, self.current))
        self.called(sp)

    def leave(self, pc, sp):
        """Control moved: frames below the stack pointer are gone. So is a frame that returned although its
        return address was overwritten, as in outlined prologues."""
        while self.current is not None:
            frame = self.current
            gave_up = frame.pc == pc and word(frame.key) != pc
            if frame.key >= sp and not gave_up:
                break
            self.current.live = False
            self.frames.remove(self.current)
            self.current = self.current.caller

    def stepped(self, before, mnemonic, length):
        pc, sp = register("rip"), register("rsp")
        enters, following = pc in self.functions, before["rip"] + length
        if self.functions.get(pc) in self.outermost:
            self.push(Frame(sp + STACK, None, None, {}, None))
        elif mnemonic == "call" and enters:
            self.called(sp)
        elif mnemonic == "jmp" and enters and self.functions[pc] in self.linked:
            saved = {name: register(name) for name in SAVED}
            back = register(self.linked[self.functions[pc]])
            self.push(Frame(sp - 8, back, sp, saved, self.current))
        elif mnemonic == "jmp" and enters and self.is_back(before["rip"], sp):
            self.called(sp)
        elif enters and pc != following and not mnemonic.startswith(("j", "call", "ret", "iret")):
            self.interrupted(before, following if mnemonic == "syscall" else before["rip"])
        elif abs(sp - before["rsp"]) > FAR:
            self.switched(sp)
        elif pc != following and mnemonic in ("ret", "jmp", "iretq", "syscall"):
            self.leave(pc, sp)

    def is_back(self, jump, sp):
        """Whether a jump leaves an address of its own function on top of the stack, to be returned to."""
        function = lambda pc: max((start for start in self.functions if start <= pc), default=None)
        return self.current.key != sp and function(word(sp)) == function(jump)

    def switched(self, sp):
        """Another stack: its innermost frame is the current one, if it has any."""
        there = [frame for frame in self.frames if 0 <= frame.key - sp < STACK]
        if there:
            self.current = min(there, key=lambda frame: frame.key)


def difference(frame, truth):
    """The difference between gdb's caller of a frame and the true one, or None."""
    try:
        caller = frame.older()
        if truth.pc is None:
            return None if caller is None else "there is no caller, found %#x" % caller.pc()
        if caller is None:
            return "no caller found"
        found = {"rip": caller.pc(), "rsp": int(caller.read_register("rsp")) & 0xFFFFFFFFFFFFFFFF}
    except gdb.error as error:
        return str(error).replace("\n", " ")
    wrong = [
        "%s %#x is %#x" % (name, found[name], value)
        for name, value in (("rip", truth.pc), ("rsp", truth.sp))
        if found[name] != value
    ]
    for name, value in truth.saved.items():
        got = saved_register(caller, name)
        # A table may mark a value as lost; that is not wrong.
        if got not in (value, None):
            wrong.append("%s %s is %#x" % (name, hex(got) if isinstance(got, int) else got, value))
    return ", ".join(wrong) or None


def saved_register(caller, name):
    """A register of the caller, None if the table marks it as lost, or an error's text."""
    try:
        value = caller.read_register(name)
        if str(value) == "<not saved>":
            return None
        return int(value) & 0xFFFFFFFFFFFFFFFF
    except gdb.error as error:
        return str(error)


def differences(shadow):
    """The innermost difference of the whole stack: (address of the row, text), or None."""
    frame, truth = gdb.newest_frame(), shadow.current
    while truth is not None and truth.live:
        text = difference(frame, truth)
        if text:
            return frame.pc(), text
        frame, truth = frame.older(), truth.caller
        if frame is None:
            return None
    return None


def shows(function):
    """Whether a backtrace has a frame of a function, by its range."""
    frame = gdb.newest_frame()
    for _ in range(MOST_FRAMES):
        if frame is None:
            return False
        if function[0] <= frame.pc() < function[1]:
            return True
        try:
            frame = frame.older()
        except gdb.error:
            return False
    return False


def decode(pc):
    """The mnemonic of an instruction, without prefixes, and its length."""
    insn = gdb.selected_inferior().architecture().disassemble(pc)[0]
    words = insn["asm"].split()
    prefixes = ("bnd", "notrack", "repz", "rep", "repnz", "lock", "data16", "cs")
    mnemonics = [word for word in words if word not in prefixes] or words
    return mnemonics[0], insn["length"]


def step(mnemonic, following):
    if mnemonic.startswith(("popf", "iret")):
        # The kernel takes the trap flag for the program's own if these instructions are stepped.
        following = word(register("rsp")) if mnemonic.startswith("iret") else following
        gdb.execute("tbreak *%d" % following, to_string=True)
        gdb.execute("continue", to_string=True)
    else:
        gdb.execute("stepi", to_string=True)


def run(functions, outermost, linked, start, ranges):
    # Stepping does not go into signal handlers by itself. The first function to be entered is main.
    for address in functions:
        gdb.execute("break *%d" % address, to_string=True)
    gdb.execute("run", to_string=True)
    shadow = Shadow(functions, outermost, linked)
    entry = register("rip")
    (main,) = (range for range in ranges if range[0] <= entry < range[1])
    executed = {}
    lost = set()
    for _ in range(MOST_STEPS):
        pc = register("rip")
        if start[0] <= pc < start[1]:
            break
        if pc not in executed:
            executed[pc] = decode(pc)
        mnemonic, length = executed[pc]
        found = differences(shadow)
        if found:
            print("diff %#x at %#x: %s" % (found[0], pc, found[1]))
        if not shows(main):
            lost.add(pc)
        before = {name: register(name) for name in SAVED + ("rip", "rsp")}
        step(mnemonic, pc + length)
        if not gdb.selected_inferior().threads():
            break
        if mnemonic.startswith("pushf"):
            # The trap flag is the tracer's.
            gdb.execute("set *(long *) $rsp &= ~0x100")
        shadow.stepped(before, mnemonic, length)
    else:
        raise gdb.GdbError("no end after %d steps" % MOST_STEPS)
    for pc in sorted(executed):
        print("insn %#x" % pc)
    for pc in sorted(lost):
        print("lost %#x" % pc)


def listing(ranges):
    for start, end in ranges:
        while start < end:
            mnemonic, length = decode(start)
            print("code %#x %d %s" % (start, length, mnemonic))
            start += length


def main():
    for setting in ("backtrace past-main on", "backtrace past-entry on", "startup-with-shell off"):
        gdb.execute("set " + setting)
    gdb.execute("handle SIGUSR1 nostop noprint pass", to_string=True)
    symbols = [line.split() for line in os.environ["STEP_FUNCTIONS"].splitlines()]
    ranges = {name: (int(start, 16), int(start, 16) + int(size)) for name, start, size in symbols}
    start = ranges.pop("_start")
    functions = {address: name for name, (address, _) in ranges.items()}
    linked = os.environ["STEP_LINKED"].split()
    linked = dict(zip(linked[::2], linked[1::2]))
    run(functions, os.environ["STEP_OUTERMOST"].split(), linked, start, ranges.values())
    if gdb.selected_inferior().threads():
        gdb.execute("delete")
        gdb.execute("continue", to_string=True)
    code = gdb.convenience_variable("_exitcode")
    print("exit %s" % ("signal" if code is None else int(code)))
    listing(sorted(ranges.values()))


main()
