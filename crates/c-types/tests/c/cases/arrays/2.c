/* The same name for an array of another size. */
typedef float matrix[3];
matrix corner;
long open[7];
