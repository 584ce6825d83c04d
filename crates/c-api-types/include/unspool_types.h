/*
 * unspool_types.h - the C types of a program, read, made, linked and compared while it runs.
 *
 * Linux on x86-64, with glibc 2.35 or later. C99 and C++. Link with -lunspool-types
 * (pkg-config unspool-types).
 *
 * Types are those of CTF (`gcc -gctf`), else of BTF, else of DWARF (`gcc -g`), also in a separate
 * debug file. The functions allocate, and open files: not for signal handlers. A handle may be used
 * by several threads at once as long as none of them changes it. docs/ctf.md says what types have.
 *
 * Functions that return a handle or a type yield NULL or 0 on failure, and others -1:
 * unspool_types_error() says why. Names are valid until the handle is closed or changed.
 */
#ifndef UNSPOOL_TYPES_H
#define UNSPOOL_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct unspool_types unspool_types;

/* A type of a handle; 0 is no type. */
typedef uint32_t unspool_type_id;

typedef enum unspool_type_kind {
	UNSPOOL_TYPE_UNKNOWN,
	UNSPOOL_TYPE_INTEGER,
	UNSPOOL_TYPE_FLOAT,
	UNSPOOL_TYPE_POINTER,
	UNSPOOL_TYPE_ARRAY,
	UNSPOOL_TYPE_FUNCTION,
	UNSPOOL_TYPE_STRUCT,
	UNSPOOL_TYPE_UNION,
	UNSPOOL_TYPE_ENUM,
	UNSPOOL_TYPE_FORWARD, /* a structure without a definition */
	UNSPOOL_TYPE_TYPEDEF,
	UNSPOOL_TYPE_CONST,
	UNSPOOL_TYPE_VOLATILE,
	UNSPOOL_TYPE_RESTRICT,
	UNSPOOL_TYPE_SLICE /* the type of a bit-field */
} unspool_type_kind;

/* Of integers: what `format` has. */
#define UNSPOOL_TYPE_SIGNED 1
#define UNSPOOL_TYPE_CHAR 2
#define UNSPOOL_TYPE_BOOL 4

typedef struct unspool_type {
	size_t struct_size; /* sizeof(unspool_type), set by the caller */
	unspool_type_kind kind;
	const char *name; /* its name or tag; "" if it has none */
	uint64_t size; /* in bytes; 0 if it has none */
	uint64_t align; /* in bytes; unspool_type_add ignores it */
	unspool_type_id target; /* what a pointer, array, typedef or qualifier is of; what a function returns */
	uint64_t count; /* of an array: elements; else: members, parameters or constants */
	unsigned format; /* of an integer: UNSPOOL_TYPE_SIGNED and others */
} unspool_type;

/* A member, a parameter, or a constant of an enumeration. */
typedef struct unspool_type_member {
	size_t struct_size; /* sizeof(unspool_type_member), set by the caller */
	const char *name; /* "" if it has none */
	unspool_type_id type;
	uint64_t bit_offset; /* of members */
	uint64_t bits; /* of members: the width; 0 is that of the type */
	int64_t value; /* of constants */
} unspool_type_member;

/* A difference between two versions. */
typedef struct unspool_type_change {
	int is_breaking; /* whether it breaks what was built with the old version */
	const char *subject; /* the function, data or type */
	const char *message; /* what is different */
} unspool_type_change;

typedef enum unspool_types_form {
	UNSPOOL_TYPES_CTF,
	UNSPOOL_TYPES_BTF
} unspool_types_form;

/* The types of an ELF file, or of a file of CTF or BTF. It fails if not all of them can be read. */
unspool_types *unspool_types_open(const char *path);

/* The types of the loaded module that an address is in: a function's, or data's. */
unspool_types *unspool_types_of_address(const void *address);

/* No types: unspool_type_add makes them. */
unspool_types *unspool_types_new(void);

/* The types of several handles, each once. These stay open. */
unspool_types *unspool_types_link(const unspool_types *const *units, size_t count);

/* NULL is allowed. */
void unspool_types_close(unspool_types *types);

/* Why the last function of this thread failed. Valid until the next one does. */
const char *unspool_types_error(void);

/* The type of a name or tag: "size_t", "struct node", "node". */
unspool_type_id unspool_type_named(const unspool_types *types, const char *name);

/* The type of a function or of data. */
unspool_type_id unspool_type_of_symbol(const unspool_types *types, const char *symbol);

/* The highest type: all from 1 on are there. */
unspool_type_id unspool_type_last(const unspool_types *types);

/* Fills in *type, as far as its struct_size. */
int unspool_type_get(const unspool_types *types, unspool_type_id id, unspool_type *type);

/* Calls a function with each member, parameter or constant, until it returns another number than 0;
 * yields that number. */
int unspool_type_members(const unspool_types *types, unspool_type_id id,
	int (*each)(const unspool_type_member *member, void *data), void *data);

/* Writes a declaration in C of a name with a type, or with "" the type itself, and a zero. Yields its
 * length, which is that of the whole text if `room` is too small, as snprintf does. */
int unspool_type_text(const unspool_types *types, unspool_type_id id, const char *name, char *text,
	size_t room);

/* Adds a type, with `count` members, parameters or constants. Pointers may be to types that follow. */
unspool_type_id unspool_type_add(unspool_types *types, const unspool_type *type,
	const unspool_type_member *members, size_t count);

/* Gives a function or data a type. */
int unspool_types_declare(unspool_types *types, const char *symbol, unspool_type_id id);

/* Writes the types to a file. `unspool ctf link FILE --into ELF` puts CTF into an ELF file. */
int unspool_types_write(const unspool_types *types, const char *path, unspool_types_form form);

/* Calls a function with each difference between the interfaces of two versions of a module, breaking
 * ones first, until it returns another number than 0. Yields the number of breaking ones. `each` may
 * be NULL. */
int unspool_types_compare(const unspool_types *older, const unspool_types *newer,
	int (*each)(const unspool_type_change *change, void *data), void *data);

/* The same for one type as two modules have it. */
int unspool_type_compare(const unspool_types *older, unspool_type_id old_id,
	const unspool_types *newer, unspool_type_id new_id,
	int (*each)(const unspool_type_change *change, void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
