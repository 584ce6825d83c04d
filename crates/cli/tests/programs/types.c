/* Queries libctf for the types of a file: every function and every member of `struct node`, in every dictionary. */
#include <stdio.h>
#include <stdlib.h>
#include <ctf-api.h>

static int dictionary(ctf_dict_t *dict, const char *name, void *unused)
{
    ctf_next_t *next = NULL;
    const char *symbol, *member;
    ctf_id_t id;
    ssize_t offset;
    (void)unused;
    printf("dictionary %s\n", name);
    while ((id = ctf_symbol_next(dict, &next, &symbol, 1)) != CTF_ERR)
        printf("function %s: %s\n", symbol, ctf_type_aname(dict, id));
    if ((id = ctf_lookup_by_name(dict, "struct node")) == CTF_ERR)
        return 0;
    next = NULL;
    ctf_id_t type;
    while ((offset = ctf_member_next(dict, id, &next, &member, &type, 0)) >= 0)
        printf("member %s at %zd: %s\n", member, offset, ctf_type_aname(dict, type));
    return 0;
}

int main(int argc, char **argv)
{
    int error;
    ctf_archive_t *archive = argc == 2 ? ctf_open(argv[1], NULL, &error) : NULL;
    if (archive == NULL) {
        fprintf(stderr, "%s\n", ctf_errmsg(error));
        return EXIT_FAILURE;
    }
    ctf_archive_iter(archive, dictionary, NULL);
    ctf_close(archive);
    return EXIT_SUCCESS;
}
