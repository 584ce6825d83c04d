/* Unwinds copied stacks by elfutils' libdw, as a third opinion.
 *
 * Reads lines from standard input:
 *
 *   files                     forgets all files
 *   file START OFFSET PATH    code of a file is mapped there, from that offset in the file on
 *   registers R0 ... R16      their values, by DWARF numbers; the last is the program counter
 *   stack START BYTES         the memory from START on
 *   unwind                    answers with a line: an address within each instruction, innermost first
 *
 * Numbers are hexadecimal, as are bytes. */
#include <elf.h>
#include <elfutils/libdwfl.h>
#include <err.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REGISTERS = 17, MOST_FRAMES = 10000 };

static Dwarf_Word registers[REGISTERS];
static unsigned char *stack;
static Dwarf_Addr stack_start;
static size_t stack_size;
static int frames;

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
};

/* The load bias of the file. */
static int load_bias(const char *path, Dwarf_Addr start, Dwarf_Addr offset, Dwarf_Addr *bias)
{
	int found = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	size_t count = 0;
	if (elf != NULL && elf_getphdrnum(elf, &count) == 0) {
		for (size_t number = 0; number < count; number++) {
			GElf_Phdr header;
			if (gelf_getphdr(elf, (int)number, &header) == NULL || header.p_type != PT_LOAD)
				continue;
			Dwarf_Addr first = header.p_offset & ~0xfffULL;
			if (offset >= first && offset < header.p_offset + header.p_filesz) {
				*bias = start - offset + header.p_offset - header.p_vaddr;
				found = 1;
			}
		}
	}
	elf_end(elf);
	close(fd);
	return found;
}

static void add_file(Dwfl *dwfl, const char *line)
{
	unsigned long long start, offset;
	int at;
	if (sscanf(line, "file %llx %llx %n", &start, &offset, &at) < 2)
		errx(2, "no file: %s", line);
	const char *path = line + at;
	Dwarf_Addr bias;
	/* An unusable file is left out: its frames have no callers then. */
	if (load_bias(path, start, offset, &bias))
		dwfl_report_elf(dwfl, path, path, -1, bias, true);
}

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
	(void)dwfl;
	(void)arg;
	if (*thread_arg != NULL)
		return 0;
	*thread_arg = &frames;
	return 1;
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *word, void *arg)
{
	(void)dwfl;
	(void)arg;
	if (address < stack_start || address - stack_start + sizeof *word > stack_size)
		return false;
	memcpy(word, stack + (address - stack_start), sizeof *word);
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	(void)arg;
	return dwfl_thread_state_registers(thread, 0, REGISTERS, registers);
}

static const Dwfl_Thread_Callbacks threads = {
	.next_thread = next_thread,
	.memory_read = read_memory,
	.set_initial_registers = set_registers,
};

static int take_frame(Dwfl_Frame *frame, void *arg)
{
	(void)arg;
	Dwarf_Addr pc;
	bool is_instruction;
	if (!dwfl_frame_pc(frame, &pc, &is_instruction) || frames++ == MOST_FRAMES)
		return DWARF_CB_ABORT;
	printf("%llx ", (unsigned long long)(is_instruction ? pc : pc - 1));
	return DWARF_CB_OK;
}

static Dwfl *begin(void)
{
	Dwfl *dwfl = dwfl_begin(&callbacks);
	if (dwfl == NULL)
		errx(2, "%s", dwfl_errmsg(-1));
	dwfl_report_begin(dwfl);
	return dwfl;
}

static void read_registers(const char *line)
{
	for (int number = 0; number < REGISTERS; number++) {
		char *end;
		registers[number] = strtoull(line, &end, 16);
		line = end;
	}
}

static void read_stack(char *line)
{
	stack_start = strtoull(line, &line, 16);
	while (*line == ' ')
		line++;
	stack_size = strcspn(line, "\n") / 2;
	stack = realloc(stack, stack_size + 1);
	for (size_t at = 0; at < stack_size; at++) {
		char digits[3] = { line[2 * at], line[2 * at + 1], 0 };
		stack[at] = (unsigned char)strtoul(digits, NULL, 16);
	}
}

int main(void)
{
	elf_version(EV_CURRENT);
	Dwfl *dwfl = begin();
	int is_attached = 0;
	char *line = NULL;
	size_t room = 0;
	while (getline(&line, &room, stdin) > 0) {
		if (strncmp(line, "files", 5) == 0) {
			dwfl_end(dwfl);
			dwfl = begin();
			is_attached = 0;
		} else if (strncmp(line, "file ", 5) == 0) {
			line[strcspn(line, "\n")] = 0;
			add_file(dwfl, line);
		} else if (strncmp(line, "registers ", 10) == 0) {
			read_registers(line + 10);
		} else if (strncmp(line, "stack ", 6) == 0) {
			read_stack(line + 6);
		} else {
			if (!is_attached) {
				dwfl_report_end(dwfl, NULL, NULL);
				if (!dwfl_attach_state(dwfl, NULL, 1, &threads, NULL))
					warnx("%s", dwfl_errmsg(-1));
				is_attached = 1;
			}
			frames = 0;
			dwfl_getthread_frames(dwfl, 1, take_frame, NULL);
			printf("\n");
			fflush(stdout);
		}
	}
	dwfl_end(dwfl);
	return 0;
}
