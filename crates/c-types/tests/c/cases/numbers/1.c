char c; signed char sc; unsigned char uc; short s; unsigned short us; int i; unsigned u; long l; unsigned long ul; long long ll; unsigned long long ull;
float f; double d; long double ld; _Bool b; float _Complex fc; double _Complex dc; long double _Complex ldc; __WCHAR_TYPE__ w; __SIZE_TYPE__ size;
