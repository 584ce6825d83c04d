/* Exceptions of D: destructors on the way, and one that is thrown while another is unwound. */
import core.stdc.stdio : printf;

class Deep : Exception {
    this(string text) { super(text); }
}

int cleaned;

int descend(int depth) {
    scope (exit)
        cleaned++;
    if (depth == 0)
        throw new Deep("deep");
    return descend(depth - 1) + 1;
}

void chained() {
    try
        descend(3);
    finally
        throw new Exception("second");
}

void main() {
    foreach (round; 0 .. 3) {
        try
            descend(10);
        catch (Deep caught)
            printf("caught %s, cleaned %d\n", caught.msg.ptr, cleaned);
        try
            chained();
        catch (Exception caught)
            printf("caught %s, then %s\n", caught.msg.ptr, caught.next.msg.ptr);
    }
}
