/* Everything that leads to the name is another type, too. */
typedef int word;
typedef word *words;
struct line { words first; int count; } line;
struct page { struct line *lines; } page;
struct plain { int value; } plain;
