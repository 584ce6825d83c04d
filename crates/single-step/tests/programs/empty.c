// Nothing: the functions are in assembly.
