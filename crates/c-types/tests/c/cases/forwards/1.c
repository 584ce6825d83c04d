/* This unit has only the tags. */
struct hidden;
union either;
enum state;
struct hidden *hidden;
union either *either;
enum state *state;
struct holder { struct hidden *inside; } holder;
