/* Compiled more than once, differently: units of one name that disagree on nearly everything. */
#ifndef WIDTH
#define WIDTH 1
#endif
struct state { struct state *next; long words[WIDTH]; };
typedef struct { struct state states[WIDTH]; } machine;
#define PASTE(one, two) one##two
#define NAME(number) PASTE(step, number)
static long held(machine *machine, struct state (*states)[WIDTH]) { return machine->states->words[0] + (*states)->words[0]; }
long NAME(WIDTH)(machine *machine) { return held(machine, &machine->states); }
