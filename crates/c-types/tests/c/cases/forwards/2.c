struct hidden { int value; } shown;
union either { int one; float two; } both;
enum state { IDLE, BUSY } now;
struct holder { struct hidden *inside; } second;
