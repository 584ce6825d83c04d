typedef long word;
typedef word *words;
struct line { words first; int count; } other_line;
struct page { struct line *lines; } other_page;
struct plain { int value; } other_plain;
