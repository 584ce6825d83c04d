/* All types that refer to the name differ, too. */
typedef int word;
typedef word *words;
struct line { words first; int count; } line;
struct page { struct line *lines; } page;
struct plain { int value; } plain;
