# Run by gdb. The command `frames` prints every frame of every thread:
#
#   thread LWP
#   frame TYPE PC CFA REGISTER=VALUE ... NAME
#
# TYPE is gdb's number of the frame type; an unknown value is `-`.
import re
import gdb

REGISTERS = {
    "i386:x86-64": ["rbx", "rbp", "rsp", "r12", "r13", "r14", "r15"],
    "aarch64": [f"x{n}" for n in range(19, 30)] + ["sp"] + [f"v{n}" for n in range(8, 16)],
}
NOT_REAL = [gdb.INLINE_FRAME, gdb.TAILCALL_FRAME]


def register(frame, name):
    value = frame.read_register(name)
    if value.is_optimized_out:
        return "-"
    if value.type.code == gdb.TYPE_CODE_UNION:
        # The half that calls preserve.
        value = value["d"]["u"][0]
    return hex(int(value) & (2**64 - 1))


def cfa(frame):
    # Prints the frame's id, whose stack address is "frame at" in `info frame`. That
    # command takes time in proportion to the depth. The outermost frame has its callee's id, and
    # the command for it.
    if frame.older():
        found = re.search(r"stack=(0x[0-9a-f]+)", str(frame))
    else:
        frame.select()
        try:
            text = gdb.execute("info frame", to_string=True)
        except gdb.error as error:
            # AArch64's link register has no value there.
            if "was not saved" not in str(error):
                raise
            return "-"
        found = re.search(r"Previous frame's sp is (0x[0-9a-f]+)", text)
    return found.group(1) if found else "-"


def stack():
    frame = gdb.newest_frame()
    while frame is not None:
        if frame.type() not in NOT_REAL:
            names = REGISTERS[frame.architecture().name()]
            values = " ".join(f"{name}={register(frame, name)}" for name in names)
            kind = "signal" if frame.type() == gdb.SIGTRAMP_FRAME else "normal"
            print("frame", kind, hex(frame.pc()), cfa(frame), values, frame.name() or "??")
        frame = frame.older()


class Frames(gdb.Command):
    """Print the frames of all threads."""

    def __init__(self):
        super().__init__("frames", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            print("thread", thread.ptid[1] or thread.ptid[0])
            stack()


class Steps(gdb.Command):
    """steps COUNT STRIDE PREFIX: COUNT times, print `stop N` and the frames of all threads,
    write the core file PREFIX.N, and step STRIDE instructions."""

    def __init__(self):
        super().__init__("steps", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        count, stride, prefix = argument.split(" ", 2)
        for number in range(int(count)):
            # gdb may have left a line unfinished.
            print("\nstop", number)
            gdb.execute("frames")
            gdb.execute(f"gcore {prefix}.{number}")
            gdb.execute(f"stepi {stride}", to_string=True)


Frames()
Steps()
