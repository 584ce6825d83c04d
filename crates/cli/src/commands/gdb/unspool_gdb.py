"""gdb with unspool's rows, where gdb has none or wrong ones.

`unspool gdb` loads this file. In another front end: `source unspool_gdb.py`, with unspool in PATH.
It holds no rule and no table: `unspool frames` answers, and reads memory through gdb.
"""

import json
import os
import select
import subprocess
import time

import gdb
import gdb.unwinder
from gdb.FrameDecorator import FrameDecorator

# By DWARF number, up to the code address.
REGISTERS = "rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split()
# No function changes these for its caller.
UNCHANGED = "cs ss ds es fs gs fs_base gs_base".split()
MAX_ANSWER_SECONDS = 20
MAX_MARKED_FRAMES = 1000
MAX_EVIDENCE = 100000


class FrameId:
    def __init__(self, sp, pc):
        self.sp = sp
        if pc is not None:
            self.pc = pc


class Child:
    """`unspool frames`, and what it knows of the process."""

    def __init__(self):
        program = globals().get("unspool_program", "unspool")
        # In a session of its own: Ctrl-C is for gdb and its program.
        self.process = subprocess.Popen(
            [program, "frames"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.subject = None
        self.unread = b""

    def send(self, request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, deadline):
        while b"\n" not in self.unread:
            output = self.process.stdout
            if not select.select([output], [], [], max(0, deadline - time.monotonic()))[0]:
                raise OSError("unspool frames does not answer")
            more = os.read(output.fileno(), 1 << 16)
            if not more:
                raise OSError("unspool frames has ended")
            self.unread += more
        line, self.unread = self.unread.split(b"\n", 1)
        return json.loads(line)

    def ask(self, request):
        """The answer; memory is read meanwhile."""
        self.send(request)
        deadline = time.monotonic() + MAX_ANSWER_SECONDS
        while True:
            answer = self.receive(deadline)
            read = answer.get("read")
            if read is None:
                return answer
            try:
                inferior = gdb.selected_inferior()
                memory = inferior.read_memory(read["address"], read["count"])
                self.send({"bytes": bytes(memory).hex()})
            except (gdb.error, OverflowError):
                self.send({"bytes": None})

    def close(self):
        self.process.kill()
        self.process.wait()


class Unspool(gdb.unwinder.Unwinder):
    """Asks about each frame before gdb's own unwinders see it."""

    def __init__(self):
        super().__init__("unspool")
        self.child = None
        self.failure = None
        # By code address and stack pointer: how the frame's caller was found. gdb keeps frames in
        # ways that it does not tell, so this outlives stops.
        self.evidence = {}
        self.forget()

    def forget(self, _event=None):
        """The process has changed."""
        self.is_stale = True
        self.left = set()  # Addresses with right rows.
        self.is_checking = False
        if len(self.evidence) > MAX_EVIDENCE:
            self.evidence.clear()

    def subject(self):
        """The debugged process, or None if it is not one of this machine."""
        inferior = gdb.selected_inferior()
        kind = inferior.connection.type if inferior.connection else None
        if kind == "native" and inferior.pid > 0:
            with open("/proc/%d/maps" % inferior.pid, errors="surrogateescape") as maps:
                return {"process": {"pid": inferior.pid, "maps": maps.read()}}
        if kind == "core":
            lines = gdb.execute("info target", to_string=True).splitlines()
            after = lines[[line.startswith("Local core dump") for line in lines].index(True) + 1]
            path = after.split("`", 1)[1].rsplit("'", 1)[0]
            return {"core": {"path": path, "program": inferior.progspace.filename}}
        return None

    def ask(self, request):
        """The answer, or None."""
        try:
            if self.child is None:
                self.child = Child()
            if self.is_stale:
                subject = self.subject()
                if subject is not None and subject != self.child.subject:
                    self.child.send(subject)
                self.child.subject = subject
                self.is_stale = False
            return self.child.ask(request) if self.child.subject is not None else None
        except (OSError, ValueError) as error:
            self.failure = str(error)
            self.enabled = False
            gdb.write("unspool: %s: frames are gdb's from here on\n" % error, gdb.STDERR)
            return None

    def __call__(self, pending):
        try:
            return self.unwind(pending)
        except (gdb.error, gdb.MemoryError):
            return None  # A register is not available.

    def unwind(self, pending):
        if pending.architecture().name() != "i386:x86-64":
            return None
        pc = int(pending.read_register("rip"))
        if pc in self.left:
            return None
        values = {name: register(pending, name) for name in REGISTERS}
        question = {"is_innermost": pending.level() == 0, "registers": list(values.values())}
        answer = self.ask({"caller": question}) or {}
        caller = answer.get("caller")
        if caller is None:
            why = answer.get("leave")
            if why == "table":
                self.left.add(pc)
            elif why == "guess":
                self.evidence[pc, values["rsp"]] = "gdb's guess"
            self.is_checking |= why == "checking"
            return None
        self.evidence[pc, values["rsp"]] = caller["evidence"]
        kinds = {name: pending.read_register(name).type for name in REGISTERS}
        start = caller["function"]
        start = None if start is None else gdb.Value(start).cast(kinds["rip"])
        info = pending.create_unwind_info(FrameId(gdb.Value(caller["cfa"]).cast(kinds["rsp"]), start))
        for name, value in zip(REGISTERS, caller["registers"]):
            if value is not None:
                info.add_saved_register(name, gdb.Value(value).cast(kinds[name]))
        for name in UNCHANGED:
            info.add_saved_register(name, pending.read_register(name))
        return info

    def mark(self, frame):
        """How a frame was found, if not by gdb's rows."""
        newer = frame.newer()
        if newer is None or not self.evidence:
            return None
        return self.evidence.get((newer.pc(), register(newer, "rsp")))

    def when_idle(self):
        """Frames that waited for a check are unwound again."""
        if self.is_checking:
            self.forget()
            gdb.invalidate_cached_frames()


def register(frame, name):
    try:
        return int(frame.read_register(name)) % (1 << 64)
    except (gdb.error, gdb.MemoryError):
        return None


def stack():
    """The frames of the selected thread, up to a limit."""
    try:
        frame = gdb.newest_frame()
        for _ in range(MAX_MARKED_FRAMES):
            if frame is None:
                return
            yield frame
            frame = frame.older()
    except gdb.error:
        return  # There is no process, or a frame cannot be unwound.


class MarkedFrame(FrameDecorator):
    """A frame with its evidence, and the name that the maker of its code gave."""

    def function(self):
        frame = self.inferior_frame()
        mark = unspool.mark(frame)
        name = frame.name()
        if name is None and unspool.enabled and frame.type() == gdb.NORMAL_FRAME:
            address = (frame.pc() - (frame.newer() is not None)) % (1 << 64)
            name = (unspool.ask({"name": address}) or {}).get("name") or "??"
        elif mark is None:
            return super().function()
        return name + (" [%s]" % mark if mark else "")


class MarkFrames:
    """The frame filter. Without marks or names, gdb prints stacks by itself."""

    name = "unspool"
    priority = 0

    @property
    def enabled(self):
        frames = list(stack()) if unspool.enabled else []
        return any(frame.name() is None or unspool.mark(frame) for frame in frames)

    @enabled.setter
    def enabled(self, _value):
        pass

    def filter(self, frames):
        return map(MarkedFrame, frames)


class UnspoolCommand(gdb.Command):
    """unspool status|on|off: frames by unspool's rows, where gdb has none or wrong ones."""

    def __init__(self):
        super().__init__("unspool", gdb.COMMAND_STACK)

    def complete(self, _text, word):
        return [choice for choice in ("status", "on", "off") if choice.startswith(word)]

    def invoke(self, argument, _from_tty):
        if argument in ("on", "off"):
            if argument == "on" and unspool.failure is not None and unspool.child is not None:
                unspool.child.close()
                unspool.child = unspool.failure = None
            unspool.enabled = argument == "on"
            unspool.forget()
            gdb.invalidate_cached_frames()
        elif argument not in ("", "status"):
            raise gdb.GdbError("unspool: write status, on or off")
        state = "on" if unspool.enabled else "off"
        reason = ": " + unspool.failure if unspool.failure else ""
        gdb.write("unspool is %s%s\n" % (state, reason))
        marks = list(filter(None, map(unspool.mark, stack())))
        for mark in sorted(set(marks)):
            gdb.write("  frames by %s: %d\n" % (mark, marks.count(mark)))


unspool = Unspool()
gdb.unwinder.register_unwinder(None, unspool, replace=True)
gdb.frame_filters["unspool"] = MarkFrames()
UnspoolCommand()
for event in ("stop", "new_objfile", "memory_changed", "register_changed", "exited", "inferior_call"):
    if hasattr(gdb.events, event):
        getattr(gdb.events, event).connect(unspool.forget)
gdb.events.before_prompt.connect(unspool.when_idle)
